import { keyText } from '../bytes/key-text.js'
import { isReserved } from '../bytes/reserved-keys.js'
import type { Consumer } from '../changes/rules/consumer.js'
import { KvError } from '../errors/kv-error.js'
import { MARKS_MAX, SLICE_ITEMS } from '../limits.js'
import type { AskedNotification } from '../observers/rules/asked-effects.js'
import type { CellChange, StoredNotification } from '../observers/rules/cell.js'
import { encodeAck, encodeFailure, encodeNotification } from '../observers/rules/codec/cell.js'
import { markCell } from '../observers/rules/mark.js'
import { noSuchObserver, type Observer } from '../observers/rules/observer.js'
import { RangeIndex } from '../percolator/range-index.js'
import type { Mutation } from '../percolator/row.js'
import { isData } from '../percolator/write.js'
import type { Timestamp } from '../timestamp.js'
import { type CellKind, cellName } from './cell-names.js'
import type { CellListener, HandedOut } from './marked-cells.js'
import type { SystemWrite } from './system-records.js'

export interface CellEffect {
  readonly id: Timestamp
  readonly change: CellChange
  /** A run committed: `notification` is what stays uncovered. */
  readonly acknowledged?: { readonly notification: StoredNotification | undefined }
}

/** The decided effects of a transaction's commit effects. They also decide about its marks. */
export interface DecidedEffects {
  readonly effects: readonly CellEffect[]
  readonly notified?: { readonly cells: readonly AskedNotification[]; readonly commitTs: Timestamp } | undefined
  readonly depth?: number | undefined
  /** Names of the acknowledged notifications: the transaction's own writes do not mark these cells. */
  readonly acknowledged?: ReadonlySet<string> | undefined
  readonly consumers?: readonly Consumer[] | undefined
}

export interface MarkContext {
  readonly decidedEffects: DecidedEffects | undefined
  /** The mutations belong to a transaction that can still be refused. */
  readonly isOnePc: boolean
  /**
   * Reads the present notification under the latch of its row. Absent when the commit_ts of the mutations is above the changeTs
   * of every notification, which saves the read.
   */
  readonly present: ((id: Timestamp, key: Uint8Array) => StoredNotification | undefined) | undefined
}

/** The registered observers of a store. Decides which commits mark which cells, and notifies the listeners. */
export class Observed {
  readonly #index = new RangeIndex<Observer>()
  readonly #byId = new Map<Timestamp, Observer>()
  readonly #listeners = new Map<Timestamp, CellListener>()
  readonly #byName = new Map<string, Observer>()
  #onReload = (): void => {}

  /** From this turn of the event loop on, every commit in the range marks. Replaces an observer with the same id. */
  register(observer: Observer, listener?: CellListener): void {
    this.unregister(observer.id)
    if (listener !== undefined) this.#listeners.set(observer.id, listener)
    this.#index.add(observer.range, observer)
    this.#byId.set(observer.id, observer)
    this.#byName.set(observer.name, observer)
  }

