import type { KeyRange } from '../../bytes/key-range.js'
import { isKvError } from '../../errors/kv-error.js'
import type { Pair, Version } from '../../percolator/api.js'
import type { LeaseGuard } from '../../percolator/commit-effects.js'
import type { Expiry } from '../../percolator/expiry.js'
import type { Timestamp } from '../../timestamp.js'
import type { Autocommit, CallOptions, Counted } from '../autocommit.js'
import { newIdempotencyKey } from '../idempotency-key.js'
import type { Touch, Write } from '../write.js'
import { INTEGER, optional, record, type Shape } from './answer-shape.js'
import { PAIRS, TXN_DONE } from './call-answers.js'
import type { HttpAnswer } from './http-answer.js'
import { encodeMessage, MSGPACK, messageOf } from './http-message.js'
import { type HttpTransport, versionOf } from './http-transport.js'
import { keyPath, percentEncode } from './key-path.js'
import { unexpectedAnswer } from './server-error.js'

/** Long, because a count reads every key of its range, and the client does not know how many there are. */
const COUNT_MS_MAX = 10 * 60 * 1000

const BATCH_GET = '/v1/kv/batch_get'

export class HttpAutocommit implements Autocommit {
  readonly #transport: HttpTransport

  constructor(transport: HttpTransport) {
    this.#transport = transport
  }

  async get(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    const { lockWaitMs: waitMs, signal } = options
    const path = keyPath(key)
    if (path === undefined) return this.#getByBody(key, ts, options)
    const query = `${waits(options)}${ts === undefined ? '' : `&ts=${ts}`}`
    try {
      const asked = { method: 'GET', path: path + query, waitMs, signal, expects: 'value' } as const
      const { headers, body } = await this.#transport.send(asked)
      const expireTs = expireTsIn(headers)
      return { value: body, commitTs: versionIn(headers), ...(expireTs === undefined ? {} : { expireTs }) }
    } catch (error) {
      // Without a `key` the path does not exist, so the server is not PerKV.
      if (isKvError(error, 'not_found') && error.fields.key !== undefined) return undefined
      throw error
    }
  }

  async #getByBody(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    const path = `${BATCH_GET}${waits(options)}`
    const { pairs } = await this.#post<{ pairs: readonly Pair[] }>(path, PAIRS, { keys: [key], ts }, {}, options)
    const [pair] = pairs
    if (pair?.value === undefined) return undefined
    const { value, commitTs, expireTs } = pair
    return { value, commitTs, expireTs }
  }

  /** Sends an Idempotency-Key, so that repeated requests take effect once. */
  async write(write: Write, options: CallOptions): Promise<Timestamp> {
    const { key, value, ifMatch, ifAbsent, expiry, idempotencyKey = newIdempotencyKey() } = write
    const once = { 'idempotency-key': idempotencyKey }
    const { lockWaitMs: waitMs, signal } = options
    const path = keyPath(key)
    if (path === undefined) {
      const checks = [
        ...(ifMatch === undefined ? [] : [{ key, commitTs: ifMatch }]),
        ...(ifAbsent ? [{ key, exists: false }] : []),
      ]
      const ops = [value === undefined ? { op: 'delete', key } : { op: 'put', key, value, ...expiry }]
      const url = `/v1/txn${deadline('?', options)}`
      return (await this.#post<Committed>(url, COMMITTED, { checks, ops }, once, options)).commitTs
    }
    const answer = await this.#transport.send({
      method: value === undefined ? 'DELETE' : 'PUT',
      path: path + waits(options) + expires(expiry),
      headers: {
        ...once,
        ...(ifMatch === undefined ? {} : { 'if-match': `"${ifMatch}"` }),
        ...(ifAbsent ? { 'if-none-match': '*' } : {}),
        ...(value === undefined ? {} : { 'content-type': 'application/octet-stream' }),
      },
      body: value,
      waitMs,
      signal,
      isWrite: true,
    })
    return messageOf<Committed>(answer, COMMITTED).commitTs
  }

  async touch({ key, expiry, idempotencyKey = newIdempotencyKey() }: Touch, options: CallOptions) {
    const isPersisted = 'expireTs' in expiry && expiry.expireTs === 0
    const op = { op: 'touch', key, ...(isPersisted ? { persist: true } : expiry) }
    const url = `/v1/txn${deadline('?', options)}`
    const once = { 'idempotency-key': idempotencyKey }
    const { commitTs } = await this.#post<Partial<Committed>>(url, TOUCHED, { ops: [op] }, once, options)
    return commitTs
  }

  async requireLeases(leases: readonly LeaseGuard[], options: CallOptions): Promise<void> {
    await this.#post('/v1/txn', TXN_DONE, { checks: leases, ops: [] }, {}, options)
  }

  async count({ start, end }: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<Counted> {
    const query = [
      'count_only=true',
      `lock_wait_ms=${options.lockWaitMs}`,
      ...(start === undefined ? [] : [`start=${percentEncode(start)}`]),
      ...(end === undefined ? [] : [`end=${percentEncode(end)}`]),
      ...(ts === undefined ? [] : [`ts=${ts}`]),
    ]
    const path = `/v1/kv?${query.join('&')}${deadline('&', options)}`
    const answer = await this.#transport.send({
      method: 'GET',
      path,
      waitMs: COUNT_MS_MAX,
      signal: options.signal,
    })
    return messageOf<Counted>(answer, COUNTED)
  }

  async #post<T>(
    path: string,
    shape: Shape,
    message: object,
    extra: Record<string, string>,
    options: CallOptions,
  ): Promise<T> {
    const answer = await this.#transport.send({
      method: 'POST',
      path,
      headers: { 'content-type': MSGPACK, ...extra },
      body: encodeMessage(message),
      waitMs: options.lockWaitMs,
      signal: options.signal,
      isWrite: 'idempotency-key' in extra,
      isRead: path.startsWith(BATCH_GET),
    })
    return messageOf<T>(answer, shape)
  }
}

interface Committed {
  readonly commitTs: Timestamp
}

/** A write counts as done only when the answer has its timestamp. */
const COMMITTED = record({ commitTs: INTEGER })
/** Without a `commitTs` the key is absent. */
const TOUCHED = record({ startTs: INTEGER, commitTs: optional(INTEGER) })
const COUNTED = record({ count: INTEGER, ts: INTEGER })

function waits(options: CallOptions): string {
  return `?lock_wait_ms=${options.lockWaitMs}${deadline('&', options)}`
}

function deadline(separator: string, { timeoutMs }: CallOptions): string {
  return timeoutMs === undefined ? '' : `${separator}timeout_ms=${timeoutMs}`
}

function expires(expiry: Expiry | undefined): string {
  if (expiry === undefined) return ''
  return 'ttlMs' in expiry ? `&ttl_ms=${expiry.ttlMs}` : `&expire_ts=${expiry.expireTs}`
}

function expireTsIn(headers: HttpAnswer['headers']): Timestamp | undefined {
  const text = headers.get('expire-ts')
  if (text === null || text === undefined) return undefined
  const expireTs = Number(text)
  if (!Number.isSafeInteger(expireTs)) throw unexpectedAnswer(200, 'an Expire-Ts that is no timestamp')
  return expireTs
}

function versionIn(headers: HttpAnswer['headers']): Timestamp {
  const version = versionOf(headers.get('etag'))
  if (version === undefined) throw unexpectedAnswer(200, 'HTTP 200 without the ETag of a version')
  return version
}
