import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { circumstances } from '../circumstances.mjs'
import { SEED } from './data.mjs'

/** @param result {settings, rows, ...more, charts?: {NAME: svg}} @param script which was started. */
export async function write(directory, name, { charts = {}, ...result }, script = 'bench/scale.mjs') {
  await mkdir(directory, { recursive: true })
  const json = JSON.stringify({ name, ...circumstances(script), seed: SEED, ...result }, rounded)
  await writeFile(join(directory, `${name}.json`), `${lineByLine(json)}\n`)
  for (const [chart, svg] of Object.entries(charts)) await writeFile(join(directory, `${chart}.svg`), svg)
}

const rounded = (_key, value) =>
  typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value

/** A row a line: readable, and a diff shows what changed. */
function lineByLine(json) {
  const fields = Object.entries(JSON.parse(json)).map(([key, value]) => {
    const isRows = Array.isArray(value) && typeof value[0] === 'object'
    const text = isRows
      ? `[\n${value.map((row) => `    ${JSON.stringify(row)}`).join(',\n')}\n  ]`
      : JSON.stringify(value)
    return `  ${JSON.stringify(key)}: ${text}`
  })
  return `{\n${fields.join(',\n')}\n}`
}

const LINE_MAX = 120

/** A table: a line for each row or, where that would not fit, a column. */
export function print(title, rows) {
  const names = Object.keys(rows[0])
  const table = [names, ...rows.map((row) => names.map((name) => shown(row[name])))]
  const lines = linesOf(table)
  const isWide = lines[0].length > LINE_MAX
  console.log(`\n${[title, ...(isWide ? linesOf(transposed(table)) : lines)].join('\n')}`)
}

const transposed = (table) => table[0].map((_, i) => table.map((row) => row[i]))

function linesOf(table) {
  const widths = table[0].map((_, i) => Math.max(...table.map((row) => row[i].length)))
  return table.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i] + 2))).join(''),
  )
}

function shown(value) {
  if (value === undefined || value === null) return '-'
  if (typeof value !== 'number') return value
  if (Number.isInteger(value)) return value.toLocaleString('en-US')
  if (value >= 1000) return Math.round(value).toLocaleString('en-US')
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)
}
