import { isKvError } from '../../errors/kv-error.js'
import type { Pair, Version } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import { newIdempotencyKey, requireIdempotencyKey } from '../idempotency-key.js'
import { keyRangeOf, type RangeOptions } from '../key-range.js'
import type { Absent } from '../options.js'
import { messageOf } from './http-api.js'
import { encodeMessage, MSGPACK } from './http-message.js'
import type { HttpTransport } from './http-transport.js'
import { keyPath, percentEncode } from './key-path.js'
import { ServerError } from './server-error.js'

export interface CallOptions {
  /** How long the server waits for other transactions' locks. */
  readonly lockWaitMs: number
  readonly signal: AbortSignal | undefined
}

/**
 * What must hold for a write. A condition that is undefined would be none at all, so it is not taken: the version of an
 * absent key is undefined, and `ifAbsent` asks for that.
 */
export type WriteConditions = VersionCondition | (AbsenceCondition & { readonly ifMatch?: Absent })

export type VersionCondition = {
  /** Only over this version. */
  readonly ifMatch: Timestamp
  readonly ifAbsent?: false
}

type AbsenceCondition = {
  /** Only where there is no such key. */
  readonly ifAbsent?: boolean
}

export interface OnceOptions {
  /** Of the caller's own, for a write that is one and the same in several calls. */
  readonly idempotencyKey?: string | undefined
}

/** A count reads every key of its range, and only the server knows how many these are. */
const COUNT_MS_MAX = 10 * 60 * 1000

/** Calls that are a transaction of their own, coordinated by the server: `/v1/kv`. */
export class HttpAutocommit {
  readonly #transport: HttpTransport

  constructor(transport: HttpTransport) {
    this.#transport = transport
  }

  /** @param ts undefined: the latest version, which takes no timestamp request. */
  async get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    const { lockWaitMs: waitMs, signal } = options
    const path = keyPath(key)
    if (path === undefined) return this.#getByBody(key, ts, options)
    const query = `?lock_wait_ms=${waitMs}${ts === undefined ? '' : `&ts=${ts}`}`
    try {
      const { headers, body } = await this.#transport.send({ method: 'GET', path: path + query, waitMs, signal })
      return { value: body, commitTs: versionOf(headers.get('etag')) }
    } catch (error) {
      // Without a key it speaks of the path: that is no PerKV.
      if (isKvError(error, 'not_found') && error.fields.key !== undefined) return undefined
      throw error
    }
  }

  async #getByBody(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    const path = `/v1/kv/batch_get?lock_wait_ms=${options.lockWaitMs}`
    const { pairs } = await this.#post<{ pairs: readonly Pair[] }>(path, { keys: [key], ts }, {}, options)
    const [pair] = pairs
    return pair?.value === undefined ? undefined : { value: pair.value, commitTs: pair.commitTs }
  }

  /**
   * Writes one key, or deletes it when `value` is undefined, under an Idempotency-Key: however often it is sent, it takes
   * effect once.
   * @returns the commit_ts. @throws KvError `precondition_failed`
   */
  async write(
    key: Uint8Array,
    value: Uint8Array | undefined,
    conditions: WriteConditions & OnceOptions,
    options: CallOptions,
  ): Promise<Timestamp> {
    const { ifMatch, ifAbsent = false, idempotencyKey = newIdempotencyKey() } = conditions
    if (ifMatch !== undefined && ifAbsent) throw new TypeError('give ifMatch or ifAbsent, not both')
    const once = { 'idempotency-key': requireIdempotencyKey(idempotencyKey) }
    const { lockWaitMs: waitMs, signal } = options
    const path = keyPath(key)
    if (path === undefined) {
      const checks = [
        ...(ifMatch === undefined ? [] : [{ key, commitTs: ifMatch }]),
        ...(ifAbsent ? [{ key, exists: false }] : []),
      ]
      const ops = [value === undefined ? { op: 'delete', key } : { op: 'put', key, value }]
      return (await this.#post<{ commitTs: Timestamp }>('/v1/txn', { checks, ops }, once, options)).commitTs
    }
    const { headers, body } = await this.#transport.send({
      method: value === undefined ? 'DELETE' : 'PUT',
      path: `${path}?lock_wait_ms=${waitMs}`,
      headers: {
        ...once,
        ...(ifMatch === undefined ? {} : { 'if-match': `"${ifMatch}"` }),
        ...(ifAbsent ? { 'if-none-match': '*' } : {}),
        ...(value === undefined ? {} : { 'content-type': 'application/octet-stream' }),
      },
      body: value,
      waitMs,
      signal,
    })
    return messageOf<{ commitTs: Timestamp }>(body, headers.get('content-type')).commitTs
  }

  async count(range: RangeOptions, ts: Timestamp | undefined, options: CallOptions): Promise<number> {
    const { start, end } = keyRangeOf(range)
    const query = [
      'count_only=true',
      `lock_wait_ms=${options.lockWaitMs}`,
      ...(start === undefined ? [] : [`start=${percentEncode(start)}`]),
      ...(end === undefined ? [] : [`end=${percentEncode(end)}`]),
      ...(ts === undefined ? [] : [`ts=${ts}`]),
    ]
    const path = `/v1/kv?${query.join('&')}`
    const { headers, body } = await this.#transport.send({
      method: 'GET',
      path,
      waitMs: COUNT_MS_MAX,
      signal: options.signal,
    })
    return messageOf<{ count: number }>(body, headers.get('content-type')).count
  }

  async #post<T>(path: string, message: object, extra: Record<string, string>, options: CallOptions): Promise<T> {
    const { headers, body } = await this.#transport.send({
      method: 'POST',
      path,
      headers: { 'content-type': MSGPACK, ...extra },
      body: encodeMessage(message),
      waitMs: options.lockWaitMs,
      signal: options.signal,
    })
    return messageOf<T>(body, headers.get('content-type'))
  }
}

/** The commit_ts in an ETag. */
function versionOf(etag: string | null): Timestamp {
  const [, digits] = /^"(\d+)"$/.exec(etag ?? '') ?? []
  if (digits !== undefined) return Number(digits)
  throw new ServerError('unexpected_answer', 'HTTP 200 without the ETag of PerKV: does a proxy remove it?', 200)
}
