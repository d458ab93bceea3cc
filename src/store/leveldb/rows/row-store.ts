import { keyText } from '../../../bytes/key-text.js'
import { KvError } from '../../../errors/kv-error.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { inSlices, laterTurn, Slices } from '../../../event-loop/slices.js'
import { KEYS_PER_TURN, SHORT_VALUE_BYTES_MAX, SLICE_ITEMS } from '../../../limits.js'
import type { Clock } from '../../../oracle/clock.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { belowSafePoint, keysLocked } from '../../../percolator/errors.js'
import type { Lock } from '../../../percolator/lock.js'
import { lockInfo } from '../../../percolator/lock-info.js'
import type { HistoryDepth, Mutation, RowView } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import { type ReachSource, reachGuard } from '../../calls/reach-guard.js'
import type { Change, DepthOf, RowAccess, WriteOptions } from '../../calls/row-access.js'
import { Latches } from '../../latches.js'
import { LockWaits } from '../../lock-waits.js'
import type { RestoreProgress } from '../../store.js'
import type { SystemWrite } from '../../system-records.js'
import { type Engine, type EngineOp, pagesOf, readPage } from '../engine/engine.js'
import { GroupCommit } from '../engine/group-commit.js'
import { LookUps } from '../engine/look-ups.js'
import { readMetaNumber } from '../engine/meta-number.js'
import { type LockEntry, LockTable } from '../memory/lock-table.js'
import { RecentWrites } from '../memory/recent-writes.js'
import { VersionCache } from '../memory/version-cache.js'
import {
  AHEAD_RANGE,
  aheadKey,
  aheadRange,
  CF_LOCK,
  keyRange,
  META_SAFE_POINT,
  newestKey,
} from '../records/keyspace.js'
import { decodeNewest, decodeNewestTs } from '../records/newest-record.js'
import { engineOps, type NewestKnown, systemOp } from './engine-ops.js'
import { readRestoreProgress } from './restore-progress.js'
import { readHistory } from './row-reader.js'

/** Keys whose rows are read from LevelDB at once, and latched together where a whole range is walked. */
export const KEYS_AT_A_TIME = 256
/** Records read at a time where a whole range is walked. */
export const PAGE = 1000
/** How long after a failed reopening the next one is tried, when a request asks for the engine. */
const REOPEN_PAUSE_MS = 1000

export interface RowStoreOptions {
  readonly durability: 'sync' | 'async'
  readonly cacheBytesMax: number
  readonly clock: Clock
  readonly oracle: TimestampSource
  /** On disk when the store was opened. */
  readonly savedMark: Timestamp
  readonly safePoint: Timestamp
  /** Look-ups that take this long are left to the thread pool; tests say 0. */
  readonly lookUpSlowMs?: number | undefined
}

/**
 * The rows of one LevelDB, with what stands in memory beside them: latches, locks, the version cache, timestamps. Every
 * changing call goes through its three steps: read rows, let a pure action decide, write one atomic batch; see
 * docs/architecture.md.
 */
export class RowStore implements RowAccess, ReachSource {
  readonly shortValueBytesMax = SHORT_VALUE_BYTES_MAX
  readonly latches = new Latches()
  readonly locks = new LockTable()
  readonly waits = new LockWaits((key) => this.locks.get(key)?.lock.startTs)
  readonly cache: VersionCache
  readonly recent: RecentWrites
  readonly lookUps: LookUps
  readonly group: GroupCommit
  readonly clock: Clock
  readonly oracle: TimestampSource
  /** Above every timestamp that has read: calculated commit timestamps go above it. */
  maxTs: Timestamp
  safePoint: Timestamp
  /** No write record is above it. */
  newestWrite: Timestamp
  /** Whose pairs are not all there yet: nobody else reads or writes. */
  restoring: RestoreProgress | undefined
  /** False while the engine is closed, or being opened again. */
  #isEngineUp = true
  /**
   * False from a failed write on, until the database was opened again; on a full disk that takes until there is room.
   * Meanwhile reads go on, but of what the failed write was to change.
   */
  isWritable = true
  /** What went wrong, while it isn't: the write, then the last attempt to open again. */
  fault: string | undefined
  #failure = ''
  /** Why everything is refused until another start. */
  ended: string | undefined
  #isClosed = false
  #reopening: Promise<void> | undefined
  #reopenNotBefore = 0
  /** How often the database was opened again. */
  #opened = 0

