import type { Stages } from '../../event-loop/stages.js'
import type { StoreMeters } from '../../meters/store-meters.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import type { Lock } from '../../percolator/lock.js'
import type { Reaches } from '../../percolator/reach.js'
import type { HistoryDepth, Mutation, Outcome, RowView } from '../../percolator/row.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import type { Ridden } from '../observed.js'
import type { SystemWrite } from '../system-records.js'

/**
 * The part of a store that the calls in this folder need. A store reads rows and writes mutations; the calls choose the
 * rows and the mutations. Latches, lock waits, budgets and failures of the disk are left to the store.
 */
export interface RowAccess {
  /** Transactions that started below it must not change any row. Must be read after the rows and before the write. */
  readonly safePoint: Timestamp
  /**
   * The locks of transactions below it are resolved. One that is still found, or is found again, was written late: its transaction
   * may be committed elsewhere, but not by this lock. undefined: no lock is written late.
   */
  readonly clearedTs: Timestamp | undefined
  /** Upper bound of the timestamps of all reads. Calculated commit timestamps must be above it. */
  readonly maxTs: Timestamp
  /** The highest delete_range that runs; 0: none. Calculated commit timestamps must be above it too. */
  readonly removalTs: Timestamp
  /** Prewrites must not let anything commit at or below it: the highest resolved_ts that was taken, or a later delete_range; 0: none. */
  readonly passedTs: Timestamp
  /** Upper bound of all timestamps that were handed out or observed. */
  readonly lastTs: Timestamp
  /** Values up to this many bytes are stored in the lock and the write record. */
  readonly shortValueBytesMax: number
  readonly meters: StoreMeters

  /** The newest timestamp that is not in the future: of the clock, or a newer one that was handed out ahead of it. */
  clock(): Timestamp
  /** The newest timestamp of the clock. Ages are computed from it. */
  now(): Timestamp
  /** Milliseconds by which the clock has jumped since `ts` was handed out. They are added to the TTLs of requests. */
  jumpedSince(ts: Timestamp): number
  /**
   * Makes all timestamps handed out later exceed `ts`, unless it is in the future.
   * @returns undefined if that is done already.
   */
  observe(ts: Timestamp): undefined | Promise<void>
  /** The same, and raises `maxTs` to `ts`. */
  observeRead(ts: Timestamp): undefined | Promise<void>

  /**
   * Reads the rows of a change, lets it decide, and writes its mutations atomically, provided that the rows have not
   * changed in between.
   * @throws KvError the error of the decision; `forbidden` when the mutations would end a transaction that the caller
   *   may not end.
   */
  update<T>(change: Change<T>): Promise<T>
  /** Needs the latch of the key. @returns its history, as deep as `depth` (default `txn`) asks. */
  historyOf(key: Uint8Array, startTs: Timestamp, depth?: HistoryDepth): Promise<readonly WriteRecord[]>
  /** The keys that each transaction has locked, by start_ts. Without transactions that have no locks. */
  lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>>
}

/** The depth of history that the decision needs for `keys[index]`, given its lock. */
export type DepthOf = (index: number, lock: Lock | undefined) => HistoryDepth

export interface Change<T> {
  /** No duplicates. */
  readonly keys: readonly Uint8Array[]
  /** start_ts of the transaction that the change belongs to. */
  readonly startTs: Timestamp
  readonly depth: HistoryDepth | DepthOf
  /** The timestamp to which `depth` refers. Default: `startTs`. */
  readonly depthTs?: Timestamp
  /** The change is also a read at this timestamp. The store calls `observeRead` with it before it reads the rows. */
  readonly readTs?: Timestamp | undefined
  /**
   * Must run in one turn of the event loop with the end of the reading and the beginning of the write. In a store that
   * calculates commit timestamps, a reader has then either raised `maxTs` before it, or meets the locks that it
   * publishes. A store may call it again with rows that it has read again.
   * @param rows `rows[i]` is the row of `keys[i]`.
   * @param isRepeat an earlier decision of this change may have been written in part.
   */
  readonly decide: (rows: readonly RowView[], isRepeat?: boolean) => Decision<T>
  /**
   * Further latches that the change needs, as in `Claim`: of keys whose cells it changes, and of system records. No duplicates, none
   * of `keys`.
   */
  readonly latches?: readonly string[] | undefined
  /** Reads whatever `decide` needs beside the rows, under the latches. */
  readonly preparation?: Preparation | undefined
  /** Depth of the marks that commits of this change make: see `Entry`. Where marks are made when a commit is decided, `ridden` has it. */
  readonly markDepth?: number | undefined
  /** See `LockingRequest`. */
  readonly reaches?: Reaches | undefined
  /** See `LockingRequest`. */
  readonly stages?: Stages | undefined
  /** The caller runs inside `exclusive` and holds the latches of the keys already. */
  readonly isExclusive?: boolean
}

export interface Preparation {
  inTurns(): Promise<void>
  /** The same in this turn of the event loop. @returns false when anything has to be waited for, as always where it is absent. */
  now?(): boolean
}

export type Decision<T> = Extract<Outcome<T>, { ok: false }> | Decided<T>

export interface Decided<T> extends WriteOptions {
  readonly ok: true
  readonly value: T
  readonly mutations: readonly Mutation[]
  /** The store awaits it after the write and before the answer. */
  readonly observed?: Promise<void> | undefined
}

/** Additions to the write of a prewrite that commits in one phase. */
export interface WriteOptions {
  /**
   * The prewrite that decided. If it puts write records, its keys must appear locked to readers until they are written.
   */
  readonly onePc?: PrewriteRequest
  /** Written in the same batch, even if there are no mutations. */
  readonly beside?: readonly SystemWrite[] | undefined
  /** Changes of cells and consumers that are written in the same batch, even if there are no mutations. */
  readonly ridden?: Ridden | undefined
  /** Awaited before the write, while the keys appear locked. If it rejects, nothing is written. */
  readonly validate?: (() => Promise<void>) | undefined
}
