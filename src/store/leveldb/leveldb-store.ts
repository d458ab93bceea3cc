import { ANSWER_BYTES_MAX, CACHE_BYTES_DEFAULT, SHORT_VALUE_BYTES_MAX } from '../../limits.js'
import { Oracle } from '../../oracle/oracle.js'
import { checkSecondaryLock } from '../../percolator/actions/check-secondary-locks.js'
import { checkTxnStatus } from '../../percolator/actions/check-txn-status.js'
import { cleanup } from '../../percolator/actions/cleanup.js'
import { commitAll } from '../../percolator/actions/commit.js'
import { gc } from '../../percolator/actions/gc.js'
import { blocksRead } from '../../percolator/actions/get.js'
import { mvccGet } from '../../percolator/actions/mvcc-get.js'
import { prewrite, prewriteDepth } from '../../percolator/actions/prewrite.js'
import { resolveLock } from '../../percolator/actions/resolve-lock.js'
import { rollback } from '../../percolator/actions/rollback.js'
import { locksWithinLimit } from '../../percolator/actions/scan.js'
import { scanLock } from '../../percolator/actions/scan-lock.js'
import { txnHeartBeat } from '../../percolator/actions/txn-heart-beat.js'
import { answerTooLarge, pairBytes } from '../../percolator/answer-size.js'
import type {
  BatchGetRequest,
  CheckSecondaryLocksAnswer,
  CheckSecondaryLocksRequest,
  CheckTxnStatusRequest,
  CleanupRequest,
  CommitAnswer,
  CommitRequest,
  DecidedTxn,
  GetAnswer,
  GetRequest,
  KeyRange,
  LockInfo,
  MvccGetByStartTsRequest,
  MvccInfo,
  Pair,
  PairsAnswer,
  PrewriteAnswer,
  PrewriteRequest,
  ResolveLockAnswer,
  ResolveLockRequest,
  RollbackRequest,
  ScanAnswer,
  ScanLockAnswer,
  ScanLockRequest,
  ScanRequest,
  TxnHeartBeatAnswer,
  TxnHeartBeatRequest,
  TxnStatus,
} from '../../percolator/api.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../percolator/codec/key.js'
import { decodeLock } from '../../percolator/codec/lock.js'
import { packRecord } from '../../percolator/codec/record.js'
import { decodeWrite } from '../../percolator/codec/write.js'
import { belowSafePoint, KvError, keyLocked, keysLocked, printKey } from '../../percolator/errors.js'
import { asBuffer, keyText } from '../../percolator/key-text.js'
import type { Lock } from '../../percolator/lock.js'
import { lockInfo } from '../../percolator/lock-info.js'
import { done, type HistoryDepth, type Mutation, type Outcome, type RowView } from '../../percolator/row.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../percolator/timestamp.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { PrewriteHeld, Store, StoredOutcome } from '../store.js'
import { cursorSecretOf, META_MARK, META_SAFE_POINT, openDataDirectory, readMetaNumber } from './data-directory.js'
import { type Engine, type EngineOp, pagesOf } from './engine.js'
import { GroupCommit } from './group-commit.js'
import {
  CF_DEFAULT,
  CF_LOCK,
  CF_WRITE,
  engineOp,
  keyOfOutcome,
  keyRange,
  OUTCOME_RANGE,
  outcomeKey,
} from './keyspace.js'
import { Latches } from './latches.js'
import { type LockEntry, LockTable } from './lock-table.js'
import { readAllValues, readHistory, readValues, readVersion, scanVersions, userKeys } from './row-reader.js'
import { VersionCache } from './version-cache.js'

/** Keys that are read from LevelDB at once, and that a collection or physical deletion latches at a time. */
const COLLECT_KEYS = 256
/** Records read at a time where a whole range is walked. */
const PAGE = 1000
/** Values that a scan reads before it looks at their size. */
const VALUES_AT_A_TIME = 64
/** How long after a failed reopening the next one is tried, when a request asks for the engine. */
const REOPEN_PAUSE_MS = 1000

export interface LevelDbStoreOptions {
  readonly directory: string
  /** `sync`: an answer goes out after its fsync. `async`: a crash of the machine can lose the last writes. */
  readonly durability: 'sync' | 'async'
  /** For the newest versions of keys read lately. */
  readonly cacheBytesMax?: number
  /** Unix milliseconds; tests step it. */
  readonly now?: () => number
  /** Tests put a failing one in. */
  readonly openEngine?: (directory: string) => Promise<Engine>
}

