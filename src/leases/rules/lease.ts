import { invalid, KvError } from '../../errors/kv-error.js'
import type { FailedCheck } from '../../errors/registry.js'
import type { Timestamp } from '../../timestamp.js'

export const LEASE_NAME = {
  pattern: '^[A-Za-z0-9._/-]{1,128}$',
  rule: 'be 1 to 128 letters, digits, dots, underscores, hyphens and slashes',
} as const

const NAME = new RegExp(LEASE_NAME.pattern)

export function isLeaseName(name: string): boolean {
  return NAME.test(name)
}

export function requireLeaseName(name: string): void {
  if (!isLeaseName(name)) throw invalid('name', `the name of a lease must ${LEASE_NAME.rule}`)
}

export const LEASE_HOLDER = {
  pattern: '^[^\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}]{1,255}$',
  rule: 'be 1 to 255 printable characters',
} as const

const HOLDER = new RegExp(LEASE_HOLDER.pattern, 'u')

export function requireHolder(holder: string): void {
  if (!HOLDER.test(holder)) throw invalid('holder', `the holder of a lease must ${LEASE_HOLDER.rule}`)
}

export interface StoredLease {
  readonly holder: string
  /** Timestamp of the grant: the fences of one name ascend. */
  readonly fence: Timestamp
  readonly ttlMs: number
}

export interface FailedLeaseCheck {
  readonly index: number
  readonly lease: string
  /** The fence in force; 0: the lease is free. */
  readonly fence: Timestamp
}

export function leaseLost(
  lost: readonly FailedLeaseCheck[],
  failedChecks: readonly FailedCheck[] = lost,
): KvError<'precondition_failed'> {
  const { index, lease, fence } = lost[0] as FailedLeaseCheck
  const now = fence === 0 ? 'is free' : `has the fence ${fence}`
  const detail = `check ${index} does not hold: the lease ${lease} ${now}`
  return new KvError('precondition_failed', detail, { lease, fence, index, failedChecks })
}
