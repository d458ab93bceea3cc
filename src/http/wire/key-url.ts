import type { IncomingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { requireKey } from '../../bytes/byte-limits.js'
import { KvError } from '../../errors/kv-error.js'
import type { Limits } from '../../limits.js'
import { percentDecode } from './query.js'

/** Where requests for one key are routed, whatever the key: see `routedUrl`. */
export const KEY_ROUTE = '/v1/kv/:key'
export const TXN_KEY_ROUTE = '/v1/txn/:txn/kv/:key'

declare module 'node:http' {
  interface IncomingMessage {
    /** The key that the URL names, still percent-encoded; undefined where it names none. Set when the request is routed. */
    keyInUrl?: string
  }
}

const KV = '/v1/kv/'
const TXN = '/v1/txn/'
const TXN_KV = /^\/v1\/txn\/[^/]*\/kv\//

/** No route has an empty segment. */
const NOWHERE = '//'

/** A target as routes are looked up by it. */
export interface Target {
  /** With a placeholder for the key. Begins with a slash. */
  readonly path: string
  /** With its question mark; '' where there is none. */
  readonly query: string
  readonly key: string | undefined
}

/**
 * Splits a request target once for all who ask: the router, the handler, the check of the token's prefixes. A key is any
 * bytes, slashes and invalid UTF-8 included, which no router matches. Letters of the route may be escaped: they mean the
 * same then (RFC 3986, section 6.2.2.2), and an escaped slash is a letter like any other.
 */
export function splitTarget(target: string): Target {
  const url = originForm(target)
  // A fragment is never sent, so whoever sends one meant another key or range than its server would read.
  if (!url.startsWith('/') || url.includes('#')) return { path: NOWHERE, query: '', key: undefined }
  const queryAt = url.indexOf('?')
  const query = queryAt === -1 ? '' : url.slice(queryAt)
  let path = queryAt === -1 ? url : url.slice(0, queryAt)
  let keyAt = keyStart(path)
  if (keyAt === -1 && path.includes('%')) {
    path = withoutNeedlessEscapes(path)
    keyAt = keyStart(path)
  }
  if (keyAt === -1) return { path, query, key: undefined }
  return { path: `${path.slice(0, keyAt)}key`, query, key: path.slice(keyAt) }
}

/** The URL without the key, which the request keeps for `keyOf`. POST has no key in its URL. */
export function routedUrl(request: IncomingMessage): string {
  const target = request.url ?? ''
  const { path, query, key } = splitTarget(target)
  if (key === undefined) return path + query
  if (request.method === 'POST') return originForm(target)
  request.keyInUrl = key
  return path + query
}

/**
 * The key that a request's URL names, percent-decoded.
 * @throws KvError `invalid_argument` for a bad escape or an empty key, `payload_too_large`, `forbidden` for one that the
 *   request's token does not reach, `not_found` where the URL names none.
 */
export function keyOf({ raw, grant }: Pick<FastifyRequest, 'raw' | 'grant'>, limits: Limits): Buffer {
  if (raw.keyInUrl === undefined) throw new KvError('not_found', 'this URL names no key', {})
  const key = percentDecode(raw.keyInUrl, 'key')
  requireKey(key, 'key', limits.keyBytesMax)
  grant.requireKey(key, 'key')
  return key
}

/** Where the key begins in a path; -1: it has none. */
function keyStart(path: string): number {
  if (path.startsWith(KV)) return KV.length
  return path.startsWith(TXN) ? (TXN_KV.exec(path)?.[0].length ?? -1) : -1
}

/** Clients that think they talk to a proxy send `http://host/path`; servers have to take it (RFC 9112, section 3.2.2). */
function originForm(target: string): string {
  return target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?#]*/i, '')
}

const BAD_ESCAPE = /%(?![\da-f]{2})/i
/** Letters, digits, `-`, `.`, `_` and `~`. */
const ESCAPED_UNRESERVED = /%(?:2[de]|3\d|[46][1-9a-f]|[57][\da]|5f|7e)/gi

function withoutNeedlessEscapes(path: string): string {
  // What is left of a bad escape must not become a good one with what follows.
  return BAD_ESCAPE.test(path) ? path : path.replace(ESCAPED_UNRESERVED, decodeURIComponent)
}
