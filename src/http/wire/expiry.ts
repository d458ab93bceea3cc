import { invalid } from '../../errors/kv-error.js'
import { TTL_MS_MAX } from '../../limits.js'
import type { Expiry } from '../../percolator/expiry.js'
import type { Timestamp } from '../../timestamp.js'
import { queryInteger, type RawQuery } from './query.js'

export const EXPIRY_PARAMETERS = ['ttl_ms', 'expire_ts'] as const

export function expiryOf(
  { ttlMs, expireTs }: { readonly ttlMs?: number | undefined; readonly expireTs?: Timestamp | undefined },
  path = '',
): Expiry | undefined {
  if (ttlMs !== undefined && expireTs !== undefined)
    throw invalid(`${path}expire_ts`, `${path}expire_ts does not go with ttl_ms`)
  if (ttlMs !== undefined) return { ttlMs }
  return expireTs === undefined ? undefined : { expireTs }
}

export function queryExpiry(query: RawQuery): Expiry | undefined {
  const ttlMs = queryInteger(query, 'ttl_ms', 1, TTL_MS_MAX)
  return expiryOf({ ttlMs, expireTs: queryInteger(query, 'expire_ts', 1, Number.MAX_SAFE_INTEGER) })
}
