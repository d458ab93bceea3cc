import { KvError } from '../errors/kv-error.js'
import type { Timestamp } from '../timestamp.js'

/** Names of leases. `rule` says it in words: a name must ... */
export const LEASE_NAME = {
  pattern: '^[A-Za-z0-9._/-]{1,128}$',
  rule: 'be 1 to 128 letters, digits, dots, underscores, hyphens and slashes',
} as const

const NAME = new RegExp(LEASE_NAME.pattern)

export function isLeaseName(name: string): boolean {
  return NAME.test(name)
}

/** As it is on disk. */
export interface StoredLease {
  readonly holder: string
  /** Timestamp of the grant: the fences of one name ascend. */
  readonly fence: Timestamp
  readonly ttlMs: number
}

export interface FailedLeaseCheck {
  readonly index: number
  readonly lease: string
  /** The present one; 0: the lease is free. */
  readonly fence: Timestamp
}

/** @param failedChecks at least one. */
export function leaseLost(failedChecks: readonly FailedLeaseCheck[]): KvError<'precondition_failed'> {
  const { index, lease, fence } = failedChecks[0] as FailedLeaseCheck
  const now = fence === 0 ? 'is free' : `has the fence ${fence}`
  const detail = `check ${index} does not hold: the lease ${lease} ${now}`
  return new KvError('precondition_failed', detail, { lease, fence, index, failedChecks })
}
