import type { KeyRange } from '../bytes/key-range.js'
import { KvError } from '../errors/kv-error.js'
import type { LockInfo } from '../errors/lock-info.js'
import type { Change, ExpiryChange, LoggedChange } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'

export interface ChangesRequest {
  /** Exclusive. */
  readonly since: Timestamp
  /** Inclusive. Must not be above a timestamp that `resolve` has returned. */
  readonly upTo: Timestamp
  /** Only changes in these ranges, which must not overlap (`mergedRanges`). Absent: all. */
  readonly ranges?: readonly KeyRange[] | undefined
  /** Leaves the values of puts out. */
  readonly keysOnly?: boolean | undefined
  readonly signal?: AbortSignal | undefined
}

export interface ExpiriesOptions {
  /** Absent: all keys. */
  readonly isWanted?: ((key: Uint8Array) => boolean) | undefined
  /** Below the safe point too: what no collection has removed yet. */
  readonly isLenient?: boolean | undefined
}

/** The next changes, in the order of `compareChanges`. A transaction may go on in the next page. */
export interface ChangePage {
  readonly changes: readonly Change[]
  /** Every change at or below it has been returned by this page or an earlier one. */
  readonly upTo: Timestamp
}

/** Every Put and Delete that a store has committed above `start`, and every version that has expired, by commit_ts. */
export interface ChangeLog {
  /** The log has no changes at or below it: it begins there, or they were collected. A feed may begin at it, not below. */
  readonly start: Timestamp
  /** Upper bound of the commit_ts of all changes so far, also of those in flight, and of pairs that a restore has brought. */
  readonly newest: Timestamp

  /**
   * To be fulfilled before `resolve` is called for anybody: what it returns then does not fall over a restart either. Writes once
   * per database. Until somebody asks, raw clients may use timestamps that lie before the last start.
   * @throws KvError `storage_unavailable`
   */
  begin(): Promise<void>
  /**
   * Takes resolved_ts: the highest timestamp at which a scan of everything would meet no lock. From this turn of the event loop
   * on nothing commits at or below it, and all that is committed at or below it can be read. It never falls. The newest
   * timestamp of the oracle bounds it, so an idle caller takes one first.
   * @throws KvError `storage_unavailable` while a restore is incomplete.
   */
  resolve(): Timestamp
  /** The locks that hold resolved_ts back most, at most `limit`. Locks of batches in flight are left out. */
  heldBackBy(limit: number): readonly LockInfo[]

  /**
   * Reads changes in order. A delete_range is returned if it touches the ranges. Puts whose values a later delete_range took are left
   * out, and other changes of its keys may be.
   * @throws KvError `ts_below_safe_point`, as soon as changes above `since` may be missing; `storage_unavailable`.
   */
  read(request: ChangesRequest): AsyncGenerator<ChangePage, void>

  /** False when no version expires in `(since, upTo]`. True may mean that nobody has looked. */
  mayExpire(since: Timestamp, upTo: Timestamp): boolean
  /**
   * The versions that expire in `(since, upTo]`, and that no newer Put or Delete of their keys has replaced by then, in order, page by
   * page.
   * @param upTo at or below a timestamp that `resolve` has returned.
   * @throws as `read`
   */
  expiries(since: Timestamp, upTo: Timestamp, options?: ExpiriesOptions): AsyncGenerator<readonly ExpiryChange[], void>

  /** Adds the values of puts that lack them, page by page. Leaves keys out that a delete_range took. @throws as `read` */
  withValues(changes: readonly Change[]): AsyncGenerator<readonly Change[], void>

  /** Tells of changes from this turn of the event loop on. @returns ends it. */
  listen(listener: ChangeListener): () => void
}

/** Must not throw. */
export interface ChangeListener {
  /**
   * Changes are on disk. Those of one call may be of several transactions, and those of one transaction may come in several
   * calls; the order is any. resolved_ts is below them until this was called. Values that are not at hand are absent.
   * The bytes may be views of a request: copy what is kept.
   */
  settled(changes: readonly LoggedChange[]): void
  /** The database was opened again after a failed write: changes that nobody was told of may have landed. */
  reloaded(): void
}

/** Must not throw. A store whose processes do not see each other's commits looks at the keys now and then, and tells by `changed`. */
export interface KeyWatcher extends ChangeListener {
  /** The keys that are to be looked at, at this moment. */
  keys(): Iterable<Uint8Array>
  /** The key may have changed since it was told of, or is looked at for the first time. */
  changed(key: Uint8Array): void
}

/** @throws KvError `not_supported` */
export function requireLog({ name, log }: { readonly name: string; readonly log: ChangeLog | undefined }): ChangeLog {
  if (log !== undefined) return log
  const detail = `the store ${name} keeps no log of changes, because no server sees the commits of all: it has no feed`
  throw new KvError('not_supported', detail, {})
}
