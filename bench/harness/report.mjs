// What was measured, as tables in Markdown, with the machine: a number without it says nothing.
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg, platform, release, totalmem } from 'node:os'
import { fileSystem, timeFsyncs } from './disk.mjs'
import { memoryNs } from './memory.mjs'
import { latenciesOf, percentile } from './numbers.mjs'

/**
 * A number with what is wanted of it. Rows named `THING: PART` or `THING, PART` become one line of a table.
 * @param {string} measured
 * @param {number} value
 * @param {{ unit?: string, goal?: number, floor?: number, isAtMost?: boolean, spread?: number[] }} bounds
 *   goal: the number to reach, or not to exceed when `isAtMost`; floor: what a sound checkout reaches on a busy machine: the
 *   benchmark fails beyond it
 */
export function row(measured, value, { unit = '', goal, floor, isAtMost = false, spread } = {}) {
  const reaches = (bound) => (isAtMost ? value <= bound : value >= bound)
  return {
    measured,
    value,
    unit,
    spread: spread === undefined ? '' : spread.map(short).join(' to '),
    goal: goal === undefined ? '' : `${isAtMost ? '≤' : '≥'} ${short(goal)}`,
    reached: goal === undefined ? '' : reaches(goal) ? 'yes' : 'no',
    [BEYOND]: floor !== undefined && !reaches(floor),
  }
}

/** Rows of latencies in ms. @param bounds of each wanted one of `p50`, `p99` and `longest`; none are empty. */
export function latencyRows(name, latencies, bounds) {
  const { p50, p99, max } = latenciesOf(latencies)
  const values = { p50, p99, longest: max }
  return Object.entries(bounds).map(([which, own]) =>
    row(`${name}, ${which}`, values[which], { unit: 'ms', isAtMost: true, ...own }),
  )
}

/** Of a row: whether it is beyond its floor. No column. */
export const BEYOND = Symbol('beyond its floor')

export const whole = (number) => Math.round(number).toLocaleString('en-US')

/** Three digits, or all that stand before the point. */
export function short(value) {
  if (Math.abs(value) >= 1000) return whole(value)
  return Number(value.toPrecision(3)).toLocaleString('en-US')
}

/** The median with its lowest and highest. */
export const spreadOf = ({ median, min, max }) => `${short(median)} (${short(min)}–${short(max)})`

/** One line of a table for what `row` made of one thing. @param parts rows, each named by what it says of the thing. */
export function lineOf(measured, parts) {
  const units = new Set(parts.map(({ unit }) => unit))
  const unit = units.size === 1 ? parts[0].unit : ''
  const figure = ({ measured, value, spread, ...part }) =>
    [measured, short(value), unit === '' && part.unit, spread && `(${spread.replace(' to ', '–')})`]
      .filter(Boolean)
      .join(' ')
  const judged = parts.filter(({ goal }) => goal !== '')
  const isNamed = judged.length < parts.length
  const distinct = (list) => (new Set(list).size === 1 ? list[0] : list.join(', '))
  return {
    measured: unit === '' ? measured : `${measured}, ${unit}`,
    value: parts.map(figure).join(', '),
    goal: distinct(judged.map(({ measured, goal }) => (isNamed ? `${measured} ${goal}`.trim() : goal))),
    reached: distinct(judged.map(({ reached }) => reached)),
  }
}

function grouped(list, keyOf) {
  const groups = new Map()
  for (const one of list) groups.set(keyOf(one), [...(groups.get(keyOf(one)) ?? []), one])
  return groups
}

/** Rows of `row`, one line for those of one thing. */
function linesOf(rows) {
  const things = grouped(rows, ({ measured }) => thingOf(measured, rows))
  return [...things].map(([thing, own]) =>
    lineOf(
      thing,
      own.map((part) => ({ ...part, measured: part.measured.slice(thing.length).replace(/^[,:] /, '') })),
    ),
  )
}

/** What follows the first colon, or else the last comma. */
const PART = /: .*$|^([^:]*), [^,:]*$/

function thingOf(measured, rows) {
  const thing = measured.replace(PART, '$1')
  return rows.filter((row) => row.measured === thing || row.measured.replace(PART, '$1') === thing).length > 1
    ? thing
    : measured
}

function cellOf(value) {
  if (value === undefined || value === null) return ''
  if (typeof value === 'number') return short(value)
  return String(value).replace(/(?<![\d.])\d{5,}(?![\d.])/g, (digits) => whole(Number(digits)))
}

