import type { Limits } from '../../../limits.js'

declare const VALUE: unique symbol
/** Not a string, so that a schema stays plain JSON schema. */
const OPTIONAL = Symbol('optional')

/**
 * A JSON schema with the few keywords that this server needs, and the type `T` of the values that it describes. `validator.ts`
 * and `decode.ts` read the schemas of requests; those of answers are for documents and tests.
 */
export interface Schema<T = unknown> {
  readonly type?: 'object' | 'array' | 'integer' | 'boolean' | 'string' | 'null'
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: false
  readonly items?: Schema
  readonly minItems?: number
  readonly maxItems?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly enum?: readonly string[]
  readonly const?: unknown
  readonly anyOf?: readonly Schema[]
  readonly format?: 'date-time'
  /** `title` completes the sentence "a text must ...". */
  readonly pattern?: string
  readonly title?: string
  /** For readers of the document at /openapi.json; in Markdown. */
  readonly description?: string
  /** The limit that bounds an integer, or the length of a list. */
  readonly atMost?: keyof Limits
  /** Bytes in a request: see bytes.ts. An empty `bound` counts as absent; an empty `prefix` covers every key. */
  readonly bytes?: 'key' | 'value' | 'bound' | 'prefix'
  /** The `items` of a list, or their fields `key`, must be distinct. The decoder checks it. */
  readonly distinct?: 'items' | 'key'
  /** A timestamp at which a record is written: see written-timestamp.ts. */
  readonly written?: 'every' | 'every_but_max'
  /** The decoder leaves 0 out. */
  readonly zeroIsAbsent?: true
  /** Only in types. */
  readonly [VALUE]?: T
}

export interface Optional<T> extends Schema<T> {
  readonly [OPTIONAL]: true
}

export type Static<S> = S extends Schema<infer T> ? T : never

export type Fields = Readonly<Record<string, Schema>>
type OptionalNames<F> = { [K in keyof F]: F[K] extends Optional<unknown> ? K : never }[keyof F]
type ObjectOf<F> = Flat<
  { [K in Exclude<keyof F, OptionalNames<F>>]: Static<F[K]> } & { [K in OptionalNames<F>]?: Static<F[K]> }
>
type Flat<T> = { [K in keyof T]: T[K] }

type Keywords<Names extends keyof Schema> = Pick<Schema, Names>

/** Makes schemas. Those of objects allow further fields, as those of answers must. */
export const Type = {
  Object: <F extends Fields>(
    properties: F,
    keywords: Keywords<'additionalProperties' | 'title'> = {},
  ): Schema<ObjectOf<F>> => ({
    type: 'object',
    properties,
    required: Object.keys(properties).filter((name) => !isOptional(properties[name])),
    ...keywords,
  }),
  Array: <T>(
    items: Schema<T>,
    keywords: Keywords<'minItems' | 'maxItems' | 'atMost' | 'distinct'> = {},
  ): Schema<T[]> => ({
    type: 'array',
    items,
    ...keywords,
  }),
  Integer: (
    keywords: Keywords<'minimum' | 'maximum' | 'atMost' | 'written' | 'zeroIsAbsent'> = {},
  ): Schema<number> => ({
    type: 'integer',
    ...keywords,
  }),
  Boolean: (): Schema<boolean> => ({ type: 'boolean' }),
  String: (keywords: Keywords<'format' | 'pattern' | 'title'> = {}): Schema<string> => ({
    type: 'string',
    ...keywords,
  }),
  Enum: <const T extends readonly string[]>(names: T): Schema<T[number]> => ({ type: 'string', enum: names }),
  Bytes: (bytes: NonNullable<Schema['bytes']>): Schema<Uint8Array> => ({ bytes }),
  Null: (): Schema<null> => ({ type: 'null' }),
  Literal: <const T>(value: T): Schema<T> => ({ const: value }),
  Union: <S extends readonly Schema[]>(schemas: S): Schema<Static<S[number]>> => ({ anyOf: schemas }),
  Optional: <T>(schema: Schema<T>): Optional<T> => ({ ...schema, [OPTIONAL]: true }),
}

function isOptional(schema: Schema | undefined): boolean {
  return schema !== undefined && OPTIONAL in schema
}
