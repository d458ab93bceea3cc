import { TTL_MS_MAX } from '../limits.js'
import { type Expiry, NEVER } from '../percolator/expiry.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'
import { BOOLEAN, type Kinds, kind } from './options.js'

/** Milliseconds, or text: `'500ms'`, `'30s'`, `'10m'`, `'2h'`, `'7d'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h' | 'd'}`

/** When the version expires: from then on the key is absent, at every snapshot exactly. Default: never. */
export interface ExpiryOptions {
  /** Time from the write to the expiry. */
  readonly ttl?: Duration | undefined
  /** The instant or timestamp of the expiry. Excludes `ttl`. */
  readonly expireAt?: Date | Timestamp | undefined
}

export interface TouchOptions extends ExpiryOptions {
  /** Removes the expiry. Excludes the other options. */
  readonly persist?: boolean | undefined
}

/** When a version expires. Absent: never. */
export interface Expiring {
  /** The key is absent from this timestamp on. */
  readonly expireTs?: Timestamp
  /** The same as `expireTs`, in whole milliseconds. */
  readonly expireAt?: Date
}

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const DURATION = /^(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)$/

export function durationMs(given: unknown): number | undefined {
  const [, count, unit] = typeof given === 'string' ? (DURATION.exec(given) ?? []) : []
  const ms = typeof given === 'number' ? given : Math.round(Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS])
  return Number.isSafeInteger(ms) && ms >= 1 && ms <= TTL_MS_MAX ? ms : undefined
}

/** @returns undefined for an instant without a timestamp: before 1970, or after 2109. */
function timestampOf(given: unknown): Timestamp | undefined {
  const ts = given instanceof Date ? timestampFromMs(given.getTime()) : given
  return typeof ts === 'number' && Number.isSafeInteger(ts) && ts > 0 ? ts : undefined
}

export const EXPIRY_KINDS: Kinds<ExpiryOptions> = {
  ttl: kind<Duration>(
    "a whole number of milliseconds from 1, or a time such as '10m'",
    (value) => durationMs(value) !== undefined,
  ),
  expireAt: kind<Date | Timestamp>('a Date after 1970, or a timestamp', (value) => timestampOf(value) !== undefined),
}
export const TOUCH_KINDS: Kinds<TouchOptions> = { ...EXPIRY_KINDS, persist: BOOLEAN }

export function expiryOf({ ttl, expireAt }: ExpiryOptions): Expiry | undefined {
  if (ttl !== undefined && expireAt !== undefined) throw new TypeError('give ttl or expireAt, not both')
  const ttlMs = durationMs(ttl)
  if (ttlMs !== undefined) return { ttlMs }
  const expireTs = timestampOf(expireAt)
  return expireTs === undefined ? undefined : { expireTs }
}

export function expiryOfTouch({ persist = false, ...given }: TouchOptions): Expiry {
  const expiry = expiryOf(given)
  if (persist && expiry !== undefined) throw new TypeError('persist does not go with ttl or expireAt')
  if (persist) return NEVER
  if (expiry === undefined) throw new TypeError('touch needs ttl, expireAt, or persist: true')
  return expiry
}

export function expiringOf(expireTs: Timestamp | undefined): Expiring {
  return expireTs === undefined ? {} : { expireTs, expireAt: new Date(physicalMs(expireTs)) }
}