/**
 * Percolator on one LevelDB. Every changing call has the same three steps under the latches of its keys: read rows,
 * let a pure action decide, write one atomic batch; see docs/architecture.md.
 * @throws DataDirectoryError
 */
export async function openLevelDbStore(options: LevelDbStoreOptions): Promise<Store> {
  const engine = await openDataDirectory(options.directory, options.openEngine)
  try {
    const savedMark = await readMetaNumber(engine, META_MARK)
    const safePoint = await readMetaNumber(engine, META_SAFE_POINT)
    const cursorSecret = await cursorSecretOf(engine)
    const store = new LevelDbStore(engine, options, savedMark, safePoint, cursorSecret)
    await store.start()
    return store
  } catch (error) {
    await engine.close()
    throw error
  }
}

type Decide<T> = (rows: readonly RowView[]) => Outcome<T>
/** How deep a history the decision about a key needs, given its lock. */
type DepthOf = (index: number, lock: Lock | undefined) => HistoryDepth

class LevelDbStore implements Store {
  readonly name = 'leveldb'
  readonly cursorSecret: Uint8Array
  readonly #engine: Engine
  readonly #latches = new Latches()
  readonly #locks = new LockTable()
  readonly #cache: VersionCache
  readonly #group: GroupCommit
  readonly #oracle: Oracle
  /** Above every timestamp that has read: calculated commit timestamps go above it. */
  #maxTs: Timestamp
  #safePoint: Timestamp
  #isAvailable = true
  #isClosed = false
  #reopening: Promise<void> | undefined
  #reopenNotBefore = 0

