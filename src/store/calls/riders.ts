import { keyText } from '../../bytes/key-text.js'
import { advancePosition } from '../../changes/rules/advance-position.js'
import { decodeConsumer } from '../../changes/rules/codec/consumer.js'
import { type Consumer, noSuchConsumer } from '../../changes/rules/consumer.js'
import { invalid, isKvError, type KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { type FailedLeaseCheck, leaseLost } from '../../leases/rules/lease.js'
import { acknowledge } from '../../observers/rules/acknowledge.js'
import type { Ack, Entry } from '../../observers/rules/cell.js'
import { decodeAck, decodeEntry, decodeUncovered } from '../../observers/rules/codec/cell.js'
import { noSuchObserver, type Observer } from '../../observers/rules/observer.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import { withEntries, writeConflict } from '../../percolator/errors.js'
import type { AckRider, LeaseRider, PositionRider, Riders } from '../../percolator/riders.js'
import { expiryTs, hasExpired, isData } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import { cellName } from '../cell-names.js'
import { nameOfConsumer } from '../consumers.js'
import { type CellEffect, markedChange, type Ridden } from '../observed.js'
import { claimOf, type SystemName } from '../system-records.js'
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

interface PositionToMake {
  readonly rider: PositionRider
  consumer: Consumer | undefined
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
  readonly #positions: PositionToMake[] = []
  readonly #leases: readonly LeaseRider[]
  #refusal: KvError | undefined
  /** Of cells whose keys are not among the mutations, and of consumers. */
  readonly latches: readonly string[]

  /** @throws KvError `invalid_argument` for riders that no transaction may have. */
  constructor(rows: RowAccess, request: PrewriteRequest, riders: Riders) {
    this.#rows = rows
    this.#request = request
    const { acks = [], notify = [], positions = [], leases = [], seesFence } = riders
    this.#leases = leases
    if (!request.tryOnePc || request.maxCommitTs)
      throw invalid('riders', 'riders need try_one_pc, and no max_commit_ts')
    if (request.mutations.length + acks.length + notify.length + positions.length === 0)
      throw invalid('mutations', 'a prewrite without mutations needs an acknowledgement, a notification or a position')
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
    for (const rider of positions) {
      this.#requireSound(rider)
      this.#positions.push({ rider, consumer: undefined })
    }
    this.latches = this.#latches()
  }

  #requireSound({ consumer, from, ts }: PositionRider): void {
    if (this.#positions.some(({ rider }) => rider.consumer === consumer))
      this.#refuse(invalid('riders', `the consumer ${consumer} is acknowledged twice`))
    else if (from > ts) this.#refuse(invalid('riders', `${consumer}: from ${from} is above ts ${ts}`))
    // Not everything at or below a timestamp above resolved_ts has been committed. A position may be there by a reset.
    else if (ts > from && ts > this.#rows.resolvedTs && ts > this.#rows.resolve())
      this.#refuse(invalid('riders', `${consumer}: ts ${ts} is above resolved_ts, in the future`))
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

  #latches(): string[] {
    const latches = new Set<string>()
    for (const { rider } of this.#acks) latches.add(keyText(rider.key))
    for (const { key } of this.#notify) latches.add(keyText(key))
    for (const { key } of this.#request.mutations) latches.delete(keyText(key))
    for (const { rider } of this.#positions) latches.add(claimOf(nameOfConsumer(rider.consumer)))
    return [...latches]
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
    looks += this.#positions.length
    if (looks > CELLS_NOW_MAX) return false
    for (const one of this.#positions) {
      const record = records.now(nameOfConsumer(one.rider.consumer))
      if (record === null) return false
      this.#foundConsumer(one, record)
    }
    if (this.#isNewest) return true
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
    const positionsAt = names.length
    for (const { rider } of this.#positions) names.push(nameOfConsumer(rider.consumer))
    const values = await records.many(names)
    this.#positions.forEach((one, i) => {
      this.#foundConsumer(one, values[positionsAt + i])
    })
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

  #foundConsumer(one: PositionToMake, record: Uint8Array | undefined): void {
    const { consumer } = one.rider
    if (record === undefined) this.#refuse(noSuchConsumer(consumer))
    else one.consumer = decodeConsumer(consumer, record)
  }

  /** Of the newest Put, Delete or expiry at or below `ts`; 0: none. */
  async #newestAt(key: Uint8Array, ts: Timestamp): Promise<Timestamp> {
    const writes = await this.#rows.historyOf(key, ts + 1, 'data')
    const newest = writes.find((write) => write.commitTs <= ts && isData(write))
    if (newest === undefined) return 0
    return hasExpired(newest.expireTs, ts) ? expiryTs(newest) : newest.commitTs
  }

  /** The commit_ts will be above every timestamp handed out, and so above every entry. */
  get #isNewest(): boolean {
    // No conflict of rows keeps a notification below a version that a client has committed ahead of the clock.
    return isNewestCommit(this.#request) && !this.#rows.isWrittenAhead
  }

  // ---- Decision

  /** A run that its writes or reads have lost: it counts once for each observer that it would have acknowledged. */
  countConflict(error: unknown): void {
    if (!isKvError(error, 'write_conflict')) return
    const keys = new Map(this.#acks.map(({ rider, observer }) => [observer.id, rider.key]))
    for (const [id, key] of keys) this.#rows.observed.conflicted(id, key)
  }

  /**
   * @param hasWrites the transaction writes rows, which tell a repeat.
   * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `precondition_failed` (a lease), `ts_below_safe_point`; `invalid_argument` for a commit ahead
   *   of the clock, as later claims and notifications would be below it.
   */
  decide(commitTs: Timestamp, hasWrites: boolean): RidersDecision {
    const { observed, safePoint, lastTs, leases } = this.#rows
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
        throw this.#usedStartTs(key, outcome.commitTs)
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
    const consumers: Consumer[] = []
    for (const { rider, consumer } of this.#positions) {
      if (consumer === undefined) throw noSuchConsumer(rider.consumer)
      const outcome = advancePosition({ rider, startTs, commitTs, primary }, consumer)
      if (outcome.kind === 'refused') throw withEntries([outcome.error])
      if (outcome.kind === 'advanced') consumers.push(outcome.consumer)
      else if (!hasWrites) return outcome
      else throw this.#usedStartTs(primary, outcome.commitTs)
    }
    for (const { key, observer, entry } of this.#notify) {
      const mark = { changeTs: commitTs, kind: 'notified', depth } as const
      effects.push({ id: observer.id, change: markedChange(observer, key, mark, entry) })
    }
    // After the others, which recognize a repeat of a transaction that has committed.
    const lost = leases.lost(this.#leases)
    if (lost.length > 0) throw this.#lostLeases(lost)
    return { kind: 'ridden', ridden: { effects, depth, acknowledged, consumers } }
  }

  /** Only the problem of a prewrite has entries. Leases with an index are checks of a transaction. */
  #lostLeases(lost: readonly FailedLeaseCheck[]): KvError {
    const error = leaseLost(lost)
    return this.#leases.some(({ index }) => index !== undefined) ? error : withEntries([error])
  }

  #usedStartTs(key: Uint8Array, commitTs: Timestamp): KvError<'write_conflict'> {
    const { startTs, primary } = this.#request
    const detail = `another transaction has used the start_ts ${startTs} for an acknowledgement`
    return writeConflict(key, { startTs, primary }, { startTs, commitTs }, 'self_rolled_back', detail)
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
