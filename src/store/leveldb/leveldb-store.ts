import type { WaitForEntry } from '../../errors/registry.js'
import { CACHE_BYTES_DEFAULT, CLOCK_MS_MAX, DEFAULT_LIMITS } from '../../limits.js'
import { Clock } from '../../oracle/clock.js'
import { Oracle } from '../../oracle/oracle.js'
import { physicalMs, type Timestamp } from '../../timestamp.js'
import { AnswerBudget } from '../answer-budget.js'
import { endTransactionsIn } from '../calls/end-transactions.js'
import { PessimisticLocks } from '../calls/pessimistic-locks.js'
import { WriteCalls } from '../calls/write-calls.js'
import type { PromptLog } from '../change-log.js'
import type { ConsumerMoves } from '../consumers.js'
import type { Durability } from '../durability.js'
import type { HeldLeases } from '../held-leases.js'
import { exclusiveLatches } from '../latch-set.js'
import type { MarkedCells } from '../marked-cells.js'
import type { Observed } from '../observed.js'
import { oldestStartTs } from '../oldest-lock.js'
import { Restoration } from '../restoration.js'
import type {
  CompleteStore,
  DiskSpace,
  StandingLocks,
  Store,
  StoreFigures,
  StoreFiles,
  Traits,
  Upkeep,
} from '../store.js'
import { OwnTime, type TimeSource } from '../time-source.js'
import { DataDirectoryError } from './data-directory-error.js'
import { cursorSecretOf, FORMAT_VERSION, openDataDirectory, unusable } from './directory/data-directory.js'
import { openVerified } from './directory/open-verified.js'
import { OwnFiles, ownedEngine } from './directory/own-files.js'
import { diskSpaceOf, logBytesOf } from './engine/disk-space.js'
import type { Engine } from './engine/engine.js'
import type { LevelTuning } from './engine/level-engine.js'
import { MemoryEngine } from './engine/memory-engine.js'
import { readMetaNumber } from './engine/meta-number.js'
import { syncedEachSecond } from './engine/synced-each-second.js'
import { startScrub } from './integrity/scrub.js'
import { META_LOG_READ, META_LOG_START, META_SAFE_POINT } from './records/keyspace.js'
import { CellCalls } from './rows/cell-calls.js'
import { Collection } from './rows/collection.js'
import { LevelDbCommitEffects } from './rows/commit-effects.js'
import { compact, diskBytes } from './rows/compaction.js'
import { guard, guarded } from './rows/guard.js'
import type { OnWritable } from './rows/health.js'
import { LevelDbLockingRows } from './rows/locking-rows.js'
import { LongReads } from './rows/long-reads.js'
import { Mvcc } from './rows/mvcc.js'
import { RangeDeletion } from './rows/range-deletion.js'
import { ReadValidation } from './rows/read-validation.js'
import { Reads } from './rows/reads.js'
import { LevelDbRestoring } from './rows/restoration.js'
import { RowStore } from './rows/row-store.js'
import { sweepRows } from './rows/row-sweep.js'
import { putMark, readMark } from './rows/saved-mark.js'
import { scanLock } from './rows/scan-lock.js'
import { SystemKeyspace } from './rows/system-keyspace.js'

export interface EngineStoreOptions {
  readonly cacheBytesMax?: number | undefined
  readonly answers?: AnswerBudget | undefined
  /** Limit on all locks, at which pessimistic locks are refused. */
  readonly locksMax?: number | undefined
  /** Wall clock (Unix milliseconds) and monotonic clock (milliseconds) for tests. See `Clock`. */
  readonly now?: (() => number) | undefined
  readonly monotonicNow?: (() => number) | undefined
  /** Called when the clock jumps, or at the start when it is far from the end of the last run. */
  readonly onClockStep?: ((message: string) => void) | undefined
  /** Called when timestamps become late, because the disk is slow, and when they are handed out again. */
  readonly onTimestamps?: (message: string) => void
  /** Called when writes are refused after a failed one, on a full disk for example, and when they are accepted again. */
  readonly onWritable?: OnWritable
  /** See `LookUps`. Tests set 0 to be able to delay look-ups, which keeps them off the event loop. */
  readonly lookUpSlowMs?: number
}

export interface LevelDbStoreOptions extends EngineStoreOptions {
  readonly directory: string
  readonly durability: Durability
  readonly tuning?: LevelTuning
  readonly openEngine?: (directory: string) => Promise<Engine>
  /** Called before a directory of an older format is converted, which cannot be undone. */
  readonly onConvert?: (from: number, to: number) => void
  readonly onOpen?: (opened: OpenedDatabase) => void
  /** Called when open files turn out damaged or missing. The store refuses all calls from then on. */
  readonly onEnd?: (message: string) => void
  /** Delay of the first scrub. With `openEngine` there is no scrub unless this is set. */
  readonly scrubFirstMs?: number
}

