import { keyText } from '../../../bytes/key-text.js'
import type { Consumer } from '../../../changes/rules/consumer.js'
import { KvError } from '../../../errors/kv-error.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { type Awaitable, after } from '../../../event-loop/after.js'
import { timed } from '../../../event-loop/stages.js'
import { laterTurn, runSliced, runToEnd, TimeSlicer } from '../../../event-loop/time-slicer.js'
import { KEYS_PER_TURN, SHORT_VALUE_BYTES_MAX, SLICE_ITEMS } from '../../../limits.js'
import { StoreMeters } from '../../../meters/store-meters.js'
import type { StoredNotification } from '../../../observers/rules/cell.js'
import { decodeFailure, decodeNotification } from '../../../observers/rules/codec/cell.js'
import { uncoveredNotification } from '../../../observers/rules/mark.js'
import type { Clock } from '../../../oracle/clock.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import type { LoggedChange, RangeChange } from '../../../percolator/change.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { committedChange } from '../../../percolator/committed-change.js'
import { belowSafePoint, keysLocked } from '../../../percolator/errors.js'
import type { Lock } from '../../../percolator/lock.js'
import type { HistoryDepth, Mutation, RowView } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import { type AccessSource, accessGuard } from '../../calls/access-guard.js'
import type { DepthOf, RowAccess, Change as RowChange, WriteOptions } from '../../calls/row-access.js'
import { cellName } from '../../cell-names.js'
import { ConsumerMoves, consumerWrite } from '../../consumers.js'
import type { Durability } from '../../durability.js'
import { HeldLeases } from '../../held-leases.js'
import { Latches } from '../../latches.js'
import { LockAges } from '../../lock-ages.js'
import { LockWaits } from '../../lock-waits.js'
import { type CellEffect, cellWrites, type DecidedEffects, Observed } from '../../observed.js'
import type { RestoreProgress } from '../../store.js'
import type { SystemWrite } from '../../system-records.js'
import type { Engine, EngineOp } from '../engine/engine.js'
import { type Answered, GroupCommit } from '../engine/group-commit.js'
import { LookUps } from '../engine/look-ups.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { type LockEntry, LockTable } from '../memory/lock-table.js'
import { RecentWrites } from '../memory/recent-writes.js'
import { VersionCache } from '../memory/version-cache.js'
import { META_SAFE_POINT, newestKey, systemKey, writeKey } from '../records/keyspace.js'
import { decodeNewest, decodeNewestTs } from '../records/newest-record.js'
import { KEYS_AT_A_TIME } from './batch-sizes.js'
import { LevelDbChangeLog } from './change-log.js'
import { changeRecords } from './change-records.js'
import { engineOps, type NewestKnown, systemOp } from './engine-ops.js'
import { guard, guarded } from './guard.js'
import { Health, type OnWritable, SHUTTING_DOWN } from './health.js'
import { loadLocks } from './load-locks.js'
import { type InMemory, isInFlight, PublishedLocks } from './published-locks.js'
import { readHistory } from './row-reader.js'
import { SystemReads } from './system-reads.js'
import { WrittenAhead } from './written-ahead.js'

export interface RowStoreOptions {
  readonly durability: Durability
  readonly cacheBytesMax: number
  readonly clock: Clock
  readonly oracle: TimestampSource
  readonly savedMark: Timestamp
  readonly safePoint: Timestamp
  readonly logStart: Timestamp
  readonly isLogRead: boolean
  readonly lookUpSlowMs?: number | undefined
  readonly onWritable?: OnWritable | undefined
}

/**
 * The rows of one LevelDB, with its tables in memory: latches, locks, version cache, recent writes, max_ts. Every changing call
 * takes three steps: read rows, let a pure action decide, write one atomic batch. See docs/architecture.md.
 */
