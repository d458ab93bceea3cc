import { ANSWER_BYTES_MAX, CACHE_BYTES_DEFAULT, SHORT_VALUE_BYTES_MAX } from '../../limits.js'
import { Oracle } from '../../oracle/oracle.js'
import { acquirePessimisticLock } from '../../percolator/actions/acquire-pessimistic-lock.js'
import { checkSecondaryLock } from '../../percolator/actions/check-secondary-locks.js'
import { checkTxnStatus } from '../../percolator/actions/check-txn-status.js'
import { cleanup } from '../../percolator/actions/cleanup.js'
import { commitAll } from '../../percolator/actions/commit.js'
import { gc } from '../../percolator/actions/gc.js'
import { blocksRead } from '../../percolator/actions/get.js'
import { mvccGet } from '../../percolator/actions/mvcc-get.js'
import { pessimisticRollback } from '../../percolator/actions/pessimistic-rollback.js'
import { prewrite, prewriteDepth } from '../../percolator/actions/prewrite.js'
import { resolveLock } from '../../percolator/actions/resolve-lock.js'
import { rollback } from '../../percolator/actions/rollback.js'
import { locksWithinLimit } from '../../percolator/actions/scan.js'
import { scanLock } from '../../percolator/actions/scan-lock.js'
import { txnHeartBeat } from '../../percolator/actions/txn-heart-beat.js'
import { isNewer, judgeLock, readChanged } from '../../percolator/actions/validate-reads.js'
import { answerTooLarge, pairBytes } from '../../percolator/answer-size.js'
import type {
  AcquirePessimisticLockAnswer,
  AcquirePessimisticLockRequest,
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
  PessimisticLockResult,
  PessimisticRollbackRequest,
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
  ValidateReadsRequest,
} from '../../percolator/api.js'
import { CorruptRecord, decodeKey, decodeKeyTs } from '../../percolator/codec/key.js'
import { decodeLock } from '../../percolator/codec/lock.js'
import { packRecord } from '../../percolator/codec/record.js'
import { decodeWrite } from '../../percolator/codec/write.js'
import { belowSafePoint, isKvError, KvError, keyLocked, keysLocked, printKey } from '../../percolator/errors.js'
import { asBuffer, keyText } from '../../percolator/key-text.js'
import type { Lock } from '../../percolator/lock.js'
import { lockInfo } from '../../percolator/lock-info.js'
import { done, type HistoryDepth, type Mutation, type Outcome, type RowView } from '../../percolator/row.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../percolator/timestamp.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { Store, StoredOutcome } from '../store.js'
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
import { LockWaits, type Turn } from './lock-waits.js'
import {
  findVersion,
  readAllValues,
  readHistory,
  readValues,
  readVersion,
  scanVersions,
  userKeys,
} from './row-reader.js'
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

interface ApplyOptions {
  /** The transaction that commits by this batch alone, if one does: its keys are locked in memory only. */
  readonly onePc?: PrewriteRequest
  /** What else goes into the batch. */
  readonly beside?: readonly EngineOp[] | undefined
  /** With `onePc`: awaited while the locks stand, before the batch is written; where it throws, nothing is. */
  readonly validate?: (() => Promise<void>) | undefined
}

type Decide<T> = (rows: readonly RowView[]) => Outcome<T>
/** How deep a history the decision about a key needs, given its lock. */
type DepthOf = (index: number, lock: Lock | undefined) => HistoryDepth

class LevelDbStore implements Store {
  readonly name = 'leveldb'
  readonly cursorSecret: Uint8Array
  readonly #engine: Engine
  readonly #latches = new Latches()
  /** One an idempotency key; taken before those of user keys, never while one of them is held. */
  readonly #outcomeLatches = new Latches()
  readonly #locks = new LockTable()
  readonly #waits = new LockWaits((key) => this.#locks.get(key)?.lock.startTs)
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

  prewrite(
    request: PrewriteRequest,
    outcomeOf?: (answer: PrewriteAnswer) => StoredOutcome | undefined,
  ): Promise<PrewriteAnswer> {
    const keys = request.mutations.map((mutation) => keyText(mutation.key))
    return this.#guard(() => this.#latches.hold(keys, () => this.#prewriteLatched(request, outcomeOf)))
  }

  exclusive<T>(
    keys: readonly Uint8Array[],
    isAlone: boolean,
    body: (prewrite: Store['prewrite']) => Promise<T>,
  ): Promise<T> {
    const prewriteHeld: Store['prewrite'] = (request, outcomeOf) => this.#prewriteLatched(request, outcomeOf)
    const held = keys.map(keyText)
    if (isAlone) held.push(ALONE_LATCH)
    return this.#guard(() => this.#latches.hold(held, () => body(prewriteHeld)))
  }

  once<T>(outcome: Uint8Array, body: () => Promise<T>): Promise<T> {
    return this.#outcomeLatches.hold([keyText(outcome)], body)
  }

