import type { KeyRange } from '../../bytes/key-range.js'
import { isKvError } from '../../errors/kv-error.js'
import type { Pair, Version } from '../../percolator/api.js'
import type { Timestamp } from '../../timestamp.js'
import type { Autocommit, CallOptions } from '../autocommit.js'
import { newIdempotencyKey } from '../idempotency-key.js'
import type { Write } from '../write.js'
import { messageOf } from './http-api.js'
import { encodeMessage, MSGPACK } from './http-message.js'
import type { HttpTransport } from './http-transport.js'
import { keyPath, percentEncode } from './key-path.js'
import { ServerError } from './server-error.js'

/** Long, because a count reads every key of its range, and the client does not know their number. */
const COUNT_MS_MAX = 10 * 60 * 1000

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
      const { headers, body } = await this.#transport.send({ method: 'GET', path: path + query, waitMs, signal })
      return { value: body, commitTs: versionOf(headers.get('etag')) }
    } catch (error) {
      // Without a key it means that the path does not exist, so the server is not PerKV.
      if (isKvError(error, 'not_found') && error.fields.key !== undefined) return undefined
      throw error
    }
  }

  async #getByBody(key: Uint8Array, ts: Timestamp | undefined, options: CallOptions): Promise<Version | undefined> {
    const path = `/v1/kv/batch_get${waits(options)}`
    const { pairs } = await this.#post<{ pairs: readonly Pair[] }>(path, { keys: [key], ts }, {}, options)
    const [pair] = pairs
    return pair?.value === undefined ? undefined : { value: pair.value, commitTs: pair.commitTs }
  }

  /** Sends an Idempotency-Key, so that repeated requests take effect once. */
  async write(write: Write, options: CallOptions): Promise<Timestamp> {
    const { key, value, ifMatch, ifAbsent, idempotencyKey = newIdempotencyKey() } = write
    const once = { 'idempotency-key': idempotencyKey }
    const { lockWaitMs: waitMs, signal } = options
    const path = keyPath(key)
    if (path === undefined) {
      const checks = [
        ...(ifMatch === undefined ? [] : [{ key, commitTs: ifMatch }]),
        ...(ifAbsent ? [{ key, exists: false }] : []),
      ]
      const ops = [value === undefined ? { op: 'delete', key } : { op: 'put', key, value }]
      return commitTsIn(await this.#post(`/v1/txn${deadline('?', options)}`, { checks, ops }, once, options))
    }
    const { headers, body } = await this.#transport.send({
      method: value === undefined ? 'DELETE' : 'PUT',
      path: path + waits(options),
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
    return commitTsIn(messageOf(body, headers.get('content-type')))
  }

  async count({ start, end }: KeyRange, ts: Timestamp | undefined, options: CallOptions): Promise<number> {
    const query = [
      'count_only=true',
      `lock_wait_ms=${options.lockWaitMs}`,
      ...(start === undefined ? [] : [`start=${percentEncode(start)}`]),
      ...(end === undefined ? [] : [`end=${percentEncode(end)}`]),
      ...(ts === undefined ? [] : [`ts=${ts}`]),
    ]
    const path = `/v1/kv?${query.join('&')}${deadline('&', options)}`
    const { headers, body } = await this.#transport.send({
      method: 'GET',
      path,
      waitMs: COUNT_MS_MAX,
      signal: options.signal,
    })
    return integerIn(messageOf(body, headers.get('content-type')), 'count')
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

/** A write counts as done only when the server says at which timestamp. @throws ServerError */
function commitTsIn(message: unknown): Timestamp {
  return integerIn(message, 'commitTs')
}

function integerIn(message: unknown, name: string): number {
  const value = (Object(message) as Record<string, unknown>)[name]
  if (Number.isSafeInteger(value)) return value as number
  throw new ServerError('unexpected_answer', `the answer has no ${name}: it is not from a PerKV server`, 200)
}

function waits(options: CallOptions): string {
  return `?lock_wait_ms=${options.lockWaitMs}${deadline('&', options)}`
}

function deadline(separator: string, { timeoutMs }: CallOptions): string {
  return timeoutMs === undefined ? '' : `${separator}timeout_ms=${timeoutMs}`
}

function versionOf(etag: string | null): Timestamp {
  const [, digits] = /^"(\d+)"$/.exec(etag ?? '') ?? []
  if (digits !== undefined) return Number(digits)
  throw new ServerError('unexpected_answer', 'HTTP 200 without the ETag of PerKV: does a proxy remove it?', 200)
}
