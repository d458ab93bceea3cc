import { pairBytes } from '../../bytes/answer-size.js'
import { LockResolver } from '../../coordinator/lock-resolver.js'
import { KvError } from '../../errors/kv-error.js'
import type { WaitForEntry } from '../../errors/registry.js'
import { JOINT_BYTES_MAX } from '../../limits.js'
import type { Clock } from '../../oracle/clock.js'
import type { OracleState } from '../../oracle/oracle-state.js'
import type { TimestampSource } from '../../oracle/timestamp-source.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import type { AnswerBudget } from '../answer-budget.js'
import { type BoundedRange, endTransactionsIn } from '../calls/end-transactions.js'
import { WriteCalls } from '../calls/write-calls.js'
import type { ChangeLog } from '../change-log.js'
import { ConsumerMoves } from '../consumers.js'
import { HeldLeases } from '../held-leases.js'
import type { HintedCells } from '../hinted-cells.js'
import { exclusiveLatches } from '../latch-set.js'
import { Latches } from '../latches.js'
import { Observed } from '../observed.js'
import { Restoration } from '../restoration.js'
import type { Store, StoreFigures, Traits, Upkeep } from '../store.js'
import type { SystemRecords } from '../system-records.js'
import type { TimeSource } from '../time-source.js'
import { FEED_FORMAT } from './format/format-row.js'
import type { Table } from './layout/table.js'
import { TableScan } from './layout/table-scan.js'
import { WakeUps } from './layout/wake-ups.js'
import { Decisions, type DecisionsOptions } from './log/decisions.js'
import { ExpiryRows } from './log/expiry-rows.js'
import { FeedRow } from './log/feed-row.js'
import { LogCollection } from './log/log-collection.js'
import { LogReader, type LogReaderOptions } from './log/log-reader.js'
import { removedBy } from './log/log-record.js'
import { ServerLog, type ServerLogOptions } from './log/server-log.js'
import { TableChangeLog } from './log/table-change-log.js'
import { CellRows } from './observers/cell-rows.js'
import { Hints } from './observers/hints.js'
import { Registrations } from './observers/registrations.js'
import { SystemRows } from './records/system-rows.js'
import type { TableWatch } from './records/table-watch.js'
import { TableRestoring } from './restore/restoration.js'
import { RestoreGate } from './restore/restore-gate.js'
import { TableBehindRestoreGate } from './restore/table-behind-restore-gate.js'
import { Collection } from './rows/collection.js'
import { Reads } from './rows/reads.js'
import { RowCache } from './rows/row-cache.js'
import { RowTable } from './rows/row-table.js'
import { SafePoint } from './rows/safe-point.js'
import { TableRows } from './rows/table-rows.js'
import { TableTime } from './table-time.js'
import { DeadLocks } from './waits/dead-locks.js'
import { KeyPolling } from './waits/key-polling.js'
import { PollingLocks } from './waits/polling-locks.js'
import { WaitGraph } from './waits/wait-graph.js'
import { WaitReports } from './waits/wait-reports.js'

/** @internal */
export const TABLE_TRAITS: Traits = {
  onePhaseCommit: false,
  plainOnePhaseCommit: false,
  asyncCommit: false,
  atomicRequests: false,
  deadlocks: 'detected',
  restore: true,
  compact: false,
  lockCount: false,
  changes: true,
  collection: true,
}

/** A server reads the registrations again at an age of a third of it. */
const REGISTERING_MS = 4000

export interface TableOracle extends TimestampSource {
  readonly state: OracleState
  nextForClient(count: number): Promise<Timestamp>
  unproved?(): Timestamp | undefined
}

export interface TableStoreOptions {
  readonly table: Table
  readonly oracle: TableOracle
  readonly clock: Clock
  readonly answers: AnswerBudget
  readonly cursorSecret: Uint8Array
  /** For rows that are guessed rather than read. */
  readonly cacheBytesMax: number
  readonly waits?: WaitReports | undefined
  /** Started by the caller. Default: the table is taken to be there. */
  readonly watch?: Pick<TableWatch, 'fault' | 'close'> | undefined
  readonly knownToAllMs?: number | undefined
  readonly restoreGate?: RestoreGate | undefined
  /** Equal in all processes on the table. Default 4000: see `HintedCells.registeringMs`. */
  readonly registeringMs?: number | undefined
  /** Default: as the gate has seen it. */
  readonly format?: (() => number) | undefined
  /** For tests: see `RowTableOptions`. */
  readonly rowBytesMax?: number | undefined
  /** For tests. `beatMs`: how often this server closes what has passed in its log, and looks at all logs unless `lookMs` says. */
  readonly logs?: (Pick<ServerLogOptions, 'beatMs' | 'chunkEntriesMax'> & { readonly lookMs?: number }) | undefined
  readonly onClose?: (() => void) | undefined
}

