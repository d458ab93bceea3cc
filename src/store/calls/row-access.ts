import type { PrewriteRequest } from '../../percolator/api.js'
import type { Lock } from '../../percolator/lock.js'
import type { Reaches } from '../../percolator/reach.js'
import type { HistoryDepth, Mutation, Outcome, RowView } from '../../percolator/row.js'
import type { Timestamp } from '../../timestamp.js'
import type { SystemWrite } from '../system-records.js'

/**
 * What a store provides for the calls in this folder. A store finds rows and writes mutations; the calls say which rows,
 * and what is written. Latches, lock waits, budgets and failures of the disk are the store's own business.
 */
export interface RowAccess {
  /** Transactions that started below it change nothing any more. Read after the rows, and before the write. */
  readonly safePoint: Timestamp
  /** No read was served above it: calculated commit timestamps go above it. Of no use to a store that calculates none. */
  readonly maxTs: Timestamp
  /** Every timestamp handed out so far, and every one observed, is at or below it. */
  readonly lastTs: Timestamp
  /** Values up to this many bytes travel in the lock and the write record. */
  readonly shortValueBytesMax: number

  /** The newest timestamp of the clock: ages are judged by it. */
  now(): Timestamp
  /** Milliseconds that the clock has jumped since a timestamp was handed out, which TTLs that requests bring do not count. */
  jumpedSince(ts: Timestamp): number
  /** Timestamps handed out later are above `ts`, as far as it is not in the future. @returns undefined: at once. */
  observe(ts: Timestamp): undefined | Promise<void>
  /** The same, and `maxTs` is at least `ts`. */
  observeRead(ts: Timestamp): undefined | Promise<void>

  /**
   * Reads the rows of a change, lets it decide, and writes what it decided: all of it or nothing, and only where the rows
   * are what was read.
   * @throws KvError the error of the decision; `forbidden` where the mutations end what the caller does not reach.
   */
  update<T>(change: Change<T>): Promise<T>
  /** The keys that transactions lock, by their start_ts; those that lock none are left out. */
  lockedBy(txns: ReadonlySet<Timestamp>): Promise<ReadonlyMap<Timestamp, readonly Uint8Array[]>>
}

/** How deep a history the decision about a key needs, given its lock. */
export type DepthOf = (index: number, lock: Lock | undefined) => HistoryDepth

export interface Change<T> {
  /** Each once. */
  readonly keys: readonly Uint8Array[]
  /** Of the transaction that the change is about. */
  readonly startTs: Timestamp
  readonly depth: HistoryDepth | DepthOf
  /** The timestamp that `depth` is meant for; absent: `startTs`. */
  readonly depthTs?: Timestamp
  /** The change is a read at this timestamp as well: see `observeRead`, which the store calls before it reads the rows. */
  readonly readTs?: Timestamp | undefined
  /**
   * Runs in one turn of the event loop with the end of the reading and the beginning of the write: in a store that
   * calculates commit timestamps, a reader has either raised `maxTs` before it, or meets the locks that it publishes. A
   * store may ask again with rows that it has read anew.
   * @param rows `rows[i]` is the row of `keys[i]`.
   */
  readonly decide: (rows: readonly RowView[]) => Decision<T>
  /** See `LockingRequest`. */
  readonly reaches?: Reaches | undefined
  /** The caller keeps others from the keys already: it runs in the body of `exclusive`. */
  readonly isExclusive?: boolean
}

export type Decision<T> = Extract<Outcome<T>, { ok: false }> | Decided<T>

export interface Decided<T> extends WriteOptions {
  readonly ok: true
  readonly value: T
  readonly mutations: readonly Mutation[]
  /** Awaited after the write, before the answer. */
  readonly observed?: Promise<void> | undefined
}

/** What goes along with the mutations of a prewrite that commits in one phase. */
export interface WriteOptions {
  /** The prewrite that decided. Where it puts write records, readers have to meet its keys as locked until they have landed. */
  readonly onePc?: PrewriteRequest
  /** In the same write, also where there are no mutations. */
  readonly beside?: readonly SystemWrite[] | undefined
  /** Awaited while those locks stand, before the write; where it rejects, nothing is written. */
  readonly validate?: (() => Promise<void>) | undefined
}