/**
 * Rows as a table; the keys of the first row are its columns, without those that are empty in all rows. Columns that hold nothing but
 * numbers are to the right.
 */
function tableOf(given) {
  const rows = 'spread' in given[0] ? linesOf(given) : given
  const columns = Object.keys(rows[0]).filter((name) => rows.some((row) => cellOf(row[name]) !== ''))
  const isRight = columns.map((name) => rows.every((row) => /^([-+≥≤]? ?[\d,.]+( %)?)?$/.test(cellOf(row[name]))))
  const lines = [columns, ...rows.map((row) => columns.map((name) => cellOf(row[name])))]
  const widths = columns.map((_, i) => Math.max(3, ...lines.map((line) => line[i].length)))
  const printed = (cells) => `| ${cells.join(' | ')} |`
  const [head, ...body] = lines.map((cells) =>
    printed(cells.map((cell, i) => (isRight[i] ? cell.padStart(widths[i]) : cell.padEnd(widths[i])))),
  )
  const rule = printed(widths.map((width, i) => (isRight[i] ? `${'-'.repeat(width - 1)}:` : '-'.repeat(width))))
  return [head, rule, ...body].join('\n')
}

const WIDTH_MAX = 130

/** Lines of a paragraph, as documents have them. */
function wrapped(text) {
  const lines = ['']
  for (const word of text.split(' ')) {
    const line = `${lines.at(-1)} ${word}`.trim()
    if (line.length > WIDTH_MAX) lines.push(word)
    else lines[lines.length - 1] = line
  }
  return lines.join('\n')
}

/** @param blocks paragraphs, and tables as lists of rows. */
export const markdownOf = (blocks) =>
  blocks
    .filter((block) => block.length > 0)
    .map((block) => (typeof block === 'string' ? wrapped(block) : tableOf(block)))
    .join('\n\n')

/** One table for all rows that have the same columns, where the last of them stands. */
export function merged(blocks) {
  const columnsOf = (block) =>
    typeof block === 'string' || block.length === 0 ? undefined : Object.keys(block[0]).join()
  const tables = grouped(blocks, columnsOf)
  return blocks.flatMap((block) => {
    const like = columnsOf(block) === undefined ? [block] : tables.get(columnsOf(block))
    return block === like.at(-1) ? [typeof block === 'string' ? block : like.flat()] : []
  })
}

/** What a result needs beside its figures. Takes some fsyncs, and half a second. */
export function circumstances() {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  return {
    date: new Date().toISOString(),
    command: `npm run bench -- ${process.argv.slice(2).join(' ')}`.trim(),
    perkv: version,
    node: process.version,
    machine: {
      cpu: cpus()[0]?.model.trim(),
      cores: availableParallelism(),
      memory_gib: Number((totalmem() / 2 ** 30).toFixed(1)),
      system: `${platform()} ${release()}`,
      file_system: fileSystem(),
      load_before: loadavg()[0],
      fsync_ms: percentile(timeFsyncs(50), 0.5),
      memory_ns: Math.round(memoryNs()),
    },
  }
}

/** The circumstances of results, in words. */
export function settingOf(results) {
  const distinct = (textOf) => [...new Set(results.map(textOf))].join(' and ')
  const range = (field) => {
    const values = results.map(({ machine }) => machine[field]).filter((value) => value !== undefined)
    const ends = [...new Set([Math.min(...values), Math.max(...values)].map(short))]
    return values.length === 0 ? undefined : ends.join(' to ')
  }
  const days = results.map(({ date }) => date.slice(0, 10))
  const machine = distinct(
    ({ machine, node }) =>
      `${machine.cpu} with ${machine.cores} cores and ${Math.round(machine.memory_gib)} GiB (${[machine.system, machine.file_system, `Node ${node.slice(1)}`].filter(Boolean).join(', ')})`,
  )
  const [fsync, memory] = [range('fsync_ms'), range('memory_ns')]
  return wrapped(
    [
      `Measured on ${[...new Set(days)].toSorted().join(', ')} on ${machine}.`,
      `The load average was ${range('load_before')} before.`,
      fsync === undefined ? '' : `An fsync of 4 KiB took ${fsync} ms at the median.`,
      memory === undefined ? '' : `A line of 64 bytes came from memory in ${memory} ns.`,
    ]
      .filter(Boolean)
      .join(' '),
  )
}