  constructor(
    readonly engine: Engine,
    { durability, cacheBytesMax, clock, oracle, savedMark, safePoint, lookUpSlowMs }: RowStoreOptions,
  ) {
    this.cache = new VersionCache(cacheBytesMax)
    this.recent = new RecentWrites(savedMark)
    this.lookUps = new LookUps(engine, lookUpSlowMs)
    this.safePoint = safePoint
    this.newestWrite = savedMark
    this.maxTs = savedMark // Every read that was served before the restart was below the mark.
    this.group = new GroupCommit(engine, durability === 'sync', (error) => this.#recover(error))
    this.clock = clock
    this.oracle = oracle
  }

  /** Before the first call. */
  async start(): Promise<void> {
    await this.#loadLocks()
    await this.#loadAhead()
    await this.oracle.next()
    this.restoring = await readRestoreProgress(this.engine)
  }

  get isAvailable(): boolean {
    return this.#isEngineUp && this.restoring === undefined && this.ended === undefined
  }

  /** From this turn of the event loop on nobody else gets in, and nothing that is on its way is written later. */
  shutOut(restoring: RestoreProgress): Promise<void> {
    this.restoring = restoring
    return this.group.idle()
  }

  /** The directory is another's, or nobody's: LevelDB must not touch it any more, as it deletes files that it does not know. */
  async abandon(why: string): Promise<void> {
    this.ended = why
    this.isWritable = false
    this.waits.close(new KvError('storage_unavailable', why, {}))
    await this.#reopening
    await this.group.idle()
    this.#isEngineUp = false
    await this.engine.close()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.waits.close(new KvError('storage_unavailable', 'the server is shutting down', {}))
    await this.#reopening
    if (this.isWritable) await this.oracle.close().catch(() => {}) // The mark saved before holds then.
    this.isWritable = false
    await this.group.idle()
    this.#isEngineUp = false
    await this.engine.close()
  }

  // ---- The three steps: read, decide, write

  update<T>(change: Change<T>): Promise<T> {
    if (change.isExclusive) return this.#updateLatched(change)
    return this.guard(() => this.latches.hold(change.keys.map(keyText), () => this.#updateLatched(change)))
  }

  async #updateLatched<T>(change: Change<T>): Promise<T> {
    const { keys, startTs, depth, depthTs = startTs, readTs, decide, reaches } = change
    const observed = readTs === undefined ? undefined : this.observeRead(readTs)
    if (observed !== undefined) await observed
    const requireReach = reaches && (await reachGuard(this, keys, startTs, reaches))
    const rows = await this.readRows(keys, depthTs, depth)
    // One turn of the event loop from here to the published locks: see `Reads.get`.
    const decision = decide(rows)
    if (!decision.ok) throw decision.error
    requireReach?.(decision.mutations, rows)
    await this.apply(decision.mutations, decision)
    this.waits.acquired(startTs)
    if (decision.observed !== undefined) await decision.observed
    return decision.value
  }

  /** @returns rows whose locks are those of the moment when the promise is fulfilled. Needs the keys' latches. */
  async readRows(keys: readonly Uint8Array[], startTs: Timestamp, depth: HistoryDepth | DepthOf): Promise<RowView[]> {
    this.requireWritable()
    const histories: (readonly WriteRecord[])[] = []
    const slices = new Slices(1)
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
      const pause = slices.next()
      if (pause !== undefined) await pause
    }
    // A decision about many keys takes a turn of its own.
    if (keys.length > KEYS_PER_TURN) await laterTurn()
    this.requireWritable()
    this.clock.now() // A jump that is noticed after `seen` has added those before it would count in `#kept` alone.
    return keys.map((key, i) => ({ key, lock: this.#seenLockOf(key), writes: histories[i] ?? [] }))
  }

  #seenLockOf(key: Uint8Array): Lock | undefined {
    const entry = this.locks.get(key)
    return entry && this.seen(entry.lock)
  }

  lockOf(key: Uint8Array): Lock | undefined {
    return this.locks.get(key)?.lock
  }

  historyOf(key: Uint8Array, startTs: Timestamp): Promise<readonly WriteRecord[]> {
    return readHistory(this.engine, key, startTs, 'txn')
  }

  // ---- TTLs: kept as time that passes, seen as differences of timestamps, which jumps of the clock make longer

  jumpedSince(ts: Timestamp): number {
    return this.clock.jumps.length === 0 ? 0 : this.clock.jumpedSince(physicalMs(ts))
  }

  now(): Timestamp {
    return this.oracle.now()
  }

  /** A lock of the table as actions and clients see it. */
  seen(lock: Lock): Lock {
    const jumpedMs = this.jumpedSince(lock.startTs)
    return jumpedMs === 0 ? lock : { ...lock, ttlMs: lock.ttlMs + jumpedMs }
  }

  infoOf({ key, lock }: LockEntry): LockInfo {
    this.clock.now() // Whoever gets this asks for the time next, and must not learn of a jump only then.
    return lockInfo(key, this.seen(lock))
  }

  /** What an action has made of a lock that it saw, as it is kept. */
  #kept(mutation: Mutation): Mutation {
    const jumpedMs = mutation.type === 'put-lock' ? this.jumpedSince(mutation.lock.startTs) : 0
    if (mutation.type !== 'put-lock' || jumpedMs === 0) return mutation
    return { ...mutation, lock: { ...mutation.lock, ttlMs: Math.max(0, mutation.lock.ttlMs - jumpedMs) } }
  }

  /** Without asking LevelDB where nothing was written since. */
  #history(
    key: Uint8Array,
    startTs: Timestamp,
    depth: HistoryDepth,
  ): readonly WriteRecord[] | Promise<readonly WriteRecord[]> {
    if (depth === 'none') return NO_WRITES
    if ((depth === 'since' || depth === 'data') && this.recent.newest(key) < startTs) {
      if (depth === 'since') return NO_WRITES
      const history = (bytes: Buffer | undefined) => (bytes === undefined ? NO_WRITES : [decodeNewest(bytes)])
      const looked = this.lookUps.get(newestKey(key))
      return looked instanceof Promise ? looked.then(history) : history(looked)
    }
    return readHistory(this.engine, key, startTs, depth)
  }

  /**
   * Writes one atomic batch, and keeps the lock table ahead of it: new locks stand there before the batch is written,
   * old ones go, or are loosened, after it.
   */
  async apply(
    decided: readonly Mutation[],
    { onePc, beside = NO_RECORDS, validate }: WriteOptions = {},
  ): Promise<void> {
    if (decided.length === 0 && beside.length === 0) return
    const mutations = this.clock.jumps.length === 0 ? decided : decided.map((mutation) => this.#kept(mutation))
    const stored = mutations.filter((mutation) => this.#isStored(mutation)) // As the locks stand now.
    let settle: () => void = () => {}
    const pending = new Promise<void>((resolve) => {
      settle = resolve
    })
    const before = mutations.map((mutation) => this.#publish(mutation, pending, onePc))
    const opened = this.#opened
    let isAsked = false
    try {
      const encoded = inSlices(this.#encode(stored, mutations, beside))
      const ops = encoded instanceof Promise ? await encoded : encoded
      if (validate !== undefined) await validate()
      // Locks in flight go when the database is opened anew: nobody would have met these.
      if (opened !== this.#opened) throw this.engineFailed()
      if (this.restoring !== undefined) throw notRestored()
      isAsked = true
      if (ops.length > 0) await this.submit(ops)
      const settled = inSlices(this.#settleAll(mutations, pending))
      if (settled instanceof Promise) await settled
    } catch (error) {
      // A KvError comes where the engine was not asked: nothing was written then.
      const mayHaveLanded = isAsked && !(error instanceof KvError)
      const isInDoubt = mayHaveLanded && !this.isWritable && opened === this.#opened
      mutations.forEach(({ key }, i) => {
        if (isInDoubt) this.#doubt(key, pending)
        else this.#withdraw(key, pending, mayHaveLanded ? undefined : before[i])
      })
      throw error
    } finally {
      settle()
    }
  }

  /** Under the latches and the published locks: nobody else looks at these keys' recent writes meanwhile. */
  *#encode(
    stored: readonly Mutation[],
    mutations: readonly Mutation[],
    beside: readonly SystemWrite[],
  ): Generator<void, EngineOp[], void> {
    const ops = yield* engineOps(stored, this.#newestKnown)
    let count = 0
    for (const { type, key, write } of mutations as readonly (Mutation & { write?: WriteRecord })[]) {
      if (++count % SLICE_ITEMS === 0) yield
      if (type !== 'put-write' || write === undefined) continue
      // The oracle's mark is above every other record: what a client writes in the future the next start has to be told of.
      if (write.commitTs > this.oracle.last)
        ops.push({ type: 'put', key: aheadKey(key, write.commitTs), value: NOTHING })
      this.#note(key, write.commitTs)
    }
    for (const write of beside) ops.push(systemOp(write))
    return ops
  }

  /** A key at a time: until its turn comes, a reader still finds its lock with the batch, or asks LevelDB. */
  *#settleAll(mutations: readonly Mutation[], pending: Promise<void>): Generator<void, void, void> {
    for (let i = 0; i < mutations.length; i++) {
      if (i % SLICE_ITEMS === SLICE_ITEMS - 1) yield
      this.#settle(mutations[i] as Mutation, pending)
    }
  }

  /** Pessimistic locks live in memory alone: see `acquirePessimisticLock`. */
  #isStored(mutation: Mutation): boolean {
    if (mutation.type === 'put-lock') return mutation.lock.type !== 'pessimistic'
    return mutation.type !== 'delete-lock' || this.locks.get(mutation.key)?.lock.type !== 'pessimistic'
  }

  /** CF_NEWEST is read under the latches of the keys, and only where recent writes don't say enough. */
  readonly #newestKnown: NewestKnown = {
    bound: (key) => this.recent.newest(key),
    stored: (key) => {
      const bytes = this.engine.getSync(newestKey(key))
      return bytes && decodeNewestTs(bytes)
    },
  }

  /** Whether any record stands above every timestamp handed out: a client has put it there. */
  get isWrittenAhead(): boolean {
    return this.newestWrite > this.oracle.last
  }

  /** The newest such record of `keys`, whose latches are held; 0 when there is none. */
  async newestAhead(keys: Iterable<Uint8Array>): Promise<Timestamp> {
    let newest = 0
    for (const key of keys) {
      if (this.recent.newest(key) <= this.oracle.last) continue
      const [entry] = await readPage(this.engine, aheadRange(key), 1)
      if (entry !== undefined) newest = Math.max(newest, decodeKeyTs(entry[0]))
    }
    return newest > this.oracle.last ? newest : 0
  }

  #note(key: Uint8Array, commitTs: Timestamp): void {
    this.recent.note(key, commitTs)
    if (commitTs > this.newestWrite) this.newestWrite = commitTs
  }

  /** @returns the lock that stood there, to be put back where nothing is written. */
  #publish(mutation: Mutation, pending: Promise<void>, onePc: PrewriteRequest | undefined): Lock | undefined {
    const { key } = mutation
    if (mutation.type === 'put-write' || mutation.type === 'delete-write') this.cache.suspend(key)
    const entry = this.locks.get(key)
    const before = entry?.lock
    if (mutation.type === 'put-lock' && (entry === undefined || entry.lock.type === 'pessimistic'))
      this.locks.put(key, mutation.lock, pending)
    else if (mutation.type === 'put-write' && onePc !== undefined && mutation.write.type !== 'lock')
      this.locks.put(key, inFlightLock(key, onePc, mutation.write.commitTs), pending)
    else if (entry !== undefined && (mutation.type === 'put-lock' || mutation.type === 'delete-lock'))
      entry.pending = pending
    return before
  }

  #settle(mutation: Mutation, pending: Promise<void>): void {
    const { key } = mutation
    if (mutation.type === 'delete-write') this.cache.forget(key)
    else if (mutation.type === 'put-write') this.#renew(key, mutation.write)
    if (mutation.type === 'put-lock') this.locks.put(key, mutation.lock)
    else if (mutation.type === 'delete-lock') this.#unlock(key)
    else if (mutation.type === 'put-write' && this.locks.get(key)?.pending === pending) {
      // A 1PC lock in flight; a prewritten lock goes with its own `delete-lock`.
      if (this.locks.get(key)?.lock.txnSize === IN_FLIGHT) this.#unlock(key)
    }
  }

  #renew(key: Uint8Array, { type, commitTs, shortValue }: WriteRecord): void {
    if (!this.cache.has(key)) return
    const isKnown = type === 'delete' || (type === 'put' && shortValue !== undefined)
    if (!isKnown || this.recent.newest(key) !== commitTs) this.cache.forget(key)
    else this.cache.renew(key, { value: shortValue && copyOf(shortValue), commitTs })
  }

