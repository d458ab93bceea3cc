import type { LeaseRequest, LeaseState } from './rules/leases-api.js'

/**
 * The outcomes of a PUT:
 * - `grant`: the lease is free.
 * - `renew`: the caller holds it.
 * - `held`: another holder has it. A request that names a fence does not wait, because no later grant has that fence.
 * - `other_fence`: the named fence is not in force.
 */
export type PutVerdict = 'grant' | 'renew' | 'held' | 'other_fence'

export function decidePut(
  { holder, fence }: Pick<LeaseRequest, 'holder' | 'fence'>,
  held: Pick<LeaseState, 'holder' | 'fence'> | undefined,
): PutVerdict {
  if (fence !== undefined && fence !== held?.fence) return 'other_fence'
  if (held === undefined) return 'grant'
  return held.holder === holder ? 'renew' : 'held'
}
