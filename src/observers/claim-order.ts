import { integerOf } from '../errors/integer-of.js'
import { KvError } from '../errors/kv-error.js'
import { CLAIM_LIMIT_MAX, CLAIM_WAIT_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN } from '../limits.js'
import type { WaitingClaim } from './marks/waiting-claims.js'
import type { ClaimRequest } from './rules/observers-api.js'

const LEASE_MS_DEFAULT = 10_000
/** Waiting claims of all observers together. Each is a client's request. */
const WAITING_MAX = 10_000

export interface ClaimOrder extends Pick<WaitingClaim, 'worker' | 'limit' | 'leaseMs' | 'values' | 'signal'> {
  readonly waitMs: number
}

export function claimOrder(request: ClaimRequest, observers: Iterable<{ readonly waiting: number }>): ClaimOrder {
  const order = {
    worker: request.worker,
    limit: integerOf('limit', request.limit ?? 1, 1, CLAIM_LIMIT_MAX),
    waitMs: integerOf('wait_ms', request.waitMs ?? 0, 0, CLAIM_WAIT_MS_MAX),
    leaseMs: leaseMs(request.leaseMs ?? LEASE_MS_DEFAULT),
    values: request.values === true,
    signal: request.signal,
  }
  if (order.waitMs === 0) return order
  let waiting = 0
  for (const observer of observers) waiting += observer.waiting
  if (waiting >= WAITING_MAX) throw new KvError('overloaded', `${WAITING_MAX} claims are waiting already`, {})
  return order
}

export function leaseMs(asked: number): number {
  return integerOf('lease_ms', asked, LEASE_MS_MIN, LEASE_MS_MAX)
}