/**
 * Percolator on a table that many processes share. A commit takes two phases, unless the table changes rows together. Readers finish
 * the commits of processes that have died.
 */
export class TableStore implements Store {
  readonly name: string
  readonly traits: Traits
  readonly time: TimeSource
  readonly upkeep: Upkeep
  readonly figures: StoreFigures
  readonly locks = undefined
  readonly files = undefined
  readonly log: ChangeLog
  readonly observed = new Observed()
  readonly leases = new HeldLeases()
  readonly cells: HintedCells
  readonly consumers = new ConsumerMoves()
  readonly system: SystemRecords
  readonly answers: AnswerBudget
  readonly cursorSecret: Uint8Array
  readonly #table: Table
  readonly #oracle: TableOracle
  readonly #scan: TableScan
  readonly #safePoint: SafePoint
  readonly #rows: TableRows
  readonly #reads: Reads
  readonly #collection: Collection
  readonly #calls: WriteCalls
  readonly #pessimistic: PollingLocks
  readonly #resolver = new LockResolver(this)
  readonly #decisions: Decisions
  readonly #logs: LogCollection
  readonly #wakeUps: WakeUps
  readonly #dead = new DeadLocks({ resolver: this.#resolver, now: () => this.now() })
  readonly #polling: KeyPolling
  readonly #waits: WaitReports
  readonly #restoreGate: RestoreGate
  readonly #watch: Pick<TableWatch, 'fault' | 'close'> | undefined
  /**
   * Latches of whole transactions and of system records. Transactions hold them during all other calls, which take latches of
   * their own.
   */
  readonly #latches = new Latches()
  readonly #onClose: () => void

