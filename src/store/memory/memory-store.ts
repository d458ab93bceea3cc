import { randomBytes } from 'node:crypto'
import { KvError } from '../../errors/kv-error.js'
import type { WaitForEntry } from '../../errors/registry.js'
import { DEFAULT_LIMITS } from '../../limits.js'
import { Clock, type ClockOptions } from '../../oracle/clock.js'
import type { Timestamp } from '../../timestamp.js'
import { AnswerBudget } from '../answer-budget.js'
import type { Attachments } from '../attachments.js'
import { AttachmentCalls } from '../calls/attachment-calls.js'
import { CellCalls } from '../calls/cell-calls.js'
import { endTransactionsIn } from '../calls/end-transactions.js'
import { PessimisticLocks } from '../calls/pessimistic-locks.js'
import { WriteCalls } from '../calls/write-calls.js'
import type { Cells } from '../cells.js'
import type { ChangeLog } from '../change-log.js'
import { exclusiveLatches } from '../claim.js'
import type { ConsumerMoves } from '../consumers.js'
import type { HeldLeases } from '../held-leases.js'
import { oldestStartTs } from '../oldest-lock.js'
import type { CompleteStore, StandingLocks, Store, StoreFigures, StoreFiles, Traits, Upkeep } from '../store.js'
import type { SystemRecords } from '../system-records.js'
import { OwnTime, type TimeSource } from '../time-source.js'
import { Collection } from './collection.js'
import { MemoryRows, type OnChange } from './memory-rows.js'
import { Reads } from './reads.js'
import { Restoration } from './restoration.js'

export interface MemoryStoreOptions extends Pick<ClockOptions, 'now' | 'monotonicNow' | 'onStep'> {
  readonly answers?: AnswerBudget | undefined
  readonly locksMax?: number | undefined
  /** Called with each change in the turn of the event loop in which it becomes visible. Must not throw. */
  readonly onChange?: OnChange | undefined
}

const TRAITS: Traits = {
  onePhaseCommit: true,
  asyncCommit: true,
  atomicRequests: true,
  deadlocks: 'detected',
  restore: true,
  compact: true,
  lockCount: true,
  changes: true,
  collection: true,
}
/**
 * Percolator on a sorted map: the shortest implementation of the contract. The data is lost when the store is closed. Long reads
 * and large requests block the event loop until they are done.
 */
export async function openMemoryStore(options: MemoryStoreOptions = {}): Promise<CompleteStore> {
  const store = new MemoryStore(options)
  await store.tso(1)
  return store
}

class MemoryStore implements CompleteStore {
  readonly name = 'memory'
  readonly traits = TRAITS
  readonly time: TimeSource
  readonly upkeep: Upkeep
  readonly figures: StoreFigures
  readonly locks: StandingLocks
  readonly files: StoreFiles
  readonly cursorSecret: Uint8Array = randomBytes(32)
  readonly answers: AnswerBudget
  readonly cells: Cells
  readonly consumers: ConsumerMoves
  readonly shared = undefined
  readonly leases: HeldLeases
  readonly attachments: Attachments
  readonly log: ChangeLog
  readonly #rows: MemoryRows
  readonly #reads: Reads
  readonly #calls: WriteCalls
  readonly #pessimistic: PessimisticLocks
  readonly #collection: Collection

