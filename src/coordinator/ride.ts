import type { PrewriteMutation } from '../percolator/api.js'
import type { Riders } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'
import type { Resolver } from './lock-resolver.js'

export interface RideRequest {
  readonly riders: Riders
  readonly startTs: Timestamp
  /** Of the transaction itself. */
  readonly mutations: readonly PrewriteMutation[]
  readonly resolver: Resolver
  readonly lockWaitMs: number
  readonly signal?: AbortSignal | undefined
  /** The request may be the repeat of one that has committed. */
  readonly mayRepeat?: boolean
}

/** The riders of one transaction as rows of it, in a store that cannot commit in one phase. */
export interface Ride {
  /** The transaction has committed before. Only for a request that `mayRepeat`. */
  readonly committedAt: Timestamp | undefined
  readonly mutations: readonly PrewriteMutation[]
  readonly markDepth: number
  /** What others are to be told of a failed commit. */
  refusal(error: unknown): unknown
  /** To be called when the transaction has committed. */
  committed(): Promise<void>
}

/**
 * Decides the acknowledgements and notifications among riders.
 * @throws KvError `write_conflict` (`acknowledged`, `superseded`), `key_locked`, `ts_below_safe_point`, `not_found`, `invalid_argument`
 */
export type Rides = (request: RideRequest) => Promise<Ride>

/** Whether there is anything to decide. */
export function mayRide({ acks = [], notify = [] }: Riders): boolean {
  return acks.length > 0 || notify.some(({ keys }) => keys.length > 0)
}
