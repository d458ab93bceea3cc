import { keyText } from '../../bytes/key-text.js'
import { KvError } from '../../errors/kv-error.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { atOnce } from '../../event-loop/slices.js'
import { SHORT_VALUE_BYTES_MAX } from '../../limits.js'
import { StoreMeters } from '../../meters/store-meters.js'
import type { Clock } from '../../oracle/clock.js'
import { Oracle } from '../../oracle/oracle.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../percolator/api.js'
import type { Entry } from '../../percolator/cell.js'
import { decodeUncovered } from '../../percolator/codec/cell.js'
import { committedChanges } from '../../percolator/committed-changes.js'
import { belowSafePoint } from '../../percolator/errors.js'
import { expiresInMs, type Lock } from '../../percolator/lock.js'
import { lockInfo } from '../../percolator/lock-info.js'
import type { Mutation, RowView } from '../../percolator/row.js'
import { withEnd } from '../../percolator/version-end.js'
import type { WriteRecord } from '../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import { AttachedKeys } from '../attached-keys.js'
import { lockingAnswer, lockKeys, versionsToRead } from '../calls/lock-keys.js'
import type { IsClaimed, LockingRows, OnBusy } from '../calls/pessimistic-locks.js'
import { reachGuard } from '../calls/reach-guard.js'
import type { Change, RecordReads, RowAccess, WriteOptions } from '../calls/row-access.js'
import { cellName } from '../cell-names.js'
import { ConsumerMoves, consumerWrite } from '../consumers.js'
import { HeldLeases } from '../held-leases.js'
import { Latches } from '../latches.js'
import { LockAges } from '../lock-ages.js'
import { LockWaits } from '../lock-waits.js'
import { type CellEffect, cellWrites, Observed } from '../observed.js'
import type { RestoreProgress } from '../store.js'
import type { SystemWrite } from '../system-records.js'
import { MemoryChangeLog } from './change-log.js'
import { RowTable, valueOfPut } from './row-table.js'
import { SystemMap } from './system-map.js'

/** Called in the turn of the event loop in which a change becomes visible. */
export type OnChange = (mutations: readonly Mutation[], records: readonly SystemWrite[]) => void

/**
 * Rows in memory. A change reads, decides and writes in one turn of the event loop, and a read takes one turn, so neither sees a
 * part of the other. Latches serve `exclusive`, and the only change that waits between its decision and its write: a 1PC
 * commit whose reads are validated.
 */
export class MemoryRows implements RowAccess, LockingRows {
  readonly shortValueBytesMax = SHORT_VALUE_BYTES_MAX
  readonly table = new RowTable()
  readonly meters = new StoreMeters()
  readonly latches = new Latches(this.meters.latchWaits)
  readonly waits = new LockWaits((key) => this.holderOf(key), { waited: this.meters.lockWaits })
  readonly ages: LockAges
  readonly observed = new Observed()
  readonly consumers = new ConsumerMoves()
  readonly leases = new HeldLeases()
  readonly attached = new AttachedKeys()
  readonly changes = new MemoryChangeLog(this)
  readonly oracle: Oracle
  maxTs: Timestamp = 0
  /** A delete_range counts as a read here. */
  readonly removalTs = 0
  safePoint: Timestamp = 0
  readonly clearedTs = undefined
  /** Of the newest delete_range while somebody asks for resolved_ts. */
  removedTs: Timestamp = 0
  /** Upper bound of every commit_ts. */
  newestWrite: Timestamp = 0
  /** A restore is incomplete: all other calls are refused. */
  restoring: RestoreProgress | undefined
  isClosed = false
  readonly system = new SystemMap(this.latches, {
    requireAvailable: () => this.requireAvailable(),
    onWrite: (writes) => this.#onChange([], writes),
  })
  readonly #onChange: OnChange
  /** A 1PC commit that has a commit_ts but is not written yet. Reads and other changes wait for it. */
  #validated: Promise<void> | undefined

  constructor(clock: Clock, onChange: OnChange = () => {}) {
    this.#onChange = onChange
    this.ages = new LockAges(clock)
    this.oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  }