  async #prewriteLatched(
    request: PrewriteRequest,
    outcomeOf: ((answer: PrewriteAnswer) => StoredOutcome | undefined) | undefined,
  ): Promise<PrewriteAnswer> {
    const { startTs, mutations } = request
    const keys = mutations.map(({ key }) => key)
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
    const { onePcCommitTs: commitTs } = outcome.value
    // Where it is 1PC after all, and not the repeat of one: its locks stand in memory while its reads are validated.
    const validate =
      request.reads !== undefined && commitTs !== undefined && outcome.mutations.length > 0
        ? this.#validateReads.bind(this, { ...request.reads, startTs, commitTs })
        : undefined
    await this.#apply(outcome.mutations, { onePc: request, beside: stored && [outcomeOp(stored)], validate })
    this.#waits.acquired(startTs)
    await observed
    return outcome.value
  }

  validateReads(request: ValidateReadsRequest): Promise<void> {
    return this.#guard(() => this.#validateReads(request))
  }

  async #validateReads(request: ValidateReadsRequest): Promise<void> {
    const { startTs, commitTs, keys, ranges } = request
    for (;;) {
      await this.#admitRead(commitTs)
      // One turn of the event loop from here to the snapshot: see `get`.
      const younger: LockEntry[] = []
      const judge = (entry: LockEntry | undefined): void => {
        if (entry === undefined) return
        const judged = judgeLock(entry.key, entry.lock, request)
        if (judged === 'conflict') throw readChanged(entry.key, startTs, { ...entry.lock, commitTs: 0 })
        if (judged === 'wait') younger.push(entry)
      }
      for (const key of keys) judge(this.#locks.get(key))
      for (const { start, end } of ranges) for (const entry of this.#locks.range(start, end)) judge(entry)
      if (younger.length > 0) {
        await settledOrLocked(younger)
        continue
      }
      return this.#requireUnchanged(request)
    }
  }

  /** @throws KvError `write_conflict` (`serializable_read`). */
  async #requireUnchanged(request: ValidateReadsRequest): Promise<void> {
    const { startTs, commitTs, keys, ranges } = request
    const snapshot = this.#engine.snapshot()
    try {
      const check = ({ key, write }: { key: Uint8Array; write: WriteRecord | undefined }): void => {
        if (write !== undefined && isNewer(write, request)) throw readChanged(key, startTs, write)
      }
      for (let from = 0; from < keys.length; from += COLLECT_KEYS) {
        const chunk = keys.slice(from, from + COLLECT_KEYS)
        const newest = await Promise.all(chunk.map((key) => readVersion(snapshot, key, commitTs)))
        chunk.forEach((key, i) => {
          check({ key, write: newest[i] })
        })
      }
      for (const range of ranges) {
        const found = await findVersion(snapshot, range, (write) => isNewer(write, request))
        if (found !== undefined) check(found)
      }
    } finally {
      await snapshot.close()
    }
  }

  // ---- Pessimistic locks: in memory alone, as in TiKV; a prewrite makes do without one that a crash took.

  async acquirePessimisticLock(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { keys, forUpdateTs, waitTimeout = 0 } = request
    const waitMs = waitTimeout === 0 ? PESSIMISTIC_WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const deadline = performance.now() + waitMs
    await this.#guard(() => this.#observe(forUpdateTs)) // It reads: nobody may commit below what it saw.
    let turn: Turn | undefined
    for (let isLastTry = waitMs === 0; ; ) {
      const tried = await this.#guard(() =>
        this.#latches.hold(keys.map(keyText), () => this.#tryLock(request, isLastTry, deadline)),
      ).finally(() => turn?.done())
      if (!('wait' in tried)) return tried
      turn = await tried.wait
      isLastTry = turn === undefined
    }
  }

  /** Locks all the keys or none. @returns the place in the queue of the first key that is locked, if one is. */
  async #tryLock(
    request: AcquirePessimisticLockRequest,
    isLastTry: boolean,
    deadline: number,
  ): Promise<AcquirePessimisticLockAnswer | { wait: Promise<Turn | undefined> }> {
    const { keys, startTs, forUpdateTs, waitTimeout, signal } = request
    const rows = await this.#readRows(keys, Math.min(startTs, forUpdateTs), () => 'data')
    if (startTs < this.#safePoint) throw belowSafePoint(startTs, this.#safePoint)
    const wait = (key: Uint8Array): { wait: Promise<Turn | undefined> } => {
      const timeoutMs = Math.max(0, deadline - performance.now())
      return { wait: this.#waits.enqueue(key, startTs, { timeoutMs, signal }) }
    }
    const acquired = []
    const mutations: Mutation[] = []
    for (const row of rows) {
      const claimant = row.lock === undefined ? this.#waits.claimant(row.key) : undefined
      if (claimant !== undefined && claimant < startTs && !isLastTry) return wait(row.key) // An older one was woken for it.
      const outcome = acquirePessimisticLock(row, request)
      if (!outcome.ok) {
        if (!isKvError(outcome.error, 'key_locked') || waitTimeout === -1) throw outcome.error
        if (isLastTry) throw lockWaitTimeout(row.key, outcome.error.fields.lock as LockInfo)
        return wait(row.key)
      }
      acquired.push({ key: row.key, ...outcome.value })
      mutations.push(...outcome.mutations)
    }
    await this.#apply(mutations)
    this.#waits.acquired(startTs)
    const wanted = acquired.flatMap(({ key, version, lockedWithConflictTs }) =>
      version !== undefined && (request.returnValues || lockedWithConflictTs !== undefined)
        ? [{ key, write: version }]
        : [],
    )
    const pairs = new Map((await readPairs(this.#engine, wanted)).map((pair) => [keyText(pair.key), pair]))
    const results = acquired.map(({ key, version, lockedWithConflictTs }): PessimisticLockResult => {
      const { value, commitTs } = pairs.get(keyText(key)) ?? {}
      const isTold = request.returnValues || request.checkExistence || lockedWithConflictTs !== undefined
      return {
        ...(isTold ? { found: version !== undefined } : {}),
        ...(value === undefined ? {} : { value }),
        ...(commitTs === undefined ? {} : { commitTs }),
        ...(lockedWithConflictTs === undefined ? {} : { lockedWithConflictTs }),
      }
    })
    return { results }
  }

  pessimisticRollback({ keys, startTs, forUpdateTs }: PessimisticRollbackRequest): Promise<void> {
    return this.#update(keys, startTs, NONE, (rows) =>
      done(
        undefined,
        rows.flatMap((row) => {
          const outcome = pessimisticRollback(row, startTs, forUpdateTs)
          return outcome.ok ? outcome.mutations : []
        }),
      ),
    )
  }

  outcome(key: Uint8Array): Promise<Uint8Array | undefined> {
    return this.#guard(() => {
      this.#requireAvailable()
      return this.#engine.get(outcomeKey(key))
    })
  }

  /** Looks again under the latch: the key may have been used anew since. */
  async #collectOutcome(key: Buffer, isExpired: (record: Uint8Array) => boolean): Promise<void> {
    await this.#outcomeLatches.hold([keyText(keyOfOutcome(key))], async () => {
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
    this.#waits.close(new KvError('storage_unavailable', 'the server is shutting down', {}))
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
   */
  async #apply(mutations: readonly Mutation[], { onePc, beside = [], validate }: ApplyOptions = {}): Promise<void> {
    if (mutations.length === 0) return
    // Encoded before anything is published: an encoder may throw.
    const ops = [...mutations.filter((mutation) => this.#isStored(mutation)).map(engineOp), ...beside]
    const before = validate && mutations.map(({ key }) => this.#locks.get(key)?.lock)
    let settle: () => void = () => {}
    const pending = new Promise<void>((resolve) => {
      settle = resolve
    })
    for (const mutation of mutations) this.#publish(mutation, pending, onePc)
    try {
      if (validate !== undefined) await validate()
      if (ops.length > 0) await this.#group.submit(ops)
      for (const mutation of mutations) this.#settle(mutation, pending)
    } catch (error) {
      mutations.forEach(({ key }, i) => {
        this.#withdraw(key, pending, before?.[i])
      })
      throw error
    } finally {
      settle()
    }
  }

  /** Pessimistic locks live in memory alone: see `acquirePessimisticLock`. */
  #isStored(mutation: Mutation): boolean {
    if (mutation.type === 'put-lock') return mutation.lock.type !== 'pessimistic'
    return mutation.type !== 'delete-lock' || this.#locks.get(mutation.key)?.lock.type !== 'pessimistic'
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
    else if (mutation.type === 'delete-lock') this.#unlock(key)
    else if (mutation.type === 'put-write' && this.#locks.get(key)?.pending === pending) {
      // A 1PC lock in flight; a prewritten lock goes with its own `delete-lock`.
      if (this.#locks.get(key)?.lock.txnSize === IN_FLIGHT) this.#unlock(key)
    }
  }

  /** Nothing was written; after a failed write the table has been read anew, and knows nothing of `pending`. */
  #withdraw(key: Uint8Array, pending: Promise<void>, before: Lock | undefined): void {
    if (this.#locks.get(key)?.pending !== pending) return
    if (before === undefined) this.#unlock(key)
    else this.#locks.put(key, before)
  }

  #unlock(key: Uint8Array): void {
    this.#locks.delete(key)
    if (this.#waits.size > 0) this.#waits.released(key)
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
    const inMemory = [...this.#locks.range()].filter(({ lock }) => lock.type === 'pessimistic')
    this.#locks.clear()
    this.#cache.clear()
    for (const { key, lock } of inMemory) this.#locks.put(key, lock)
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
const ALONE_LATCH = '\u0100'

const TXN: DepthOf = () => 'txn'
const NONE: DepthOf = () => 'none'
const NO_MUTATION = { op: 'put', key: new Uint8Array() } as const

/** TiKV's `pessimistic-txn.wait-for-lock-timeout`. */
const PESSIMISTIC_WAIT_MS_DEFAULT = 1000

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

function lockWaitTimeout(key: Uint8Array, lock: LockInfo): KvError<'lock_wait_timeout'> {
  const detail = `waited for the lock on ${printKey(key)} as long as asked`
  return new KvError('lock_wait_timeout', detail, { key, lock })
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
