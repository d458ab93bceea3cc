import type { Grant } from '../../access/grant.js'
import { requireKey, requireValue } from '../../bytes/byte-limits.js'
import { camelCase } from '../../bytes/field-names.js'
import type { KeyRange } from '../../bytes/key-range.js'
import { keyText } from '../../bytes/key-text.js'
import { invalid } from '../../errors/kv-error.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import { type Limits, SLICE_ITEMS } from '../../limits.js'
import { toBytes, type WireBytes } from './bytes.js'
import { rangeOf } from './range.js'
import type { Fields, Schema, Static } from './schemas/schema.js'

type Camel<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S

/** A decoded body: camelCase names, bytes as Uint8Array, timestamps of 0 left out. */
export type Decoded<T> = T extends Uint8Array
  ? Uint8Array
  : T extends readonly (infer Item)[]
    ? Decoded<Item>[]
    : T extends object
      ? { -readonly [K in keyof T as K extends string ? Camel<K> : K]: Decoded<T[K]> }
      : T

/** @param field the name for errors; undefined: names are not needed yet. */
type Decode = (value: unknown, grant: Grant, field: string | undefined) => unknown
/** A `Decode` in steps: other requests may run at each yield. */
type DecodeSteps = (value: unknown, grant: Grant, field: string | undefined) => Generator<void, unknown, void>

/** Items of a long list decoded between two looks at the clock. */
const ITEMS_AT_A_TIME = 16

/**
 * Compiles a schema into a function that decodes validated bodies. It refuses every key and range that the request's token does
 * not cover.
 * @returns a function that returns a promise when lists are long. It throws, or rejects with, KvError `invalid_argument` (bad
 *   text or base64, an empty key, one key twice in a `distinct` list), `payload_too_large`, `forbidden`.
 */
export function decoderOf<S extends Schema>(
  schema: S,
  limits: Limits,
): (request: BodyOf) => Decoded<Static<S>> | Promise<Decoded<Static<S>>> {
  type Body = Decoded<Static<S>>
  const decode = compileSteps(schema, limits)
  return ({ body, grant }) => {
    // Decodes again after an error, with names: building every name would slow down each request.
    const decodeNaming = () => runSliced(decode(body, grant, '')) as Body | Promise<Body>
    try {
      const decoded = runSliced(decode(body, grant, undefined)) as Body | Promise<Body>
      return decoded instanceof Promise ? decoded.catch(decodeNaming) : decoded
    } catch {
      return decodeNaming()
    }
  }
}

interface BodyOf {
  readonly body: unknown
  readonly grant: Grant
}

/** For a body, whose lists may be long. */
function compileSteps(schema: Schema, limits: Limits): DecodeSteps {
  if (schema.type === 'array') return compileList(schema, limits)
  if (schema.type === 'object') {
    const object = compileObject(schema.properties ?? {}, limits, compileSteps)
    return function* (value, grant, path) {
      const decoded: Record<string, unknown> = {}
      for (const [name, camel, decode] of object.fields) {
        const given = (value as Record<string, unknown>)[name]
        if (given === undefined) continue
        const kept = yield* decode(given, grant, fieldOf(path, name))
        if (kept !== undefined) decoded[camel] = kept
      }
      object.check(decoded, grant, path)
      return decoded
    }
  }
  const decode = compile(schema, limits)
  // biome-ignore lint/correctness/useYield: one value needs no step.
  return function* (value, grant, field) {
    return decode(value, grant, field)
  }
}

function compileList({ items = {}, distinct }: Schema, limits: Limits): DecodeSteps {
  if (holdsList(items)) return compileListOfLists(items, limits)
  const item = compile(items, limits)
  const keyOfItem: ((item: unknown) => Uint8Array) | undefined =
    distinct === undefined
      ? undefined
      : distinct === 'items'
        ? (key) => key as Uint8Array
        : (entry) => (entry as { readonly key: Uint8Array }).key
  return function* (value, grant, field) {
    const given = value as readonly unknown[]
    const isLong = given.length > SLICE_ITEMS
    const decoded: unknown[] = []
    const seen = keyOfItem && given.length > 1 ? new Set<string>() : undefined
    for (let i = 0; i < given.length; i++) {
      const entry = item(given[i], grant, field === undefined ? undefined : `${field}[${i}]`)
      decoded.push(entry)
      if (keyOfItem !== undefined) seen?.add(keyText(keyOfItem(entry)))
      if (isLong && i % ITEMS_AT_A_TIME === 0) yield
    }
    if (seen !== undefined && seen.size < given.length) throw invalid(field ?? '', `${field} holds one key twice`)
    return decoded
  }
}

function holdsList({ properties = {} }: Schema): boolean {
  return Object.values(properties).some(({ type }) => type === 'array')
}

function compileListOfLists(items: Schema, limits: Limits): DecodeSteps {
  const item = compileSteps(items, limits)
  return function* (value, grant, field) {
    const decoded: unknown[] = []
    for (const given of value as readonly unknown[]) {
      decoded.push(yield* item(given, grant, field === undefined ? undefined : `${field}[${decoded.length}]`))
      if (decoded.length % SLICE_ITEMS === 0) yield
    }
    return decoded
  }
}

/** For entries of lists and for short values. */
function compile(schema: Schema, limits: Limits): Decode {
  switch (schema.bytes) {
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
        if (bound.length === 0) return undefined // An empty bound means no bound.
        requireKey(bound, field, limits.keyBytesMax)
        return bound
      }
    case 'prefix':
      return (value, _grant, field = '') => {
        const prefix = toBytes(value as WireBytes, field)
        if (prefix.length > 0) requireKey(prefix, field, limits.keyBytesMax)
        return prefix
      }
  }
  if (schema.zeroIsAbsent === true) return (value) => (value === 0 ? undefined : value)
  if (schema.type !== 'object') return (value) => value
  const object = compileObject(schema.properties ?? {}, limits, compile)
  return (value, grant, path) => {
    const decoded: Record<string, unknown> = {}
    for (const [name, camel, decode] of object.fields) {
      const given = (value as Record<string, unknown>)[name]
      if (given === undefined) continue
      const kept = decode(given, grant, fieldOf(path, name))
      if (kept !== undefined) decoded[camel] = kept
    }
    object.check(decoded, grant, path)
    return decoded
  }
}

function fieldOf(path: string | undefined, name: string): string | undefined {
  return path ? `${path}.${name}` : path === '' ? name : undefined
}

function compileObject<D>(properties: Fields, limits: Limits, compileField: (schema: Schema, limits: Limits) => D) {
  const fields = Object.entries(properties).map(
    ([name, property]) => [name, camelCase(name), compileField(property, limits)] as const,
  )
  const isRange = [properties['start'], properties['prefix']].some(
    (property) => property?.bytes === 'bound' || property?.bytes === 'prefix',
  )
  const check = (decoded: Record<string, unknown>, grant: Grant, path: string | undefined): void => {
    // All ops share one schema, but only some have a range.
    if (isRange && RANGED.has(decoded['op'])) requireRange(decoded, grant, path ?? '')
  }
  return { fields, check }
}

const RANGED: ReadonlySet<unknown> = new Set([undefined, 'scan', 'delete_range'])

function requireRange(given: KeyRange & { readonly prefix?: Uint8Array }, grant: Grant, path: string): void {
  if (grant.isScoped) grant.requireRange(rangeOf(given, path), path || 'start')
}