export class RowStore implements RowAccess, AccessSource, InMemory {
  readonly shortValueBytesMax = SHORT_VALUE_BYTES_MAX
  readonly meters = new StoreMeters()
  readonly clearedTs = undefined
  readonly latches = new Latches(this.meters.latchWaits)
  readonly locks = new LockTable()
  readonly waits = new LockWaits((key) => this.locks.get(key)?.lock.startTs, { waited: this.meters.lockWaits })
  readonly cache: VersionCache
  readonly recent: RecentWrites
  readonly lookUps: LookUps
  /** For values outside their records. Large ones are slow, and must not slow down other look-ups. */
  readonly valueLookUps: LookUps
  readonly oracle: TimestampSource
  readonly ages: LockAges
  readonly written: WrittenAhead
  readonly health: Health
  readonly group: GroupCommit
  readonly observed = new Observed()
  readonly consumers = new ConsumerMoves()
  readonly leases = new HeldLeases()
  readonly changes: LevelDbChangeLog
  /** Called in the turn that allows writes again after a failed one. */
  onReloaded: () => void = () => {}
  readonly records: SystemReads
  /** Upper bound of the timestamps of all reads. Calculated commit timestamps are above it. */
  maxTs: Timestamp
  readonly removals = new Set<Timestamp>()
  safePoint: Timestamp

  constructor(
    readonly engine: Engine,
    {
      durability,
      cacheBytesMax,
      clock,
      oracle,
      savedMark,
      safePoint,
      logStart,
      isLogRead,
      lookUpSlowMs,
      onWritable,
    }: RowStoreOptions,
  ) {
    this.cache = new VersionCache(cacheBytesMax)
    this.recent = new RecentWrites(savedMark)
    this.lookUps = new LookUps(engine, lookUpSlowMs)
    this.valueLookUps = new LookUps(engine, lookUpSlowMs)
    this.oracle = oracle
    this.ages = new LockAges(clock)
    this.written = new WrittenAhead(engine, this.recent, oracle, savedMark)
    this.health = new Health(engine, () => this.#reload(), onWritable)
    const recover = (error: unknown) => this.health.failed(error)
    this.group = new GroupCommit(engine, durability === 'sync', recover, changeRecords, this.meters)
    this.changes = new LevelDbChangeLog(this, logStart, isLogRead)
    this.records = new SystemReads(engine, this.lookUps, this.health)
    this.safePoint = safePoint
    this.maxTs = savedMark // Every read served before the restart was below the mark.
    if (isLogRead) this.changes.resolved.pass(savedMark) // So was every resolved_ts.
  }

  /** Call first. */
  async start(): Promise<void> {
    await loadLocks(this.engine, this.locks)
    await this.written.load(this.group.sync)
    await this.changes.loadExpiries()
    await this.oracle.next()
    await this.health.start()
  }

  async #reload(): Promise<() => void> {
    const locked = [...this.locks.all()].map(({ key }) => key)
    await this.engine.reopen()
    this.cache.clear()
    await loadLocks(this.engine, this.locks)
    this.safePoint = Math.max(this.safePoint, await readMetaNumber(this.engine, META_SAFE_POINT))
    return () => {
      this.observed.reloaded()
      this.consumers.reloaded()
      this.changes.reloaded()
      this.onReloaded()
      for (const key of locked) if (this.locks.get(key) === undefined) this.waits.released(key)
    }
  }

  /** From this turn of the event loop on, all calls but the restore are refused. Fulfilled when no write is in flight. */
  shutOut(restoring: RestoreProgress): Promise<void> {
    this.health.shutOut(restoring)
    return this.group.idle()
  }

  /**
   * For a server that has lost its directory. LevelDB must not touch it any more, because it deletes files that it does not know.
   */
  async abandon(why: string): Promise<void> {
    this.health.end(why)
    this.waits.close(new KvError('storage_unavailable', why, {}))
    await this.health.reopened()
    await this.group.idle()
    await this.engine.close()
  }

