import { isUtf8 } from 'node:buffer'
import type { FastifyInstance } from 'fastify'
import type { Grant } from '../../access/grant.js'
import { requireKey, requireValue } from '../../bytes/byte-limits.js'
import type { LeaseRequest } from '../../leases/rules/leases-api.js'
import { type Limits, LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT, SLICE_ITEMS } from '../../limits.js'
import type { OneShot } from '../../txn/one-shot.js'
import type { Op } from '../../txn/op.js'
import { type Decoded, decoderOf } from '../wire/decode.js'
import { queryExpiry } from '../wire/expiry.js'
import { LEASE_ROUTE, leaseNameOf } from '../wire/key-url.js'
import { oneShotOf } from '../wire/one-shot.js'
import { parseRawQuery, percentDecode } from '../wire/query.js'
import { put as leasePut } from '../wire/schemas/leases.js'
import type { Schema, Static } from '../wire/schemas/schema.js'
import { oneShot } from '../wire/schemas/txn.js'
import type { KvCalls, KvRead, KvWrite } from './kv-calls.js'
import type { FastRequest } from './request-reader.js'

export type Asked =
  | { readonly kind: 'get'; readonly key: Buffer }
  | { readonly kind: 'write' | 'txn'; readonly txn: OneShot }
  | { readonly kind: 'lease'; readonly name: string; readonly request: LeaseRequest }
  | KvRead
  | KvWrite

/**
 * @returns undefined for a request that node:http must handle: it is invalid, forbidden, has long lists, or may wait for a
 *   lease.
 */
export type Ask = (request: FastRequest, bytes: Buffer, grant: Grant) => Asked | undefined

/** @param kvCalls undefined where KV Connect is not served. */
export function asker(app: FastifyInstance, limits: Limits, kvCalls: KvCalls | undefined): Ask {
  const parse = app.getDefaultJsonParser('error', 'error')
  const txnOf = bodiesOf(oneShot.body, 'POST', '/v1/txn')
  const leaseOf = bodiesOf(leasePut.body, 'PUT', LEASE_ROUTE)

  function json(bytes: Buffer): unknown {
    let value: unknown
    const done = (_error: Error | null, parsed: unknown): void => {
      value = parsed
    }
    if (isUtf8(bytes)) void parse(undefined as never, bytes.toString('utf8'), done)
    return value
  }

  /** @returns a function that reads bodies, and returns undefined for an invalid one. */
  function bodiesOf<S extends Schema>(schema: S, method: string, url: string) {
    const validate = app.validatorCompiler?.({ schema, method, url, httpPart: 'body' })
    const decode = decoderOf(schema, limits)
    return (bytes: Buffer, grant: Grant): Decoded<Static<S>> | undefined => {
      const body = json(bytes)
      if (typeof body !== 'object' || body === null || hasLongList(body) || validate?.(body) !== true) return undefined
      const decoded = decode({ body, grant })
      if (decoded instanceof Promise) throw new Error('a short body was decoded in slices')
      return decoded
    }
  }

  function askTxn(bytes: Buffer, grant: Grant): Asked | undefined {
    const body = txnOf(bytes, grant)
    return body && { kind: 'txn', txn: { ...oneShotOf(body, grant, limits), caller: grant.identity } }
  }

  /** Requests that wait for another holder's lease count as watches, which node:http handles. */
  function askLease(escaped: string, bytes: Buffer, grant: Grant): Asked | undefined {
    const name = leaseNameOf(escaped, grant)
    const request = leaseOf(bytes, grant)
    return request === undefined || (request.waitMs ?? 0) > 0 ? undefined : { kind: 'lease', name, request }
  }

  return ({ kind, key: escaped, query, headers, bodyAt, end }, bytes, grant) => {
    try {
      if (kind === 'txn') return askTxn(bytes.subarray(bodyAt, end), grant)
      if (kind === 'lease') return askLease(escaped, bytes.subarray(bodyAt, end), grant)
      if (kind === 'kv') return kvCalls?.ask(escaped, headers, bytes.subarray(bodyAt, end), grant)
      const key = percentDecode(escaped, 'key')
      requireKey(key, 'key', limits.keyBytesMax)
      grant.requireKey(key, 'key')
      if (kind === 'get') return { kind: 'get', key }
      if (kind === 'delete') return writeOf({ op: 'delete', key })
      const value = Buffer.from(bytes.subarray(bodyAt, end)) // A view would keep everything in memory that arrived with it.
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
