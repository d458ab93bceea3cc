import type { LeaseState } from '../../leases/rules/leases-api.js'
import { LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN } from '../../limits.js'
import type { Timestamp } from '../../timestamp.js'
import { COUNT, optionsOf, SIGNAL, TEXT, wholeUpTo } from '../options.js'
import { TIMEOUT_KINDS, type TimeoutOptions } from '../transaction-options.js'

/** `timeoutMs` counts in addition to `waitMs`, and ends neither the lease nor its renewals. */
export interface LeaseOptions extends TimeoutOptions {
  /**
   * How long the lease lasts after each renewal, in milliseconds from 100 to 3 600 000. It is renewed after a third of that.
   * When the holder dies without `release`, others wait for this long.
   */
  readonly ttlMs: number
  /** Longest wait for the lease of another holder, in milliseconds, or Infinity. Default 0. */
  readonly waitMs?: number | undefined
  /**
   * Name of the holder: 1 to 255 printable ASCII characters. A call under the name of the present holder gets the same lease,
   * under the same fence. Default: a random name.
   */
  readonly holder?: string | undefined
  /** Ends the wait. It does not end a lease that is held. */
  readonly signal?: AbortSignal | undefined
}

/** A lease as the server shows it. */
export interface LeaseInfo {
  readonly name: string
  readonly holder: string
  /** Timestamp of the grant. */
  readonly fence: Timestamp
  readonly ttlMs: number
  /** By the server's clock, unless it is renewed. */
  readonly expiresAt: Date
}

const known = optionsOf<LeaseOptions>('lease', {
  ttlMs: wholeUpTo(LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX),
  waitMs: COUNT,
  holder: TEXT,
  signal: SIGNAL,
  ...TIMEOUT_KINDS,
})

export function leaseOptions(given: LeaseOptions): LeaseOptions {
  if (known(given).ttlMs === undefined) throw new TypeError('lease needs ttlMs')
  return given
}

export function infoOf({ expiresAtMs, ...state }: LeaseState): LeaseInfo {
  return { ...state, expiresAt: new Date(expiresAtMs) }
}
