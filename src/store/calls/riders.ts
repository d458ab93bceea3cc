import { keyText } from '../../bytes/key-text.js'
import { invalid, type KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { acknowledge } from '../../percolator/actions/acknowledge.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import type { Ack, Entry } from '../../percolator/cell.js'
import { decodeAck, decodeEntry, decodeUncovered } from '../../percolator/codec/cell.js'
import { withEntries, writeConflict } from '../../percolator/errors.js'
import { noSuchObserver, type Observer } from '../../percolator/observer.js'
import type { AckRider, Riders } from '../../percolator/riders.js'
import { isData } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import { cellName } from '../cell-names.js'
import { type CellEffect, markedChange, type Ridden } from '../observed.js'
import type { SystemName } from '../system-records.js'
import type { Preparation, RowAccess } from './row-access.js'

interface AckToMake {
  readonly rider: AckRider
  readonly observer: Observer
  /** Of the entry. */
  readonly name: SystemName
  readonly seen: Timestamp
  entry: Entry | undefined
  ack: Ack | undefined
  /** Known after the preparation if the entry is newer than `seen`. */
  newestSeen: Timestamp
}

interface NotifyToMake {
  readonly key: Uint8Array
  readonly observer: Observer
  entry: Entry | undefined
}

export type RidersDecision =
  /** A transaction of riders alone has committed before. */
  { readonly kind: 'repeat'; readonly commitTs: Timestamp } | { readonly kind: 'ridden'; readonly ridden: Ridden }

/**
 * The riders of one prewrite: reads their cells under the latches of the rows, and decides about them with the commit_ts of the
 * transaction.
 */
export class PrewriteRiders implements Preparation {
  readonly #rows: RowAccess
  readonly #request: PrewriteRequest
  readonly #acks: AckToMake[] = []
  readonly #notify: NotifyToMake[] = []
  #refusal: KvError | undefined
  /** Keys of cells that are not among the mutations. */
  readonly cellKeys: readonly Uint8Array[]

  /** @throws KvError `invalid_argument` for riders that no transaction may have. */
  constructor(rows: RowAccess, request: PrewriteRequest, riders: Riders) {
    this.#rows = rows
    this.#request = request
    const { acks = [], notify = [], seesFence } = riders
    if (!request.tryOnePc || request.maxCommitTs)
      throw invalid('riders', 'riders need try_one_pc, and no max_commit_ts')
    if (request.mutations.length === 0 && acks.length === 0 && notify.length === 0)
      throw invalid('mutations', 'a prewrite without mutations needs an acknowledgement or a notification')
    const cells = new Set<string>()
    for (const rider of acks) {
      const observer = this.#observerOf(rider.observer, rider.key)
      if (observer === undefined) continue
      const name = cellName('notify', observer.id, rider.key)
      if (cells.has(name))
        this.#refuse(invalid('riders', `${rider.observer}: ${printKey(rider.key)} is acknowledged twice`))
      cells.add(name)
      if (rider.fence > rows.lastTs) this.#refuse(invalid('riders', `the fence ${rider.fence} is in the future`))
      const seen = seesFence ? rider.fence : request.startTs
      this.#acks.push({ rider, observer, name, seen, entry: undefined, ack: undefined, newestSeen: 0 })
    }
    for (const { observer: name, keys } of notify)
      for (const key of keys) {
        const observer = this.#observerOf(name, key)
        if (observer !== undefined) this.#notify.push({ key, observer, entry: undefined })
      }
    this.cellKeys = this.#cellKeys()
  }

  #observerOf(name: string, key: Uint8Array): Observer | undefined {
    const observer = this.#rows.observed.named(name)
    if (observer === undefined) this.#refuse(noSuchObserver(name))
    else if (!this.#rows.observed.isObserved(observer.id, key))
      this.#refuse(invalid('riders', `the key ${printKey(key)} is outside the range of the observer ${name}`))
    return observer
  }

  #refuse(error: KvError): void {
    this.#refusal ??= error
  }

  /**
   * Not asked of the repeat of a committed transaction, whose observers may be gone.
   * @throws KvError `invalid_argument` (`riders`), `not_found`
   */
  requireValid(): void {
    if (this.#refusal !== undefined) throw this.#refusal
  }

  #cellKeys(): Uint8Array[] {
    const others = new Map<string, Uint8Array>()
    for (const { rider } of this.#acks) others.set(keyText(rider.key), rider.key)
    for (const { key } of this.#notify) others.set(keyText(key), key)
    for (const { key } of this.#request.mutations) others.delete(keyText(key))
    return [...others.values()]
  }

  // ---- Reading

  now(): boolean {
    const { records } = this.#rows
    let looks = this.#isNewest ? 0 : this.#notify.length
    for (const one of this.#acks) {
      if (this.#isClaimed(one)) continue
      if (++looks > CELLS_NOW_MAX) return false
      const entry = records.now(one.name)
      if (entry === null) return false
      const ack = records.now(cellName('ack', one.observer.id, one.rider.key))
      if (ack === null) return false
      this.#found(one, entry, ack)
      if (one.entry !== undefined && one.entry.changeTs > one.seen) return false // The history has to be read.
    }
    if (this.#isNewest) return true
    if (looks > CELLS_NOW_MAX) return false
    for (const one of this.#notify) {
      const entry = records.now(nameOfEntry(one.observer, one.key))
      const failure = records.now(cellName('failure', one.observer.id, one.key))
      if (entry === null || failure === null) return false
      one.entry = decodeUncovered(entry, failure)
    }
    return true
  }

  async inTurns(): Promise<void> {
    if (this.now()) return
    const { records } = this.#rows
    const names: SystemName[] = []
    for (const { observer, rider, name } of this.#acks) names.push(name, cellName('ack', observer.id, rider.key))
    if (!this.#isNewest)
      for (const { observer, key } of this.#notify)
        names.push(nameOfEntry(observer, key), cellName('failure', observer.id, key))
    const values = await records.many(names)
    this.#acks.forEach((one, i) => {
      this.#found(one, values[2 * i], values[2 * i + 1])
    })
    if (!this.#isNewest)
      this.#notify.forEach((one, i) => {
        const at = 2 * (this.#acks.length + i)
        one.entry = decodeUncovered(values[at], values[at + 1])
      })
    for (const one of this.#acks)
      if (one.entry !== undefined && one.entry.changeTs > one.seen)
        one.newestSeen = await this.#newestAt(one.rider.key, one.seen)
  }

  /**
   * Whether the listener knows the cell, and the run has seen its newest change. A run that began before the claim may have begun
   * before the last acknowledgement too. After a failed write the listener may not know what has landed, until it is told `reloaded`.
   */
  #isClaimed(one: AckToMake): boolean {
    if (!this.#rows.records.isSettled) return false
    const { rider, observer, seen } = one
    const { fence, entry } = this.#rows.observed.handedOut(observer.id, rider.key)
    if (fence !== rider.fence || seen < fence || entry === undefined || entry.changeTs > seen) return false
    one.entry = entry
    return true
  }

  #found(one: AckToMake, entry: Uint8Array | undefined, ack: Uint8Array | undefined): void {
    one.entry = entry && decodeEntry(entry)
    one.ack = ack && decodeAck(ack)
  }

  /** commit_ts of the newest Put or Delete at or below `ts`; 0: none. */
  async #newestAt(key: Uint8Array, ts: Timestamp): Promise<Timestamp> {
    const writes = await this.#rows.historyOf(key, ts + 1, 'data')
    return writes.find((write) => write.commitTs <= ts && isData(write))?.commitTs ?? 0
  }

  /** The commit_ts will be above every timestamp handed out, and so above every entry. */
  get #isNewest(): boolean {
    // No conflict of rows keeps a notification below a version that a client has committed ahead of the clock.
    return isNewestCommit(this.#request) && !this.#rows.isWrittenAhead
  }

  // ---- Decision

  /**
   * @param hasWrites the transaction writes rows, which tell a repeat.
   * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `ts_below_safe_point`; `invalid_argument` for a commit ahead
   *   of the clock: later claims and notifications would be below it.
   */
  decide(commitTs: Timestamp, hasWrites: boolean): RidersDecision {
    const { observed, safePoint, lastTs } = this.#rows
    if (commitTs > lastTs + 1)
      throw invalid('riders', `the transaction would commit at ${commitTs}, ahead of the clock`)
    const { startTs, primary } = this.#request
    const effects: CellEffect[] = []
    const acknowledged = new Set<string>()
    let depth = 0
    for (const { rider, observer, name, seen, entry, ack, newestSeen } of this.#acks) {
      const { id } = observer
      const { key } = rider
      const { fence, hasFailure } = observed.handedOut(id, key)
      const newestFence = Math.max(fence, id) // A claim of an earlier observer of this name is of another cell.
      const context = { entry, ack, safePoint, newestFence, observedSince: id, newestSeen: () => newestSeen }
      const outcome = acknowledge({ rider, seen, startTs, commitTs }, context)
      if (outcome.kind === 'refused') {
        if (outcome.error.code !== 'write_conflict') throw outcome.error
        observed.conflicted(id, key)
        throw withEntries([outcome.error])
      }
      if (outcome.kind === 'repeat') {
        if (!hasWrites) return outcome
        const detail = `another transaction uses the start_ts ${startTs} on ${printKey(key)}`
        throw writeConflict(
          key,
          { startTs, primary },
          { startTs, commitTs: outcome.commitTs },
          'self_rolled_back',
          detail,
        )
      }
      depth = Math.max(depth, (entry?.depth ?? 0) + 1)
      acknowledged.add(name)
      const change = {
        key,
        ack: outcome.ack,
        ...(outcome.isClean ? { entry: null } : {}),
        ...(hasFailure ? { failure: null } : {}),
      }
      effects.push({ id, change, acknowledged: { entry: outcome.isClean ? undefined : entry } })
    }
    for (const { key, observer, entry } of this.#notify) {
      const mark = { changeTs: commitTs, kind: 'notified', depth } as const
      effects.push({ id: observer.id, change: markedChange(observer, key, mark, entry) })
    }
    return { kind: 'ridden', ridden: { effects, depth, acknowledged } }
  }
}

/** Cells that are looked up in one turn of the event loop. */
const CELLS_NOW_MAX = 64

/**
 * Whether a 1PC commit is above every change and every notification of its keys, so that its marks need not read the entries:
 * it is above every timestamp handed out, and its keys had no version above its start_ts.
 */
export function isNewestCommit({ linearizable, skipConstraintCheck }: PrewriteRequest): boolean {
  return linearizable === true && skipConstraintCheck !== true
}

function nameOfEntry(observer: Observer, key: Uint8Array): SystemName {
  return cellName('notify', observer.id, key)
}
