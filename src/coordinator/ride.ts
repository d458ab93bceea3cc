import type { PrewriteMutation } from '../percolator/api.js'
import type { Riders } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'
import type { Resolver } from './lock-resolver.js'

export interface RideRequest {
  readonly riders: Riders
  readonly startTs: Timestamp
  readonly mutations: readonly PrewriteMutation[]
  readonly resolver: Resolver
  readonly lockWaitMs: number
  readonly signal?: AbortSignal | undefined
  readonly mayRepeat?: boolean
}

/** The riders of one transaction as rows of it, for a store that cannot commit in one phase. */
export interface Ride {
  /** commit_ts of an earlier, committed copy of the request. Set only with `mayRepeat`. */
  readonly committedAt: Timestamp | undefined
  readonly mutations: readonly PrewriteMutation[]
  readonly markDepth: number
  /** Translates the error of a failed commit: a conflict on a row becomes the refusal of the rider that wrote it. */
  refusal(error: unknown): unknown
  committed(): Promise<void>
}

/**
 * Decides the acknowledgements and notifications among riders.
 * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `key_locked`, `ts_below_safe_point`, `not_found`,
 *   `invalid_argument`
 */
export type Rides = (request: RideRequest) => Promise<Ride>

export function mayRide({ acks = [], notify = [] }: Riders): boolean {
  return acks.length > 0 || notify.some(({ keys }) => keys.length > 0)
}
