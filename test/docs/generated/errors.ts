import { snakeCase } from '../../../src/bytes/field-names.js'
import { ERRORS, type ErrorRow } from '../../../src/errors/registry.js'
import { PROBLEM_TEXTS } from '../../../src/http/openapi/problems.js'
import { code, linked, table, wrapped } from './markdown.js'

type Code = keyof typeof ERRORS

const rows = (Object.entries(ERRORS) as [Code, ErrorRow][]).sort(([, a], [, b]) => a.status - b.status)

/** Each code, by its status: fields, meaning, and what a client does. */
export function errors(): string {
  const statuses = [...new Set(rows.map(([, { status }]) => status))]
  const index = statuses.map((status) => [
    String(status),
    rows.flatMap(([name, row]) => (row.status === status ? [`[${code(name)}](#${name})`] : [])).join(', '),
  ])
  return [table(['status', 'codes'], index), ...rows.map(([name, row]) => section(name, row))].join('\n\n')
}

function section(name: Code, row: ErrorRow): string {
  const { meaning, remedy, cases = {} } = PROBLEM_TEXTS[name]
  const told = Object.entries(cases).map(([when, one]) => [
    /^[a-z_]+$/.test(when) ? code(when) : when,
    linked(one.meaning),
    linked(one.remedy ?? ''),
  ])
  return [
    `### ${code(name)}`,
    wrapped(facts(row)),
    wrapped(linked([meaning, remedy].filter((text) => text !== undefined).join(' '))),
    ...(told.length > 0 ? [table(['', 'meaning', 'what a client does'], told)] : []),
  ].join('\n\n')
}

/** `409`, `retryable`; fields ... */
function facts({ status, retryable, fields = {}, optional = {} }: ErrorRow): string {
  const known = Object.keys(optional).filter((field) => field !== 'retryable')
  return [
    `Status ${status}`,
    ...(retryable === undefined
      ? []
      : [`${code('retryable')} ${optional['retryable'] ? 'true or false' : code(String(retryable))}`]),
    ...(Object.keys(fields).length > 0 ? [`fields ${names(Object.keys(fields))}`] : []),
    ...(known.length > 0 ? [`where they are known ${names(known)}`] : []),
  ]
    .join('; ')
    .concat('.')
}

function names(fields: readonly string[]): string {
  return fields.map((field) => code(snakeCase(field))).join(', ')
}
