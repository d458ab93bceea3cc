import type { Stages } from '../../event-loop/stages.js'
import type { StoreMeters } from '../../meters/store-meters.js'
import type { MayAccess } from '../../percolator/access.js'
import type { PrewriteRequest } from '../../percolator/api.js'
import type { Lock } from '../../percolator/lock.js'
import type { HistoryDepth, Mutation, Outcome, RowView } from '../../percolator/row.js'
import type { WriteRecord } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import type { DecidedEffects } from '../observed.js'
import type { SystemWrite } from '../system-records.js'

/**
 * The part of a store that the calls in this folder need. A store reads rows and writes mutations; the calls choose the rows and
 * the mutations. The store also keeps latches, lock waits and budgets, and handles failures of the disk.
 */
export interface RowAccess {
  /** Transactions that started below it must not change any row. Read it after the rows and before the write. */
  readonly safePoint: Timestamp
  /**
   * All locks of transactions below it are resolved. A lock that is still found was written late: its transaction may be
   * committed elsewhere, but not by this lock. undefined: the store has no late writes.
   */
  readonly clearedTs: Timestamp | undefined
  /** Upper bound of the timestamps of all reads. Calculated commit timestamps must be above it. */
  readonly maxTs: Timestamp
  /** Timestamp of the highest running delete_range; 0: none. Calculated commit timestamps must be above it. */
  readonly removalTs: Timestamp
  /** No prewrite may lead to a commit at or below it: the highest resolved_ts taken, or a later delete_range; 0: none. */
  readonly passedTs: Timestamp
  readonly lastTs: Timestamp
  readonly shortValueBytesMax: number
  readonly meters: StoreMeters

  clock(): Timestamp
  now(): Timestamp
  /** Milliseconds by which the clock has jumped since `ts` was handed out. They are added to the TTLs of requests. */
  jumpedSince(ts: Timestamp): number
  /**
   * Makes all timestamps handed out later exceed `ts`, unless it is in the future.
   * @returns undefined if that is so already.
   */
  observe(ts: Timestamp): undefined | Promise<void>
  /** `observe`, which also raises `maxTs` to `ts`. */
  observeRead(ts: Timestamp): undefined | Promise<void>

  /**
   * Reads the rows of a change, lets it decide, and writes its mutations atomically, provided that the rows have not changed in
   * between.
   * @throws KvError the error of the decision; `forbidden` when the mutations would end a transaction that the caller may not
   *   end.
   */
  update<T>(change: Change<T>): Promise<T>
  /** Needs the latch of the key. @param depth default `txn`. */
  historyOf(key: Uint8Array, startTs: Timestamp, depth?: HistoryDepth): Promise<readonly WriteRecord[]>
  /**
   * Takes the latches of keys that a commit_ts made, in a store that commits in one phase, until the decision that has them is
   * written. @returns false, with no latch taken, when another transaction has locked or written one of them, or is about to.
   */
  claim(keys: readonly Uint8Array[], startTs: Timestamp): boolean
  /** Keys by start_ts. On a shared store a primary comes first: callers end locks in portions, and the primary decides. */
  lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>>
}

export type DepthOf = (index: number, lock: Lock | undefined) => HistoryDepth

export interface Change<T> {
  /** No duplicates. */
  readonly keys: readonly Uint8Array[]
  readonly startTs: Timestamp
  readonly depth: HistoryDepth | DepthOf
  /** Timestamp to which `depth` refers. Default: `startTs`. */
  readonly depthTs?: Timestamp
  /** The change is also a read at this timestamp. The store calls `observeRead` with it before it reads the rows. */
  readonly readTs?: Timestamp | undefined
  /**
   * Must run in one turn of the event loop with the end of the read and the beginning of the write. In a store that calculates
   * commit timestamps, a reader has then either raised `maxTs` before, or meets the locks that the change publishes. A store may
   * call it again with rows that it has read again.
   * @param rows `rows[i]` is the row of `keys[i]`.
   * @param isRepeat an earlier decision of this change may have been written in part.
   */
  readonly decide: (rows: readonly RowView[], isRepeat?: boolean) => Decision<T>
  /**
   * Absent: the change cannot commit in one phase. A store that takes timestamps from elsewhere calls it once it has locked the rows
   * that `decide` would change.
   * @param commitTs was taken after that. @returns undefined when the transaction has to commit in two phases.
   */
  readonly decideAtOnce?:
    | ((rows: readonly RowView[], isRepeat: boolean, commitTs: Timestamp) => Decided<T> | undefined)
    | undefined
  /** Further latches, as in `LatchSet`: keys whose cells change, and system records. No duplicates, none of `keys`. */
  readonly latches?: readonly string[] | undefined
  readonly preparation?: Preparation | undefined
  /**
   * Depth of the notifications that commits of this change make: see `StoredNotification`. If they are made when the commit is
   * decided, `decidedEffects` has it.
   */
  readonly markDepth?: number | undefined
  /**
   * With the commit of a primary: all keys of the transaction, or those that `keys` lacks. undefined: the caller does not know them.
   */
  readonly txnKeys?: readonly Uint8Array[] | undefined
  readonly mayAccess?: MayAccess | undefined
  readonly stages?: Stages | undefined
  readonly isExclusive?: boolean
}

export interface Preparation {
  load(): Promise<void>
  /** Does the same in this turn of the event loop. @returns false when it would have to wait. Absent: it always waits. */
  loadSync?(): boolean
}

export type Decision<T> = Extract<Outcome<T>, { ok: false }> | Decided<T>

export interface Decided<T> extends WriteOptions {
  readonly ok: true
  readonly value: T
  readonly mutations: readonly Mutation[]
  /** Keys that `claim` has taken. */
  readonly claimed?: readonly Uint8Array[] | undefined
  /** The store awaits it after the write and before the answer. */
  readonly observed?: Promise<void> | undefined
}

export interface WriteOptions {
  /** The prewrite that decided. If it puts write records, its keys must appear locked to readers until they are written. */
  readonly onePc?: PrewriteRequest
  /** Written in the same batch, even without mutations. */
  readonly extraRecords?: readonly SystemWrite[] | undefined
  /** Changes of cells and consumers, written in the same batch, even without mutations. */
  readonly decidedEffects?: DecidedEffects | undefined
  /** Awaited before the write, while the keys appear locked. If it rejects, nothing is written. */
  readonly validate?: (() => Promise<void>) | undefined
}
