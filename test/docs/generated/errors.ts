import { ERRORS, type ErrorRow } from '../../../src/errors/registry.js'
import { problemName } from '../../../src/http/openapi/document.js'
import { PROBLEM_TEXTS } from '../../../src/http/openapi/problems.js'
import type { Document } from './document.js'
import { ATOMS, fieldsOf } from './fields.js'
import { code, linked, table, wrapped } from './markdown.js'

type Code = keyof typeof ERRORS

const rows = (Object.entries(ERRORS) as [Code, ErrorRow][]).sort(([, a], [, b]) => a.status - b.status)

/** Each code, by its status: fields, meaning, and what a client does. */
export function errors(document: Document): string {
  const statuses = [...new Set(rows.map(([, { status }]) => status))]
  const index = statuses.map((status) => [
    String(status),
    rows.flatMap(([name, row]) => (row.status === status ? [`[${code(name)}](#${name})`] : [])).join(', '),
  ])
  return [table(['status', 'codes'], index), ...rows.flatMap((row) => section(row, document))].join('\n\n')
}

function section([name, row]: readonly [Code, ErrorRow], document: Document): string[] {
  const { meaning, remedy, cases = {} } = PROBLEM_TEXTS[name]
  const told = Object.entries(cases).map(([when, one]) => [
    /^[a-z_]+$/.test(when) ? code(when) : when,
    linked(one.meaning),
    linked(one.remedy ?? ''),
  ])
  return [
    `### ${code(name)}`,
    wrapped(facts(row, fieldsOfCode(name, document))),
    wrapped(linked([meaning, remedy].filter((text) => text !== undefined).join(' '))),
    ...(told.length > 0 ? [table(['', 'meaning', 'what a client does'], told)] : []),
  ]
}

function facts({ status, retryable, optional = {} }: ErrorRow, fields: string): string {
  const known = optional['retryable'] ? '`true` or `false`' : code(String(retryable))
  return `Status ${status}${retryable === undefined ? '' : `, \`retryable\` ${known}`}${fields && `; ${fields}`}.`
}

/** But those of every problem. */
function fieldsOfCode(name: Code, { components: { schemas } }: Document): string {
  const atoms = { ...ATOMS, LockInfo: '[LockInfo](reference.md#lockinfo)' }
  const shown = fieldsOf(schemas[problemName(name)] ?? {}, schemas, '', atoms)
    .filter(({ path }) => !/^(title|status|code|detail|retryable|errors)\b/.test(path))
    .map(({ path, type, isRequired }) => `${code(path)} (${type}${isRequired ? '' : '; optional'})`)
  return [...new Set(shown)].join(', ')
}
