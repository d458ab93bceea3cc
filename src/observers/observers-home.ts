import type { KeyRange } from '../bytes/key-range.js'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import type { Rides } from '../coordinator/ride.js'
import type { Pace } from '../store/pace.js'
import type { Timestamp } from '../timestamp.js'
import type { ObserverSummary } from './active-observer.js'
import type { ObserverState, ObserversApi } from './rules/observers-api.js'

export type ObserverCounts = ObserverSummary & Pick<ObserverState, 'name' | 'acks' | 'conflicts'>

export interface ObserversSummary extends ObserverSummary {
  /** Registered observers. */
  readonly count: number
}

/** The observers of a database, as it needs them. */
export interface ObserversHome extends ObserversApi {
  /** Makes riders rows of their transactions. Absent where they travel on commits in one phase. */
  readonly rides?: Rides | undefined
  /**
   * Learns of observers that other servers have registered.
   * @returns undefined when all that have these names are known.
   */
  learn(names: readonly string[]): undefined | Promise<void>
  /** Other requests run meanwhile. @param reaches whether the caller may see it. Default: all. */
  page(request: PageRequest, reaches?: (range: KeyRange) => boolean): Promise<Page<ObserverState>>
  /** What each observer counts, without waiting and without its workers. */
  counts(): Generator<ObserverCounts, void>
  /** The totals of all observers, without waiting. */
  summary(): ObserversSummary
  /** Fulfilled when all that has expired at or below `ts` is marked. */
  passTo(ts: Timestamp): Promise<void>
  /** After a collection up to `safePoint`. */
  collect(safePoint: Timestamp, pace?: Pace): Promise<void>
  close(): Promise<void>
}
