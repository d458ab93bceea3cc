import type { LeaseRider } from '../../percolator/riders.js'
import type { Timestamp } from '../../timestamp.js'
import type { FailedLeaseCheck } from './lease.js'

/**
 * Judges a transaction by the leases that it depends on.
 * @param fences of their leases, in the same places; 0 for a free one.
 * @returns the checks that do not hold, in their order.
 */
export function lostLeases(riders: readonly LeaseRider[], fences: readonly Timestamp[]): readonly FailedLeaseCheck[] {
  const lost: FailedLeaseCheck[] = []
  for (const [place, { lease, fence, index = place }] of riders.entries()) {
    const present = fences[place] ?? 0
    if (present !== fence) lost.push({ index, lease, fence: present })
  }
  return lost
}