export interface OpenedDatabase {
  readonly isNew: boolean
  readonly replayedBytes: number
  readonly locks: number
  readonly durationMs: number
}

export async function openLevelDbStore(options: LevelDbStoreOptions): Promise<CompleteStore> {
  const { directory, durability, openEngine, tuning, scrubFirstMs } = options
  const beganAtMs = performance.now()
  requireUsableClock((options.now ?? Date.now)())
  const logBytes = openEngine === undefined ? await logBytesOf(directory) : 0
  const { onConvert = () => {} } = options
  const open = openEngine ?? ((path) => openVerified(path, tuning))
  let engine = await openDataDirectory(directory, open, (from) => onConvert(from, FORMAT_VERSION))
  let rows: RowStore | undefined
  try {
    if (openEngine === undefined) engine = ownedEngine(engine, new OwnFiles(directory, onLost))
    if (openEngine === undefined && durability === '1s') engine = syncedEachSecond(engine, directory)
    const parts = await openParts(engine, directory, durability, options)
    rows = parts.rows
    const isScrubbed = openEngine === undefined || scrubFirstMs !== undefined
    const scrub = isScrubbed ? startScrub(directory, onDamage, scrubFirstMs) : undefined
    function onDamage(message: string): void {
      const why = `the database is damaged: ${message}`
      rows?.health.end(why)
      options.onEnd?.(why)
    }
    function onLost(message: string): void {
      options.onEnd?.(message)
      rows?.abandon(message).catch(() => {}) // Even if LevelDB cannot be closed, it is no longer used.
    }
    options.onOpen?.({
      isNew: parts.isNew,
      replayedBytes: logBytes,
      locks: rows.locks.size,
      durationMs: Math.round(performance.now() - beganAtMs),
    })
    return new LevelDbStore('leveldb', parts, {
      stopScrub: () => scrub?.stop(),
      diskSpace: () => diskSpaceOf(directory),
    })
  } catch (error) {
    await engine.close()
    throw unusable(directory, error)
  }
}

/** The data is lost when the store is closed. @param engine replaced by tests. */
export async function openMemoryStore(
  options: EngineStoreOptions = {},
  engine: Engine = new MemoryEngine(),
): Promise<CompleteStore> {
  return new LevelDbStore('memory', await openParts(engine, 'in memory', 'async', options))
}

/** Reads the engine's saved state, and composes the parts of a store on one `RowStore`. */
async function openParts(
  engine: Engine,
  directory: string,
  durability: Durability,
  options: EngineStoreOptions,
): Promise<Parts> {
  const { now, monotonicNow, onClockStep, onTimestamps, onWritable, lookUpSlowMs } = options
  const { mark: savedMark, jumps: savedJumps, extraMs: savedExtraMs } = await readMark(engine, directory)
  const savedClock = { savedMs: physicalMs(savedMark), savedExtraMs, savedJumps }
  const clock = new Clock({ now, monotonicNow, ...savedClock, onStep: onClockStep })
  const safePoint = await readMetaNumber(engine, META_SAFE_POINT)
  const logStart = await readMetaNumber(engine, META_LOG_START)
  const isLogRead = (await engine.get(META_LOG_READ)) !== undefined
  const cursorSecret = await cursorSecretOf(engine)
  const { cacheBytesMax = CACHE_BYTES_DEFAULT } = options
  const { answers = new AnswerBudget(DEFAULT_LIMITS), locksMax = DEFAULT_LIMITS.locksMax } = options
  const oracle = new Oracle({
    savedMark,
    save: (mark, extraMs) => rows.submit([putMark({ mark, jumps: clock.jumps, extraMs })]),
    clock,
    onChange: onTimestamps,
  })
  const saved = { savedMark, safePoint, logStart, isLogRead }
  const rows = new RowStore(engine, { durability, cacheBytesMax, clock, oracle, ...saved, lookUpSlowMs, onWritable })
  await rows.start()
  const rangeDeletion = new RangeDeletion(rows)
  if (rows.health.restoring === undefined) await rangeDeletion.resume()
  return { rows, rangeDeletion, oracle, clock, answers, locksMax, cursorSecret, isNew: savedMark === 0 }
}

/** Must run before the first write. @throws DataDirectoryError */
function requireUsableClock(unixMs: number): void {
  if (unixMs <= CLOCK_MS_MAX) return
  const year = new Date(unixMs).getUTCFullYear()
  throw new DataDirectoryError(`the clock of this machine says ${year}, and timestamps end in 2109: set the clock`)
}

