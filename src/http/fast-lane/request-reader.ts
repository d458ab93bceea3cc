import { type Limits, SMALL_BODY_BYTES } from '../../limits.js'
import type { BrowserGuard } from '../connections/browser-safety.js'
import { type HeaderBlock, readHeaderBlock } from './header-block.js'

/** `kv`: of KV Connect. */
export type Kind = 'get' | 'put' | 'delete' | 'txn' | 'lease' | 'kv'

export interface FastRequest {
  readonly kind: Kind
  /** The key, or the name of the lease, percent-encoded; `{database}/{call}`; '' for a transaction. */
  readonly key: string
  /** Without the question mark. Only `put` has one, of `EXPIRY_QUERY`. */
  readonly query: string
  readonly headers: HeaderBlock
  /** Offsets of the body. The next request begins at `end`, which may not have arrived. */
  readonly bodyAt: number
  readonly end: number
}

/** `partial`: the rest of the head has not arrived. `outside`: the request is not in the subset of the fast lane. */
export type Read = FastRequest | 'partial' | 'outside'

type ReaderLimits = Pick<Limits, 'headerBytesMax' | 'valueBytesMax' | 'bodyBytesMax'>

/** Request line and headers; less where the server's limit is lower. */
const HEAD_BYTES_MAX = 8 * 1024

/** Room for the fields of a lease in any spelling, except one that escapes every character. */
const LEASE_BODY_BYTES_MAX = 1024

/** Beginnings of their first lines; that of a transaction is complete. */
const STARTS: readonly (readonly [Kind, string])[] = [
  ['get', 'GET /v1/kv/'],
  ['put', 'PUT /v1/kv/'],
  ['delete', 'DELETE /v1/kv/'],
  ['txn', 'POST /v1/txn HTTP/1.1'],
  ['lease', 'PUT /v1/leases/'],
  ['kv', 'POST /kv-connect/'],
]
const START_LENGTH_MAX = Math.max(...STARTS.map(([, { length }]) => length))
const VERSION = ' HTTP/1.1'

const EXPIRY_QUERY = /^(?:ttl_ms|expire_ts)=\d{1,16}$/

/** Characters of a path by RFC 3986. Excludes the question mark of a query, and everything that must be escaped. */
const PLAIN_KEY = /^[\w\-.~!$&'()*+,;=:@/%]+$/

/**
 * Reads the requests of one connection. Clients repeat the headers of a request byte for byte on a connection that they keep
 * alive, so the last block is remembered, and read again only when it differs.
 */
export class RequestReader {
  readonly #headBytesMax: number
  readonly #bodyBytesMax: Readonly<Record<Kind, number>>
  readonly #guard: BrowserGuard | undefined
  #text = ''
  #block: HeaderBlock | undefined

  constructor({ headerBytesMax, valueBytesMax, bodyBytesMax }: ReaderLimits, guard: BrowserGuard | undefined) {
    this.#guard = guard
    this.#headBytesMax = Math.min(HEAD_BYTES_MAX, headerBytesMax)
    this.#bodyBytesMax = {
      get: 0,
      delete: 0,
      put: Math.min(SMALL_BODY_BYTES, valueBytesMax),
      txn: Math.min(SMALL_BODY_BYTES, bodyBytesMax),
      lease: Math.min(LEASE_BODY_BYTES_MAX, bodyBytesMax),
      kv: Math.min(SMALL_BODY_BYTES, bodyBytesMax),
    }
  }

  /** @param text what has arrived, as Latin-1. @param at where a request begins. */
  read(text: string, at: number): Read {
    const [kind, start] = startOf(text, at) ?? []
    if (kind === undefined || start === undefined) return mayBeStart(text, at) ? 'partial' : 'outside'
    const lineEnd = text.indexOf('\r\n', at)
    if (lineEnd === -1) return text.includes('\n', at) ? 'outside' : this.#incomplete(text, at)
    let key = ''
    let query = ''
    if (kind === 'txn') {
      if (lineEnd - at !== start.length) return 'outside'
    } else {
      if (!text.endsWith(VERSION, lineEnd)) return 'outside'
      key = text.slice(at + start.length, lineEnd - VERSION.length)
      if (!PLAIN_KEY.test(key)) {
        const queryAt = kind === 'put' ? key.indexOf('?') : -1
        if (queryAt === -1) return 'outside'
        query = key.slice(queryAt + 1)
        key = key.slice(0, queryAt)
        if (!EXPIRY_QUERY.test(query) || !PLAIN_KEY.test(key)) return 'outside'
      }
    }
    const blockAt = lineEnd + 2
    if (this.#block === undefined || !text.startsWith(this.#text, blockAt)) {
      const blockEnd = text.indexOf('\r\n\r\n', blockAt)
      if (blockEnd === -1) return this.#incomplete(text, at)
      this.#text = flat(text.slice(blockAt, blockEnd + 4))
      this.#block = readHeaderBlock(this.#text.slice(0, -2), this.#guard)
      if (this.#block === undefined) return 'outside'
    }
    const headers = this.#block
    const bodyAt = blockAt + this.#text.length
    if (bodyAt - at > this.#headBytesMax) return 'outside'
    const isBodyless = kind === 'get' || kind === 'delete'
    const { contentLength = isBodyless ? 0 : Number.POSITIVE_INFINITY } = headers
    const needsJson = kind === 'txn' || kind === 'lease'
    if (contentLength > this.#bodyBytesMax[kind] || (needsJson && !headers.isJson)) return 'outside'
    return { kind, key, query, headers, bodyAt, end: bodyAt + contentLength }
  }

  #incomplete(text: string, at: number): 'partial' | 'outside' {
    return text.length - at > this.#headBytesMax ? 'outside' : 'partial'
  }
}

function startOf(text: string, at: number): readonly [Kind, string] | undefined {
  for (const start of STARTS) if (text.startsWith(start[1], at)) return start
  return undefined
}

/** Whether the rest of a text may be the beginning of a start. */
function mayBeStart(text: string, at: number): boolean {
  const rest = text.slice(at, at + START_LENGTH_MAX)
  return STARTS.some(([, start]) => start.startsWith(rest))
}

/** Copies a text: a slice would keep everything in memory that arrived with it. */
function flat(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1')
}