  constructor(
    engine: Engine,
    options: LevelDbStoreOptions,
    savedMark: Timestamp,
    safePoint: Timestamp,
    cursorSecret: Uint8Array,
  ) {
    this.#engine = engine
    this.#cache = new VersionCache(options.cacheBytesMax ?? CACHE_BYTES_DEFAULT)
    this.cursorSecret = cursorSecret
    this.#safePoint = safePoint
    this.#maxTs = savedMark // Every read that was served before the restart was below the mark.
    this.#group = new GroupCommit(engine, options.durability === 'sync', () => this.#reopen())
    this.#oracle = new Oracle({
      savedMark,
      save: (mark) => this.#group.submit([{ type: 'put', key: META_MARK, value: packRecord([mark]) }]),
      ...(options.now ? { now: options.now } : {}),
    })
  }

  async start(): Promise<void> {
    await this.#loadLocks()
    await this.#oracle.next()
  }

  get safePoint(): Timestamp {
    return this.#safePoint
  }
  get lockCount(): number {
    return this.#locks.size
  }
  probe(): boolean {
    if (!this.#isAvailable) this.#reopenSoon()
    return this.#isAvailable
  }

  clock(): Timestamp {
    return this.#oracle.clock()
  }

  tso(count: number): Timestamp | Promise<Timestamp> {
    const ts = this.#oracle.next(count)
    return typeof ts === 'number' ? ts : this.#guard(() => ts)
  }

  // ---- Reads

  get({ key, ts = TIMESTAMP_MAX }: GetRequest): Promise<GetAnswer> {
    return this.#guard(async () => {
      let missing: Timestamp | undefined
      for (;;) {
        // One turn of the event loop from here to the iterator: a writer sees this read in max_ts, or it sees its lock.
        await this.#admitRead(ts)
        const entry = this.#locks.get(key)
        if (entry !== undefined && blocksRead(entry.lock, key, ts)) {
          if (entry.pending === undefined) throw keyLocked(lockInfo(key, entry.lock))
          await entry.pending
          continue
        }
        const cached = this.#cache.get(key)
        if (cached !== undefined && ts >= cached.commitTs) {
          const { value, commitTs } = cached
          return value === undefined ? { found: false } : { found: true, value, commitTs }
        }
        // Only a read of the newest version fills the cache, and not beside a lock: its commit may be on its way.
        const fill = ts === TIMESTAMP_MAX && entry === undefined ? this.#cache.beginFill(key) : undefined
        const write = await readVersion(this.#engine, key, ts)
        if (write === undefined || write.type === 'delete') {
          if (fill !== undefined) this.#cache.endFill(key, fill, { value: undefined, commitTs: write?.commitTs ?? 0 })
          return { found: false }
        }
        const [value] = await readValues(this.#engine, [{ key, write }])
        if (value !== undefined) {
          if (fill !== undefined) this.#cache.endFill(key, fill, { value, commitTs: write.commitTs })
          return { found: true, value, commitTs: write.commitTs }
        }
        if (missing === write.startTs) throw lostValue(key, write.startTs)
        missing = write.startTs // Collected between the two reads: the key has a newer version now.
      }
    })
  }

  batchGet({ keys, ts = TIMESTAMP_MAX }: BatchGetRequest): Promise<PairsAnswer> {
    return this.#guard(async () => {
      for (;;) {
        await this.#admitRead(ts)
        const blocking = keys.flatMap((key) => {
          const entry = this.#locks.get(key)
          return entry !== undefined && blocksRead(entry.lock, key, ts) ? [entry] : []
        })
        if (blocking.length > 0) {
          await settledOrLocked(blocking.sort((a, b) => Buffer.compare(a.key, b.key)))
          continue
        }
        const snapshot = this.#engine.snapshot()
        try {
          const pairs: Pair[] = []
          let bytes = 0
          for (let from = 0; from < keys.length; from += COLLECT_KEYS) {
            const chunk = keys.slice(from, from + COLLECT_KEYS)
            const writes = await Promise.all(chunk.map((key) => readVersion(snapshot, key, ts)))
            const found = chunk.flatMap((key, i) => {
              const write = writes[i]
              return write?.type === 'put' ? [{ key, write }] : []
            })
            for (const pair of await readPairs(snapshot, found)) {
              pairs.push(pair)
              bytes += pairBytes(pair)
            }
            if (bytes > ANSWER_BYTES_MAX) throw answerTooLarge(ANSWER_BYTES_MAX)
          }
          return { pairs }
        } finally {
          await snapshot.close()
        }
      }
    })
  }

  scan(request: ScanRequest): Promise<ScanAnswer> {
    const { start, end, limit, ts, reverse = false, keyOnly = false, bytesMax } = request
    return this.#guard(async () => {
      for (;;) {
        await this.#admitRead(ts)
        const blocking: LockEntry[] = []
        for (const entry of this.#locks.range(start, end, reverse)) {
          if (!blocksRead(entry.lock, entry.key, ts)) continue
          blocking.push(entry)
          if (blocking.length >= limit) break
        }
        const infos = blocking.map((entry) => lockInfo(entry.key, entry.lock))
        const pendingBefore = blocking.map((entry) => entry.pending)
        const snapshot = this.#engine.snapshot()
        try {
          const found = await scanVersions(snapshot, { start, end }, ts, limit, reverse)
          if (blocking.length > 0) {
            const met = new Set(locksWithinLimit(found, infos, limit, reverse).map((lock) => keyText(lock.key)))
            const pending = blocking.flatMap((entry, i) => (met.has(keyText(entry.key)) ? [pendingBefore[i]] : []))
            if (pending.some((batch) => batch !== undefined)) {
              await Promise.all(pending)
              continue
            }
            const locks = infos.filter((lock) => met.has(keyText(lock.key)))
            if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
          }
          if (keyOnly) return { pairs: found.map(({ key, write }) => ({ key, commitTs: write.commitTs })) }
          return await readPairsWithin(snapshot, found, bytesMax)
        } finally {
          await snapshot.close()
        }
      }
    })
  }

  scanLock({ maxTs, start, end, limit = Number.POSITIVE_INFINITY }: ScanLockRequest): Promise<ScanLockAnswer> {
    return this.#guard(async () => {
      this.#requireAvailable()
      if (maxTs !== TIMESTAMP_MAX) await this.#observe(maxTs)
      return { locks: scanLock(storedLocks(this.#locks.range(start, end)), maxTs, limit) }
    })
  }

  mvccGetByKey({ key }: { readonly key: Uint8Array }): Promise<MvccInfo> {
    return this.#guard(() => this.#latches.hold([keyText(key)], () => this.#readMvcc(key)))
  }

  mvccGetByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    return this.#guard(async () => {
      const key = await this.#firstKeyOf(request.startTs, request)
      if (key === undefined) return { lock: null, writes: [], values: [] }
      return this.#latches.hold([keyText(key)], async () => ({ key, ...(await this.#readMvcc(key)) }))
    })
  }

  async #readMvcc(key: Uint8Array): Promise<MvccInfo> {
    this.#requireAvailable()
    const [row] = await this.#readRows([key], TIMESTAMP_MAX, () => 'all')
    return mvccGet(row as RowView, await readAllValues(this.#engine, key))
  }

  async #firstKeyOf(startTs: Timestamp, range: KeyRange): Promise<Uint8Array | undefined> {
    this.#requireAvailable()
    let locked: Uint8Array | undefined
    for (const entry of this.#locks.range(range.start, range.end)) {
      if (entry.lock.startTs !== startTs) continue
      locked = entry.key
      break
    }
    for await (const page of pagesOf(this.#engine, keyRange(CF_WRITE, range.start, range.end), PAGE)) {
      for (const [recordKey, bytes] of page) {
        if (decodeWrite(bytes, decodeKeyTs(recordKey)).startTs !== startTs) continue
        const written = decodeKey(recordKey)
        return locked !== undefined && Buffer.compare(locked, written) < 0 ? locked : written
      }
    }
    return locked
  }

  // ---- Changes

  prewrite(request: PrewriteRequest): Promise<PrewriteAnswer> {
    const keys = request.mutations.map((mutation) => mutation.key)
    return this.#guard(() => this.#latches.hold(keys.map(keyText), () => this.#prewriteLatched(keys, request)))
  }

  exclusive<T>(
    keys: readonly Uint8Array[] | 'all',
    outcome: Uint8Array | undefined,
    body: (prewrite: PrewriteHeld) => Promise<T>,
  ): Promise<T> {
    const prewriteHeld: PrewriteHeld = (request, outcomeOf) =>
      this.#prewriteLatched(
        request.mutations.map((mutation) => mutation.key),
        request,
        outcomeOf,
      )
    if (keys === 'all') return this.#guard(() => this.#latches.holdAll(() => body(prewriteHeld)))
    const held = keys.map(keyText)
    if (outcome !== undefined) held.push(outcomeLatch(outcome))
    return this.#guard(() => this.#latches.hold(held, () => body(prewriteHeld)))
  }

  async #prewriteLatched(
    keys: readonly Uint8Array[],
    request: PrewriteRequest,
    outcomeOf?: (answer: PrewriteAnswer) => StoredOutcome | undefined,
  ): Promise<PrewriteAnswer> {
    const { startTs, mutations } = request
    // A calculated commit timestamp goes above the start, so timestamps handed out later must too. And reading that a
    // key is absent is a read: nobody may commit it below this start afterwards.
    if (
      request.tryOnePc ||
      request.useAsyncCommit ||
      mutations.some(({ op }) => op === 'insert' || op === 'check_not_exists')
    )
      await this.#observe(startTs)
    const rows = await this.#readRows(keys, startTs, (index) => prewriteDepth(mutations[index] ?? NO_MUTATION))
    // One turn of the event loop from here to the published locks: see `get`.
    if (startTs < this.#safePoint) throw belowSafePoint(startTs, this.#safePoint)
    const context = { maxTs: this.#maxTs, shortValueBytesMax: SHORT_VALUE_BYTES_MAX }
    const outcome = prewrite(rows, request, context)
    // No timestamp handed out from now on equals a calculated one, or is below it.
    const calculated = outcome.ok ? (outcome.value.onePcCommitTs ?? outcome.value.minCommitTs ?? 0) : 0
    const observed = this.#oracle.observe(calculated)
    observed?.catch(() => {}) // Awaited below, unless the write fails first: with the same disk, as likely as not.
    if (!outcome.ok) throw outcome.error
    const stored = outcomeOf?.(outcome.value)
    await this.#apply(outcome.mutations, request, stored && [outcomeOp(stored)])
    await observed
    return outcome.value
  }

  outcome(key: Uint8Array): Promise<Uint8Array | undefined> {
    return this.#guard(() => {
      this.#requireAvailable()
      return this.#engine.get(outcomeKey(key))
    })
  }

  /** Looks again under the latch: the key may have been used anew since. */
  async #collectOutcome(key: Buffer, isExpired: (record: Uint8Array) => boolean): Promise<void> {
    await this.#latches.hold([outcomeLatch(keyOfOutcome(key))], async () => {
      const record = await this.#engine.get(key)
      if (record !== undefined && isExpired(record)) await this.#group.submit([{ type: 'del', key }])
    })
  }

  putOutcome(outcome: StoredOutcome): Promise<void> {
    return this.#guard(() => this.#group.submit([outcomeOp(outcome)]))
  }

  collectOutcomes(isExpired: (record: Uint8Array) => boolean): Promise<void> {
    return this.#guard(async () => {
      this.#requireAvailable()
      for await (const page of pagesOf(this.#engine, OUTCOME_RANGE, PAGE))
        for (const [key, record] of page) if (isExpired(record)) await this.#collectOutcome(key, isExpired)
    })
  }

  async commit(request: CommitRequest): Promise<CommitAnswer> {
    const { startTs, keys } = request
    const depth: DepthOf = (_, lock) => (lock?.startTs === startTs ? 'none' : 'txn')
    await this.#guard(() => this.#oracle.observe(request.commitTs)) // Whoever starts afterwards must see this commit.
    return this.#update(keys, startTs, depth, (rows) => {
      if (startTs < this.#safePoint) throw belowSafePoint(startTs, this.#safePoint)
      return commitAll(rows, request)
    })
  }

  rollback({ keys, startTs }: RollbackRequest): Promise<void> {
    return this.#update(keys, startTs, TXN, (rows) => {
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = rollback(row, startTs)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
      }
      return done(undefined, mutations)
    })
  }

  async cleanup({ key, startTs, currentTs }: CleanupRequest): Promise<void> {
    await this.#observe(startTs) // No calculated commit may land on the protected Rollback record.
    return this.#update([key], startTs, TXN, ([row]) => cleanup(row as RowView, startTs, currentTs))
  }

  async checkTxnStatus(request: CheckTxnStatusRequest): Promise<TxnStatus> {
    const { primary, lockTs, callerStartTs, currentTs } = request
    for (const ts of [lockTs, callerStartTs, currentTs]) if (ts !== TIMESTAMP_MAX) await this.#observe(ts)
    return this.#update([primary], lockTs, TXN, ([row]) => checkTxnStatus(row as RowView, request))
  }

  async checkSecondaryLocks({ keys, startTs }: CheckSecondaryLocksRequest): Promise<CheckSecondaryLocksAnswer> {
    await this.#observe(startTs)
    return this.#update(keys, startTs, TXN, (rows) => {
      const locks: LockInfo[] = []
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = checkSecondaryLock(row, startTs)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
        if (outcome.value.kind === 'locked') locks.push(outcome.value.lock)
        else
          return done(
            { locks: [], commitTs: outcome.value.kind === 'committed' ? outcome.value.commitTs : 0 },
            mutations,
          )
      }
      return done({ locks, commitTs: 0 }, mutations)
    })
  }

  txnHeartBeat(request: TxnHeartBeatRequest): Promise<TxnHeartBeatAnswer> {
    return this.#update([request.primary], request.startTs, NONE, ([row]) => txnHeartBeat(row as RowView, request))
  }

  async resolveLock({ txns, keys, isDecided = false }: ResolveLockRequest): Promise<ResolveLockAnswer> {
    if (keys !== undefined) {
      const [txn] = txns
      return txn === undefined ? { resolved: 0 } : { resolved: await this.#resolve(keys, txn, true, isDecided) }
    }
    let resolved = 0
    for (const [txn, locked] of await this.#guard(() => this.#locksOf(txns)))
      for (let from = 0; from < locked.length; from += COLLECT_KEYS)
        resolved += await this.#resolve(locked.slice(from, from + COLLECT_KEYS), txn, false, isDecided)
    return { resolved }
  }

  /** The keys that each of the transactions locks, by one walk over the table. */
  #locksOf(txns: readonly DecidedTxn[]): Map<DecidedTxn, Uint8Array[]> {
    this.#requireAvailable()
    const asked = new Map(txns.map((txn) => [txn.startTs, txn]))
    const found = new Map<DecidedTxn, Uint8Array[]>()
    for (const { key, lock } of storedLocks(this.#locks.range())) {
      const txn = asked.get(lock.startTs)
      if (txn === undefined) continue
      const keys = found.get(txn)
      if (keys === undefined) found.set(txn, [key])
      else keys.push(key)
    }
    return found
  }

  async #resolve(
    keys: readonly Uint8Array[],
    { startTs, commitTs }: DecidedTxn,
    areNamed: boolean,
    isDecided: boolean,
  ): Promise<number> {
    await this.#guard(() => this.#oracle.observe(commitTs))
    return this.#update(keys, startTs, TXN, (rows) => {
      let resolved = 0
      const mutations: Mutation[] = []
      for (const row of rows) {
        const outcome = resolveLock(row, startTs, commitTs, areNamed, isDecided)
        if (!outcome.ok) return outcome
        mutations.push(...outcome.mutations)
        if (outcome.value.released) resolved++
      }
      return done(resolved, mutations)
    })
  }

  deleteRange({ start, end }: { readonly start: Uint8Array; readonly end: Uint8Array }): Promise<void> {
    return this.#guard(async () => {
      for (const cf of [CF_WRITE, CF_DEFAULT] as const)
        for await (const keys of userKeys(this.#engine, cf, { start, end }, COLLECT_KEYS)) await this.#deleteKeys(keys)
      const locked = [...this.#locks.range(start, end)].map(({ key }) => key)
      for (let from = 0; from < locked.length; from += COLLECT_KEYS)
        await this.#deleteKeys(locked.slice(from, from + COLLECT_KEYS))
    })
  }

  async #deleteKeys(keys: readonly Uint8Array[]): Promise<void> {
    await this.#latches.hold(keys.map(keyText), async () => {
      const rows = await this.#readRows(keys, TIMESTAMP_MAX, () => 'all')
      const values = await Promise.all(keys.map((key) => readAllValues(this.#engine, key)))
      const mutations = rows.flatMap((row, i): Mutation[] => [
        ...(row.lock === undefined ? [] : [{ type: 'delete-lock', key: row.key } as const]),
        ...row.writes.map(({ commitTs }) => ({ type: 'delete-write', key: row.key, commitTs }) as const),
        ...(values[i] ?? []).map(({ startTs }) => ({ type: 'delete-value', key: row.key, startTs }) as const),
      ])
      await this.#apply(mutations)
    })
  }

  raiseSafePoint(safePoint: Timestamp): Promise<Timestamp> {
    return this.#guard(() =>
      this.#latches.hold([SAFE_POINT_LATCH], async () => {
        if (safePoint <= this.#safePoint) return this.#safePoint
        this.#requireAvailable()
        await this.#group.submit([{ type: 'put', key: META_SAFE_POINT, value: packRecord([safePoint]) }])
        this.#safePoint = safePoint
        return safePoint
      }),
    )
  }

  collect(safePoint: Timestamp): Promise<number> {
    return this.#guard(async () => {
      await this.raiseSafePoint(safePoint)
      let removed = 0
      for await (const keys of userKeys(this.#engine, CF_WRITE, {}, COLLECT_KEYS)) {
        await this.#latches.hold(keys.map(keyText), async () => {
          const rows = await this.#readRows(keys, TIMESTAMP_MAX, () => 'all')
          const collected = rows.map((row) => gc(row, safePoint))
          await this.#apply(collected.flatMap(({ mutations }) => mutations))
          for (const row of collected) removed += row.removed
        })
      }
      return removed
    })
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    await this.#reopening
    if (this.#isAvailable) await this.#oracle.close().catch(() => {}) // The mark saved before holds then.
    await this.#group.idle()
    await this.#reopening
    this.#isAvailable = false
    await this.#engine.close()
  }

  // ---- The three steps: read, decide, write

  #update<T>(keys: readonly Uint8Array[], startTs: Timestamp, depthOf: DepthOf, decide: Decide<T>): Promise<T> {
    return this.#guard(() =>
      this.#latches.hold(keys.map(keyText), async () =>
        this.#write(decide(await this.#readRows(keys, startTs, depthOf))),
      ),
    )
  }

  /** @returns rows whose locks are those of the moment when the promise is fulfilled. Needs the keys' latches. */
  async #readRows(keys: readonly Uint8Array[], startTs: Timestamp, depthOf: DepthOf): Promise<RowView[]> {
    this.#requireAvailable()
    const histories: WriteRecord[][] = []
    for (let from = 0; from < keys.length; from += COLLECT_KEYS) {
      const chunk = keys.slice(from, from + COLLECT_KEYS)
      const read = (key: Uint8Array, i: number): Promise<WriteRecord[]> =>
        readHistory(this.#engine, key, startTs, depthOf(from + i, this.#locks.get(key)?.lock))
      histories.push(...(await Promise.all(chunk.map(read))))
    }
    this.#requireAvailable()
    return keys.map((key, i) => ({ key, lock: this.#locks.get(key)?.lock, writes: histories[i] ?? [] }))
  }

  async #write<T>(outcome: Outcome<T>): Promise<T> {
    if (!outcome.ok) throw outcome.error
    await this.#apply(outcome.mutations)
    return outcome.value
  }

  /**
   * Writes one atomic batch, and keeps the lock table ahead of it: new locks stand there before the batch is written,
   * old ones go, or are loosened, after it.
   * @param onePc the transaction that commits by this batch alone, if one does: its keys are locked in memory only.
   * @param beside what else goes into the batch.
   */
  async #apply(
    mutations: readonly Mutation[],
    onePc?: PrewriteRequest,
    beside: readonly EngineOp[] = [],
  ): Promise<void> {
    if (mutations.length === 0) return
    const ops = [...mutations.map(engineOp), ...beside] // Encoded before anything is published: an encoder may throw.
    let settle: () => void = () => {}
    const pending = new Promise<void>((resolve) => {
      settle = resolve
    })
    for (const mutation of mutations) this.#publish(mutation, pending, onePc)
    try {
      await this.#group.submit(ops)
      for (const mutation of mutations) this.#settle(mutation, pending)
    } finally {
      settle()
    }
  }

  #publish(mutation: Mutation, pending: Promise<void>, onePc: PrewriteRequest | undefined): void {
    const { key } = mutation
    if (mutation.type === 'put-write' || mutation.type === 'delete-write') this.#cache.forget(key)
    const entry = this.#locks.get(key)
    if (mutation.type === 'put-lock' && (entry === undefined || entry.lock.type === 'pessimistic'))
      this.#locks.put(key, mutation.lock, pending)
    else if (mutation.type === 'put-write' && onePc !== undefined && mutation.write.type !== 'lock')
      this.#locks.put(key, inFlightLock(key, onePc, mutation.write.commitTs), pending)
    else if (entry !== undefined && (mutation.type === 'put-lock' || mutation.type === 'delete-lock'))
      entry.pending = pending
  }

  #settle(mutation: Mutation, pending: Promise<void>): void {
    const { key } = mutation
    if (mutation.type === 'put-write' || mutation.type === 'delete-write') this.#cache.forget(key)
    if (mutation.type === 'put-lock') this.#locks.put(key, mutation.lock)
    else if (mutation.type === 'delete-lock') this.#locks.delete(key)
    else if (mutation.type === 'put-write' && this.#locks.get(key)?.pending === pending) {
      // A 1PC lock in flight; a prewritten lock goes with its own `delete-lock`.
      if (this.#locks.get(key)?.lock.txnSize === IN_FLIGHT) this.#locks.delete(key)
    }
  }

  // ---- Admission and failures

  /** @throws KvError `ts_below_safe_point`, `storage_unavailable`. */
  async #admitRead(ts: Timestamp): Promise<void> {
    this.#requireAvailable()
    if (ts < this.#safePoint) throw belowSafePoint(ts, this.#safePoint)
    if (ts !== TIMESTAMP_MAX && ts > this.#maxTs) await this.#observe(ts)
  }

  /** max_ts and the oracle go up to `ts`, or to the clock when that is in the future. */
  async #observe(ts: Timestamp): Promise<void> {
    const observed = this.#oracle.observe(ts)
    if (observed !== undefined) await this.#guard(() => observed)
    this.#maxTs = Math.max(this.#maxTs, Math.min(ts, this.#oracle.last))
  }

  #requireAvailable(): void {
    if (this.#isAvailable) return
    this.#reopenSoon()
    throw new KvError('storage_unavailable', 'the storage engine failed; it is being opened again', {})
  }

  #reopenSoon(): void {
    if (!this.#isClosed && this.#reopening === undefined && Date.now() >= this.#reopenNotBefore) void this.#reopen()
  }

  /**
   * After a failed write nobody knows whether it is on disk, and LevelDB's log may end in half a record: opening the
   * database again settles both, and the lock table is read anew from what is there. Never rejects; where it fails,
   * the store stays unavailable and the next request after a pause tries again.
   */
  #reopen(): Promise<void> {
    this.#reopening ??= this.#tryReopen().finally(() => {
      this.#reopening = undefined
    })
    return this.#reopening
  }

  async #tryReopen(): Promise<void> {
    this.#isAvailable = false
    try {
      await this.#engine.reopen()
      await this.#loadLocks()
      this.#isAvailable = true
    } catch {
      this.#reopenNotBefore = Date.now() + REOPEN_PAUSE_MS
    }
  }

  async #loadLocks(): Promise<void> {
    this.#locks.clear()
    this.#cache.clear()
    for await (const page of pagesOf(this.#engine, keyRange(CF_LOCK), PAGE))
      for (const [key, bytes] of page) this.#locks.put(decodeKey(key), decodeLock(bytes))
  }

  /** What the engine throws, and records that don't decode, become `storage_unavailable`. */
  async #guard<T>(body: () => Promise<T> | T): Promise<T> {
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

/** Not a key: keys have at least one byte. */
const SAFE_POINT_LATCH = ''
/** Nor is this: keys have no character above U+00FF. */
const outcomeLatch = (key: Uint8Array): string => `\u0100${keyText(key)}`

const TXN: DepthOf = () => 'txn'
const NONE: DepthOf = () => 'none'
const NO_MUTATION = { op: 'put', key: new Uint8Array() } as const

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

function outcomeOp({ key, record }: StoredOutcome): EngineOp {
  return { type: 'put', key: outcomeKey(key), value: asBuffer(record) }
}

function* storedLocks(entries: Iterable<LockEntry>): Generator<LockEntry> {
  for (const entry of entries) if (entry.lock.txnSize !== IN_FLIGHT) yield entry
}

/** abstract-level and classic-level mark every error of theirs with a code `LEVEL_...`. */
function isEngineError(error: unknown): error is Error {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('LEVEL_')
}

/** Waits for the batches in flight among these locks; throws `key_locked` when there is none to wait for. */
async function settledOrLocked(entries: readonly LockEntry[]): Promise<void> {
  const pending = entries.flatMap((entry) => (entry.pending === undefined ? [] : [entry.pending]))
  if (pending.length === 0) throw keysLocked(entries.map((entry) => lockInfo(entry.key, entry.lock)))
  await Promise.all(pending)
}

function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}