  constructor({ answers, locksMax = DEFAULT_LIMITS.locksMax, onChange, ...clock }: MemoryStoreOptions) {
    this.answers = answers ?? new AnswerBudget(DEFAULT_LIMITS)
    const ownClock = new Clock(clock)
    const rows = new MemoryRows(ownClock, onChange)
    this.#rows = rows
    this.time = new OwnTime(rows.oracle, ownClock)
    this.figures = {
      meters: rows.meters,
      get oracle() {
        return rows.oracle.state
      },
      get waiting() {
        return rows.waits.size
      },
      writeQueue: { batches: 0, bytes: 0 },
      cacheBytes: undefined,
      tableCalls: undefined,
    }
    this.locks = {
      get count() {
        return rows.lockCount
      },
      get oldestTs() {
        return oldestStartTs(rows.table.locked)
      },
    }
    this.files = {
      levels: () => undefined,
      compact: async () => rows.requireAvailable(),
      bytes: async () => 0,
      space: async () => undefined,
    }
    this.consumers = this.#rows.consumers
    this.leases = this.#rows.leases
    this.log = this.#rows.changes
    this.#reads = new Reads(this.#rows, this.answers)
    this.#calls = new WriteCalls(this.#rows, (request) => this.#reads.validateNow(request))
    this.#pessimistic = new PessimisticLocks(this.#rows, locksMax)
    const collection = new Collection(this.#rows)
    this.#collection = collection
    const restoration = new Restoration(this.#rows)
    this.upkeep = {
      probe: () => !rows.isClosed && rows.restoring === undefined,
      get fault() {
        return rows.isClosed ? 'closed' : undefined
      },
      isTold: () => false,
      get restoring() {
        return rows.restoring
      },
      raiseSafePoint: (safePoint) => collection.raiseSafePoint(safePoint),
      collect: (safePoint, pace) => collection.collect(safePoint, pace),
      restore: (source, blocks, isAnew) => restoration.restore(source, blocks, isAnew),
    }
    this.cells = new CellCalls(this.#rows, this.#rows.system)
    this.attachments = new AttachmentCalls(this.#rows, this.#rows.system, {
      prewrite: this.prewrite,
      tso: (count) => this.tso(count),
    })
  }

  get safePoint(): Timestamp {
    return this.#rows.safePoint
  }
  get system(): SystemRecords {
    return this.#rows.system
  }
  lockWaits(limit: number): readonly WaitForEntry[] {
    return this.#rows.waits.edges(limit)
  }
  now(): Timestamp {
    return this.#rows.now()
  }
  tso(count: number): Timestamp | Promise<Timestamp> {
    return this.#rows.oracle.next(count)
  }
  tsoForClient(count: number): Promise<Timestamp> {
    return this.#rows.oracle.nextForClient(count)
  }
  readTs(): Timestamp | Promise<Timestamp> {
    return this.tso(1)
  }

  get isWrittenAhead(): boolean {
    return this.#rows.isWrittenAhead
  }
  async newestAhead(keys: Iterable<Uint8Array>): Promise<Timestamp> {
    let newest = 0
    for (const key of keys) {
      const writes = this.#rows.table.get(key)?.writes
      newest = Math.max(newest, writes?.find(({ type }) => type !== 'rollback')?.commitTs ?? 0)
    }
    return newest > this.#rows.lastTs ? newest : 0
  }

  known(): undefined {
    return undefined
  }
  exclusiveNow(): boolean {
    return false
  }
  readonly watchKeys: Store['watchKeys'] = (watcher) => this.log.listen(watcher)
  readonly get: Store['get'] = (request) => this.#reads.get(request)
  readonly batchGet: Store['batchGet'] = (request) => this.#reads.batchGet(request)
  readonly scan: Store['scan'] = (request) => this.#reads.scan(request)
  readonly scanLock: Store['scanLock'] = (request, lease) => this.#reads.scanLock(request, lease)
  readonly mvccGetByKey: Store['mvccGetByKey'] = (request) => this.#reads.mvccGetByKey(request)
  readonly mvccGetByStartTs: Store['mvccGetByStartTs'] = (request) => this.#reads.mvccGetByStartTs(request)
  readonly validateReads: Store['validateReads'] = (request) => this.#reads.validateReads(request)

  readonly prewrite: Store['prewrite'] = (request, beside) => this.#calls.prewrite(request, beside)
  readonly commit: Store['commit'] = (request) => this.#calls.commit(request)
  readonly rollback: Store['rollback'] = (request) => this.#calls.rollback(request)
  readonly cleanup: Store['cleanup'] = (request) => this.#calls.cleanup(request)
  readonly checkTxnStatus: Store['checkTxnStatus'] = (request) => this.#calls.checkTxnStatus(request)
  readonly checkSecondaryLocks: Store['checkSecondaryLocks'] = (request) => this.#calls.checkSecondaryLocks(request)
  readonly txnHeartBeat: Store['txnHeartBeat'] = (request) => this.#calls.txnHeartBeat(request)
  readonly resolveLock: Store['resolveLock'] = (request) => this.#calls.resolveLock(request)
  readonly acquirePessimisticLock: Store['acquirePessimisticLock'] = (request) => this.#pessimistic.acquire(request)
  readonly pessimisticRollback: Store['pessimisticRollback'] = (request) => this.#calls.pessimisticRollback(request)

  readonly exclusive: Store['exclusive'] = (claim, body) => {
    const prewrite: Store['prewrite'] = (request, beside) => this.#calls.prewrite(request, beside, true)
    return this.#rows.latches.hold(exclusiveLatches(claim), () => body(prewrite), claim.read)
  }

  readonly deleteRange: Store['deleteRange'] = (range) =>
    this.#collection.deleteRange(range, () => endTransactionsIn(this, range))

  async close(): Promise<void> {
    this.#rows.isClosed = true
    this.#rows.waits.close(new KvError('storage_unavailable', 'the store is closed', {}))
  }
}
