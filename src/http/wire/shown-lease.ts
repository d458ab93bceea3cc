import type { LeaseState } from '../../leases/rules/leases-api.js'

export function shownLease({ name, holder, fence, ttlMs, expiresAtMs }: LeaseState) {
  return { name, holder, fence, ttlMs, expiresAt: new Date(expiresAtMs).toISOString() }
}
