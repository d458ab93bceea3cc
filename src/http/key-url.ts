import type { Grant } from '../access/grant.js'
import type { Limits } from '../limits.js'
import { requireKey } from './bytes.js'
import { percentDecode } from './query.js'

/** Where requests for one key are routed, whatever the key: see `routedUrl`. */
export const KEY_ROUTE = '/v1/kv/:key'
export const TXN_KEY_ROUTE = '/v1/txn/:txn/kv/:key'

const KV = '/v1/kv/'
const TXN = '/v1/txn/'
const TXN_KV = /^\/v1\/txn\/[^/?]*\/kv\//

/** What comes before the key in a URL that has one. */
function prefixOf(url: string): string | undefined {
  if (url.startsWith(KV)) return KV
  return url.startsWith(TXN) ? TXN_KV.exec(url)?.[0] : undefined
}

/**
 * A key in a URL is any bytes, slashes and invalid UTF-8 included, which no router matches: requests for a key are
 * routed by a URL without it, and the handler takes the key from the original one. POST has no key in its URL.
 */
export function routedUrl(request: {
  readonly url?: string | undefined
  readonly method?: string | undefined
}): string {
  const url = pathOf(request.url ?? '/')
  const prefix = request.method === 'POST' ? undefined : prefixOf(url)
  if (prefix === undefined) return url
  const query = url.indexOf('?')
  return query === -1 ? `${prefix}key` : `${prefix}key${url.slice(query)}`
}

/**
 * The key that a request's URL names, percent-decoded.
 * @throws KvError `invalid_argument` for a bad escape or an empty key, `payload_too_large`, `forbidden` for one that the
 *   request's token does not reach.
 */
export function keyOf(request: { readonly originalUrl: string; readonly grant: Grant }, limits: Limits): Buffer {
  const url = pathOf(request.originalUrl)
  const prefix = prefixOf(url) ?? ''
  const query = url.indexOf('?')
  const key = percentDecode(url.slice(prefix.length, query === -1 ? undefined : query), 'key')
  requireKey(key, 'key', limits.keyBytesMax)
  request.grant.requireKey(key, 'key')
  return key
}

/** Clients that think they talk to a proxy send `http://host/path`; servers have to take it (RFC 9112, section 3.2.2). */
function pathOf(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
}