  async close(): Promise<void> {
    if (!this.health.beginClose()) return
    this.waits.close(new KvError('storage_unavailable', SHUTTING_DOWN, {}))
    this.changes.resolved.close()
    await this.health.reopened()
    if (this.health.isWritable) await this.oracle.close().catch(() => {}) // The mark saved before still holds.
    this.health.closing()
    await this.group.idle()
    this.health.closed()
    await this.engine.close()
  }

  // ---- Read, decide, write

  update<T>(change: RowChange<T>): Promise<T> {
    if (change.isExclusive) return this.#updateLatched(change)
    const texts = change.keys.map(keyText)
    if (change.latches !== undefined) texts.push(...change.latches)
    const { stages } = change
    const beganMs = stages === undefined ? 0 : performance.now()
    return new Promise((resolve, reject) => {
      const done: Done<T> = (error, value) => {
        stages?.since('writeMs', beganMs)
        if (error === undefined) resolve(value as T)
        else reject(error)
      }
      const runLatched = (): Promise<T> => {
        stages?.since('latchMs', beganMs)
        return this.#updateLatched(change)
      }
      if (!this.#trySync(change, texts, done)) resolve(guard(() => this.latches.hold(texts, runLatched)))
    })
  }

  /** `updateSync` under the latches of the keys, if they are free. */
  #trySync<T>(change: RowChange<T>, texts: readonly string[], done: Done<T>): boolean {
    if (texts.length > KEYS_SYNC_MAX || !this.latches.take(texts)) return false
    let isTaken = false
    try {
      isTaken = this.updateSync(change, (error, value) => {
        this.latches.release(texts)
        done(error, value)
      })
    } catch (error) {
      throw guarded(error)
    } finally {
      if (!isTaken) this.latches.release(texts)
    }
    return isTaken
  }

