import type { IncomingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { requireKey } from '../../bytes/byte-limits.js'
import { KvError } from '../../errors/kv-error.js'
import { requireLeaseName } from '../../leases/rules/lease.js'
import type { Limits } from '../../limits.js'
import { percentDecode } from './query.js'

/** Requests for one key are routed without the key: see `routedUrl`. */
export const KEY_ROUTE = '/v1/kv/:key'
export const TXN_KEY_ROUTE = '/v1/txn/:txn/kv/:key'
/** The name of a lease may have slashes, like a key. */
export const LEASE_ROUTE = '/v1/leases/:name'

/** A database of KV Connect. */
export const KV_DATABASE_ROUTE = '/kv-connect/:database'

declare module 'node:http' {
  interface IncomingMessage {
    /** The percent-encoded key, or name of a lease, of the URL; undefined when it has none. Set by `routedUrl`. */
    keyInUrl?: string
  }
}

const KV = '/v1/kv/'
const LEASES = '/v1/leases/'
const TXN = '/v1/txn/'
const TXN_KV = /^\/v1\/txn\/[^/]*\/kv\//

/** Matches no route, since no route has an empty segment. */
const NOWHERE = '//'

export interface Target {
  /** Begins with a slash, and has a placeholder instead of the key. */
  readonly path: string
  /** With its question mark; '' when there is no query. */
  readonly query: string
  readonly key: string | undefined
}

/**
 * Splits a request target. Router, handler and the check of the token's prefixes all use this split, so they see the same key. A
 * key may be any bytes, including slashes and invalid UTF-8, which no router matches. Unreserved characters of the route may be
 * escaped without a change of meaning (RFC 3986, section 6.2.2.2). An escaped slash does not separate segments.
 */
export function splitTarget(target: string): Target {
  const url = originForm(target)
  // Clients never send fragments. One that sends a `#` meant a longer key than the server would read.
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

/** Removes the key from the URL and keeps it in the request for `requestKey`. No POST has a key in its URL. */
export function routedUrl(request: IncomingMessage): string {
  const target = request.url ?? ''
  const { path, query, key } = splitTarget(target)
  if (key === undefined) return path + query
  if (request.method === 'POST') return originForm(target)
  request.keyInUrl = key
  return path + query
}

/**
 * The percent-decoded key of a request's URL.
 * @throws KvError `invalid_argument` for a bad escape or an empty key; `payload_too_large`; `forbidden` when the request's token
 *   does not cover the key; `not_found` when the URL has none.
 */
export function requestKey({ raw, grant }: Pick<FastifyRequest, 'raw' | 'grant'>, limits: Limits): Buffer {
  if (raw.keyInUrl === undefined) throw new KvError('not_found', 'this URL names no key', {})
  const key = percentDecode(raw.keyInUrl, 'key')
  requireKey(key, 'key', limits.keyBytesMax)
  grant.requireKey(key, 'key')
  return key
}

/**
 * @param escaped the percent-encoded name in a URL. A slash in it need not be escaped.
 * @throws KvError `invalid_argument` for a bad escape or an invalid name; `forbidden` when the grant does not cover it.
 */
export function leaseNameOf(escaped: string, grant: Grant): string {
  const name = percentDecode(escaped, 'name').toString('latin1') // Names that are not ASCII are refused below.
  requireLeaseName(name)
  grant.requireKey(Buffer.from(name), 'name')
  return name
}

/** @returns the index of the key, or of the name of a lease, in a path; -1 when it has none. */
function keyStart(path: string): number {
  if (path.startsWith(KV)) return KV.length
  if (path.startsWith(LEASES)) return LEASES.length
  return path.startsWith(TXN) ? (TXN_KV.exec(path)?.[0].length ?? -1) : -1
}

/** Servers must accept `http://host/path`, which clients send to proxies (RFC 9112, section 3.2.2). */
export function originForm(target: string): string {
  return target.startsWith('/') ? target : target.replace(/^https?:\/\/[^/?#]*/i, '')
}

const BAD_ESCAPE = /%(?![\da-f]{2})/i
/** Letters, digits, `-`, `.`, `_` and `~`. */
const ESCAPED_UNRESERVED = /%(?:2[de]|3\d|[46][1-9a-f]|[57][\da]|5f|7e)/gi

function withoutNeedlessEscapes(path: string): string {
  // Decoding next to a bad escape could turn it into a valid one.
  return BAD_ESCAPE.test(path) ? path : path.replace(ESCAPED_UNRESERVED, decodeURIComponent)
}
