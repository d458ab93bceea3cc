import fc from 'fast-check'
import type { RouteOptions } from 'fastify'
import type { Json, Method } from './support.js'

/** Keys that requests name: of one prefix, of another, and of none. */
export const KEYS = ['a', 'b', 'c', 'app/a', 'app/b', 'hidden/a']
/** Observers, by the names that paths have anyway, and their prefixes. */
export const OBSERVERS = { a: 'app/', b: '', c: 'hidden/' }

const number = fc.oneof(
  fc.constantFrom(-1, 0, -0, 1, 1.5, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 53 - 1, 2 ** 53 - 2, 2 ** 64, 1e300, 5e-324),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
)
const deep = fc.integer({ min: 1, max: 200 }).map((depth) => {
  let value: unknown = 1
  for (let i = 0; i < depth; i++) value = i % 2 === 0 ? [value] : { key: value }
  return value
})
const wrong: fc.Arbitrary<unknown> = fc.oneof(
  number,
  fc.string({ unit: 'binary' }),
  fc.constantFrom('', 'a', '\ud800', '\ufffd', '\0', 'put', 'get', 'scan', null, true, false, {}, [], { base64: '' }),
  fc.record({ base64: fc.oneof(fc.base64String(), fc.string(), number) }),
  fc.jsonValue({ maxDepth: 3 }),
  fc.array(fc.constantFrom(...KEYS), { maxLength: 3 }),
  fc.constant(KEYS.join('').repeat(800)),
  deep,
)

const key = fc.oneof(
  { weight: 9, arbitrary: fc.constantFrom<unknown>(...KEYS, { base64: 'YQ==' }, { base64: '/w==' }) },
  { weight: 1, arbitrary: fc.string({ minLength: 1, maxLength: 5 }) },
)
const value = fc.constantFrom<unknown>('v', '', '7', '-9223372036854775808', { base64: '/wA=' }, 'v'.repeat(300))
/** Few, so that requests meet what others left; and some of the present and of the end of time. */
const timestamps = [1, 5, 11, 12, 13, 20, Date.now() * 2048, 2 ** 53 - 3]

interface Schema {
  readonly type?: string
  readonly bytes?: string
  readonly enum?: readonly unknown[]
  readonly pattern?: string
  readonly items?: Schema
  readonly minItems?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
}

/** What a schema allows, mostly as a client would write it. */
function valid(schema: Schema): fc.Arbitrary<unknown> {
  if (schema.bytes !== undefined) return schema.bytes === 'value' ? value : key
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  if (schema.pattern !== undefined) return fc.constantFrom(...Object.keys(OBSERVERS), 'nobody')
  const { minimum = 0, maximum = 100 } = schema
  switch (schema.type) {
    case 'boolean':
      return fc.boolean()
    case 'integer':
    case 'number':
      return fc.constantFrom(...[minimum, maximum, ...timestamps].filter((n) => n >= minimum && n <= maximum))
    case 'string':
      return fc.string({ maxLength: 9 })
    case 'array': {
      const item = valid(schema.items ?? {})
      return fc.array(item, { minLength: schema.minItems ?? 0, maxLength: 3 })
    }
    case 'object': {
      const { properties = {}, required = [] } = schema
      const fields = Object.entries(properties).map(([name, property]) => {
        const one = name === 'wait_ms' ? fc.constantFrom(0, 1, 5) : valid(property)
        const field = one.map((given): [string, unknown][] => [[name, given]])
        return required.includes(name) ? field : fc.oneof(field, fc.constant<[string, unknown][]>([]))
      })
      return fc.tuple(...fields).map((entries) => Object.fromEntries(entries.flat()))
    }
    default:
      return wrong
  }
}

interface Change {
  /** Which of the places in the body, modulo their number. */
  readonly place: number
  readonly kind: 'replace' | 'remove' | 'add' | 'move'
  readonly field: string
  readonly value: unknown
}

const OWN = { enumerable: true, configurable: true, writable: true }
const changeOf = (fields: readonly string[]): fc.Arbitrary<Change> =>
  fc.record({
    place: fc.nat(),
    kind: fc.constantFrom('replace' as const, 'remove' as const, 'add' as const, 'move' as const),
    field: fc.constantFrom(...fields, '__proto__', 'constructor', 'toString', 'hasOwnProperty', ''),
    value: wrong,
  })

function placesOf(value: unknown, depth = 6): { parent: Json; name: string }[] {
  if (typeof value !== 'object' || value === null || depth === 0) return []
  const parent = value as Json
  return Object.keys(parent).flatMap((name) => [{ parent, name }, ...placesOf(parent[name], depth - 1)])
}

function changed(body: unknown, changes: readonly Change[]): unknown {
  const root: Json = { body: structuredClone(body) }
  for (const { place, kind, field, value } of changes) {
    const places = placesOf(root)
    const at = places[place % places.length]
    if (at === undefined) continue
    // Copies: a later change must not reach the generated value, nor tie a knot.
    const put = structuredClone(kind === 'move' ? at.parent[at.name] : value)
    if (kind === 'replace') at.parent[at.name] = put
    else if (kind === 'remove' && at.parent !== root) delete at.parent[at.name]
    else Object.defineProperty(at.parent, field, { value: put, ...OWN })
  }
  return root['body']
}