  /** @param before where nothing was written. After a failed write the table has been read anew, or is going to be. */
  #withdraw(key: Uint8Array, pending: Promise<void>, before: Lock | undefined): void {
    if (this.locks.get(key)?.pending !== pending) return
    if (before === undefined) this.#unlock(key)
    else this.locks.put(key, before)
  }

  /** Until the database is opened again, whoever has to respect this lock is told that nobody knows. */
  #doubt(key: Uint8Array, pending: Promise<void>): void {
    const entry = this.locks.get(key)
    if (entry?.pending !== pending) return
    entry.isInDoubt = true
    entry.pending = Promise.reject(this.engineFailed())
    entry.pending.catch(() => {})
  }

  /** Waits for the batches in flight among these locks; throws `key_locked` when there is none to wait for. */
  async settledOrLocked(entries: readonly LockEntry[]): Promise<void> {
    const pending = entries.flatMap((entry) => (entry.pending === undefined ? [] : [entry.pending]))
    if (pending.length === 0) throw keysLocked(inKeyOrder(entries.map((entry) => this.infoOf(entry))))
    await Promise.all(pending)
  }

  /** By one walk over the lock table. */
  lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>> {
    return this.guard(async () => {
      this.requireAvailable()
      const found = new Map<Timestamp, Uint8Array[]>()
      const visit = ({ key, lock }: LockEntry): boolean => {
        if (!txns.has(lock.startTs) || isInFlight(lock)) return true
        const keys = found.get(lock.startTs)
        if (keys !== undefined) keys.push(key)
        else found.set(lock.startTs, [key])
        return true
      }
      await inSlices(this.locks.walk({}, visit))
      return found
    })
  }

  #unlock(key: Uint8Array): void {
    this.locks.delete(key)
    if (this.waits.size > 0) this.waits.released(key)
  }

  // ---- Admission and failures

  /** @throws KvError `ts_below_safe_point`, `storage_unavailable`. */
  async admitRead(ts: Timestamp): Promise<void> {
    this.requireAvailable()
    this.requireReadable(ts)
    if (ts !== TIMESTAMP_MAX && ts > this.maxTs) await this.observeRead(ts)
  }

  /** Once more after reading on no snapshot: a collection, or a restore, may have come in between. */
  requireReadable(ts: Timestamp): void {
    if (this.restoring !== undefined) throw notRestored()
    if (ts < this.safePoint) throw belowSafePoint(ts, this.safePoint)
  }

  get lastTs(): Timestamp {
    return this.oracle.last
  }

  observe(ts: Timestamp): undefined | Promise<void> {
    const observed = this.oracle.observe(ts)
    return observed && this.guard(() => observed)
  }

  observeRead(ts: Timestamp): undefined | Promise<void> {
    const observed = this.observe(ts)
    if (observed !== undefined) return observed.then(() => this.#raiseMaxTs(ts))
    this.#raiseMaxTs(ts)
    return undefined
  }

  /** To the clock where `ts` is in the future. */
  #raiseMaxTs(ts: Timestamp): void {
    this.maxTs = Math.max(this.maxTs, Math.min(ts, this.oracle.last))
  }

  requireAvailable(): void {
    this.requireEngine()
    if (this.restoring !== undefined) throw notRestored()
  }

  requireEngine(): void {
    if (this.ended !== undefined) throw new KvError('storage_unavailable', this.ended, {})
    if (!this.isWritable) this.reopenSoon()
    if (!this.#isEngineUp) throw this.engineFailed()
  }

  requireWritable(): void {
    this.#requireWritableEngine()
    if (this.restoring !== undefined) throw notRestored()
  }

  #requireWritableEngine(): void {
    if (this.ended !== undefined) throw new KvError('storage_unavailable', this.ended, {})
    if (this.isWritable) return
    this.reopenSoon()
    throw this.engineFailed()
  }

  engineFailed(): KvError<'storage_unavailable'> {
    const refused = this.#isEngineUp ? 'writes are refused until it is opened again' : 'it is being opened again'
    return new KvError('storage_unavailable', `the storage engine failed (${this.fault}); ${refused}`, {})
  }

  /** Through here everything is written: never to a log that may end in half a record. */
  async submit(ops: readonly EngineOp[]): Promise<void> {
    this.#requireWritableEngine()
    await this.group.submit(ops)
  }

  reopenSoon(): void {
    if (this.isWritable || this.#isClosed || this.ended !== undefined || this.#reopening !== undefined) return
    if (performance.now() >= this.#reopenNotBefore) void this.#reopen()
  }

  #recover(error: unknown): Promise<void> {
    this.isWritable = false
    this.fault = this.#failure = messageOf(error)
    // Whoever opens the directory next settles it.
    return this.#isClosed || this.ended !== undefined ? Promise.resolve() : this.#reopen()
  }

  /**
   * After a failed write nobody knows whether it is on disk, and LevelDB's log may end in half a record: opening the
   * database again settles both, and what memory has of it is read anew. Never rejects. Where there is no
   * room for it, the database stays open for reads; where it fails, closed. The next request after a pause tries again.
   */
  #reopen(): Promise<void> {
    this.#reopening ??= this.#tryReopen().finally(() => {
      this.#reopening = undefined
    })
    return this.#reopening
  }

  async #tryReopen(): Promise<void> {
    try {
      await this.engine.requireRoom()
      this.#isEngineUp = false
      this.#opened++
      const locked = [...this.locks.range()].map(({ key }) => key)
      await this.engine.reopen()
      await this.#loadLocks()
      this.safePoint = Math.max(this.safePoint, await readMetaNumber(this.engine, META_SAFE_POINT))
      this.restoring = await readRestoreProgress(this.engine)
      this.#isEngineUp = this.isWritable = true
      for (const key of locked) if (this.locks.get(key) === undefined) this.waits.released(key)
    } catch (error) {
      this.fault = `${this.#failure}; ${messageOf(error)}`
      this.#reopenNotBefore = performance.now() + REOPEN_PAUSE_MS
    }
  }

  /** Records of the future that the last run left; those that the mark has passed are forgotten. */
  async #loadAhead(): Promise<void> {
    for await (const page of pagesOf(this.engine, AHEAD_RANGE, PAGE)) {
      const passed: EngineOp[] = []
      for (const [key] of page) {
        const ts = decodeKeyTs(key)
        if (ts > this.oracle.last) this.#note(decodeKey(key), ts)
        else passed.push({ type: 'del', key })
      }
      // In time with all others: LevelDB may begin a new log after it, and later fsyncs are of that.
      if (passed.length > 0) await this.engine.write(passed, this.group.sync)
    }
  }

  async #loadLocks(): Promise<void> {
    // One that a failed batch was to end may have ended; its transaction makes do without it.
    const inMemory = [...this.locks.range()].filter(
      ({ lock, pending }) => lock.type === 'pessimistic' && pending === undefined,
    )
    this.locks.clear()
    this.cache.clear()
    for (const { key, lock } of inMemory) this.locks.put(key, lock)
    for await (const page of pagesOf(this.engine, keyRange(CF_LOCK), PAGE))
      for (const [key, bytes] of page) this.locks.put(decodeKey(key), decodeLock(bytes))
  }

  /** What the engine throws, and records that don't decode, become `storage_unavailable`. */
  async guard<T>(body: () => Promise<T> | T): Promise<T> {
    try {
      return await body()
    } catch (error) {
      if (error instanceof CorruptRecord)
        throw new KvError('storage_unavailable', `the database is damaged: ${error.message}`, {}, { cause: error })
      if (isEngineError(error))
        throw new KvError('storage_unavailable', `the storage engine failed: ${error.message}`, {}, { cause: error })
      throw error
    }
  }
}

