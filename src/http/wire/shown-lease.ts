import type { LeaseState } from '../../leases/rules/leases-api.js'

/** A lease as answers show it. */
export function shownLease({ name, holder, fence, ttlMs, expiresAtMs }: LeaseState) {
  return { name, holder, fence, ttlMs, expiresAt: new Date(expiresAtMs).toISOString() }
}
