import { keyText } from '../bytes/key-text.js'
import { isReserved } from '../bytes/reserved-keys.js'
import type { Consumer } from '../changes/rules/consumer.js'
import { KvError } from '../errors/kv-error.js'
import { MARKS_MAX, SLICE_ITEMS } from '../limits.js'
import type { CellChange, Entry } from '../observers/rules/cell.js'
import { encodeAck, encodeEntry, encodeFailure } from '../observers/rules/codec/cell.js'
import { markCell } from '../observers/rules/mark.js'
import type { Observer } from '../observers/rules/observer.js'
import { RangeIndex } from '../percolator/range-index.js'
import type { Mutation } from '../percolator/row.js'
import { isData, type WriteRecord } from '../percolator/write.js'
import type { Timestamp } from '../timestamp.js'
import { type CellKind, cellName } from './cell-names.js'
import type { CellListener, HandedOut } from './cells.js'
import type { SystemWrite } from './system-records.js'

/** The change of one cell, in the batch of the write that causes it. */
export interface CellEffect {
  readonly id: Timestamp
  readonly change: CellChange
  /** A run committed: `entry` is what stays uncovered. */
  readonly acknowledged?: { readonly entry: Entry | undefined }
}

/** The effects of a transaction's riders, which decide about its marks too. */
export interface Ridden {
  readonly effects: readonly CellEffect[]
  /** Depth of the marks of this transaction. */
  readonly depth: number
  /** Names of the entries that it acknowledges: its own writes do not mark these cells. */
  readonly acknowledged: ReadonlySet<string>
  /** As the transaction leaves them. */
  readonly consumers?: readonly Consumer[] | undefined
}

export interface MarkContext {
  readonly ridden: Ridden | undefined
  /** The mutations are those of a transaction that can still be refused. */
  readonly isOnePc: boolean
  /**
   * Reads the entry that stands, under the latch of its row. Absent when the commit_ts of the mutations is above the changeTs of
   * every entry, which saves the read.
   */
  readonly present: ((id: Timestamp, key: Uint8Array) => Entry | undefined) | undefined
}

interface Registered extends Observer {
  /** Bounds of the range, as `keyText`. */
  readonly from: string
  readonly to: string | undefined
}

/** The registered observers of a store: decides which commits mark which cells, and tells the listener. */
export class Observed {
  readonly #index = new RangeIndex<Registered>()
  readonly #byId = new Map<Timestamp, Registered>()
  readonly #byName = new Map<string, Registered>()
  #listener: CellListener | undefined

  /** From this turn of the event loop on, every commit in the range marks. Replaces an observer with the same id. */
  register(given: Observer): void {
    const { start, end } = given.range
    const observer = { ...given, from: start === undefined ? '' : keyText(start), to: end && keyText(end) }
    this.unregister(observer.id)
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
    if (this.#byName.get(observer.name) === observer) this.#byName.delete(observer.name)
  }

  /** @returns undefined when no observer of this name is registered. */
  named(name: string): Observer | undefined {
    return this.#byName.get(name)
  }

  /** Whether the key is in the range of a registered observer. */
  isObserved(id: Timestamp, key: Uint8Array): boolean {
    const observer = this.#byId.get(id)
    const text = keyText(key)
    return observer !== undefined && text >= observer.from && (observer.to === undefined || text < observer.to)
  }

  /** Those of the ranges that contain the key. */
  at(key: Uint8Array): readonly Observer[] {
    return this.#at(key)
  }

  /** Nobody observes the rows of the server. */
  #at(key: Uint8Array): readonly Registered[] {
    return isReserved(key) ? NOBODY : this.#index.at(keyText(key))
  }

