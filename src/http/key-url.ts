import { percentDecode } from './query.js'

const PREFIX = '/v1/kv/'

/** Where requests for one key are routed, whatever the key: see `routedUrl`. */
export const KEY_ROUTE = '/v1/kv/:key'

/**
 * A key in a URL is any bytes, slashes and invalid UTF-8 included, which no router matches: requests for a key are
 * routed by a URL without it, and the handler takes the key from the original one. POST has no key in its URL.
 */
export function routedUrl(request: {
  readonly url?: string | undefined
  readonly method?: string | undefined
}): string {
  const url = pathOf(request.url ?? '/')
  if (!url.startsWith(PREFIX) || request.method === 'POST') return url
  const query = url.indexOf('?')
  return query === -1 ? `${PREFIX}key` : `${PREFIX}key${url.slice(query)}`
}

/** The percent-decoded key. @throws KvError `invalid_argument` for a bad escape. */
export function rawKeyOf(originalUrl: string): Buffer {
  const url = pathOf(originalUrl)
  const query = url.indexOf('?')
  return percentDecode(url.slice(PREFIX.length, query === -1 ? undefined : query), 'key')
}

/** Clients that think they talk to a proxy send `http://host/path`; servers have to take it (RFC 9112, section 3.2.2). */
function pathOf(url: string): string {
  return url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?]*/i, '')
}