  async #updateLatched<T>(change: RowChange<T>): Promise<T> {
    const { keys, startTs, depth, depthTs = startTs, readTs, decide, preparation, mayAccess, stages } = change
    const observed = readTs === undefined ? undefined : this.observeRead(readTs)
    if (observed !== undefined) await observed
    const requireAccess = mayAccess && (await accessGuard(this, keys, startTs, mayAccess))
    if (preparation !== undefined) await timed(stages, 'readMs', preparation.load())
    const rows = await timed(stages, 'readMs', this.readRows(keys, depthTs, depth))
    // One turn of the event loop from here until the locks are published: see `Reads.get`.
    const decision = decide(rows)
    if (!decision.ok) throw decision.error
    try {
      requireAccess?.(decision.mutations, rows)
      await timed(stages, 'writeMs', this.apply(decision.mutations, decision))
    } finally {
      this.#unclaim(decision.claimed)
    }
    this.waits.acquired(startTs)
    if (decision.observed !== undefined) await decision.observed
    return decision.value
  }

  /**
   * Does an `update` in this turn of the event loop, if its rows are in memory. Needs the latches of the keys until `done`.
   * @param done called once, in a later turn: with the value of the decision when it is written, else with an error.
   * @returns false, having done nothing, when the change would have to wait or is refused.
   */
  updateSync<T>(change: RowChange<T>, done: Done<T>): boolean {
    const { keys, startTs, depth, depthTs = startTs, readTs, decide, preparation, mayAccess } = change
    if (keys.length > KEYS_SYNC_MAX || mayAccess !== undefined || startTs < this.safePoint) return false
    if (!this.health.isWritable || this.health.restoring !== undefined) return false
    if (readTs !== undefined && readTs > this.lastTs) return false
    if (readTs !== undefined) this.raiseMaxTs(readTs)
    if (preparation !== undefined && !preparation.loadSync?.()) return false
    this.ages.noticeJumps()
    const rows: RowView[] = []
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i] as Uint8Array
      const lock = this.lockOf(key)
      const writes = this.#knownHistory(key, depthTs, typeof depth === 'string' ? depth : depth(i, lock))
      if (writes === undefined) return false
      rows.push({ key, lock: lock && this.ages.seen(lock), writes })
    }
    const decision = decide(rows)
    if (!decision.ok) return false
    // Pessimistic locks alone are not written, so such a change must not wait for the disk or fail with it.
    const isStored =
      decision.decidedEffects !== undefined || decision.mutations.some((mutation) => this.#isStored(mutation))
    if (decision.observed !== undefined || decision.validate !== undefined || !isStored) {
      this.#unclaim(decision.claimed)
      return false
    }
    this.#write(decision.mutations, decision, NO_EVENTS, (error) => {
      this.#unclaim(decision.claimed)
      if (error !== undefined) return done(guarded(error), undefined)
      this.waits.acquired(startTs)
      done(undefined, decision.value)
    })
    return true
  }

  claim(keys: readonly Uint8Array[], startTs: Timestamp): boolean {
    const isWritten = (key: Uint8Array): boolean =>
      this.recent.newest(key) > startTs && (this.#newestKnown.stored(key) ?? 0) > startTs
    const isTaken = (key: Uint8Array): boolean => this.locks.get(key) !== undefined || isWritten(key)
    return !keys.some(isTaken) && this.latches.take(keys.map(keyText))
  }

  #unclaim(keys: readonly Uint8Array[] | undefined): void {
    if (keys !== undefined) this.latches.release(keys.map(keyText))
  }

  /** Needs the latches of the keys. @returns rows with the locks as of the moment when the promise is fulfilled. */
  async readRows(keys: readonly Uint8Array[], startTs: Timestamp, depth: HistoryDepth | DepthOf): Promise<RowView[]> {
    this.health.requireWritable()
    const histories: (readonly WriteRecord[])[] = []
    const slicer = new TimeSlicer(1)
    for (let from = 0; from < keys.length; from += KEYS_AT_A_TIME) {
      const reads: Promise<void>[] = []
      for (let i = from; i < Math.min(keys.length, from + KEYS_AT_A_TIME); i++) {
        const key = keys[i] as Uint8Array
        const needed = typeof depth === 'string' ? depth : depth(i, this.locks.get(key)?.lock)
        const history = this.#history(key, startTs, needed)
        if (!(history instanceof Promise)) histories[i] = history
        else
          reads.push(
            history.then((writes) => {
              histories[i] = writes
            }),
          )
      }
      if (reads.length > 0) await Promise.all(reads)
      const pause = slicer.next()
      if (pause !== undefined) await pause
    }
    // A decision about many keys gets its own turn of the event loop.
    if (keys.length > KEYS_PER_TURN) await laterTurn()
    this.health.requireWritable()
    this.ages.noticeJumps()
    return keys.map((key, i) => ({ key, lock: this.#seenLockOf(key), writes: histories[i] ?? [] }))
  }

  #seenLockOf(key: Uint8Array): Lock | undefined {
    const lock = this.lockOf(key)
    return lock && this.ages.seen(lock)
  }

  lockOf(key: Uint8Array): Lock | undefined {
    return this.locks.get(key)?.lock
  }

  async historyOf(key: Uint8Array, startTs: Timestamp, depth: HistoryDepth = 'txn'): Promise<readonly WriteRecord[]> {
    return this.#history(key, startTs, depth)
  }

  /** Does not read LevelDB when recent writes show that the key was not written since `startTs`. */
  #history(
    key: Uint8Array,
    startTs: Timestamp,
    depth: HistoryDepth,
  ): readonly WriteRecord[] | Promise<readonly WriteRecord[]> {
    const known = this.#knownHistory(key, startTs, depth)
    if (known !== undefined) return known
    if (depth === 'txn' && this.recent.newest(key) === startTs) {
      // Usually another key of the same rolled-back transaction. Otherwise a record at `startTs` is all that is needed.
      const history = (bytes: Buffer | undefined) => (bytes === undefined ? NO_WRITES : [decodeWrite(bytes, startTs)])
      const looked = this.lookUps.get(writeKey(key, startTs))
      return looked instanceof Promise ? looked.then(history) : history(looked)
    }
    if (depth === 'data' && this.recent.newest(key) < startTs) {
      const history = (bytes: Buffer | undefined) => (bytes === undefined ? NO_WRITES : [decodeNewest(bytes)])
      const looked = this.lookUps.get(newestKey(key))
      return looked instanceof Promise ? looked.then(history) : history(looked)
    }
    return readHistory(this.engine, key, startTs, depth)
  }

  /**
   * The history, if memory has it. For a key without writes since the store was opened, the neighbour that `txn` asks for is not
   * worth a read: at most one such Rollback record stays uncollapsed.
   */
  #knownHistory(key: Uint8Array, startTs: Timestamp, depth: HistoryDepth): readonly WriteRecord[] | undefined {
    if (depth === 'none') return NO_WRITES
    const isAsked = depth === 'since' || (depth === 'txn' && !this.recent.isNoted(key))
    return isAsked && this.recent.newest(key) < startTs ? NO_WRITES : undefined
  }

  // ---- Write

  /** See `#write`. @param events changes besides those that the mutations commit. */
  apply(decided: readonly Mutation[], options: WriteOptions = {}, events = NO_EVENTS): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#write(decided, options, events, (error) => (error === undefined ? resolve() : reject(error)))
    })
  }

  /**
   * Writes one atomic batch. New locks are published in the lock table before the write; old ones are removed or changed after
   * it. A batch of few mutations reaches the group in this turn of the event loop.
   */
  #write(decided: readonly Mutation[], options: WriteOptions, events: readonly RangeChange[], done: Answered): void {
    const { onePc, decidedEffects, validate } = options
    const mutations = this.ages.kept(decided)
    const stored = mutations.filter((mutation) => this.#isStored(mutation)) // Depends on the locks before publication.
    const isShort = mutations.length + (decidedEffects?.effects.length ?? 0) <= KEYS_SYNC_MAX && validate === undefined
    const run = isShort ? runToEnd : runSliced
    const published = new PublishedLocks(this, mutations, onePc, isShort ? this.group.nextIsOver : undefined)
    const { reopenings } = this.health
    const effects = this.#effects(stored, decidedEffects)
    const changes: LoggedChange[] = [...events]
    let isAsked = false
    const ended = (error: unknown): void => {
      if (error !== undefined) this.#failed(published, error, isAsked, reopenings)
      published.end()
      done(error)
    }
    const answered: Answered = (error) => {
      const notifying =
        error === undefined ? run(this.#notifyListeners(published, changes, effects, decidedEffects)) : undefined
      if (notifying instanceof Promise) notifying.then(ended, ended)
      else ended(error)
    }
    const submit = (ops: EngineOp[]): void => {
      // Reopening the database drops locks in flight, so readers would not have met these.
      if (reopenings !== this.health.reopenings) throw this.health.refusal()
      this.health.requireRestored()
      if (ops.length === 0 && events.length === 0) return void answered(undefined)
      this.health.requireWritableEngine()
      isAsked = true
      this.group.enqueue(ops, answered, changes.length > CHANGES_TOGETHER_MAX ? undefined : changes)
    }
    try {
      const encoded: Awaitable<EngineOp[]> = run(this.#encode(stored, mutations, options, effects, changes))
      const submitted = after(
        validate === undefined ? encoded : after(encoded, (ops) => validate().then(() => ops)),
        submit,
      )
      if (submitted instanceof Promise) submitted.catch(ended)
    } catch (error) {
      queueMicrotask(() => ended(error))
    }
  }

  *#notifyListeners(
    published: PublishedLocks,
    changes: readonly LoggedChange[],
    effects: readonly CellEffect[] | undefined,
    decidedEffects: DecidedEffects | undefined,
  ): Generator<void, void, void> {
    this.changes.noteExpiries(changes)
    if (this.changes.hasListeners) yield* this.changes.notifyListeners(changes)
    yield* published.finalize()
    if (effects !== undefined) yield* this.observed.notifyListeners(effects)
    if (decidedEffects?.consumers !== undefined) this.consumers.notifyListeners(decidedEffects.consumers)
  }

  /**
   * @param isAsked the engine was asked to write.
   * @param reopenings their number when the locks were published.
   */
  #failed(published: PublishedLocks, error: unknown, isAsked: boolean, reopenings: number): void {
    // A KvError is thrown before the engine is asked, so nothing was written.
    const mayHaveLanded = isAsked && !(error instanceof KvError)
    const isInDoubt = mayHaveLanded && !this.health.isWritable && reopenings === this.health.reopenings
    if (isInDoubt) published.doubt(this.health.refusal())
    else published.withdraw(!mayHaveLanded)
  }

  /**
   * Needs the latches and the published locks, which keep other requests away from the recent writes of these keys.
   * @param changes receives the committed changes.
   */
  *#encode(
    stored: readonly Mutation[],
    mutations: readonly Mutation[],
    { onePc, extraRecords = NO_RECORDS, decidedEffects }: WriteOptions,
    effects: CellEffect[] | undefined,
    changes: LoggedChange[],
  ): Generator<void, EngineOp[], void> {
    const ops = yield* engineOps(stored, this.#newestKnown)
    let count = 0
    for (let i = 0; i < mutations.length; i++) {
      if (++count % SLICE_ITEMS === 0) yield
      const mutation = mutations[i] as Mutation
      if (mutation.type !== 'put-write') continue
      const ahead = this.written.note(mutation.key, mutation.write.commitTs)
      if (ahead !== undefined) ops.push(ahead)
      const change = committedChange(mutations, i)
      if (change !== undefined) changes.push(change)
    }
    // A large write makes its own log records, because a group handles the changes of its batches in one turn of the event loop.
    if (changes.length > CHANGES_TOGETHER_MAX)
      for (let from = 0; from < changes.length; from += SLICE_ITEMS) {
        for (const record of changeRecords(changes.slice(from, from + SLICE_ITEMS))) ops.push(record)
        yield
      }
    for (const write of extraRecords) ops.push(systemOp(write))
    for (const consumer of decidedEffects?.consumers ?? NO_CONSUMERS) ops.push(systemOp(consumerWrite(consumer)))
    if (effects === undefined) return ops
    // A client's version ahead of the clock may be above a notification, without a conflict of rows.
    const isAnyAhead = decidedEffects?.notified !== undefined && this.written.isAny
    const present = isNewestCommit(onePc) && !isAnyAhead ? undefined : this.#notificationSync
    yield* this.observed.effectsOf(mutations, { decidedEffects, present, isOnePc: onePc !== undefined }, effects)
    for (const effect of effects) {
      if (++count % SLICE_ITEMS === 0) yield
      for (const write of cellWrites(effect)) ops.push(systemOp(write))
    }
    return ops
  }

  /** Array for the effects of a write; undefined when it has none. */
  #effects(mutations: readonly Mutation[], decidedEffects: DecidedEffects | undefined): CellEffect[] | undefined {
    return decidedEffects !== undefined || this.observed.mayMark(mutations) ? [] : undefined
  }

  /** The entry, if any, that a mark must not hide. Needs the latch of the key. */
  readonly #notificationSync = (id: Timestamp, key: Uint8Array): StoredNotification | undefined => {
    const entry = this.engine.getSync(systemKey(cellName('notify', id, key)))
    if (entry !== undefined) return decodeNotification(entry)
    const failure = this.engine.getSync(systemKey(cellName('failure', id, key)))
    return uncoveredNotification({ notification: undefined, failure: failure && decodeFailure(failure) })
  }

  /** Pessimistic locks are only in memory: see `PessimisticLocks`. */
  #isStored(mutation: Mutation): boolean {
    if (mutation.type === 'put-lock') return mutation.lock.type !== 'pessimistic'
    return mutation.type !== 'delete-lock' || this.lockOf(mutation.key)?.type !== 'pessimistic'
  }

  /** `stored` needs the latches of the keys, and is asked only when recent writes do not suffice. */
  readonly #newestKnown: NewestKnown = {
    bound: (key) => this.recent.newest(key),
    stored: (key) => {
      const bytes = this.engine.getSync(newestKey(key))
      return bytes && decodeNewestTs(bytes)
    },
  }

  /** Refuses to write while LevelDB's log may end in half a record, with which a later record would be lost. */
  async submit(ops: readonly EngineOp[], changes?: readonly LoggedChange[]): Promise<void> {
    this.health.requireWritableEngine()
    await this.group.submit(ops, changes)
  }

  // ---- Timestamps

  /** @throws KvError `ts_below_safe_point`, `storage_unavailable`. */
  admitRead(ts: Timestamp): undefined | Promise<void> {
    this.health.requireAvailable()
    this.requireReadable(ts)
    return ts !== TIMESTAMP_MAX && ts > this.maxTs ? this.observeRead(ts) : undefined
  }

  /** Call again after a read without a snapshot: a collection or a restore may have run in between. */
  requireReadable(ts: Timestamp): void {
    this.health.requireRestored()
    if (ts < this.safePoint) throw belowSafePoint(ts, this.safePoint)
  }

  get lastTs(): Timestamp {
    return this.oracle.last
  }
  get removalTs(): Timestamp {
    return this.removals.size === 0 ? 0 : Math.max(...this.removals)
  }
  get passedTs(): Timestamp {
    return this.changes.resolved.passed
  }

  observe(ts: Timestamp): undefined | Promise<void> {
    const observed = this.oracle.observe(ts)
    return observed && guard(() => observed)
  }

  observeRead(ts: Timestamp): undefined | Promise<void> {
    const observed = this.observe(ts)
    if (observed !== undefined) return observed.then(() => this.raiseMaxTs(ts))
    this.raiseMaxTs(ts)
    return undefined
  }

  /** A `ts` in the future raises it only to the newest timestamp handed out. */
  raiseMaxTs(ts: Timestamp): void {
    this.maxTs = Math.max(this.maxTs, Math.min(ts, this.oracle.last))
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

  // ---- Locks that others hold

  /** Waits for the batches in flight that change these locks. @throws KvError `key_locked` when there is none. */
  async writtenOrLocked(entries: readonly LockEntry[]): Promise<void> {
    const pending = entries.flatMap((entry) => (entry.pending === undefined ? [] : [entry.pending]))
    if (pending.length === 0) throw keysLocked(inKeyOrder(entries.map((entry) => this.ages.infoOf(entry))))
    await Promise.all(pending)
  }

  lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>> {
    return guard(async () => {
      this.health.requireAvailable()
      const found = new Map<Timestamp, Uint8Array[]>()
      const visit = ({ key, lock }: LockEntry): boolean => {
        if (!txns.has(lock.startTs) || isInFlight(lock)) return true
        const keys = found.get(lock.startTs)
        if (keys !== undefined) keys.push(key)
        else found.set(lock.startTs, [key])
        return true
      }
      await runSliced(this.locks.walk({}, visit, { withReserved: true }))
      return found
    })
  }
}

/**
 * True for a commit above every change and notification of its keys, so that its marks need not read the entries: it commits in
 * one phase, above every timestamp handed out, and its keys had no version above its start_ts.
 */
function isNewestCommit(onePc: PrewriteRequest | undefined): boolean {
  return onePc?.linearizable === true && onePc.skipConstraintCheck !== true
}

type Done<T> = (error: unknown, value: T | undefined) => void

const KEYS_SYNC_MAX = 64

/**
 * A batch with more changes makes its own log records. Not below `KEYS_SYNC_MAX`: a write in one turn leaves its changes to the
 * group.
 */
const CHANGES_TOGETHER_MAX = 64

const NO_WRITES: readonly WriteRecord[] = []
const NO_RECORDS: readonly SystemWrite[] = []
const NO_EVENTS: readonly RangeChange[] = []
const NO_CONSUMERS: readonly Consumer[] = []

export function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}
