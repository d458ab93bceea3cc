import type { WaitForEntry } from '../errors/registry.js'
import type { Awaitable } from '../event-loop/after.js'
import type { StoreMeters } from '../meters/store-meters.js'
import type { OracleState } from '../oracle/oracle.js'
import type {
  PercolatorApi,
  PrewriteAnswer,
  PrewriteRequest,
  ScanLockAnswer,
  ScanLockRequest,
  ValuedPair,
} from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { AnswerBudget, AnswerLease } from './answer-budget.js'
import type { ChangeLog, KeyWatcher } from './change-log.js'
import type { Claim } from './claim.js'
import type { ConsumerMoves } from './consumers.js'
import type { HeldLeases } from './held-leases.js'
import type { HintedCells } from './hinted-cells.js'
import type { MarkedCells } from './marked-cells.js'
import type { Observed } from './observed.js'
import type { Pace } from './pace.js'
import type { SystemRecords } from './system-records.js'
import type { TimeSource } from './time-source.js'

/** The backup that is being restored. */
export interface RestoreSource {
  /** 32 hex digits. Two sources with the same id hold the same pairs. */
  readonly id: string
  /** Upper bound of every commit_ts in the backup. */
  readonly ts: Timestamp
}

export interface RestoreProgress extends RestoreSource {
  /** Every pair up to this key is stored; undefined when none is. */
  readonly lastKey: Uint8Array | undefined
  readonly pairs: number
  /** Bytes of keys and values. */
  readonly bytes: number
}

/** What stores have or lack. A feature asks once, at its door. `/v1/status` shows them as `capabilities`. */
export interface Traits {
  /**
   * The store can grant `tryOnePc`. Without it, the request is an ordinary prewrite, and the answer has no timestamp.
   */
  readonly onePhaseCommit: boolean
  /** The same for `useAsyncCommit`. */
  readonly asyncCommit: boolean
  /** All changes of a request are one atomic write. If false, the primary row decides and readers finish the others. */
  readonly atomicRequests: boolean
  /** `detected`: of transactions that wait in a circle, one is refused at once. `timeout`: their waits time out. */
  readonly deadlocks: 'detected' | 'timeout'
  readonly restore: boolean
  readonly compact: boolean
  readonly lockCount: boolean
  /** A log of all commits: the change feed, watches and consumers need it. */
  readonly changes: boolean
  /** Old versions can be removed, by a garbage collection. */
  readonly collection: boolean
}

/**
 * Prewrites in one turn of the event loop.
 * @param done called once, in a later turn, with the answer when it is on disk, or with an error. Must not throw.
 * @returns false, having done nothing, when anything has to be waited for, and when the prewrite is refused: `prewrite`
 *   tells the reason.
 * @throws KvError the refusal of a rider, which is final.
 */
export type PrewriteNow = (
  request: PrewriteRequest,
  done: (error: unknown, answer: PrewriteAnswer | undefined) => void,
) => boolean

/** What a store has asked a table over the network for since the process has started. */
interface TableCalls {
  /** Tries of calls, by kind. `change`: of one row, on a condition; `put`: without one. */
  readonly calls: { readonly read: number; readonly change: number; readonly put: number; readonly remove: number }
  /** Changes that were refused, because the row was not as it had been read. */
  readonly races: number
  /** Those of them that were decided on a row in memory. */
  readonly lostGuesses: number
  /** Changes whose answer was lost. */
  readonly uncertain: number
  /** Old records that went with other changes of their rows. */
  readonly trimmed: number
}

export interface DiskSpace {
  /** For this process, which may have less than the system. */
  readonly freeBytes: number
  readonly bytes: number
}

/** The locks that stand, those of requests in flight too. */
export interface StandingLocks {
  readonly count: number
  /** start_ts of the oldest of those that have stood longest; undefined where none stands. */
  readonly oldestTs: Timestamp | undefined
}

/** What metrics tell of a store, and what shows that it has too much to do. */
export interface StoreFigures {
  readonly meters: StoreMeters
  /** Of the timestamps that this store hands out. */
  readonly oracle: OracleState
  /** Requests that wait in the queues of locks. */
  readonly waiting: number
  /** Batches that wait for the disk, including those being written. */
  readonly writeQueue: { readonly batches: number; readonly bytes: number }
  /** undefined: there is no cache of versions. */
  readonly cacheBytes: number | undefined
  /** undefined: the store is on this machine. */
  readonly tableCalls: TableCalls | undefined
}

/** The files of a store on this machine. */
export interface StoreFiles {
  /** Tables per level; undefined while the engine cannot tell. */
  levels(): readonly { readonly level: number; readonly files: number; readonly bytes: number }[] | undefined
  /** Rewrites the files of a range of keys without deleted and overwritten records. Absent bounds are open. */
  compact(range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined }): Promise<void>
  /** Approximate size of all of them. */
  bytes(): Promise<number>
  /** Of their file system; undefined for files in memory. */
  space(): Promise<DiskSpace | undefined>
}

/** The state of a store as a whole, and the work that keeps it in order. */
export interface Upkeep {
  /**
   * False from a failed write until the engine is opened again. Meanwhile writes throw `storage_unavailable`; reads do
   * so only where they must. A call also makes the store try to open the engine again.
   */
  probe(): boolean
  /** The reason why writes are refused; undefined when they are not. */
  readonly fault: string | undefined
  /** Whether an error only repeats a failure that the store has told the log of. */
  isTold(error: unknown): boolean

