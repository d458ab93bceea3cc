import type { Json } from '../../../src/http/openapi/schema-writer.js'

export interface Field {
  /** `mutations[].key`; empty: the body itself. */
  readonly path: string
  readonly type: string
  readonly isRequired: boolean
  readonly description: string
}

type Schemas = Readonly<Record<string, Json>>
/** Texts that replace the fields of a component. */
type Atoms = Readonly<Record<string, string>>

/** Components whose type says enough. @internal */
export const ATOMS: Atoms = {
  Key: 'bytes',
  Value: 'bytes',
  Bound: 'bytes',
  Prefix: 'bytes',
  Timestamp: 'timestamp',
  Problem: 'problem',
  ProblemEntry: 'code, with the fields of that code',
}

/** The fields of a schema. Fields of nested objects and lists follow their parent. */
export function fieldsOf(schema: Json, schemas: Schemas, path = '', atoms = ATOMS): Field[] {
  const { properties, required, items, anyOf } = resolved(schema, schemas)
  if (atomOf(schema, atoms) !== undefined) return []
  if (items !== undefined) return fieldsOf(items as Json, schemas, `${path}[]`, atoms)
  if (anyOf !== undefined)
    return (anyOf as readonly Json[]).flatMap((one) => {
      const { title } = resolved(one, schemas)
      const fields = fieldsOf(one, schemas, path, atoms)
      return typeof title === 'string' && fields.length > 0
        ? fields.map((field) => ({ ...field, description: `(${title}) ${field.description}`.trim() }))
        : fields
    })
  return Object.entries((properties ?? {}) as Record<string, Json>).flatMap(([name, property]) => {
    const own = path === '' ? name : `${path}.${name}`
    const common = atomOf(property, atoms) === undefined ? resolved(property, schemas)['description'] : undefined
    const description = property['description'] ?? common ?? ''
    const isRequired = ((required ?? []) as readonly string[]).includes(name)
    const field = { path: own, type: typeOf(property, schemas, atoms), isRequired, description: String(description) }
    return [field, ...fieldsOf(property, schemas, own, atoms)]
  })
}

/** The type in words: `integer, 1 to 100`, `list of bytes`. */
export function typeOf(schema: Json, schemas: Schemas, atoms = ATOMS): string {
  const atom = atomOf(schema, atoms)
  if (atom !== undefined) return atom
  const { type, enum: names, items, anyOf, const: value, format, maxItems, minItems } = resolved(schema, schemas)
  if (value !== undefined) return JSON.stringify(value)
  if (names !== undefined) return (names as readonly string[]).map((name) => `"${name}"`).join(', ')
  if (anyOf !== undefined)
    return [...new Set((anyOf as readonly Json[]).map((one) => typeOf(one, schemas, atoms)))].join(' or ')
  if (items !== undefined)
    return `list of ${typeOf(items as Json, schemas, atoms)}${bounds(minItems, maxItems, 'items')}`
  if (type === 'integer') {
    const { minimum, maximum } = resolved(schema, schemas)
    return `integer${bounds(minimum, maximum === Number.MAX_SAFE_INTEGER ? undefined : maximum)}`
  }
  if (format === 'date-time') return 'RFC 3339 time'
  return typeof type === 'string' ? type : 'any'
}

function bounds(least: unknown, most: unknown, unit = ''): string {
  const words = unit === '' ? '' : ` ${unit}`
  if (typeof most === 'number')
    return `, ${typeof least === 'number' ? `${shown(least)} to ` : 'up to '}${shown(most)}${words}`
  return typeof least === 'number' && least !== 0 && unit === '' ? `, at least ${shown(least)}` : ''
}

function shown(value: number): string {
  return value.toLocaleString('en').replaceAll(',', ' ')
}

function atomOf(schema: Json, atoms: Atoms): string | undefined {
  const ref = schema['$ref']
  return typeof ref === 'string' ? atoms[ref.slice(ref.lastIndexOf('/') + 1)] : undefined
}

function resolved(schema: Json, schemas: Schemas): Json {
  const ref = schema['$ref']
  if (typeof ref !== 'string') return schema
  return schemas[ref.slice(ref.lastIndexOf('/') + 1)] ?? {}
}