  /** From this turn on nothing marks its cells. Its records stay until the cells are swept. */
  unregister(id: Timestamp): void {
    const observer = this.#byId.get(id)
    if (observer === undefined) return
    this.#index.remove(observer.range, observer)
    this.#byId.delete(id)
    this.#listeners.delete(id)
    if (this.#byName.get(observer.name) === observer) this.#byName.delete(observer.name)
  }

  named(name: string): Observer | undefined {
    return this.#byName.get(name)
  }

  /** @throws KvError `not_found` */
  readonly required = (name: string): Observer => {
    const observer = this.named(name)
    if (observer === undefined) throw noSuchObserver(name)
    return observer
  }

  /** Reserved rows have no observers. */
  at(key: Uint8Array): readonly Observer[] {
    return isReserved(key) ? NOBODY : this.#index.at(keyText(key))
  }

  get oldest(): Timestamp | undefined {
    let oldest: Timestamp | undefined
    for (const id of this.#byId.keys()) if (oldest === undefined || id < oldest) oldest = id
    return oldest
  }

  withId(id: Timestamp): Observer | undefined {
    return this.#byId.get(id)
  }

  /**
   * @param listener called when the database was opened again after a failed write: only the disk knows the notifications then.
   *   Must not throw.
   */
  onReload(listener: () => void): void {
    this.#onReload = listener
  }

  handedOut(id: Timestamp, key: Uint8Array): HandedOut {
    return this.#listeners.get(id)?.handedOut(key) ?? { fence: 0, hasFailure: true }
  }

  conflicted(id: Timestamp): void {
    this.#listeners.get(id)?.conflicted()
  }

  reloaded(): void {
    this.#onReload()
  }

  /** False for most writes of unobserved keys, at the cost of a look-up per key. */
  mayMark(mutations: readonly Mutation[]): boolean {
    if (this.#byId.size === 0) return false
    if (mutations.length > MUTATIONS_SYNC_MAX) return true
    return mutations.some(({ key }) => this.at(key).length > 0)
  }

  /**
   * Collects the marks of a write's commits, after its commit effects.
   * @param effects receives them.
   * @throws KvError `payload_too_large` for locks and one-phase commits that would make too many marks. A commit of locked keys
   *   cannot be refused any more, so its locks are counted.
   */
  *effectsOf(mutations: readonly Mutation[], context: MarkContext, effects: CellEffect[]): Generator<void, void, void> {
    const { decidedEffects, present, isOnePc } = context
    const { acknowledged, notified, depth = 0 } = decidedEffects ?? {}
    for (const effect of decidedEffects?.effects ?? []) effects.push(effect)
    // A look-up may read from disk.
    const each = present === undefined ? SLICE_ITEMS : LOOK_UPS_PER_SLICE
    let left = each
    const mark = (observer: Observer, key: Uint8Array, notification: StoredNotification): void => {
      const { id } = observer
      effects.push({ id, change: markedChange(observer, key, notification, present?.(id, key)) })
    }
    const { cells = NO_CELLS, commitTs: changeTs = 0 } = notified ?? {}
    for (const { observer, key } of cells) {
      mark(observer, key, { changeTs, kind: 'notified', depth })
      if (--left > 0) continue
      yield
      left = each
    }
    if (this.#byId.size === 0) return
    let marks = 0
    for (const mutation of mutations) {
      const { type, key } = mutation
      const isCommit = type === 'put-write' && !mutation.isFlag && isData(mutation.write)
      if (!isCommit && type !== 'put-lock') continue
      const observers = this.at(key)
      marks += observers.length
      if (marks > MARKS_MAX && (isOnePc || !isCommit)) throw tooManyMarks()
      left -= 1 + observers.length
      if (isCommit)
        for (const observer of observers) {
          if (acknowledged?.has(cellName('notify', observer.id, key))) continue
          const { commitTs, type } = mutation.write
          mark(observer, key, { changeTs: commitTs, kind: type === 'delete' ? 'delete' : 'put', depth })
        }
      if (left > 0) continue
      yield
      left = each
    }
  }

  /** Call when the effects are on disk, before the latches of their rows are released. */
  *notifyListeners(effects: readonly CellEffect[]): Generator<void, void, void> {
    if (this.#listeners.size === 0) return
    let count = 0
    for (const { id, change, acknowledged } of effects) {
      if (++count % SLICE_ITEMS === 0) yield
      const listener = this.#listeners.get(id)
      const { key, notification, failure } = change
      if (acknowledged !== undefined) listener?.acknowledged(key, acknowledged.notification)
      else if (notification && failure === null) listener?.retried(key, notification)
      else if (notification) listener?.marked(key, notification)
      else if (failure === null) listener?.skipped(key)
      else if (failure && failure.parkedTs > 0) listener?.parkedNow(key, failure)
    }
  }
}

const NOBODY: readonly Observer[] = []
const NO_CELLS: readonly AskedNotification[] = []
const LOOK_UPS_PER_SLICE = 32
/** More mutations are looked up in slices. */
const MUTATIONS_SYNC_MAX = 64

export function tooManyMarks(): KvError<'payload_too_large'> {
  const detail = `the keys and the observers of their ranges would make over ${MARKS_MAX} marks in one transaction`
  return new KvError('payload_too_large', detail, { limit: MARKS_MAX })
}

export function markedChange(
  observer: Observer,
  key: Uint8Array,
  mark: StoredNotification,
  present: StoredNotification | undefined,
): CellChange {
  const marked = markCell(observer, mark, present)
  return 'notification' in marked
    ? { key, notification: marked.notification }
    : { key, notification: null, failure: marked.parked }
}

export function* cellWrites({ id, change }: CellEffect): Generator<SystemWrite> {
  const { key, notification, ack, failure } = change
  const write = (kind: CellKind, value: Buffer | undefined): SystemWrite => ({ name: cellName(kind, id, key), value })
  if (notification !== undefined)
    yield write('notify', notification === null ? undefined : encodeNotification(notification))
  if (ack !== undefined) yield write('ack', ack === null ? undefined : encodeAck(ack))
  if (failure !== undefined) yield write('failure', failure === null ? undefined : encodeFailure(failure))
}
