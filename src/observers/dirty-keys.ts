import type { Rides } from '../coordinator/ride.js'
import type { Pace } from '../store/pace.js'
import type { RecordTable } from '../store/record-table.js'
import type { Timestamp } from '../timestamp.js'
import type { Backfill, BackfillSources } from './backfill.js'
import type { ClaimOrder } from './claim-order.js'
import type { StoredObserver } from './registration.js'
import type { Failure } from './rules/cell.js'
import type { Observer } from './rules/observer.js'
import type { ClaimName, Notification, ObserverState, Release } from './rules/observers-api.js'

/** What `Observers` gives to whoever keeps its dirty keys. */
export interface DirtyKeysSources extends BackfillSources {
  readonly registrations: RecordTable<StoredObserver>
  /** Removes, in the background, what observers that are gone have left. */
  readonly sweep: () => void
}

/**
 * Which keys of observers are dirty, and who runs them. Where one process has the store to itself it sees every commit, so it keeps exact
 * marks (`marks/`). Where several servers share the store, commits leave hints, and whoever looks at a hinted key finds out (`hints/`).
 */
export interface DirtyKeys {
  /** Makes riders rows of their transactions. Absent where they travel on commits in one phase. */
  readonly rides: Rides | undefined
  /** Reads the registrations. Must be called before anything is committed. */
  open(): Promise<void>

  /**
   * Learns of observers that other servers have registered.
   * @returns undefined when all that have these names are known.
   */
  learn(names: readonly string[]): undefined | Promise<void>
  /** The same of all that were registered before this call. */
  refresh(): undefined | Promise<void>

  /** A new observer. @returns its `sinceTs`; 0: it takes effect once its record is `written`. */
  register(observer: Observer): Promise<Timestamp>
  /** A call of this process has written the record, or removed it. */
  written(stored: StoredObserver | undefined): Promise<void>
  /** The record is known to stand. @returns the observer of this id, which goes on with that. */
  known(stored: StoredObserver): ActiveObserver
  /** The record is known to stand no more. @param id undefined: the observer was not `known`. */
  forget(name: string, id: Timestamp | undefined): void

  /** Fulfilled when all that has expired at or below `ts` is marked. */
  passTo(ts: Timestamp): Promise<void>
  /** After a collection up to `safePoint`. */
  collect(safePoint: Timestamp, pace?: Pace): Promise<void>
  /** After `end` of all observers. */
  close(): Promise<void>
}

export interface ObserverCounts
  extends Pick<ObserverState, 'pending' | 'pendingIsExact' | 'claimed' | 'delayed' | 'parked' | 'acks' | 'conflicts'> {
  /** The oldest change that is known to be uncovered; 0: none. */
  readonly oldest: Timestamp
}

/** One observer at work: hands its cells out, and takes them back. */
export interface ActiveObserver {
  readonly id: Timestamp
  readonly stored: StoredObserver
  readonly backfill: Pick<Backfill, 'isWanted' | 'idle'>
  /** Claims that wait. */
  readonly waiting: number
  /** Without waiting: as exact as is known. */
  readonly counts: ObserverCounts
  readonly workers: ObserverState['workers']
  /** Counts for a look at the state. */
  count(): Promise<void>
  /** Counts for later `counts`, unless that was done lately. Never rejects. */
  recount(): Promise<void>

  /** Ends waiting claims, and all later ones. @param error absent: they are answered with nothing. */
  end(error?: unknown): Promise<void>

  claim(order: ClaimOrder): Promise<Notification[]>
  /** @returns the claims that are lost. @param leaseMs absent: as long as that of the claim. */
  extend(claims: readonly ClaimName[], leaseMs: number | undefined): Promise<ClaimName[]>
  release(releases: readonly Release[]): Promise<{ readonly released: number; readonly parked: Uint8Array[] }>

  /** @param keys of its range, at least one, no duplicates. */
  notify(keys: readonly Uint8Array[]): Promise<Timestamp>
  /** @returns those of the keys that are parked. */
  parked(keys: readonly Uint8Array[]): Promise<readonly { readonly key: Uint8Array; readonly failure: Failure }[]>
  /** @param keys no duplicates. @returns the number of cells that were parked. */
  retry(keys: readonly Uint8Array[]): Promise<number>
  /** All parked cells were retried. */
  unparked(): void
  /** @param keys no duplicates. @returns the number of cells that were parked. */
  skip(keys: readonly Uint8Array[]): Promise<number>
}