export type Body =
  | { readonly kind: 'json' | 'msgpack'; readonly value: unknown; readonly cutTo: number }
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'none' }

export interface WildRequest {
  readonly method: Method
  /** With `:txn` where a transaction's id belongs. */
  readonly url: string
  readonly headers: Record<string, string>
  readonly body: Body
}

const METHODS: readonly Method[] = ['GET', 'HEAD', 'PUT', 'POST', 'DELETE', 'PATCH', 'OPTIONS']
const ODD_PARTS = ['%', '%zz', '%FF', '%2F', '..', '%00', '%C0%80', '+', '&', '=', '#', '?', '/', ' ', 'é', '%F0%9F']

function pathOf(url: string): fc.Arbitrary<string> {
  const keyPart = fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...KEYS) },
    { weight: 2, arbitrary: fc.array(fc.constantFrom(...ODD_PARTS, 'a'), { maxLength: 4 }).map((all) => all.join('')) },
    { weight: 1, arbitrary: fc.constant('k'.repeat(5000)) },
  )
  return keyPart.map((key) => url.replace(/:(?!txn)\w+/, () => key))
}

function queryOf(names: readonly string[]): fc.Arbitrary<string> {
  const name = fc.constantFrom(...names, ...names, ...names, 'nope', '__proto__', '')
  const text = fc.oneof(
    fc.constantFrom('1', '0', 'true', 'false', '', ...KEYS, '11', '20', '2026-01-31T12:00:00Z', '9007199254740991'),
    fc.constantFrom(...ODD_PARTS),
    fc.string({ maxLength: 6 }).map((s) => encodeURIComponent(s.toWellFormed())),
  )
  const pair = fc.tuple(name, text).map(([left, right]) => `${left}=${right}`)
  return fc.oneof(
    { weight: 2, arbitrary: fc.constant('') },
    { weight: 1, arbitrary: fc.array(pair, { minLength: 1, maxLength: 3 }).map((pairs) => `?${pairs.join('&')}`) },
  )
}

const visible = fc.string({
  unit: fc.integer({ min: 0x20, max: 0x7e }).map((n) => String.fromCharCode(n)),
  maxLength: 12,
})
const header = fc.oneof(
  fc.tuple(
    fc.constantFrom('if-match', 'if-none-match'),
    fc.constantFrom('*', '"5"', '"0"', 'W/"5"', '5', '"', '', '"5", "6",', `${'"1",'.repeat(200)}`),
  ),
  fc.tuple(fc.constant('idempotency-key'), fc.oneof(visible, fc.constantFrom('k', 'k', 'é', 'x'.repeat(300)))),
  fc.tuple(
    fc.constant('accept'),
    fc.constantFrom('application/msgpack', 'application/x-ndjson', '*/*', 'text/html', ';;q=,', 'application/json;q=0'),
  ),
  fc.tuple(
    fc.constant('content-type'),
    fc.constantFrom('text/plain', 'application/json; charset=latin1', 'multipart/form-data', ';', '', 'a/b/c'),
  ),
  fc.tuple(fc.constantFrom('authorization', 'range', 'expect', 'x-http-method-override', 'cookie'), visible),
)

/** Requests that are nearly right: of a route's own schema and parameters, and then something of it changed. */
export function requestOf(route: RouteOptions): fc.Arbitrary<WildRequest> {
  const own = (Array.isArray(route.method) ? route.method[0] : route.method) as Method
  const { body: schema } = (route.schema ?? {}) as { body?: Schema }
  const changes = fc.oneof(
    { weight: 2, arbitrary: fc.constant<Change[]>([]) },
    {
      weight: 1,
      arbitrary: fc.array(changeOf(Object.keys(schema?.properties ?? { key: 0 })), { minLength: 1, maxLength: 4 }),
    },
  )
  const text = fc.record({
    kind: fc.constantFrom('json' as const, 'msgpack' as const),
    value: fc.tuple(schema === undefined ? wrong : valid(schema), changes).map(([body, all]) => changed(body, all)),
    cutTo: fc.oneof(
      { weight: 30, arbitrary: fc.constant(1) },
      { weight: 1, arbitrary: fc.double({ min: 0, max: 1, noNaN: true }) },
    ),
  })
  const bytes = fc.record({ kind: fc.constant('bytes' as const), bytes: fc.uint8Array({ maxLength: 60 }) })
  const none = fc.constant({ kind: 'none' as const })
  const isBodied = own === 'POST' || own === 'PUT'
  return fc.record({
    method: fc.oneof(
      { weight: 25, arbitrary: fc.constant(own) },
      { weight: 1, arbitrary: fc.constantFrom(...METHODS) },
    ),
    url: fc.tuple(pathOf(route.url), queryOf(route.config?.query ?? [])).map((parts) => parts.join('')),
    headers: fc.oneof(
      { weight: 3, arbitrary: fc.constant({}) },
      { weight: 1, arbitrary: fc.array(header, { minLength: 1, maxLength: 2 }).map((all) => Object.fromEntries(all)) },
    ),
    body: fc.oneof(
      { weight: isBodied ? 8 : 1, arbitrary: text as fc.Arbitrary<Body> },
      { weight: 1, arbitrary: bytes as fc.Arbitrary<Body> },
      { weight: isBodied ? 1 : 8, arbitrary: none as fc.Arbitrary<Body> },
    ),
  })
}
