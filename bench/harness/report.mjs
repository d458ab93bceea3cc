// What was measured, as tables in Markdown and as JSON, with the machine: a number without it says nothing.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus, loadavg, platform, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileSystem } from './disk.mjs'
import { percentile } from './numbers.mjs'

/** Of the last minute: what else the machine had to do. */
const loadBefore = loadavg()[0]

/**
 * A number with what is wanted of it.
 * @param bounds.goal the number to reach, or not to exceed when `isAtMost`
 * @param bounds.floor what a sound checkout reaches on a busy machine: the benchmark fails beyond it
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

/** Of a row: whether it is beyond its floor. No column. */
export const BEYOND = Symbol('beyond its floor')

export const whole = (number) => Math.round(number).toLocaleString('en-US')

/** Three digits, or all that stand before the point. */
export function short(value) {
  if (Math.abs(value) >= 1000) return whole(value)
  return Number(value.toPrecision(3)).toLocaleString('en-US')
}

function cellOf(value) {
  if (value === undefined || value === null) return ''
  return typeof value === 'number' ? short(value) : String(value)
}

/** Rows as a table; the keys of the first row are its columns, and those that hold a number somewhere are to the right. */
function tableOf(rows) {
  const columns = Object.keys(rows[0])
  const isRight = columns.map((name) => rows.some((row) => /^[-+≥≤]? ?[\d,.]+( %)?$/.test(cellOf(row[name]))))
  const lines = [columns, ...rows.map((row) => columns.map((name) => cellOf(row[name])))]
  const widths = columns.map((_, i) => Math.max(3, ...lines.map((line) => line[i].length)))
  const lineOf = (cells) => `| ${cells.join(' | ')} |`
  const [head, ...body] = lines.map((cells) =>
    lineOf(cells.map((cell, i) => (isRight[i] ? cell.padStart(widths[i]) : cell.padEnd(widths[i])))),
  )
  const rule = lineOf(widths.map((width, i) => (isRight[i] ? `${'-'.repeat(width - 1)}:` : '-'.repeat(width))))
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
  blocks.map((block) => (typeof block === 'string' ? wrapped(block) : tableOf(block))).join('\n\n')

/** The blocks of several scenarios, with one table for all rows that have the same columns. */
export function merged(results) {
  const blocks = []
  const columnsOf = (block) => (typeof block === 'string' ? undefined : Object.keys(block[0]).join())
  for (const block of results.flatMap((result) => result.blocks).filter((block) => block.length > 0)) {
    const like = blocks.findIndex((other) => columnsOf(other) !== undefined && columnsOf(other) === columnsOf(block))
    if (like === -1) blocks.push(block)
    else blocks[like] = [...blocks[like], ...block]
  }
  return blocks
}

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
      load_before: loadBefore,
    },
  }
}

/** @param fsyncs ms that fsyncs took between the scenarios. */
export function settingOf(fsyncs) {
  const { node, machine } = circumstances()
  const at = (share) => short(percentile(fsyncs, share))
  return [
    `Measured on ${machine.cpu}, ${machine.cores} cores, ${Math.round(machine.memory_gib)} GiB, ${machine.system}`,
    `Node ${node.slice(1)}; the load average was ${machine.load_before.toFixed(1)} before`,
    `and ${loadavg()[0].toFixed(1)} after; ${machine.file_system}`,
    `an fsync of 4 KiB took ${at(0.5)} ms at the median and ${at(0.99)} ms at the 99th percentile.`,
  ].join(', ')
}

/** Writes the result of a scenario beside those of its group, into DIRECTORY/GROUP.json, and its pictures. */
export function write(directory, group, name, { charts = {}, ...result }) {
  mkdirSync(directory, { recursive: true })
  const file = join(directory, `${group}.json`)
  const others = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
  writeFileSync(file, jsonOf({ ...others, [name]: { ...circumstances(), ...result } }))
  for (const [chart, svg] of Object.entries(charts)) writeFileSync(join(directory, `${chart}.svg`), svg)
}

const rounded = (_key, value) =>
  typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value

/** What holds nothing but values is one line, so that a diff shows what changed. */
const jsonOf = (value) =>
  `${JSON.stringify(value, rounded, 1).replace(/[{[][^{}[\]]*[}\]]/g, (leaf) => leaf.replace(/\s*\n\s*/g, ' '))}\n`

const END = '\n<!-- Until here. -->'

/**
 * The part of a document that a group writes.
 * @throws unless the document has its marks: before anything is measured for it.
 */
export function partOf(file, group) {
  const begin = `<!-- Written by \`npm run bench -- ${group} --markdown\`: -->\n`
  const split = () => {
    const [before, rest] = readFileSync(file, 'utf8').split(begin)
    const [, after] = rest?.split(END) ?? []
    if (after === undefined) throw new Error(`${file} has no marks ${begin.trim()} and ${END.trim()}`)
    return { before, after: rest.slice(rest.indexOf(END) + END.length) }
  }
  split()
  return {
    replace(text) {
      const { before, after } = split()
      writeFileSync(file, `${before}${begin}\n${text}\n${END}${after}`)
    },
  }
}
