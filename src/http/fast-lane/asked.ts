import { isUtf8 } from 'node:buffer'
import type { FastifyInstance } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { requireKey, requireValue } from '../../bytes/byte-limits.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT, SLICE_ITEMS } from '../../limits.js'
import type { OneShot } from '../../txn/one-shots.js'
import type { Op } from '../../txn/op.js'
import { decoderOf } from '../wire/decode.js'
import { queryExpiry } from '../wire/expiry.js'
import { oneShotOf } from '../wire/one-shot.js'
import { parseRawQuery, percentDecode } from '../wire/query.js'
import { oneShot } from '../wire/schemas/txn.js'
import type { FastRequest } from './request-reader.js'

/** The latest value of a key, or a write of one key, or a transaction. */
export type Asked =
  | { readonly kind: 'get'; readonly key: Buffer }
  | { readonly kind: 'write' | 'txn'; readonly txn: OneShot }

/** @returns undefined for a request that node:http has to judge: it is invalid, not allowed, or has long lists. */
export type Ask = (request: FastRequest, bytes: Buffer, grant: Grant) => Asked | undefined

/** @param app must be ready: it has the compiler of schemas then. */
export function asker(app: FastifyInstance, limits: Limits): Ask {
  const parse = app.getDefaultJsonParser('error', 'error')
  const schema = oneShot.body
  const validate = app.validatorCompiler?.({ schema, method: 'POST', url: '/v1/txn', httpPart: 'body' })
  const decode = decoderOf(schema, limits)

  function json(bytes: Buffer): unknown {
    let value: unknown
    const done = (_error: Error | null, parsed: unknown): void => {
      value = parsed
    }
    if (isUtf8(bytes)) void parse(undefined as never, bytes.toString('utf8'), done)
    return value
  }

  function askTxn(bytes: Buffer, grant: Grant): Asked | undefined {
    const body = json(bytes)
    if (typeof body !== 'object' || body === null || hasLongList(body) || validate?.(body) !== true) return undefined
    const decoded = decode({ body, grant })
    if (decoded instanceof Promise) throw new Error('a short body was decoded in slices')
    return { kind: 'txn', txn: oneShotOf(decoded, grant, limits) }
  }

  return ({ method, key: escaped, query, bodyAt, end }, bytes, grant) => {
    try {
      if (method === 'POST') return askTxn(bytes.subarray(bodyAt, end), grant)
      const key = percentDecode(escaped, 'key')
      requireKey(key, 'key', limits.keyBytesMax)
      grant.requireKey(key, 'key')
      if (method === 'GET') return { kind: 'get', key }
      if (method === 'DELETE') return writeOf({ op: 'delete', key })
      const value = Buffer.from(bytes.subarray(bodyAt, end)) // A view would keep all in memory that arrived with it.
      requireValue(value, 'body', limits.valueBytesMax)
      return writeOf({ op: 'put', key, value, expiry: query === '' ? undefined : queryExpiry(parseRawQuery(query)) })
    } catch {
      return undefined
    }
  }
}

/** Whether the body has a list that would be checked in slices. */
function hasLongList(body: object): boolean {
  const { checks, ops, acks, notify } = body as Readonly<Record<string, unknown>>
  if (isLong(checks) || isLong(ops) || isLong(acks) || isLong(notify)) return true
  return Array.isArray(notify) && notify.some((one) => isLong((one as { readonly keys?: unknown } | null)?.keys))
}

function isLong(list: unknown): boolean {
  return Array.isArray(list) && list.length > SLICE_ITEMS
}

function writeOf(op: Op): Asked {
  const txn = { checks: NO_CHECKS, ops: [op], maxRetries: MAX_RETRIES_DEFAULT, lockWaitMs: LOCK_WAIT_MS_DEFAULT }
  return { kind: 'write', txn }
}

const NO_CHECKS: OneShot['checks'] = []
