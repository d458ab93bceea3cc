import { Ajv, type ErrorObject } from 'ajv'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isWireBytes } from '../../../src/http/wire/bytes.js'
import * as admin from '../../../src/http/wire/schemas/admin.js'
import * as kv from '../../../src/http/wire/schemas/kv.js'
import * as observers from '../../../src/http/wire/schemas/observers.js'
import * as percolator from '../../../src/http/wire/schemas/percolator.js'
import { type Schema, Type } from '../../../src/http/wire/schemas/schema.js'
import * as txn from '../../../src/http/wire/schemas/txn.js'
import { validatorOf } from '../../../src/http/wire/validator.js'
import { writtenTimestamps } from '../../../src/http/wire/written-timestamp.js'
import { DEFAULT_LIMITS, SLICE_ITEMS } from '../../../src/limits.js'
import { TIMESTAMP_MAX, timestampFromMs } from '../../../src/timestamp.js'

const limits = { ...DEFAULT_LIMITS, requestKeysMax: 3, scanLimitMax: 20 }
const NOW = timestampFromMs(1_700_000_000_000)
const rules = { limits, written: writtenTimestamps({ now: () => NOW }) }

const calls: readonly object[] = [admin, kv, observers, percolator, txn].flatMap((file) => Object.values(file))
const bodies = calls.flatMap((call) => ('body' in call ? [call.body as Schema] : []))

/** The schema with keywords of JSON schema instead of this server's. */
function standard({ atMost, properties, items, zeroIsAbsent: _, distinct: __, ...schema }: Schema): object {
  const bound = atMost && { [schema.type === 'integer' ? 'maximum' : 'maxItems']: limits[atMost] }
  const fields =
    properties && Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, standard(field)]))
  return { ...schema, ...bound, ...(fields && { properties: fields }), ...(items && { items: standard(items) }) }
}

const ajv = new Ajv({ verbose: true })
ajv.addKeyword({ keyword: 'bytes', validate: (_kind: unknown, value: unknown) => isWireBytes(value) })
ajv.addKeyword({
  keyword: 'written',
  validate: (which: 'every' | 'every_but_max', value: unknown) =>
    typeof value !== 'number' || rules.written(which, value) === undefined,
})

function told({ keyword, instancePath, params, message, parentSchema }: ErrorObject): string {
  const name: unknown = params['missingProperty'] ?? params['additionalProperty']
  const path = typeof name === 'string' ? `${instancePath}/${name}` : instancePath
  const field =
    path === ''
      ? 'body'
      : path
          .replaceAll(/\/(\d+)(?![^/])/g, '[$1]')
          .replaceAll('/', '.')
          .replace(/^\./, '')
  if (keyword === 'required') return `${field} is missing`
  if (keyword === 'additionalProperties') return `${field} is not a known field`
  if (keyword === 'enum') return `${field} must be one of ${params['allowedValues'].join(', ')}`
  if (keyword === 'pattern') return `${field} must ${parentSchema?.['title']}`
  if (keyword === 'bytes') return `${field} must be a string or {"base64": "..."}`
  if (keyword === 'written') return `${field} must not be more than 60 s above the server's clock`
  return `${field} ${message}`
}

const NUMBERS = [0, -1, 1, 1.5, 3, 2 ** 41, NOW, 2 * NOW, TIMESTAMP_MAX, TIMESTAMP_MAX - 1]
const anything = fc.oneof(
  fc.constantFrom<unknown>(null, true, '', 'get', [], {}, [1], { base64: 'AA==' }, { base64: 1 }),
  fc.constantFrom(...NUMBERS),
)

/** Values that a schema describes, nearly: here and there is another one. */
function nearly(schema: Schema): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 19, arbitrary: described(schema) }, { weight: 1, arbitrary: anything })
}

function described({
  type,
  properties = {},
  required = [],
  items = {},
  minimum = 0,
  ...schema
}: Schema): fc.Arbitrary<unknown> {
  if (schema.bytes !== undefined) return fc.constantFrom('k', { base64: 'AA==' })
  if (type === 'boolean') return fc.boolean()
  if (type === 'string')
    return fc.constantFrom(...(schema.enum ?? ['text', 'text', 'text', '', 'not a name', 'x'.repeat(256), '\n']))
  if (type === 'integer') return fc.oneof(fc.constant(Math.max(1, minimum)), fc.constantFrom(...NUMBERS))
  if (type === 'array') return fc.array(nearly(items), { minLength: schema.minItems ?? 0, maxLength: 4 })
  const fields = Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, nearly(field)]))
  const known = fc.record(fields, { requiredKeys: [...required] })
  const without = fc.constantFrom(...Object.keys(properties), 'other').map((name) => ({ [name]: undefined }))
  const unknown = fc.constantFrom({ other: 1 }, { 'a.b': null })
  return fc.oneof(
    { weight: 19, arbitrary: known },
    {
      weight: 1,
      arbitrary: fc
        .tuple(known, fc.oneof(without, unknown))
        .map(([a, b]) => JSON.parse(JSON.stringify({ ...a, ...b }))),
    },
  )
}

