import type { WaitForEntry } from '../errors/registry.js'
import type { Awaitable } from '../event-loop/after.js'
import type { StoreMeters } from '../meters/store-meters.js'
import type { OracleState } from '../oracle/oracle-state.js'
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
import type { ChangeLog, KeyWatcher, PromptLog } from './change-log.js'
import type { ConsumerMoves } from './consumers.js'
import type { HeldLeases } from './held-leases.js'
import type { HintedCells } from './hinted-cells.js'
import type { LatchSet } from './latch-set.js'
import type { MarkedCells } from './marked-cells.js'
import type { Observed } from './observed.js'
import type { Pace } from './pace.js'
import type { SystemRecords } from './system-records.js'
import type { TimeSource } from './time-source.js'

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
  readonly bytes: number
}

/** Abilities of a store. A feature checks once, where it begins. `/v1/status` shows them as `capabilities`. */
export interface Traits {
  /** `tryOnePc` can commit. Otherwise it is an ordinary prewrite, whose answer has no timestamp. */
  readonly onePhaseCommit: boolean
  /** As `onePhaseCommit`, but only for transactions without riders and without reads to validate. */
  readonly plainOnePhaseCommit: boolean
  /** As `onePhaseCommit`, for `useAsyncCommit`. */
  readonly asyncCommit: boolean
  /** All changes of a request are one atomic write. If false, the primary row decides and readers finish the others. */
  readonly atomicRequests: boolean
  /** `detected`: one of the transactions in a circle of waits is refused at once. `timeout`: their waits time out. */
  readonly deadlocks: 'detected' | 'timeout'
  readonly restore: boolean
  readonly compact: boolean
  readonly lockCount: boolean
  readonly changes: boolean
  readonly collection: boolean
}

/**
 * Prewrites in one turn of the event loop.
 * @param done called once, in a later turn, with the answer when it is on disk, or with an error. Must not throw.
 * @returns false, having done nothing, when the prewrite would have to wait or is refused; `prewrite` then tells the reason.
 * @throws KvError the final refusal of a commit effect.
 */
export type PrewriteSync = (
  request: PrewriteRequest,
  done: (error: unknown, answer: PrewriteAnswer | undefined) => void,
) => boolean

interface TableCalls {
  /** Tries, by kind. `change`: of one row, on a condition. */
  readonly calls: { readonly read: number; readonly change: number }
  /** Refused changes, whose row had changed since the read. */
  readonly races: number
  /** Races lost because the decision used a cached row. */
  readonly lostGuesses: number
  /** Changes whose answer was lost. */
  readonly uncertain: number
  /** Old records removed along with other changes of their rows. */
  readonly trimmed: number
}

export interface DiskSpace {
  /** Available to this process, which may be less than to the system. */
  readonly freeBytes: number
  readonly bytes: number
}

export interface StandingLocks {
  readonly count: number
  /** The lowest start_ts among the locks that have stood longest. */
  readonly oldestTs: Timestamp | undefined
}

export interface StoreFigures {
  readonly meters: StoreMeters
  readonly oracle: OracleState
  readonly waiting: number
  readonly writeQueue: { readonly batches: number; readonly bytes: number }
  readonly cacheBytes: number | undefined
  readonly tableCalls: TableCalls | undefined
}

export interface StoreFiles {
  levels(): readonly { readonly level: number; readonly files: number; readonly bytes: number }[] | undefined
  /** Rewrites the files of a range without deleted and overwritten records. */
  compact(range: { readonly start?: Uint8Array | undefined; readonly end?: Uint8Array | undefined }): Promise<void>
  bytes(): Promise<number>
  /** undefined for files in memory. */
  space(): Promise<DiskSpace | undefined>
}

/** The state of a store as a whole, and the work that keeps it in order. */
export interface Upkeep {
  /**
   * False from a failed write until the engine is opened again. During that, writes throw `storage_unavailable`; reads do so only
   * when they must. A call also makes the store try to open the engine again.
   */
  probe(): boolean
  readonly fault: string | undefined
  /** True for an error that only repeats a failure which the store has logged. */
  isReported(error: unknown): boolean

  /**
   * Refuses reads and prewrites below `safePoint` from now on, after restarts too. The safe point never falls.
   * @param signal ends a wait for other servers.
   * @returns the safe point now in force.
   */
  raiseSafePoint(safePoint: Timestamp, signal?: AbortSignal): Promise<Timestamp>