  // ---- Timestamps

  get lastTs(): Timestamp {
    return this.oracle.last
  }
  get resolvedTs(): Timestamp {
    return this.changes.resolved
  }
  get passedTs(): Timestamp {
    return Math.max(this.resolvedTs, this.removedTs)
  }
  clock(): Timestamp {
    return this.oracle.clock()
  }
  now(): Timestamp {
    return this.oracle.now()
  }
  jumpedSince(ts: Timestamp): number {
    return this.ages.jumpedSince(ts)
  }
  get isWrittenAhead(): boolean {
    return this.newestWrite > this.lastTs
  }
  resolve(): Timestamp {
    return this.changes.resolve()
  }
  nextTs(): Timestamp | Promise<Timestamp> {
    return this.oracle.next()
  }
  observe(ts: Timestamp): undefined | Promise<void> {
    return this.oracle.observe(ts)
  }
  observeRead(ts: Timestamp): undefined | Promise<void> {
    const raise = (): void => {
      this.maxTs = Math.max(this.maxTs, Math.min(ts, this.oracle.last))
    }
    const observed = this.oracle.observe(ts)
    if (observed !== undefined) return observed.then(raise)
    raise()
    return undefined
  }

  // ---- Admission

  /** @throws KvError `storage_unavailable` */
  requireAvailable(): void {
    if (this.isClosed) throw new KvError('storage_unavailable', 'the store is closed', {})
    if (this.restoring !== undefined)
      throw new KvError('storage_unavailable', 'a restore is not complete: it is running, or must be continued', {})
  }

  /** When it is fulfilled, no later commit can be at or below `ts`. The caller must read in the same turn of the event loop. */
  async admitRead(ts: Timestamp): Promise<void> {
    this.requireReadable(ts)
    const observed = ts === TIMESTAMP_MAX || ts <= this.maxTs ? undefined : this.observeRead(ts)
    if (observed !== undefined) await observed
    while (this.#validated !== undefined) await this.#validated
    this.requireReadable(ts)
  }

  requireReadable(ts: Timestamp): void {
    this.requireAvailable()
    if (ts < this.safePoint) throw belowSafePoint(ts, this.safePoint)
  }

  // ---- Rows

  /** Has the whole history, whatever depth a change asks for: actions must accept more than they ask for. */
  viewOf(key: Uint8Array): RowView {
    const row = this.table.get(key)
    return { key, lock: row?.lock && this.ages.seen(row.lock), writes: row?.writes ?? [] }
  }

  lockOf(key: Uint8Array): Lock | undefined {
    return this.table.get(key)?.lock
  }

  get lockCount(): number {
    return this.table.lockCount
  }
  holderOf(key: Uint8Array): Timestamp | undefined {
    return this.table.get(key)?.lock?.startTs
  }
  isLockPending(): boolean {
    return false
  }

  get records(): RecordReads {
    return this.system
  }

  async historyOf(key: Uint8Array): Promise<readonly WriteRecord[]> {
    return this.table.get(key)?.writes ?? []
  }

  lockLeftMs(key: Uint8Array): number {
    const now = this.oracle.now() // Notices a jump of the clock before the lock is seen.
    const lock = this.lockOf(key)
    return lock === undefined ? Number.POSITIVE_INFINITY : expiresInMs(this.ages.seen(lock), now)
  }
  infoOf(key: Uint8Array, lock: Lock): LockInfo {
    this.oracle.now() // Notices a jump of the clock now: the caller asks for the time next, and must see both alike.
    return lockInfo(key, this.ages.seen(lock))
  }

  async lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>> {
    this.requireAvailable()
    const found = new Map<Timestamp, Uint8Array[]>()
    for (const { key, lock } of this.table.range({})) {
      if (lock === undefined || !txns.has(lock.startTs)) continue
      const keys = found.get(lock.startTs)
      if (keys === undefined) found.set(lock.startTs, [key])
      else keys.push(key)
    }
    return found
  }

  // ---- Changes

  update<T>(change: Change<T>): Promise<T> {
    if (change.isExclusive) return this.#updateLatched(change)
    const latches = [...change.keys.map(keyText), ...(change.latches ?? [])]
    return this.latches.hold(latches, () => this.#updateLatched(change))
  }

  async #updateLatched<T>({ keys, startTs, readTs, decide, preparation, reaches }: Change<T>): Promise<T> {
    if (readTs !== undefined) await this.observeRead(readTs)
    const requireReach = reaches && (await reachGuard(this, keys, startTs, reaches))
    if (preparation !== undefined) await preparation.inTurns()
    while (this.#validated !== undefined) await this.#validated
    this.requireAvailable()
    this.oracle.now() // Notices a jump of the clock now: between `seen` and `kept` it would be subtracted without having been added.
    const rows = keys.map((key) => this.viewOf(key))
    const decision = decide(rows)
    if (!decision.ok) throw decision.error
    const { mutations, validate, observed, value } = decision
    requireReach?.(mutations, rows)
    if (validate !== undefined) await this.#holdingReads(validate, mutations, decision)
    else this.apply(mutations, decision)
    this.waits.acquired(startTs)
    await observed
    return value
  }

  async #holdingReads(
    validate: () => Promise<void>,
    mutations: readonly Mutation[],
    options: WriteOptions,
  ): Promise<void> {
    // Mutations of a commit in one phase have one commit_ts.
    const [change] = committedChanges(mutations)
    const validated = this.changes.holdBack(change?.commitTs ?? TIMESTAMP_MAX, async () => {
      await validate()
      this.apply(mutations, options)
    })
    this.#validated = validated.catch(() => {})
    try {
      await validated
    } finally {
      this.#validated = undefined
    }
  }

  readonly #entryOf = (id: Timestamp, key: Uint8Array): Entry | undefined => {
    const { system } = this
    return decodeUncovered(system.now(cellName('notify', id, key)), system.now(cellName('failure', id, key)))
  }