  /** The lowest id; undefined: none is registered. */
  get oldest(): Timestamp | undefined {
    let oldest: Timestamp | undefined
    for (const id of this.#byId.keys()) if (oldest === undefined || id < oldest) oldest = id
    return oldest
  }

  withId(id: Timestamp): Observer | undefined {
    return this.#byId.get(id)
  }

  /** There is one listener at most. */
  listen(listener: CellListener): void {
    this.#listener = listener
  }

  handedOut(id: Timestamp, key: Uint8Array): HandedOut {
    return this.#listener?.handedOut(id, key) ?? { fence: 0, hasFailure: true }
  }

  conflicted(id: Timestamp, key: Uint8Array): void {
    this.#listener?.conflicted(id, key)
  }

  reloaded(): void {
    this.#listener?.reloaded()
  }

  /** False for most writes of keys that nobody observes, at the price of a look-up per key. */
  mayMark(mutations: readonly Mutation[]): boolean {
    if (this.#byId.size === 0) return false
    if (mutations.length > MUTATIONS_NOW_MAX) return true
    return mutations.some(({ key }) => this.#at(key).length > 0)
  }

  /**
   * Collects the marks of a write's commits, after the effects of its riders.
   * @param effects where they go.
   * @throws KvError `payload_too_large` for locks and one-phase commits that would make too many marks. A commit whose keys are
   *   locked cannot be refused any more, so its locks are counted.
   */
  *effectsOf(mutations: readonly Mutation[], context: MarkContext, effects: CellEffect[]): Generator<void, void, void> {
    const { ridden, present, isOnePc } = context
    if (ridden !== undefined) for (const effect of ridden.effects) effects.push(effect)
    if (this.#byId.size === 0) return
    // A look-up may read from disk.
    const each = present === undefined ? SLICE_ITEMS : LOOK_UPS_PER_SLICE
    let marks = 0
    let left = each
    for (const mutation of mutations) {
      const { type, key } = mutation
      const isCommit = type === 'put-write' && !mutation.isFlag && isData(mutation.write)
      if (!isCommit && type !== 'put-lock') continue
      const observers = this.#at(key)
      marks += observers.length
      if (marks > MARKS_MAX && (isOnePc || !isCommit)) throw tooManyMarks()
      left -= 1 + observers.length
      if (isCommit)
        for (const observer of observers) {
          if (ridden?.acknowledged.has(cellName('notify', observer.id, key))) continue
          effects.push(markOf(observer, key, mutation.write, ridden?.depth ?? 0, present?.(observer.id, key)))
        }
      if (left > 0) continue
      yield
      left = each
    }
  }

  /** To be called when the effects are on disk, before the latches of their rows are released. */
  *tell(effects: readonly CellEffect[]): Generator<void, void, void> {
    if (this.#listener === undefined) return
    let count = 0
    for (const { id, change, acknowledged } of effects) {
      if (++count % SLICE_ITEMS === 0) yield
      const { key, entry, failure } = change
      if (acknowledged !== undefined) this.#listener.acknowledged(id, key, acknowledged.entry)
      else if (entry && failure === null) this.#listener.retried(id, key, entry)
      else if (entry) this.#listener.marked(id, key, entry)
      else if (failure === null) this.#listener.skipped(id, key)
      else if (failure && failure.parkedTs > 0) this.#listener.parked(id, key, failure)
    }
  }
}

const NOBODY: readonly Registered[] = []
const LOOK_UPS_PER_SLICE = 32
/** More of them are looked up in slices. */
const MUTATIONS_NOW_MAX = 64

export function tooManyMarks(): KvError<'payload_too_large'> {
  const detail = `the keys and the observers of their ranges would make over ${MARKS_MAX} marks in one transaction`
  return new KvError('payload_too_large', detail, { limit: MARKS_MAX })
}

function markOf(
  observer: Observer,
  key: Uint8Array,
  { commitTs, type }: WriteRecord,
  depth: number,
  present: Entry | undefined,
): CellEffect {
  const kind = type === 'delete' ? 'delete' : 'put'
  return { id: observer.id, change: markedChange(observer, key, { changeTs: commitTs, kind, depth }, present) }
}

/** The change that a mark makes to its cell. */
export function markedChange(observer: Observer, key: Uint8Array, mark: Entry, present: Entry | undefined): CellChange {
  const marked = markCell(observer, mark, present)
  return 'entry' in marked ? { key, entry: marked.entry } : { key, entry: null, failure: marked.parked }
}

/** The records that a change of a cell puts and removes. */
export function* cellWrites({ id, change }: CellEffect): Generator<SystemWrite> {
  const { key, entry, ack, failure } = change
  const write = (kind: CellKind, value: Buffer | undefined): SystemWrite => ({ name: cellName(kind, id, key), value })
  if (entry !== undefined) yield write('notify', entry === null ? undefined : encodeEntry(entry))
  if (ack !== undefined) yield write('ack', ack === null ? undefined : encodeAck(ack))
  if (failure !== undefined) yield write('failure', failure === null ? undefined : encodeFailure(failure))
}
