import type { KeyRange } from '../bytes/key-range.js'
import type { LockInfo } from '../errors/lock-info.js'
import type { Awaitable } from '../event-loop/after.js'
import type { Change, ExpiryChange, LoggedChange } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'

export interface ChangesRequest {
  readonly since: Timestamp
  /** Inclusive. Must not be above a timestamp that `resolve` has returned. */
  readonly upTo: Timestamp
  /** Must not overlap (`mergedRanges`). Absent: everything. */
  readonly ranges?: readonly KeyRange[] | undefined
  readonly keysOnly?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

export interface ExpiriesOptions {
  readonly isWanted?: ((key: Uint8Array) => boolean) | undefined
  /** Includes expiries below the safe point that no collection has removed yet. */
  readonly isLenient?: boolean | undefined
}

/** Changes in the order of `compareChanges`. A transaction may continue in the next page. */
export interface ChangePage {
  readonly changes: readonly Change[]
  /** Every change at or below it has been returned by this page or an earlier one. */
  readonly upTo: Timestamp
}

/** All Puts, Deletes and expiries above `start`, by commit_ts. */
export interface ChangeLog {
  /** The log has no changes at or below it: it begins there, or they were collected. A feed may begin at it, not below. */
  readonly start: Timestamp

  /**
   * Await before the first `resolve`, so that resolved_ts does not fall over a restart. Writes once per database. Until then, raw
   * clients may use timestamps from before the last start. On a shared store, the first call ever waits until all servers log.
   * @throws KvError `storage_unavailable`, `not_supported`
   */
  begin(): Promise<void>
  /**
   * Takes resolved_ts: nothing commits at or below it any more, and everything committed at or below it can be read. It never
   * falls. A log that is not `prompt` waits before it answers, so that it can be asked again and again.
   * @param wanted a resolved_ts that is known to be at or above it suffices. Default: a new one is taken.
   * @throws KvError `storage_unavailable`, for example while a restore is incomplete.
   */
  resolve(wanted?: Timestamp): Awaitable<Timestamp>
  /** The locks that hold resolved_ts back most, at most `limit`. Leaves out locks of batches in flight. */
  heldBackBy(limit: number): readonly LockInfo[]

  /**
   * Reads changes in order. Returns a delete_range that touches the ranges. Leaves out Puts whose values a later delete_range
   * removed, and possibly other changes of its keys.
   * @throws KvError `ts_below_safe_point`, as soon as changes above `since` may be missing; `storage_unavailable`.
   */
  read(request: ChangesRequest): AsyncGenerator<ChangePage, void>

  /** Adds the values of puts that lack them, page by page. Leaves out keys that a delete_range removed. @throws as `read` */
  withValues(changes: readonly Change[]): AsyncGenerator<readonly Change[], void>

  /** undefined: this process does not see all commits, so whoever follows the changes reads the log. */
  readonly prompt: PromptLog | undefined
}

/** The log of a store that one process has to itself: it tells of changes as they commit. */
export interface PromptLog extends ChangeLog {
  /** Upper bound of the commit_ts of all changes, including those in flight and pairs that a restore has brought. */
  readonly newest: Timestamp

  /**
   * The highest timestamp at which a scan of everything would meet no lock. From this turn of the event loop on nothing commits
   * at or below it. The newest timestamp of the oracle bounds it, so an idle caller takes one first.
   */
  resolve(): Timestamp

  /** False when no version expires in `(since, upTo]`. True may mean that this is not known. */
  mayExpire(since: Timestamp, upTo: Timestamp): boolean
  /**
   * Versions that expire in `(since, upTo]` without a newer Put or Delete of their key by then, in order, page by page.
   * @param upTo at or below a timestamp that `resolve` has returned.
   * @throws as `read`
   */
  expiries(since: Timestamp, upTo: Timestamp, options?: ExpiriesOptions): AsyncGenerator<readonly ExpiryChange[], void>

  /** The listener gets all changes from this turn of the event loop on. @returns a function that ends it. */
  listen(listener: ChangeListener): () => void
}

/** Calls must not throw. */
export interface ChangeListener {
  onCommitted(changes: readonly LoggedChange[]): void
  /** The database was opened again after a failed write. Changes may have landed without a call of `onCommitted`. */
  reloaded(): void
}

/**
 * Watches single keys. A store whose processes do not see each other's commits looks at the keys now and then, and calls
 * `changed`. Calls must not throw.
 */
export interface KeyWatcher extends ChangeListener {
  keys(): Iterable<Uint8Array>
  /** The key may have changed since the last call, or is looked at for the first time. */
  changed(key: Uint8Array): void
}