  lock<T>(request: AcquirePessimisticLockRequest, isClaimed: IsClaimed, onBusy: OnBusy<T>) {
    return this.latches.hold(request.keys.map(keyText), async (): Promise<AcquirePessimisticLockAnswer | T> => {
      const { keys, startTs, reaches } = request
      const requireReach = reaches && (await reachGuard(this, keys, startTs, reaches))
      this.requireAvailable()
      const rows = keys.map((key) => this.viewOf(key))
      const locking = lockKeys(this, rows, request, isClaimed)
      if (locking.kind === 'busy') return onBusy(locking.key, locking.error)
      requireReach?.(locking.mutations, rows)
      this.apply(locking.mutations)
      this.waits.acquired(startTs)
      const read = versionsToRead(locking.keys, request).map(({ key, write }) =>
        withEnd({ key, value: valueOfPut(this.table.get(key), write), commitTs: write.commitTs }, write),
      )
      return lockingAnswer(locking.keys, read, request)
    })
  }

  apply(mutations: readonly Mutation[], { onePc, beside = [], ridden }: WriteOptions = {}): void {
    if (mutations.length === 0 && beside.length === 0 && ridden === undefined) return
    this.requireAvailable()
    const effects: CellEffect[] = []
    if (ridden !== undefined || this.observed.mayMark(mutations)) {
      const context = { ridden, present: this.#entryOf, isOnePc: onePc !== undefined }
      atOnce(this.observed.effectsOf(mutations, context, effects))
    }
    this.table.apply(this.ages.kept(mutations))
    const { consumers = [] } = ridden ?? {}
    const moves = consumers.map(consumerWrite)
    const records = [...beside, ...effects.flatMap((effect) => [...cellWrites(effect)]), ...moves]
    this.system.apply(records)
    this.#onChange(mutations, records)
    this.changes.add([...committedChanges(mutations)])
    atOnce(this.observed.tell(effects))
    this.consumers.tell(consumers)
    for (const mutation of mutations)
      if (mutation.type === 'put-write') this.newestWrite = Math.max(this.newestWrite, mutation.write.commitTs)
      else if (mutation.type === 'delete-lock') this.waits.released(mutation.key)
  }
}