  /**
   * Refuses reads and prewrites below `safePoint` from now on, after restarts too. The safe point never goes down.
   * @param signal ends a wait for other servers.
   * @returns the safe point that is now in force.
   */
  raiseSafePoint(safePoint: Timestamp, signal?: AbortSignal): Promise<Timestamp>

  /**
   * Raises the safe point, removes in small steps the records that no reader can see any more, and frees their disk
   * space where that is worth the work. There must be no lock below the safe point.
   * @returns the number of write records removed, also when `pace.signal` ended the collection early.
   */
  collect(safePoint: Timestamp, pace?: Pace): Promise<number>

  /**
   * Set from the first pair of a restore until its last one, across restarts. Meanwhile all other calls throw
   * `storage_unavailable`.
   */
  readonly restoring: RestoreProgress | undefined

  /**
   * Stores pairs with their commit_ts in an empty store, or continues an incomplete restore with the same id after its
   * last pair. Changes nothing before the first pairs arrive. If `blocks` throws or the process dies, the stored pairs
   * stay and the store is `restoring`. The safe point is raised at the end, so calls that began earlier are refused.
   * @param blocks in ascending order of keys.
   * @param isAnew first removes the pairs of an incomplete restore.
   * @throws KvError `precondition_failed` when the store is not empty; the errors of `blocks`.
   */
  restore(
    source: RestoreSource,
    blocks: AsyncIterable<readonly ValuedPair[]>,
    isAnew: boolean,
  ): Promise<RestoreProgress>
}

/**
 * A store: the Percolator calls, and what the server itself needs. Every store has every method. A part that a store may lack as a whole
 * is one member, which is undefined then.
 */
export interface Store extends PercolatorApi {
  /** Shown by `/v1/status`. */
  readonly name: string
  readonly traits: Traits
  readonly time: TimeSource
  readonly upkeep: Upkeep
  readonly figures: StoreFigures
  /** undefined: they are not counted. */
  readonly locks: StandingLocks | undefined
  readonly files: StoreFiles | undefined
  /** Committed changes, by commit_ts. */
  readonly log: ChangeLog | undefined
  /** Reads below it are refused; 0 before the first collection. */
  readonly safePoint: Timestamp
  /** Reads that may be long count against this budget, and throw `overloaded` when it is used up. */
  readonly answers: AnswerBudget
  /** Signs scan cursors. Must stay the same after a restart. */
  readonly cursorSecret: Uint8Array

  /** The newest timestamp of the clock. Ages are computed from it. */
  now(): Timestamp
  /** `tso` for clients, which must not run far ahead of the clock. @throws KvError `overloaded`, after a wait. */
  tsoForClient(count: number): Promise<Timestamp>

  /**
   * A timestamp for reads outside of transactions. It sees all acknowledged writes, and is available while writes, and
   * with them perhaps `tso`, are refused.
   */
  readTs(): Timestamp | Promise<Timestamp>

  /** @param lease counts the locks of the answer. Absent when the server itself uses them. */
  scanLock(request: ScanLockRequest, lease?: AnswerLease): Promise<ScanLockAnswer>
  /** Transactions that wait for pessimistic locks, at most `limit` of the waits. */
  lockWaits(limit: number): readonly WaitForEntry[]

  /** Tells of changes of the watcher's keys from this turn of the event loop on. @returns ends it. */
  watchKeys(watcher: KeyWatcher): () => void

  /**
   * Runs `body` while no other request of this process changes any of the keys or holds any of the names. With
   * one-phase commit, `body` may call only reads and the given `prewrite`: other calls take the same latches and would
   * deadlock. Without one-phase commit it may call everything.
   *
   * Correctness must not depend on it, because the protocol checks for conflicts itself. It keeps one-shot transactions
   * from conflicting with each other again and again.
   */
  exclusive<T>(claim: Claim, body: (prewrite: Store['prewrite']) => Promise<T>): Promise<T>

  /**
   * `exclusive` in one turn of the event loop, for small transactions that commit in one phase. If `body` returns true, the
   * latches are held until the answer to its prewrite.
   * @param body returns what the given `prewrite` returned, or false when it has not called it. May throw.
   * @returns false, having done nothing, when a latch is taken, a written key is locked, or `body` returned false; always where commits
   *   take two phases.
   */
  exclusiveNow(claim: Claim, body: (prewrite: PrewriteNow) => boolean): boolean

  /**
   * The newest version of `keys` that a client has committed above every timestamp handed out; 0 when there is none.
   * Call this inside `exclusive`, in order to read such a version and commit above it.
   */
  newestAhead(keys: Iterable<Uint8Array>): Awaitable<Timestamp>
  /** The registered observers. */
  readonly observed: Observed
  /** What they have to run. */
  readonly cells: MarkedCells | HintedCells

  /** Tells where transactions have moved consumers. */
  readonly consumers: Pick<ConsumerMoves, 'listen'>

  /** Leases, by which transactions are judged. */
  readonly leases: HeldLeases

  /** Records of the server itself. */
  readonly system: SystemRecords

  /**
   * Removes reserved rows with all of their versions, in steps, whatever the safe point is: those whose keys begin with `prefix`, and for
   * whose newest values `isOver` returns true. Rows that are locked stay.
   * @returns total bytes of the other rows: their newest values, and their keys without the prefix.
   */
  sweepRows(prefix: Uint8Array, isOver: (value: Uint8Array) => boolean): Promise<number>

  close(): Promise<void>
}

/** A store that one process has to itself lacks nothing. */
export interface CompleteStore extends Store {
  readonly cells: MarkedCells
  readonly locks: StandingLocks
  readonly files: StoreFiles
  readonly log: ChangeLog
}