describe('the bodies of all calls', () => {
  test('are refused as Ajv refuses them, for the same reason', { tags: ['long'] }, () => {
    expect(bodies.length).toBeGreaterThan(25)
    const outcomes = { valid: 0, refused: 0 }
    const cases = bodies.map((schema) => {
      const validate = validatorOf(schema, 'body', rules)
      const oracle = ajv.compile(standard(schema))
      return nearly(schema).map((value) => ({ value, validate, oracle, toString: () => JSON.stringify(value) }))
    })
    fc.assert(
      fc.property(fc.oneof(...cases), ({ value, validate, oracle }) => {
        const error = validate(value)
        if (error instanceof Promise) throw new Error('no list is long')
        const isValid = oracle(value)
        outcomes[isValid ? 'valid' : 'refused']++
        // Ajv suggests no names.
        expect(error?.message.replace(/: did you mean \w+\?$/, '')).toBe(
          isValid ? undefined : told((oracle.errors as ErrorObject[])[0] as ErrorObject),
        )
      }),
      { numRuns: 3000 },
    )
    expect(Math.min(outcomes.valid, outcomes.refused)).toBeGreaterThan(500)
  })
})

test('bytes of MessagePack are no object, of which they would be one with many fields', () => {
  const validate = validatorOf(kv.batchGet.body, 'body', rules)
  expect(validate({ keys: [new Uint8Array(2)] })).toBeUndefined()
  expect(validate(new Uint8Array(2))).toMatchObject({ code: 'invalid_argument', message: 'body must be object' })
})

describe('a long list', () => {
  const item = Type.Object({ key: Type.Bytes('key') }, { additionalProperties: false })
  const schema = Type.Object({ within: Type.Object({ list: Type.Array(item) }), count: Type.Integer() })
  const validate = validatorOf(schema, 'body', rules)
  const body = (...last: readonly unknown[]) => ({
    within: { list: [...Array.from({ length: SLICE_ITEMS }, () => ({ key: 'k' })), ...last] },
    count: 1,
  })

  test('is validated in slices, in later turns', async () => {
    expect(validate(body())).toBeUndefined()
    const long = validate(body({ key: 'k' }))
    expect(long).toBeInstanceOf(Promise)
    expect(await long).toBeUndefined()
  })

  test('is told which item is wrong, after everything else', async () => {
    expect((await validate(body({ key: 1 })))?.fields).toEqual({ field: `within.list[${SLICE_ITEMS}].key` })
    expect((await validate(body({ other: 1 })))?.message).toBe(`within.list[${SLICE_ITEMS}].key is missing`)
    expect(validate({ ...body({ key: 1 }), count: '1' })).toMatchObject({ fields: { field: 'count' } })
  })
})

describe('a long list in the items of a list', () => {
  const lists = Type.Array(Type.Object({ keys: Type.Array(Type.Bytes('key')) }))
  const validate = validatorOf(Type.Object({ within: Type.Object({ lists }) }), 'body', rules)
  const keys = (count: number, ...last: readonly unknown[]) => ({ keys: [...Array(count).fill('k'), ...last] })
  const short = keys(1)
  const body = (...lists: readonly unknown[]) => ({ within: { lists } })

  test('is validated in slices too, and named by its whole path', async () => {
    expect(validate(body(short, keys(SLICE_ITEMS)))).toBeUndefined()
    const long = validate(body(short, keys(SLICE_ITEMS + 1)))
    expect(long).toBeInstanceOf(Promise)
    expect(await long).toBeUndefined()
    const wrong = keys(SLICE_ITEMS, 1)
    const field = `keys[${SLICE_ITEMS}]`
    expect((await validate(body(short, wrong)))?.fields).toEqual({ field: `within.lists[1].${field}` })
    const many = Array(SLICE_ITEMS + 3).fill(short)
    expect(await validate(body(...many))).toBeUndefined()
    expect((await validate(body(...many, wrong)))?.fields).toEqual({ field: `within.lists[${many.length}].${field}` })
    expect((await validate(body(...many, keys(1, 1))))?.fields).toEqual({
      field: `within.lists[${many.length}].keys[1]`,
    })
  })
})

test('too many items are a request that is too large', () => {
  const validate = validatorOf(kv.batchGet.body, 'body', rules)
  expect(validate({ keys: ['a', 'b', 'c', 'd'] })).toMatchObject({
    code: 'payload_too_large',
    message: 'keys must NOT have more than 3 items',
    fields: { field: 'keys', limit: 3 },
  })
})