const TRAITS: Traits = {
  onePhaseCommit: true,
  plainOnePhaseCommit: true,
  asyncCommit: true,
  atomicRequests: true,
  deadlocks: 'detected',
  restore: true,
  compact: true,
  lockCount: true,
  changes: true,
  collection: true,
}

interface Parts {
  readonly rows: RowStore
  readonly rangeDeletion: RangeDeletion
  readonly oracle: Oracle
  readonly clock: Clock
  readonly answers: AnswerBudget
  readonly locksMax: number
  readonly cursorSecret: Uint8Array
  readonly isNew: boolean
}

interface Files {
  readonly stopScrub: () => void
  readonly diskSpace: () => Promise<DiskSpace | undefined>
}

const NO_FILES: Files = { stopScrub: () => {}, diskSpace: async () => undefined }

class LevelDbStore implements CompleteStore {
  readonly traits = TRAITS
  readonly time: TimeSource
  readonly upkeep: Upkeep
  readonly figures: StoreFigures
  readonly locks: StandingLocks
  readonly files: StoreFiles
  readonly log: PromptLog
  readonly system: Store['system']
  readonly observed: Observed
  readonly cells: MarkedCells
  readonly consumers: ConsumerMoves
  readonly leases: HeldLeases
  readonly answers: AnswerBudget
  readonly cursorSecret: Uint8Array
  readonly #rows: RowStore
  readonly #oracle: Oracle
  readonly #reads: Reads
  readonly #mvcc: Mvcc
  readonly #validation: ReadValidation
  readonly #calls: WriteCalls
  readonly #prewriteExclusive: Store['prewrite']
  readonly #pessimistic: PessimisticLocks
  readonly #rangeDeletion: RangeDeletion
  readonly #stopScrub: () => void

