// What was measured, as JSON: DIRECTORY/GROUP.json has the results of the group's scenarios by name.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export function readGroup(directory, group) {
  const file = join(directory, `${group}.json`)
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {}
}

/** Writes the result of a scenario beside those of its group, and its pictures. */
export function write(directory, group, name, { charts = {}, ...result }) {
  mkdirSync(directory, { recursive: true })
  writeFileSync(join(directory, `${group}.json`), jsonOf({ ...readGroup(directory, group), [name]: result }))
  for (const [chart, svg] of Object.entries(charts)) writeFileSync(join(directory, `${chart}.svg`), svg)
}

const rounded = (_key, value) =>
  typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value

/** What holds nothing but values is one line, so that a diff shows what changed. */
const jsonOf = (value) =>
  `${JSON.stringify(value, rounded, 1).replace(/[{[][^{}[\]]*[}\]]/g, (leaf) => leaf.replace(/\s*\n\s*/g, ' '))}\n`
