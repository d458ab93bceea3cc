import type { FastifyRequest } from 'fastify'
import { afterPrefix, type KeyRange } from '../../bytes/key-range.js'
import type { Op } from '../../txn/op.js'
import { isWireBytes, toBytes } from '../wire/bytes.js'
import { KEY_ROUTE, TXN_KEY_ROUTE } from '../wire/key-url.js'
import { percentDecode, type RawQuery } from '../wire/query.js'

/** The keys, and the first range, that a request is about, for people who ask why a server is slow. */
export interface TouchedKeys {
  readonly keys: readonly Uint8Array[]
  readonly range?: KeyRange | undefined
  readonly writes: boolean
}

export const NOTHING_TOUCHED: TouchedKeys = { keys: [], writes: false }

export function touchedByOps(ops: readonly Op[]): TouchedKeys {
  return {
    keys: ops.flatMap((op) => ('key' in op ? [op.key] : [])),
    range: ops.find((op): op is Op & KeyRange => !('key' in op)),
    writes: ops.some(({ op }) => op !== 'get' && op !== 'scan'),
  }
}

/** Reads the body as it came, which may be an invalid one: what is no key there is passed over. */
export function touchedByRequest({ raw, routeOptions, body, query }: FastifyRequest): TouchedKeys {
  const writes = routeOptions.config?.access === 'write'
  if (raw.keyInUrl !== undefined) {
    const isKey = routeOptions.url === KEY_ROUTE || routeOptions.url === TXN_KEY_ROUTE
    return isKey ? { keys: decoded(raw.keyInUrl), writes } : NOTHING_TOUCHED
  }
  if (!isObject(body)) return { keys: [], range: rangeIn(query as RawQuery, decoded), writes }
  const parts = [listOf(body['ops']), listOf(body['mutations'])].flat().filter(isObject)
  const opsWrite = parts.some(({ op }) => op !== 'get' && op !== 'scan')
  return {
    keys: [body['key'], ...listOf(body['keys']), ...parts.map(({ key }) => key)].flatMap(bytesOf),
    range: [body, ...parts].map((part) => rangeIn(part, bytesOf)).find((range) => range !== undefined),
    writes: parts.length > 0 ? opsWrite : writes,
  }
}

function rangeIn<T>(
  given: Readonly<Record<string, T>>,
  bytesIn: (value: T) => readonly Uint8Array[],
): KeyRange | undefined {
  const of = (name: string): Uint8Array | undefined => {
    const bytes = given[name] === undefined ? undefined : bytesIn(given[name])[0]
    return bytes?.length === 0 ? undefined : bytes
  }
  const prefix = of('prefix')
  if (prefix !== undefined) return { start: prefix, end: afterPrefix(prefix) }
  const [start, end] = [of('start'), of('end')]
  return start === undefined && end === undefined ? undefined : { start, end }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function bytesOf(value: unknown): readonly Uint8Array[] {
  try {
    return isWireBytes(value) ? [toBytes(value, 'key')] : []
  } catch {
    return []
  }
}

function decoded(escaped: string | string[] | undefined): readonly Uint8Array[] {
  try {
    return typeof escaped === 'string' ? [percentDecode(escaped, 'key')] : []
  } catch {
    return []
  }
}
