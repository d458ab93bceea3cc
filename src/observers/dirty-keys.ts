import type { EffectsAsRows } from '../coordinator/effect-rows.js'
import type { Pace } from '../store/pace.js'
import type { RecordTable } from '../store/record-table.js'
import type { Timestamp } from '../timestamp.js'
import type { Backfill, BackfillSources } from './backfill.js'
import type { ClaimOrder } from './claim-order.js'
import type { StoredObserver } from './registration.js'
import type { Failure } from './rules/cell.js'
import type { Observer } from './rules/observer.js'
import type { ClaimName, Notification, ObserverState, Release } from './rules/observers-api.js'

export interface DirtyKeysSources extends BackfillSources {
  readonly registrations: RecordTable<StoredObserver>
  /** Removes, in the background, the records of removed observers. */
  readonly sweep: () => void
}

/**
 * Knows which observed keys are dirty, and who runs them. A process that has the store to itself sees every commit, so it keeps
 * exact marks (`marks/`). Where several servers share the store, commits leave hints, and a server that finds a hint looks at
 * the key (`hints/`).
 */
export interface DirtyKeys {
  /** Turns commit effects into rows of their transactions. Absent where commit effects travel on one-phase commits. */
  readonly effectsAsRows: EffectsAsRows | undefined
  /** Reads the registrations. Must be called before anything is committed. */
  open(): Promise<void>

  /**
   * Reads registrations that other servers have made.
   * @returns undefined when all of these names are known.
   */
  refreshIfUnknown(names: readonly string[]): undefined | Promise<void>
  /** Reads all registrations that were made before this call. */
  refresh(): undefined | Promise<void>

  /** @returns the `sinceTs` of a new observer; 0: it takes effect once `written` was called. */
  register(observer: Observer): Promise<Timestamp>
  /** Call after this process has written the record, or removed it. */
  written(stored: StoredObserver | undefined): Promise<void>
  /** Call when the record is known to exist. @returns the observer of this id, updated. */
  known(stored: StoredObserver): ActiveObserver
  /** Call when the record is known to be gone. @param id undefined: the observer was not `known`. */
  forget(name: string, id: Timestamp | undefined): void

  /** Resolves when every version that has expired at or below `ts` has marked its key. */
  passTo(ts: Timestamp): Promise<void>
  /** Call after a collection up to `safePoint`. */
  collect(safePoint: Timestamp, pace?: Pace): Promise<void>
  /** Call after `end` of all observers. */
  close(): Promise<void>
}

export interface ObserverCounts
  extends Pick<ObserverState, 'pending' | 'pendingIsExact' | 'claimed' | 'delayed' | 'parked' | 'acks' | 'conflicts'> {
  /** Timestamp of the oldest change known to be uncovered; 0: none. */
  readonly oldest: Timestamp
}

/** One running observer: hands its cells out to workers, and takes them back. */
export interface ActiveObserver {
  readonly id: Timestamp
  readonly stored: StoredObserver
  readonly backfill: Pick<Backfill, 'isWanted' | 'idle'>
  /** Number of waiting claims. */
  readonly waiting: number
  /** The last known counts, without waiting. */
  readonly counts: ObserverCounts
  readonly workers: ObserverState['workers']
  /** Refreshes `counts` for a request for the state. */
  count(): Promise<void>
  /** Refreshes `counts`, unless that happened lately. Never rejects. */
  recount(): Promise<void>

  /** Ends waiting and later claims. @param error absent: they get an empty answer. */
  end(error?: unknown): Promise<void>

  claim(order: ClaimOrder): Promise<Notification[]>
  /** @returns the claims that are lost. @param leaseMs absent: the lease that was asked for with the claim. */
  extend(claims: readonly ClaimName[], leaseMs: number | undefined): Promise<ClaimName[]>
  release(releases: readonly Release[]): Promise<{ readonly released: number; readonly parked: Uint8Array[] }>

  /** @param keys keys of its range, at least one, no duplicates. */
  notify(keys: readonly Uint8Array[]): Promise<Timestamp>
  /** @returns the parked ones among the keys. */
  parked(keys: readonly Uint8Array[]): Promise<readonly { readonly key: Uint8Array; readonly failure: Failure }[]>
  /** @param keys no duplicates. @returns the number of cells that were parked. */
  retry(keys: readonly Uint8Array[]): Promise<number>
  /** Call after all parked cells were retried. */
  unparked(): void
  /** @param keys no duplicates. @returns the number of cells that were parked. */
  skip(keys: readonly Uint8Array[]): Promise<number>
}
