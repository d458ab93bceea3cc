import { snakeCase } from '../../../bytes/field-names.js'
import { ERRORS, type ErrorRow, type FieldKind } from '../../../errors/registry.js'
import { type Schema, Type } from './schema.js'
import { Count, Key, LockInfo, oneOf, optional, Timestamp, TimestampOrZero } from './values.js'

const KINDS: Readonly<Record<Extract<FieldKind, string>, Schema>> = {
  text: Type.String(),
  texts: Type.Array(Type.String()),
  count: Count,
  flag: Type.Boolean(),
  bytes: Key,
  timestamp: TimestampOrZero,
  lock: LockInfo,
  locks: Type.Array(LockInfo),
  waitChain: Type.Array(Type.Object({ txn: Timestamp, wait_for_txn: Timestamp, key: Key })),
  failedChecks: Type.Array(
    Type.Union([
      Type.Object({ index: Count, key: Key, exists: Type.Boolean(), commit_ts: TimestampOrZero }),
      Type.Object({ index: Count, lease: Type.String(), fence: TimestampOrZero }),
    ]),
  ),
}

function schemaOf(kind: FieldKind): Schema {
  return typeof kind === 'string' ? KINDS[kind] : oneOf(kind)
}

function fieldsOf({ fields = {}, optional: known = {} }: ErrorRow): Record<string, Schema> {
  const schemas: Record<string, Schema> = {}
  for (const [name, kind] of Object.entries(fields)) schemas[snakeCase(name)] = schemaOf(kind)
  for (const [name, kind] of Object.entries(known)) schemas[snakeCase(name)] = optional(schemaOf(kind))
  return schemas
}

const rows: readonly (readonly [code: string, row: ErrorRow])[] = Object.entries(ERRORS)

export const ProblemEntry = Type.Union(
  rows.map(([code, row]) => Type.Object({ code: oneOf([code]), ...fieldsOf(row) })),
)

/** Schema of the problem (RFC 9457) of each code, made from the registry of errors. Every call may answer with any of them. */
export const PROBLEMS: ReadonlyMap<string, Schema> = new Map(
  rows.map(([code, row]) => [
    code,
    Type.Object({
      title: oneOf([row.title]),
      status: Type.Literal(row.status),
      code: oneOf([code]),
      detail: Type.String(),
      ...fieldsOf(row),
      ...(row.retryable !== undefined && {
        retryable: row.optional?.['retryable'] ? Type.Boolean() : Type.Literal(row.retryable),
      }),
      errors: optional(Type.Array(ProblemEntry)), // Only in answers to a prewrite.
    }),
  ]),
)

export const Problem = Type.Union([...PROBLEMS.values()])
