import type { StoredLease } from './rules/lease.js'
import type { LeaseRequest } from './rules/leases-api.js'

/**
 * What becomes of a PUT while nothing of its lease is being written.
 * - `grant`: the lease is free.
 * - `renew`: the caller holds it. `store`: it does, and the record has to be written first.
 * - `held`: another holds it. A request that names a fence does not wait for it, because no later grant has that fence.
 * - `other_fence`: the named fence is not in force.
 */
export type PutVerdict = 'grant' | 'renew' | 'store' | 'held' | 'other_fence'

/**
 * @param held the grant in force; undefined: the lease is free.
 * @param storedTtlMs of the record on disk, which a restart goes by; undefined while that is not known.
 */
export function judgePut(
  { holder, ttlMs, fence }: Pick<LeaseRequest, 'holder' | 'ttlMs' | 'fence'>,
  held: StoredLease | undefined,
  storedTtlMs: number | undefined,
): PutVerdict {
  if (fence !== undefined && fence !== held?.fence) return 'other_fence'
  if (held === undefined) return 'grant'
  if (held.holder !== holder) return 'held'
  return ttlMs === held.ttlMs && ttlMs === storedTtlMs ? 'renew' : 'store'
}
