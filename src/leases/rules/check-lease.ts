import type { LeaseGuard } from '../../percolator/commit-effects.js'
import type { Timestamp } from '../../timestamp.js'
import type { FailedLeaseCheck } from './lease.js'

/**
 * Checks a transaction against the leases that it depends on.
 * @param fences `fences[i]` is the fence in force of the lease of `riders[i]`; 0: the lease is free.
 * @returns the checks that fail, in order.
 */
export function lostLeases(
  commitEffects: readonly LeaseGuard[],
  fences: readonly Timestamp[],
): readonly FailedLeaseCheck[] {
  const lost: FailedLeaseCheck[] = []
  for (const [place, { lease, fence, index = place }] of commitEffects.entries()) {
    const present = fences[place] ?? 0
    if (present !== fence) lost.push({ index, lease, fence: present })
  }
  return lost
}