  constructor(
    readonly name: string,
    { rows, rangeDeletion, oracle, clock, answers, locksMax, cursorSecret }: Parts,
    { stopScrub, diskSpace }: Files = NO_FILES,
  ) {
    this.answers = answers
    this.cursorSecret = cursorSecret
    this.#rows = rows
    this.#oracle = oracle
    this.time = new OwnTime(oracle, clock)
    this.upkeep = upkeepOf(rows, new Collection(rows), new Restoration(new LevelDbRestoring(rows, oracle)))
    this.figures = figuresOf(rows, oracle)
    this.locks = locksOf(rows)
    this.files = filesOf(rows, diskSpace)
    this.log = rows.changes
    this.#stopScrub = stopScrub
    const longReads = new LongReads(answers)
    this.#reads = new Reads(rows, answers, longReads)
    this.#mvcc = new Mvcc(rows, answers, longReads)
    this.#validation = new ReadValidation(rows)
    this.#calls = new WriteCalls({
      rows,
      validateReads: (request) => this.#validation.validate(request),
      commitEffectsOf: (request) =>
        request.commitEffects && new LevelDbCommitEffects(rows, request, request.commitEffects),
    })
    this.#prewriteExclusive = (request) => this.#calls.prewrite(request, true)
    this.#pessimistic = new PessimisticLocks(new LevelDbLockingRows(rows), locksMax)
    this.#rangeDeletion = rangeDeletion
    this.system = new SystemKeyspace(rows)
    this.observed = rows.observed
    this.cells = new CellCalls(rows, this.system)
    this.consumers = rows.consumers
    this.leases = rows.leases
  }

  get safePoint(): Timestamp {
    return this.#rows.safePoint
  }
  lockWaits(limit: number): readonly WaitForEntry[] {
    return this.#rows.waits.edges(limit)
  }
  now(): Timestamp {
    return this.#oracle.now()
  }
  tsoForClient(count: number): Promise<Timestamp> {
    return guard(() => this.#oracle.nextForClient(count))
  }
  tso(count: number): Timestamp | Promise<Timestamp> {
    const ts = this.#oracle.next(count)
    return typeof ts === 'number' ? ts : guard(() => ts)
  }
  readTs(): Timestamp | Promise<Timestamp> {
    return this.#rows.health.isWritable ? this.tso(1) : this.#oracle.last
  }
  close(): Promise<void> {
    this.#stopScrub()
    return this.#rows.close()
  }

  readonly watchKeys: Store['watchKeys'] = (watcher) => this.log.listen(watcher)
  readonly get: Store['get'] = (request) => this.#reads.get(request)
  readonly batchGet: Store['batchGet'] = (request) => this.#reads.batchGet(request)
  readonly scan: Store['scan'] = (request) => this.#reads.scan(request)
  readonly scanLock: Store['scanLock'] = (request, lease) => scanLock(this.#rows, request, lease)
  readonly sweepRows: Store['sweepRows'] = (prefix, isOver) => sweepRows(this.#rows, prefix, isOver)
  readonly mvccGetByKey: Store['mvccGetByKey'] = (request) => this.#mvcc.getByKey(request)
  readonly mvccGetByStartTs: Store['mvccGetByStartTs'] = (request) => this.#mvcc.getByStartTs(request)
  readonly validateReads: Store['validateReads'] = (request) => guard(() => this.#validation.validate(request))

  readonly prewrite: Store['prewrite'] = (request) => this.#calls.prewrite(request)

  readonly exclusive: Store['exclusive'] = (latchSet, body) => {
    return guard(() =>
      this.#rows.latches.hold(exclusiveLatches(latchSet), () => body(this.#prewriteExclusive), latchSet.read),
    )
  }
  readonly exclusiveSync: Store['exclusiveSync'] = (latchSet, body) => {
    const { latches, locks } = this.#rows
    if (locks.hasAny(latchSet.written)) return false // The prewrite would be refused.
    const written = exclusiveLatches(latchSet)
    if (!latches.take(written, latchSet.read)) return false
    const release = (): void => latches.release(written, latchSet.read)
    let isTaken = false
    try {
      isTaken = body((request, done) =>
        this.#rows.updateSync(this.#calls.exclusivePrewrite(request), (error, answer) => {
          release()
          if (answer?.onePcCommitTs !== undefined) this.#rows.meters.commits.onePhase++
          done(error, answer)
        }),
      )
    } catch (error) {
      throw guarded(error)
    } finally {
      if (!isTaken) release()
    }
    return isTaken
  }
  readonly commit: Store['commit'] = (request) => this.#calls.commit(request)
  readonly rollback: Store['rollback'] = (request) => this.#calls.rollback(request)
  readonly cleanup: Store['cleanup'] = (request) => this.#calls.cleanup(request)
  readonly checkTxnStatus: Store['checkTxnStatus'] = (request) => this.#calls.checkTxnStatus(request)
  readonly checkSecondaryLocks: Store['checkSecondaryLocks'] = (request) => this.#calls.checkSecondaryLocks(request)
  readonly txnHeartBeat: Store['txnHeartBeat'] = (request) => this.#calls.txnHeartBeat(request)
  readonly resolveLock: Store['resolveLock'] = (request) => this.#calls.resolveLock(request)

  readonly acquirePessimisticLock: Store['acquirePessimisticLock'] = (request) => this.#pessimistic.acquire(request)
  readonly pessimisticRollback: Store['pessimisticRollback'] = (request) => this.#calls.pessimisticRollback(request)

  readonly newestAhead: Store['newestAhead'] = (keys) =>
    this.#rows.written.isAny ? guard(() => this.#rows.written.newestOf(keys)) : 0

  readonly deleteRange: Store['deleteRange'] = (range) =>
    this.#rangeDeletion.delete(range, () => endTransactionsIn(this, range))
}

function upkeepOf({ health }: RowStore, collection: Collection, { restore }: Pick<Upkeep, 'restore'>): Upkeep {
  return {
    probe: () => {
      health.reopenSoon()
      return health.fault === undefined && health.restoring === undefined
    },
    get fault() {
      return health.fault
    },
    isReported: (error) => health.isReported(error),
    get restoring() {
      return health.restoring
    },
    raiseSafePoint: (safePoint) => collection.raiseSafePoint(safePoint),
    collect: (safePoint, pace) => collection.collect(safePoint, pace),
    restore: (source, blocks, restart) => guard(() => restore(source, blocks, restart)),
  }
}

function figuresOf({ meters, waits, group, cache }: RowStore, oracle: Oracle): StoreFigures {
  return {
    meters,
    get oracle() {
      return oracle.state
    },
    get waiting() {
      return waits.size
    },
    get writeQueue() {
      return group.queue
    },
    get cacheBytes() {
      return cache.bytes
    },
    tableCalls: undefined,
  }
}

function locksOf(rows: RowStore): StandingLocks {
  return {
    get count() {
      return rows.locks.size
    },
    get oldestTs() {
      return oldestStartTs(rows.locks.all())
    },
  }
}

function filesOf(rows: RowStore, space: Files['diskSpace']): StoreFiles {
  return {
    levels: () => (rows.health.isAvailable ? rows.engine.levels?.() : undefined),
    compact: (range) =>
      guard(() => {
        rows.health.requireWritable()
        return compact(rows.engine, range)
      }),
    bytes: () => guard(() => diskBytes(rows.engine)),
    space,
  }
}
