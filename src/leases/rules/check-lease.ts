import type { LeaseRider } from '../../percolator/riders.js'
import type { Timestamp } from '../../timestamp.js'
import type { FailedLeaseCheck } from './lease.js'

/** A grant, and when it ends unless it is renewed. */
export interface LeaseTerm {
  readonly fence: Timestamp
  /** In milliseconds of a clock that only passing time moves. */
  readonly endsAtMs: number
}

/**
 * The fence that is in force; 0: the lease is free.
 *
 * Time is that of a monotonic clock and not of timestamps, which run ahead of the clock after a burst and jump with it: neither may end a
 * lease. In the order of timestamps the term still ends before the next one begins. A commit_ts that is fixed while this fence is in force
 * is below every timestamp that is handed out later, and so below the fence of the next grant.
 */
export function fenceInForce(term: LeaseTerm | undefined, nowMs: number): Timestamp {
  return term !== undefined && nowMs < term.endsAtMs ? term.fence : 0
}

/**
 * Judges a transaction by the leases that it depends on. Must run in the turn of the event loop that fixes its commit_ts.
 * @param fenceOf the fence in force at this moment, 0 for a free lease.
 * @returns the checks that do not hold, in their order.
 */
export function lostLeases(
  riders: readonly LeaseRider[],
  fenceOf: (lease: string) => Timestamp,
): readonly FailedLeaseCheck[] {
  const lost: FailedLeaseCheck[] = []
  for (const [place, { lease, fence, index = place }] of riders.entries()) {
    const present = fenceOf(lease)
    if (present !== fence) lost.push({ index, lease, fence: present })
  }
  return lost
}
