import fc from 'fast-check'
import type { RouteOptions } from 'fastify'
import { type Headers, type Method, pack } from './support.js'

/** A request that is made to cost much, of any size: twice the size must not cost four times as much. */
export interface Hostile {
  readonly method: Method
  /** With `:txn` where a transaction's id belongs. */
  readonly what: string
  readonly of: (size: number) => { readonly url: string; readonly headers: Headers; readonly payload?: Buffer }
}

/** As much of a JSON schema as bodies are made from. */
export interface Schema {
  readonly type?: string
  readonly bytes?: string
  readonly enum?: readonly unknown[]
  readonly pattern?: string
  readonly items?: Schema
  readonly minimum?: number
  readonly maximum?: number
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
}

interface Choices {
  /** Which optional fields are there, and which of an enum: bits. */
  readonly mask: number
  readonly areKeysEqual: boolean
  readonly asBase64: boolean
  readonly filler: string
}

const KEY_BYTES = 12
/** The name that stands in paths. */
export const OBSERVER = 'key'
const JSON_TYPE = { 'content-type': 'application/json' }
const MSGPACK_TYPE = { 'content-type': 'application/msgpack' }
/** Entries of lists for each unit of size; requests are then some hundred KB. */
const BYTES_PER_ENTRY = 100

/** What a schema allows, as large as it gets. */
function filled(schema: Schema, entries: number, choices: Choices, index = 0): unknown {
  const { mask, areKeysEqual, asBase64, filler } = choices
  if (schema.bytes !== undefined) {
    const text =
      schema.bytes === 'key'
        ? `k${areKeysEqual ? 0 : index}`.padEnd(KEY_BYTES, filler)
        : String.fromCharCode(97 + (index % 26))
    return asBase64 ? { base64: Buffer.from(text).toString('base64') } : text
  }
  if (schema.enum !== undefined) return schema.enum[mask % schema.enum.length]
  switch (schema.type) {
    case 'string':
      return schema.pattern === undefined ? filler.repeat(mask % BYTES_PER_ENTRY) : OBSERVER
    case 'boolean':
      return mask % 2 === 0
    case 'integer':
      return Math.max(schema.minimum ?? 0, Math.min(schema.maximum ?? 100, 1 + (mask % 50)))
    case 'array':
      return Array.from({ length: entries }, (_, i) => filled(schema.items ?? {}, 1, choices, i))
    case 'object': {
      const fields = Object.entries(schema.properties ?? {}).filter(
        ([name], i) => schema.required?.includes(name) || ((mask >> (i % 20)) & 1) === 1,
      )
      return Object.fromEntries(fields.map(([name, field]) => [name, filled(field, entries, choices, index)]))
    }
    default:
      return null
  }
}

/** JSON: what comes first, what is repeated, what comes last. */
const TEXTS: readonly (readonly [string, string, string])[] = [
  ['', '[', ''],
  ['', '{"a":', ''],
  ['{"ops":', '[', ''],
  ['[', '[],', '0]'],
  ['{"ops":[', '{},', '{}]}'],
  ['{"keys":[', '"",', '""]}'],
  ['{"keys":["', '\\u0000', '"]}'],
  ['{"keys":["', '\\\\', '"]}'],
  ['{"keys":["', '\ufffd', '"]}'],
  ['{"key":', ' ', '"a"}'],
  ['{"key":', '1', '}'],
  ['{"key":0.', '0', '}'],
  ['{"', 'x', '":1}'],
  ['{', '"__proto__":0,', '"a":0}'],
  ['{"key":{"base64":"', 'A', '"}}'],
]
const hex = (text: string): Buffer => Buffer.from(text, 'hex')
/** The same in MessagePack: lengths are of four billion, so that nothing ends early. */
const BYTES: readonly (readonly [Buffer, Buffer, Buffer])[] = [
  ['', '91', ''],
  ['', '81a161', ''],
  ['81a36f7073ddffffffff', '80', ''],
  ['81a36f7073dd00000fff', 'a0', ''],
  ['81a36f7073dd00000fff', 'c0', ''],
  ['ddffffffff', '80', '00'],
  ['81a16bdb00000fff', 'efbfbd', ''],
  ['dc0fff', 'd669000000009101', ''],
  ['dc0fff', 'd669000000009201d67000000000', ''],
  ['dc0fff', 'd4724091a161c0', ''],
  ['c9ffffffff42', '7f', '00'],
  ['c90000ffff42', '7f', '00'],
  ['dc0fff', 'd47800a3612a62', ''],
].map(([head = '', unit = '', tail = '']) => [hex(head), hex(unit), hex(tail)])

const HEADERS = [
  ...['if-match', 'if-none-match', 'accept', 'authorization', 'content-type', 'idempotency-key', 'host', 'origin'],
  ...['user-agent', 'accept-language', 'cookie', 'x-anything', 'sec-fetch-site'],
]
const UNITS = [
  ' ',
  '\t',
  ',',
  ', ',
  ';',
  '"',
  '"1",',
  '"1", ',
  'W/',
  'W/"1" ,',
  'a',
  'a ',
  '=',
  '=;',
  ';q=1',
  ':',
  '1',
  '%41',
  '/',
]
const ENDS = ['', 'x', '"', ',', ', ', '*', '"1"', 'W/"', 'bearer ', 'http://', 'application/json', '[', ']', ':', '1x']
const PARTS = ['%41', '%', '+', '&a=', '=', '1', '-', '/', '.', 'A', '_', '%20', '%00', 'é'].map(encodeURI)
/** A request line and headers are bounded by 32 KiB. */
const HEAD_BYTES_MAX = 28_000

