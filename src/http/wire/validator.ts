import { invalid, KvError } from '../../errors/kv-error.js'
import { didYouMean, nameInError, nearestName } from '../../errors/nearest-name.js'
import { runSliced } from '../../event-loop/time-slicer.js'
import { type Limits, SLICE_ITEMS } from '../../limits.js'
import { isWireBytes } from './bytes.js'
import type { Schema } from './schemas/schema.js'
import type { WrittenTimestamps } from './written-timestamp.js'

export interface Rules {
  readonly limits: Limits
  readonly written: WrittenTimestamps
}

/** @returns the error of a value that its schema refuses; a promise of it when the value holds a long list. */
export type Validate = (value: unknown) => KvError | undefined | Promise<KvError | undefined>

/**
 * Compiles a schema to functions, without generated code, so that the first request of a kind is answered as fast as the next. A
 * list at the top of a body, or in one of its fields, may be long: then its items are validated after everything else, in
 * slices, so that other requests run meanwhile. All errors are `invalid_argument`, except `payload_too_large` for too many
 * items.
 * @param name the name of the value (`body`) in errors that concern no single field.
 */
export function validatorOf(schema: Schema, name: string, rules: Rules): Validate {
  const check = checkOf(schema, rules, [])
  return (value) => {
    const long: LongList[] = []
    const fault = check(value, long)
    if (fault !== undefined) return errorOf(fault, name)
    return long.length === 0 ? undefined : runSliced(checkLong(long, name))
  }
}

/** Names only this schema's part of a path: the lists around it add the rest. */
interface Fault {
  readonly path: string[]
  /** The text after the name of the field. */
  readonly text: string
  /** The number of items that the list may have. */
  readonly limit?: number
}

/** @param long collects the long lists, whose items are still unchecked. Absent: no list is long. */
type Check = (value: unknown, long?: LongList[]) => Fault | undefined

interface LongList {
  readonly list: readonly unknown[]
  path: readonly string[]
  readonly item: Check
}

function* checkLong(lists: readonly LongList[], name: string): Generator<void, KvError | undefined, void> {
  yield
  for (const { list, path, item } of lists)
    for (let i = 0; i < list.length; i++) {
      const nested: LongList[] = []
      const fault = item(list[i], nested)
      if (fault !== undefined) return errorOf({ ...fault, path: [...path, String(i), ...fault.path] }, name)
      if (nested.length > 0) {
        moveWithin(nested, 0, [...path, String(i)])
        const error = yield* checkLong(nested, name)
        if (error !== undefined) return error
      }
      if (i % SLICE_ITEMS === SLICE_ITEMS - 1) yield
    }
  return undefined
}

/** Prefixes the paths of the lists from `index` on with `path`. */
function moveWithin(lists: readonly LongList[], index: number, path: readonly string[]): void {
  for (const list of lists.slice(index)) list.path = [...path, ...list.path]
}

/** @param path to the value, from the nearest item of a list around it. */
function checkOf(schema: Schema, rules: Rules, path: readonly string[]): Check {
  if (schema.bytes !== undefined)
    return (value) => (isWireBytes(value) ? undefined : fault('must be a string or {"base64": "..."}'))
  switch (schema.type) {
    case 'object':
      return checkObject(schema, rules, path)
    case 'array':
      return checkArray(schema, rules, path)
    case 'integer':
      return checkInteger(schema, rules)
    case 'boolean':
      return (value) => (typeof value === 'boolean' ? undefined : fault('must be boolean'))
    case 'string':
      return checkString(schema)
    default:
      throw new Error(`no request can be validated by ${JSON.stringify(schema)}`)
  }
}