  constructor(options: TableStoreOptions) {
    const { oracle, clock, answers, cacheBytesMax, waits = ownWaits(), registeringMs = REGISTERING_MS } = options
    this.#waits = waits
    this.#watch = options.watch
    this.#onClose = options.onClose ?? (() => {})
    const restoreGate = options.restoreGate ?? new RestoreGate(options.table)
    const table = new TableBehindRestoreGate(options.table, restoreGate)
    this.#table = table
    this.name = table.engine.name
    this.#restoreGate = restoreGate
    this.#oracle = oracle
    this.time = new TableTime(oracle, clock)
    this.answers = answers
    this.cursorSecret = options.cursorSecret
    this.#scan = new TableScan(table)
    const wakeUps = new WakeUps(options.table.broadcast, options.cursorSecret)
    this.#wakeUps = wakeUps
    this.#polling = new KeyPolling(table, this.#dead, wakeUps)
    this.#safePoint = new SafePoint({
      ...{ table, clock, source: oracle, knownToAllMs: options.knownToAllMs },
      restored: () => restoreGate.safePoint,
    })
    const format = options.format ?? (() => restoreGate.format)
    const rowTable = new RowTable(table, new RowCache(cacheBytesMax), this.#safePoint, {
      format,
      rowBytesMax: options.rowBytesMax,
    })
    const system = new SystemRows(table, this.#scan, this.#latches, format)
    this.system = system
    const { observed } = this
    const registrations = new Registrations(observed, registeringMs)
    const hints = new Hints(table, observed, registrations, wakeUps)
    const cellSources = { observed, registrations, hints, wakeUps }
    const feed = new FeedRow(table, registrations.registering)
    const expiries = new ExpiryRows(table)
    const look: DecisionsOptions['look'] = (keys, startTs) => this.#rows.commitTsOf(keys, startTs)
    const end: LogReaderOptions['end'] = async (decision) => {
      const range = removedBy(decision)
      if (range === undefined) return (await this.#resolver.endNow(decision)) || look(decision.keys, decision.startTs)
      if (decision.commitTs > restoreGate.safePoint) await this.#removeRange(range, decision.commitTs)
      return decision.commitTs
    }
    const log = new ServerLog({ table, source: oracle, wakeUps, ...options.logs })
    this.#decisions = new Decisions({ feed, expiries, look, end, log })
    const reader = new LogReader({ table, source: oracle, end })
    const seenFormat = options.format ?? (() => restoreGate.seenFormat)
    this.traits = {
      ...TABLE_TRAITS,
      plainOnePhaseCommit: table.changeTogether !== undefined,
      get changes() {
        return seenFormat() >= FEED_FORMAT
      },
    }
    this.log = new TableChangeLog({
      ...{ table, source: oracle, feed, reader, expiries, format, look, wakeUps },
      ...{ seenFormat, safePoint: this.#safePoint, lookMs: options.logs?.lookMs ?? options.logs?.beatMs },
    })
    this.#logs = new LogCollection({ feed, reader, expiries, log: this.log, safePoint: this.#safePoint })
    const cells = new CellRows(table, oracle, cellSources)
    this.cells = cells
    this.#reads = new Reads(table, rowTable, this.#scan, oracle, this.#safePoint, answers)
    this.#collection = new Collection(table, rowTable, this.#scan, this.#safePoint, {
      refresh: () => cells.refresh(),
      at: (key) => observed.at(key),
    })
    this.#rows = new TableRows({
      ...{ table: rowTable, scan: this.#scan, source: oracle, safePoint: this.#safePoint, hints },
      ...{ collection: this.#collection, decisions: this.#decisions },
    })
    this.#calls = new WriteCalls({ rows: this.#rows, validateReads: this.validateReads, takesCommitTs: true })
    this.#pessimistic = new PollingLocks(this.#rows, this.#reads, { reports: waits, dead: this.#dead, wakeUps })
    const restoring = new TableRestoring(options.table, restoreGate, oracle, this.#rows.shortValueBytesMax)
    const collection = this.#collection
    const fault = (): string | undefined => restoreGate.fault ?? this.#watch?.fault ?? oracle.state.late
    this.upkeep = {
      probe: () => restoreGate.peek() === undefined && fault() === undefined,
      get fault() {
        return fault()
      },
      isReported: () => restoreGate.fault !== undefined,
      get restoring() {
        const run = restoreGate.peek()
        if (run === undefined) return undefined
        const { id, ts, lastKey, pairs, bytes } = run
        return { id, ts, lastKey, pairs, bytes }
      },
      raiseSafePoint: async (safePoint, signal) =>
        collection.raiseSafePoint(await this.#logs.passed(safePoint), signal),
      collect: async (safePoint, pace) => {
        const removed = await collection.collect(await this.#logs.passed(safePoint), pace)
        await this.#logs.collect(pace)
        return removed
      },
      restore: new Restoration(restoring).restore,
    }
    const pessimistic = this.#pessimistic
    this.figures = {
      meters: this.#rows.meters,
      get oracle() {
        return oracle.state
      },
      get waiting() {
        return pessimistic.waiting
      },
      /** Calls in flight count as batches. */
      get writeQueue() {
        const { calls, bytes } = table.inFlight
        return { batches: calls, bytes }
      },
      cacheBytes: undefined,
      get tableCalls() {
        return { calls: table.calls, ...rowTable.counts }
      },
    }
  }

  /** Polls the safe point from now on. Without it, the row is read on demand. */
  start(): Promise<void> {
    return this.#safePoint.start()
  }

  get safePoint(): Timestamp {
    return this.#safePoint.value
  }
  /** Waits of this process only. */
  lockWaits(limit: number): readonly WaitForEntry[] {
    return this.#waits.waits(limit)
  }
  now(): Timestamp {
    return this.#oracle.now()
  }
  tso(count: number): Timestamp | Promise<Timestamp> {
    const looking = this.#restoreGate.requireRestored()
    return looking === undefined ? this.#oracle.next(count) : looking.then(() => this.#oracle.next(count))
  }
  async tsoForClient(count: number): Promise<Timestamp> {
    await this.#restoreGate.requireRestored()
    return this.#oracle.nextForClient(count)
  }
  readTs(): Timestamp | Promise<Timestamp> {
    return this.tso(1)
  }
  blindTs(): Timestamp | undefined {
    return this.#restoreGate.isRestored ? this.#oracle.unproved?.() : undefined
  }
  newestAhead(): Timestamp {
    return 0
  }

  readonly exclusiveSync: Store['exclusiveSync'] = (latchSet, body) => {
    if (!this.traits.plainOnePhaseCommit) return false
    const written = exclusiveLatches(latchSet)
    if (!this.#latches.take(written, latchSet.read)) return false
    let isTaken = false
    const release = (): void => this.#latches.release(written, latchSet.read)
    try {
      isTaken = body((request, done) => {
        if (request.mutations.reduce((sum, mutation) => sum + pairBytes(mutation), 0) >= JOINT_BYTES_MAX) return false
        return this.#rows.updateSync(this.#calls.exclusivePrewrite(request), (error, answer) => {
          release()
          if (answer !== undefined) this.#rows.meters.commits.onePhase++
          done(error, answer)
        })
      })
    } finally {
      if (!isTaken) release()
    }
    return isTaken
  }
  readonly watchKeys: Store['watchKeys'] = (watcher) => this.#polling.watch(watcher)
  readonly get: Store['get'] = (request) => this.#reads.get(request)
  readonly batchGet: Store['batchGet'] = (request) => this.#reads.batchGet(request)
  readonly scan: Store['scan'] = (request) => this.#reads.scan(request)
  readonly scanLock: Store['scanLock'] = (request, lease) => this.#reads.scanLock(request, lease)
  readonly mvccGetByKey: Store['mvccGetByKey'] = (request) => this.#reads.mvccGetByKey(request)
  readonly mvccGetByStartTs: Store['mvccGetByStartTs'] = (request) => this.#reads.mvccGetByStartTs(request)
  readonly validateReads: Store['validateReads'] = async (request) => {
    const { leases = [], commitTs } = request
    if (leases.length > 0) await this.leases.require(leases, commitTs)
    await this.#reads.validateReads(request)
  }

  /** Falls back to two phases. The committer validates `reads` at the commit timestamp. */
  readonly prewrite: Store['prewrite'] = async (request) => {
    const { tryOnePc, useAsyncCommit, reads, commitEffects } = request
    const isPlain = this.traits.plainOnePhaseCommit && reads === undefined && commitEffects === undefined
    if (isPlain && tryOnePc && !useAsyncCommit) return this.#calls.prewrite(request)
    return this.#calls.prewrite({ ...inTwoPhases(request, this.name), ...(isPlain && { tryOnePc }) })
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

  readonly exclusive: Store['exclusive'] = (latchSet, body) =>
    this.#latches.hold(exclusiveLatches(latchSet), () => body(this.prewrite), latchSet.read)

  /** Transactions that lock from now on commit above the timestamp. */
  readonly deleteRange: Store['deleteRange'] = (range) => this.#decisions.remove(range, () => this.tso(1))

  async #removeRange(range: BoundedRange, ts: Timestamp): Promise<void> {
    await endTransactionsIn(this, range)
    await this.#collection.deleteRange(range, ts, () => this.#oracle.last)
  }

  readonly sweepRows: Store['sweepRows'] = (prefix, isOver) => this.#collection.sweepRows(prefix, isOver, this.get)

  async close(): Promise<void> {
    this.#pessimistic.close()
    this.#dead.close()
    this.#polling.close()
    this.#wakeUps.close()
    this.#safePoint.close()
    this.#restoreGate.close()
    this.#watch?.close()
    await this.#decisions.close()
    await this.#oracle.close()
    this.#onClose()
    await this.#table.close()
  }
}

function ownWaits(): WaitReports {
  const graph = new WaitGraph()
  return new WaitReports({ send: async (report) => graph.report('', report) })
}

function inTwoPhases(
  { tryOnePc, useAsyncCommit, secondaries, reads, commitEffects, ...request }: PrewriteRequest,
  name: string,
): PrewriteRequest {
  if (commitEffects === undefined) return request
  if (!commitEffects.leasesCheckedAtCommit)
    throw new KvError('not_supported', `riders need one-phase commit, which the store ${name} does not have`, {})
  return { ...request, commitEffects }
}
