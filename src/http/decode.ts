import type { Static, TSchema } from '@sinclair/typebox'
import type { Limits } from '../limits.js'
import { camelCase } from '../percolator/field-names.js'
import { requireKey, requireValue, toBytes, type WireBytes } from './bytes.js'

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
type Decode = (value: unknown, field: string | undefined) => unknown

/**
 * Compiles a schema into the function that turns what it has validated into what the code wants.
 * @returns a function that throws KvError `invalid_argument` (bad text or base64, an empty key), `payload_too_large`.
 */
export function decoderOf<S extends TSchema>(schema: S, limits: Limits): (body: unknown) => Decoded<Static<S>> {
  const decode = compile(schema, limits)
  return (body) => {
    try {
      return decode(body, undefined) as Decoded<Static<S>>
    } catch {
      return decode(body, '') as Decoded<Static<S>> // Again, for the error: naming every field of every body costs more.
    }
  }
}

function compile(schema: TSchema, limits: Limits): Decode {
  switch (schema['bytes']) {
    case 'key':
      return (value, field = '') => {
        const key = toBytes(value as WireBytes, field)
        requireKey(key, field, limits.keyBytesMax)
        return key
      }
    case 'value':
      return (value, field = '') => {
        const bytes = toBytes(value as WireBytes, field)
        requireValue(bytes, field, limits.valueBytesMax)
        return bytes
      }
    case 'bound':
      return (value, field = '') => {
        const bound = toBytes(value as WireBytes, field)
        if (bound.length === 0) return undefined // An empty bound is an open one.
        requireKey(bound, field, limits.keyBytesMax)
        return bound
      }
  }
  if (schema['zeroIsAbsent'] === true) return (value) => (value === 0 ? undefined : value)
  if (schema['type'] === 'array') {
    const item = compile(schema['items'], limits)
    return (value, field) =>
      (value as unknown[]).map((entry, i) => item(entry, field === undefined ? undefined : `${field}[${i}]`))
  }
  if (schema['type'] === 'object') return compileObject(schema['properties'], limits)
  return (value) => value
}

function compileObject(properties: Record<string, TSchema>, limits: Limits): Decode {
  const fields = Object.entries(properties).map(
    ([name, property]) => [name, camelCase(name), compile(property, limits)] as const,
  )
  return (value, path) => {
    const decoded: Record<string, unknown> = {}
    for (const [name, camel, decode] of fields) {
      const given = (value as Record<string, unknown>)[name]
      if (given === undefined) continue
      const kept = decode(given, path ? `${path}.${name}` : path === '' ? name : undefined)
      if (kept !== undefined) decoded[camel] = kept
    }
    return decoded
  }
}
