import { inSlices } from '../../event-loop/slices.js'
import { SLICE_ITEMS } from '../../limits.js'
import { type SchemaError, validationProblem } from './problem.js'

interface Validate {
  (value: unknown): unknown
  errors?: SchemaError[] | null
}

interface Compiler {
  compile(schema: unknown, isMeta?: boolean): Validate
}

/** The parts of a JSON schema in which lists are looked for. */
interface Schema {
  readonly type?: string
  readonly items?: Schema
  readonly properties?: Readonly<Record<string, Schema>>
}

/**
 * Compiles each schema when its first value comes, because compiling all of them would be most of the time to start. A body
 * with a long list is validated item by item, so that other requests run meanwhile; fastify gets a promise then.
 */
export function compileLate(ajv: Compiler): void {
  const compile = ajv.compile.bind(ajv)
  ajv.compile = (...given) => {
    let whole: Validate | undefined
    let parted: ((value: unknown) => Generator<void, void, void>) | undefined
    const [schema] = given as [Schema]
    const validate: Validate = (value) => {
      if (holdsLongList(schema, value)) {
        parted ??= partedValidator(schema, compile)
        return inSlices(parted(value))
      }
      whole ??= compile(...given)
      const isValid = whole(value)
      validate.errors = whole.errors ?? null
      return isValid
    }
    return validate
  }
}

/** Looks into fields of objects but not into the items of lists. */
function holdsLongList({ type, properties }: Schema, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (type === 'array') return Array.isArray(value) && value.length > SLICE_ITEMS
  for (const name in properties) {
    const field = (value as Record<string, unknown>)[name]
    if (typeof field === 'object' && holdsLongList(properties[name] as Schema, field)) return true
  }
  return false
}

/** The returned generator validates everything except the items of lists first, then the items. It throws KvErrors. */
function partedValidator(
  schema: Schema,
  compile: Compiler['compile'],
): (value: unknown) => Generator<void, void, void> {
  const outline = compile(withoutItems(schema))
  const lists = listsOf(schema, []).map(([path, items]) => [path, compile(items)] as const)
  return function* (value) {
    yield // Must not throw synchronously: fastify would take the error for a defect.
    requireValid(outline, value, '')
    for (const [path, validate] of lists) {
      const list = path.reduce<unknown>(
        (within, name) => (within as Record<string, unknown> | undefined)?.[name],
        value,
      )
      if (list === undefined) continue
      for (const [index, item] of (list as unknown[]).entries()) {
        requireValid(validate, item, `/${path.join('/')}/${index}`)
        if (index % SLICE_ITEMS === SLICE_ITEMS - 1) yield
      }
    }
  }
}

function requireValid(validate: Validate, value: unknown, path: string): void {
  if (validate(value)) return
  const error = validate.errors?.[0]
  throw validationProblem(error && { ...error, instancePath: path + error.instancePath }, 'body')
}

function withoutItems(schema: Schema): Schema {
  const { items: _, properties, ...rest } = schema
  if (properties === undefined) return rest
  const fields = Object.entries(properties).map(([name, property]) => [name, withoutItems(property)])
  return { ...rest, properties: Object.fromEntries(fields) }
}

function listsOf({ type, items, properties = {} }: Schema, path: readonly string[]): [readonly string[], Schema][] {
  if (type === 'array') return items === undefined ? [] : [[path, items]]
  return Object.entries(properties).flatMap(([name, property]) => listsOf(property, [...path, name]))
}