async function readPairs(
  engine: Pick<Engine, 'get' | 'getMany' | 'iterator'>,
  found: Parameters<typeof readValues>[1],
): Promise<Pair[]> {
  const values = await readValues(engine, found)
  return found.map(({ key, write }, i) => {
    const value = values[i]
    if (value === undefined) throw lostValue(key, write.startTs)
    return { key, value, commitTs: write.commitTs }
  })
}

/** @param bytesMax undefined: an answer that grows too large is refused rather than cut. */
async function readPairsWithin(
  engine: Parameters<typeof readPairs>[0],
  found: Parameters<typeof readValues>[1],
  bytesMax: number | undefined,
): Promise<ScanAnswer> {
  const pairs: Pair[] = []
  let bytes = 0
  for (let from = 0; from < found.length; from += VALUES_AT_A_TIME) {
    for (const pair of await readPairs(engine, found.slice(from, from + VALUES_AT_A_TIME))) {
      pairs.push(pair)
      bytes += pairBytes(pair)
      if (bytesMax !== undefined && bytes >= bytesMax) return { pairs, isCut: pairs.length < found.length }
    }
    if (bytes > ANSWER_BYTES_MAX) throw answerTooLarge(ANSWER_BYTES_MAX)
  }
  return { pairs }
}

function lostValue(key: Uint8Array, startTs: Timestamp): CorruptRecord {
  return new CorruptRecord(`the value of ${printKey(key)} written at ${startTs} is missing`)
}
