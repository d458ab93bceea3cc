import { TTL_MS_MAX } from '../limits.js'
import { TIMESTAMP_MAX, type Timestamp, timestampFromMs } from '../timestamp.js'

export type Expiry = { readonly ttlMs: number } | { readonly expireTs: Timestamp }

export const NEVER: Expiry = { expireTs: 0 }

/** @param nowTs a time to live counts from it. */
export function expireTsOf(expiry: Expiry | undefined, nowTs: Timestamp): Timestamp {
  if (expiry === undefined) return 0
  if ('expireTs' in expiry) return expiry.expireTs
  return Math.min(nowTs + timestampFromMs(Math.min(expiry.ttlMs, TTL_MS_MAX)), TIMESTAMP_MAX)
}