const repeated = (unit: string, bytes: number): string => unit.repeat(Math.max(1, Math.floor(bytes / unit.length)))
const short = (text: string): string => (text.length > 40 ? `${text.slice(0, 40)}…` : text)

/** Lists of references to the list before, twice: each level doubles what a walk over all of it meets. */
function clones(levels: number): Buffer {
  const parts = Array.from({ length: levels }, (_, i) => {
    const [id, before] = [i, i - 1].map((n) => Buffer.from([0xd6, 0x69, 0, 0, 0, Math.max(0, n)]))
    before?.fill(0x70, 1, 2)
    return Buffer.concat([
      id as Buffer,
      i === 0 ? hex('9101') : Buffer.concat([hex('92'), before as Buffer, before as Buffer]),
    ])
  })
  return Buffer.concat([Buffer.from([0xdc, 0, levels]), ...parts])
}
const CLONES = 24

/** Bodies that have nothing to do with the route: reading them is what costs. */
export function bodiesOf(method: Method, url: string): Hostile[] {
  const texts = TEXTS.map(([head, unit, tail]): Hostile => {
    const of: Hostile['of'] = (size) => ({
      url,
      headers: JSON_TYPE,
      payload: Buffer.from(head + repeated(unit, size) + tail),
    })
    return { method, what: `JSON of ${JSON.stringify([head, unit, tail])}`, of }
  })
  const bytes = BYTES.map(([head, unit, tail]): Hostile => {
    const of: Hostile['of'] = (size) => {
      const units = Buffer.alloc(Math.ceil(size / unit.length) * unit.length, unit)
      return { url, headers: MSGPACK_TYPE, payload: Buffer.concat([head, units, tail]) }
    }
    return { method, what: `MessagePack of ${[head, unit, tail].map((part) => part.toString('hex')).join(' ')}`, of }
  })
  const references: Hostile = {
    method,
    what: 'MessagePack of references',
    of: () => ({ url, headers: MSGPACK_TYPE, payload: clones(CLONES) }),
  }
  return [...texts, ...bytes, references]
}

export function hostileOf(route: RouteOptions): fc.Arbitrary<Hostile> {
  const method = (Array.isArray(route.method) ? route.method[0] : route.method) as Method
  const { body: schema } = (route.schema ?? {}) as { body?: Schema }
  const url = route.url.replace(/:(?!txn)\w+/, OBSERVER)

  const lists = fc
    .record({
      mask: fc.nat(),
      areKeysEqual: fc.boolean(),
      asBase64: fc.boolean(),
      filler: fc.constantFrom('.', '\ufffd', 'é'),
      isPacked: fc.boolean(),
      tail: fc.constantFrom('', '5', '{}'),
    })
    .map(({ isPacked, tail, ...choices }): Hostile => {
      const of: Hostile['of'] = (size) => {
        const value = filled(schema ?? {}, Math.ceil(size / BYTES_PER_ENTRY), choices)
        if (isPacked) return { url, headers: MSGPACK_TYPE, payload: pack(value) }
        const text = JSON.stringify(value)
        // Something wrong behind everything else.
        const at = tail === '' ? -1 : text.lastIndexOf(']')
        const payload = Buffer.from(at === -1 ? text : `${text.slice(0, at)},${tail}${text.slice(at)}`)
        return { url, headers: JSON_TYPE, payload }
      }
      return { method, what: `long lists, ${JSON.stringify({ isPacked, tail, ...choices })}`, of }
    })
  const bodies = fc.constantFrom(...bodiesOf(method, url))
  const headers = fc
    .tuple(fc.constantFrom(...HEADERS), fc.constantFrom(...ENDS), fc.constantFrom(...UNITS), fc.constantFrom(...ENDS))
    .map(([name, head, unit, tail]): Hostile => {
      const of: Hostile['of'] = (size) => {
        const value = head + repeated(unit, Math.min(size, HEAD_BYTES_MAX)) + tail
        return { url, headers: { ...JSON_TYPE, [name]: value }, payload: Buffer.from('{}') }
      }
      return { method, what: `${name}: ${short(`${head}${unit.repeat(5)}`)}…${tail}`, of }
    })
  const parameters = fc
    .tuple(
      fc.constantFrom(...(route.config?.query ?? []), 'nope', ''),
      fc.constantFrom(...PARTS),
      fc.constantFrom(...PARTS),
    )
    .map(([name, unit, tail]): Hostile => {
      const text = (size: number): string => repeated(unit, Math.min(size, HEAD_BYTES_MAX)) + tail
      const of: Hostile['of'] = (size) =>
        name === '' ? { url: `${url}${text(size)}`, headers: {} } : { url: `${url}?${name}=${text(size)}`, headers: {} }
      return { method, what: `?${name}=${unit}…${tail}`, of }
    })
  const bodied = schema === undefined ? [] : [lists, lists, bodies, bodies]
  return fc.oneof(...bodied, headers, parameters)
}
