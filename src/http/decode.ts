import type { Static, TSchema } from '@sinclair/typebox'
import type { Grant } from '../access/grant.js'
import type { Limits } from '../limits.js'
import type { KeyRange } from '../percolator/api.js'
import { camelCase } from '../percolator/field-names.js'
import { requireKey, requireValue, toBytes, type WireBytes } from './bytes.js'
import { rangeOf } from './range.js'

type Camel<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S

/** A validated body as the code wants it: camelCase names, bytes decoded, timestamps of 0 left out. */
export type Decoded<T> = T extends Uint8Array
  ? Uint8Array
  : T extends readonly (infer Item)[]
    ? Decoded<Item>[]
    : T extends object
      ? { -readonly [K in keyof T as K extends string ? Camel<K> : K]: Decoded<T[K]> }
      : T

/** @param field its name, as errors say it; undefined: don't say. */
type Decode = (value: unknown, grant: Grant, field: string | undefined) => unknown

/**
 * Compiles a schema into the function that turns a request's body, which it has validated, into what the code wants. No key
 * and no range gets past it that the request's token does not reach.
 * @returns a function that throws KvError `invalid_argument` (bad text or base64, an empty key), `payload_too_large`,
 *   `forbidden`.
 */
export function decoderOf<S extends TSchema>(schema: S, limits: Limits): (request: BodyOf) => Decoded<Static<S>> {
  const decode = compile(schema, limits)
  return ({ body, grant }) => {
    try {
      return decode(body, grant, undefined) as Decoded<Static<S>>
    } catch {
      return decode(body, grant, '') as Decoded<Static<S>> // Again, for the error: naming every field costs more.
    }
  }
}

interface BodyOf {
  readonly body: unknown
  readonly grant: Grant
}

function compile(schema: TSchema, limits: Limits): Decode {
  switch (schema['bytes']) {
    case 'key':
      return (value, grant, field = '') => {
        const key = toBytes(value as WireBytes, field)
        requireKey(key, field, limits.keyBytesMax)
        grant.requireKey(key, field)
        return key
      }
    case 'value':
      return (value, _grant, field = '') => {
        const bytes = toBytes(value as WireBytes, field)
        requireValue(bytes, field, limits.valueBytesMax)
        return bytes
      }
    case 'bound':
      return (value, _grant, field = '') => {
        const bound = toBytes(value as WireBytes, field)
        if (bound.length === 0) return undefined // An empty bound is an open one.
        requireKey(bound, field, limits.keyBytesMax)
        return bound
      }
  }
  if (schema['zeroIsAbsent'] === true) return (value) => (value === 0 ? undefined : value)
  if (schema['type'] === 'array') {
    const item = compile(schema['items'], limits)
    return (value, grant, field) =>
      (value as unknown[]).map((entry, i) => item(entry, grant, field === undefined ? undefined : `${field}[${i}]`))
  }
  if (schema['type'] === 'object') return compileObject(schema['properties'], limits)
  return (value) => value
}

function compileObject(properties: Record<string, TSchema>, limits: Limits): Decode {
  const fields = Object.entries(properties).map(
    ([name, property]) => [name, camelCase(name), compile(property, limits)] as const,
  )
  const isRange = [properties['start'], properties['prefix']].some((property) => property?.['bytes'] === 'bound')
  return (value, grant, path) => {
    const decoded: Record<string, unknown> = {}
    for (const [name, camel, decode] of fields) {
      const given = (value as Record<string, unknown>)[name]
      if (given === undefined) continue
      const kept = decode(given, grant, path ? `${path}.${name}` : path === '' ? name : undefined)
      if (kept !== undefined) decoded[camel] = kept
    }
    // Of a transaction's ops only scans have a range.
    if (isRange && (decoded['op'] ?? 'scan') === 'scan') requireRange(decoded, grant, path ?? '')
    return decoded
  }
}

function requireRange(given: KeyRange & { readonly prefix?: Uint8Array }, grant: Grant, path: string): void {
  if (grant.isScoped) grant.requireRange(rangeOf(given, path), path || 'start')
}