/** Of the cause, where there is one: abstract-level's own words are “Database failed to open”. `/readyz` shows it to anybody. */
function messageOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  if (error instanceof CorruptRecord) return error.withoutKey
  if (cause instanceof CorruptRecord) return cause.withoutKey
  return cause instanceof Error ? cause.message : String(cause)
}

const NO_WRITES: readonly WriteRecord[] = []
const NOTHING = Buffer.alloc(0)
const NO_RECORDS: readonly SystemWrite[] = []

/** Marks the locks of 1PC transactions in flight; no stored lock has a negative size. */
const IN_FLIGHT = -1

/**
 * What readers meet while a 1PC batch is being written. Each key is its own primary: a read of the latest version may
 * pass it, since the batch becomes visible in LevelDB all at once.
 */
function inFlightLock(key: Uint8Array, request: PrewriteRequest, commitTs: Timestamp): Lock {
  return {
    type: 'put',
    primary: key,
    startTs: request.startTs,
    ttlMs: request.lockTtl,
    shortValue: undefined,
    forUpdateTs: 0,
    txnSize: IN_FLIGHT,
    minCommitTs: commitTs,
    useAsyncCommit: false,
    secondaries: [],
    rollbackTs: [],
  }
}

/** Of a 1PC transaction in flight: it is never stored. */
export function isInFlight({ txnSize }: Lock): boolean {
  return txnSize === IN_FLIGHT
}

export function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}

/** What is kept of a request must not keep all of it. */
function copyOf(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  copy.set(bytes)
  return copy
}

/** abstract-level and classic-level mark every error of theirs with a code `LEVEL_...`. */
function isEngineError(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('LEVEL_')
}

function notRestored(): KvError<'storage_unavailable'> {
  const detail =
    'a restore is not complete: it is under way, or was cut off and has to be continued with the same backup'
  return new KvError('storage_unavailable', detail, {})
}
