import type { Limits } from '../../limits.js'
import type { Schema } from '../wire/schemas/schema.js'

export type Json = Readonly<Record<string, unknown>>

const BASE64 = {
  type: 'object',
  properties: { base64: { type: 'string', contentEncoding: 'base64' } },
  required: ['base64'],
  additionalProperties: false,
}

const BYTES: Readonly<Record<NonNullable<Schema['bytes']>, string>> = {
  key: 'A key. Text is its UTF-8 bytes; other bytes come as base64.',
  value: 'A value. Text is its UTF-8 bytes; other bytes come as base64.',
  bound: 'A bound of a range. Absent and empty: none.',
  prefix: 'What keys begin with.',
}

export class SchemaWriter {
  readonly schemas: Record<string, Json> = {}
  /** Responses with problems, which many operations share. */
  readonly responses: Record<string, Json> = {}
  readonly #limits: Limits
  readonly #names = new Map<string, string>()

  /** @param named each schema after the schemas that it contains. */
  constructor(limits: Limits, named: Readonly<Record<string, Schema>>) {
    this.#limits = limits
    for (const [name, schema] of Object.entries(named)) {
      const written = this.#whole(schema)
      this.#names.set(JSON.stringify(written), name)
      this.schemas[name] = withDescription(written, schema.description)
    }
  }

  /** Schemas are the same when they differ only in their descriptions. */
  write(schema: Schema): Json {
    const written = this.#whole(schema)
    const name = this.#names.get(JSON.stringify(written))
    if (name === undefined) return withDescription(written, schema.description)
    const { description } = schema
    return { $ref: `#/components/schemas/${name}`, ...(description !== undefined && { description }) }
  }

  /** Its `description` holds what JSON Schema cannot express. */
  #whole(schema: Schema): Json {
    const { bytes, properties, required, items, anyOf, atMost, distinct, written, zeroIsAbsent, ...rest } = schema
    const { description: _, title, pattern, ...same } = rest
    if (bytes !== undefined) return { description: BYTES[bytes], anyOf: [{ type: 'string' }, BASE64] }
    const notes = [
      ...(pattern !== undefined && title !== undefined ? [`Must ${title}.`] : []),
      ...(zeroIsAbsent === true ? ['0: not given.'] : []),
      ...(written !== undefined ? ['At most 60 s above the clock of the server.'] : []),
      ...(distinct === 'items' ? ['No key comes twice.'] : distinct === 'key' ? ['No `key` comes twice.'] : []),
    ]
    const limit = atMost && this.#limits[atMost]
    return {
      ...same,
      ...(notes.length > 0 && { description: notes.join(' ') }),
      ...(pattern !== undefined ? { pattern } : title !== undefined && { title }),
      ...(limit !== undefined && (schema.type === 'array' ? { maxItems: limit } : { maximum: limit })),
      ...(properties && {
        properties: Object.fromEntries(
          Object.entries(properties).map(([name, property]) => [name, this.write(property)]),
        ),
      }),
      ...(required !== undefined && required.length > 0 && { required }),
      ...(items && { items: this.write(items) }),
      ...(anyOf && { anyOf: anyOf.map((one) => this.write(one)) }),
    }
  }
}

function withDescription(written: Json, text: string | undefined): Json {
  const description = [text, written['description']].filter((part) => part !== undefined).join(' ')
  return description === '' ? written : { ...written, description }
}