function checkObject(schema: Schema, rules: Rules, path: readonly string[]): Check {
  const { properties = {}, required = [], additionalProperties } = schema
  const names = Object.keys(properties)
  const known = new Set(names)
  const checks = Object.entries(properties).map(([name, property]) => checkOf(property, rules, [...path, name]))
  const isClosed = additionalProperties === false
  return (value, long) => {
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    if (!isObject || value instanceof Uint8Array) return fault('must be object')
    const given = value as Readonly<Record<string, unknown>>
    for (const name of required) {
      if (given[name] !== undefined) continue
      const misspelt = isClosed && Object.keys(given).find((other) => !known.has(other) && nearestName(other, [name]))
      return misspelt ? unknownField(misspelt, [name]) : fault('is missing', name)
    }
    if (isClosed) for (const name in given) if (!known.has(name)) return unknownField(name, names)
    for (let i = 0; i < names.length; i++) {
      const name = names[i] as string
      const field = given[name]
      const found = field === undefined ? undefined : checks[i]?.(field, long)
      if (found !== undefined) return within(name, found)
    }
    return undefined
  }
}

function checkArray(schema: Schema, rules: Rules, path: readonly string[]): Check {
  const { items = {}, minItems = 0, maxItems = Number.POSITIVE_INFINITY, atMost } = schema
  const item = checkOf(items, rules, [])
  const limit = atMost === undefined ? maxItems : rules.limits[atMost]
  return (value, long) => {
    if (!Array.isArray(value)) return fault('must be array')
    if (value.length > limit) return { path: [], text: `must NOT have more than ${limit} items`, limit }
    if (value.length < minItems) return fault(`must NOT have fewer than ${minItems} items`)
    if (value.length > SLICE_ITEMS && long !== undefined) {
      long.push({ list: value, path, item })
      return undefined
    }
    for (let i = 0; i < value.length; i++) {
      const longBefore = long?.length
      const found = item(value[i], long)
      if (found !== undefined) return within(String(i), found)
      if (long !== undefined && long.length !== longBefore) moveWithin(long, longBefore ?? 0, [...path, String(i)])
    }
    return undefined
  }
}

function checkInteger({ minimum, maximum, atMost, written }: Schema, rules: Rules): Check {
  const least = minimum ?? Number.NEGATIVE_INFINITY
  const most = maximum ?? (atMost === undefined ? Number.POSITIVE_INFINITY : rules.limits[atMost])
  return (value) => {
    if (!Number.isInteger(value)) return fault('must be integer')
    const given = value as number
    const refused = written && rules.written(written, given)
    if (refused !== undefined) return fault(refused)
    if (given > most) return fault(`must be <= ${most}`)
    return given < least ? fault(`must be >= ${least}`) : undefined
  }
}

function checkString({ enum: names, pattern, title = `match ${pattern}` }: Schema): Check {
  const wanted = pattern === undefined ? undefined : new RegExp(pattern, 'u')
  return (value) => {
    if (typeof value !== 'string') return fault('must be string')
    if (wanted?.test(value) === false) return fault(`must ${title}`)
    if (names === undefined || names.includes(value)) return undefined
    return fault(`must be one of ${names.join(', ')}${didYouMean(value, names)}`)
  }
}

function unknownField(name: string, known: readonly string[]): Fault {
  return fault(`is not a known field${didYouMean(name, known)}`, nameInError(name))
}

function fault(text: string, ...path: string[]): Fault {
  return { path, text }
}

function within(part: string, found: Fault): Fault {
  found.path.unshift(part)
  return found
}

function errorOf({ path, text, limit }: Fault, name: string): KvError {
  const field = path.length === 0 ? name : fieldPath(path)
  const detail = `${field} ${text}`
  return limit === undefined ? invalid(field, detail) : new KvError('payload_too_large', detail, { field, limit })
}

/** `['mutations', '0', 'key']` becomes `mutations[0].key`. */
function fieldPath(path: readonly string[]): string {
  return path.reduce((field, part) => {
    if (/^\d+$/.test(part)) return `${field}[${part}]`
    return field === '' ? part : `${field}.${part}`
  }, '')
}