  /**
   * Raises the safe point, removes in small steps the records that no reader can see any more, and frees their disk space if that
   * is worth the work. There must be no lock below the safe point.
   * @returns the number of write records removed, also when `pace.signal` ended the collection early.
   */
  collect(safePoint: Timestamp, pace?: Pace): Promise<number>

  /**
   * Set from the first pair of a restore until its last one, across restarts. During that, all other calls throw
   * `storage_unavailable`.
   */
  readonly restoring: RestoreProgress | undefined

  /**
   * Stores pairs with their commit_ts in an empty store, or continues an incomplete restore with the same id after its
   * last pair. Changes nothing before the first pairs arrive. If `blocks` throws or the process dies, the stored pairs
   * stay and the store is `restoring`. The safe point is raised at the end, so calls that began earlier are refused.
   * @param blocks in ascending order of keys.
   * @param restart first removes the pairs of an incomplete restore.
   * @throws KvError `precondition_failed` when the store is not empty; the errors of `blocks`.
   */
  restore(
    source: RestoreSource,
    blocks: AsyncIterable<readonly ValuedPair[]>,
    restart: boolean,
  ): Promise<RestoreProgress>
}

/**
 * The Percolator calls, and what the server itself needs. Every store has every method. A member is undefined when the store
 * lacks that part as a whole.
 */
export interface Store extends PercolatorApi {
  readonly name: string
  readonly traits: Traits
  readonly time: TimeSource
  readonly upkeep: Upkeep
  readonly figures: StoreFigures
  readonly locks: StandingLocks | undefined
  readonly files: StoreFiles | undefined
  readonly log: ChangeLog
  /** Reads below it are refused; 0 before the first collection. */
  readonly safePoint: Timestamp
  readonly answers: AnswerBudget
  /** Signs scan cursors. Must stay the same over restarts. */
  readonly cursorSecret: Uint8Array

  /** The newest timestamp by the clock alone, for ages. */
  now(): Timestamp
  /** `tso` for clients, which must not run far ahead of the clock. @throws KvError `overloaded`, after a wait. */
  tsoForClient(count: number): Promise<Timestamp>

  /**
   * A timestamp for reads outside of transactions. It sees all acknowledged writes, and is available while writes, and with them
   * perhaps `tso`, are refused.
   */
  readTs(): Timestamp | Promise<Timestamp>
  /**
   * A start_ts for a transaction that reads nothing, had at less cost than by `tso`. Versions above it may have been acknowledged
   * already: they are a conflict, and a start_ts of `tso` is above them. Absent, or undefined: there is none.
   */
  blindTs?(): Timestamp | undefined

  scanLock(request: ScanLockRequest, lease?: AnswerLease): Promise<ScanLockAnswer>
  lockWaits(limit: number): readonly WaitForEntry[]

  /** Notifies the watcher of changes of its keys from this turn of the event loop on. @returns a function that ends it. */
  watchKeys(watcher: KeyWatcher): () => void

  /**
   * Runs `body` while no other request of this process changes any of the keys or holds any of the names. With
   * one-phase commit, `body` may call only reads and the given `prewrite`: other calls take the same latches and would
   * deadlock. Without one-phase commit it may call everything.
   *
   * Correctness must not depend on it, because the protocol checks for conflicts itself. It keeps one-shot transactions
   * from conflicting with each other again and again.
   */
  exclusive<T>(latchSet: LatchSet, body: (prewrite: Store['prewrite']) => Promise<T>): Promise<T>

  /**
   * `exclusive` in one turn of the event loop, for small transactions that commit in one phase. If `body` returns true, the
   * latches are held until the answer to its prewrite.
   * @param body returns the result of the given `prewrite`, or false when it has not called it. May throw.
   * @returns false, having done nothing, when a latch is taken, a written key is locked, or `body` returned false; always if
   *   commits take two phases.
   */
  exclusiveSync(latchSet: LatchSet, body: (prewrite: PrewriteSync) => boolean): boolean

  /**
   * The newest version of `keys` that a client has committed above every timestamp handed out; 0: none. Call it inside
   * `exclusive`, in order to read such a version and commit above it.
   */
  newestAhead(keys: Iterable<Uint8Array>): Awaitable<Timestamp>
  readonly observed: Observed
  readonly cells: MarkedCells | HintedCells

  readonly consumers: Pick<ConsumerMoves, 'listen'>

  readonly leases: HeldLeases

  readonly system: SystemRecords

  /**
   * Removes reserved rows with all of their versions, in steps and regardless of the safe point: rows whose keys begin with
   * `prefix` and whose newest value `isOver` accepts. Locked rows stay.
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
  readonly log: PromptLog
}
