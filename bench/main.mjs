// npm run bench [-- all|GROUP|NAME|GROUP/NAME... --quick --set SETTING=VALUE --out DIR --from DIR --markdown FILE]
// Measures scenarios or groups of them, `ratios` without a name, and prints one report. Exits with 1 when something is beyond its
// floor or fails. The data is in the directory for temporary files (TMPDIR), which has to be on a real disk for durable writes to
// mean anything. Most need Linux.
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { Document } from './harness/document.mjs'
import { cleanedUp } from './harness/process.mjs'
import { BEYOND, circumstances, markdownOf, merged, settingOf } from './harness/report.mjs'
import { readGroup, write } from './harness/results.mjs'
import { changes } from './scenarios/changes/index.mjs'
import { expiry } from './scenarios/expiry.mjs'
import { leases } from './scenarios/leases/index.mjs'
import { observers } from './scenarios/observers/index.mjs'
import { overload } from './scenarios/overload/index.mjs'
import { ratios } from './scenarios/ratios/index.mjs'
import { scale } from './scenarios/scale/index.mjs'

/**
 * In the order of docs/performance.md. A scenario is `{ full, quick, run(settings), tell?(result) }`. `run` answers rows, or
 * `{ blocks, charts, ... }`, and may leave processes and directories; `tell` makes the blocks of the report from what was written to the JSON, with what explains them.
 */
const GROUPS = { ratios, scale, observers, changes, expiry: { expiry }, leases, overload }
/** Not of docs/performance.md: on shared tables, or simulated. Loaded when named, since they need more. */
const LOADED = {
  'kv-connect': './scenarios/kv-connect.mjs',
  level: './scenarios/level.mjs',
  bigtable: './scenarios/bigtable.mjs',
  postgres: './scenarios/postgres/index.mjs',
  'scale-out': './scale-out/index.mjs',
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false }, // Little data and few rounds: for finding what is broken, or got slower.
    set: { type: 'string', multiple: true, default: [] }, // Of every chosen scenario that has such a setting.
    out: { type: 'string' }, // Where GROUP.json and pictures go.
    from: { type: 'string' }, // What was written there is told again, and nothing is measured.
    markdown: { type: 'string' }, // A document, of which the parts of the groups are written from the JSON.
  },
})

for (const [group, path] of Object.entries(LOADED))
  if (positionals.some((name) => name.split('/')[0] === group)) GROUPS[group] = (await import(path)).scenarios
const chosen = chosenOf(positionals.length === 0 ? ['ratios'] : positionals)
const groups = [...new Set(chosen.map(({ group }) => group))]
const changed = values.set.map(changeOf)
const document = values.markdown && new Document(values.markdown, groups)
const directory = values.from ?? values.out ?? (values.markdown && join(dirname(values.markdown), 'performance'))

const failures = []
const results = {}
for (const one of chosen) {
  const result = values.from === undefined ? await measuredTwice(one) : readGroup(values.from, one.group)[one.name]
  if (result === undefined) continue
  results[one.group] = { ...results[one.group], [one.name]: result }
  if (values.from !== undefined) continue
  failures.push(
    ...beyondOf(one, result).map((row) => `${one.name} is beyond its floor: ${Object.values(row).join(' ')}`),
  )
  if (directory !== undefined) write(directory, one.group, one.name, result)
}

console.log(`\n# Report\n\n${settingOf(Object.values(results).flatMap(Object.values))}`)
for (const [group, own] of Object.entries(results)) console.log(`\n## ${group}\n\n${textOf(group, own)}`)
if (document !== undefined) {
  const known = Object.fromEntries(Object.keys(GROUPS).map((group) => [group, readGroup(directory, group)]))
  document.replace('all', settingOf(Object.values(known).flatMap(Object.values)))
  for (const group of groups) document.replace(group, textOf(group, known[group]))
}
if (values.from === undefined) console.log(failures.length === 0 ? '\nAll floors hold.' : `\n${failures.join('\n')}`)
process.exit(failures.length === 0 ? 0 : 1) // Google's client keeps its connections open.

function chosenOf(names) {
  const all = Object.entries(GROUPS).flatMap(([group, scenarios]) =>
    Object.entries(scenarios).map(([name, scenario]) => ({ group, name, scenario })),
  )
  const isNamed = ({ group, name, scenario }, wanted) =>
    [name, `${group}/${name}`].includes(wanted) ||
    (wanted === group && !scenario.isOnlyByName) ||
    (wanted === 'all' && !(group in LOADED))
  const unknown = names.find((wanted) => !all.some((one) => isNamed(one, wanted)))
  if (unknown !== undefined)
    throw new Error(
      `no scenario "${unknown}": all, ${[...all.map(({ group, name }) => `${group}/${name}`), ...Object.keys(LOADED)].join(', ')}`,
    )
  return all.filter((one) => names.some((wanted) => isNamed(one, wanted)))
}

function changeOf(text) {
  const [, name, value] = /^(\w+)=(.+)$/.exec(text) ?? []
  const has = ({ scenario }) => name in scenario.full
  if (name === undefined || !chosen.some(has)) throw new Error(`--set ${text}: no chosen scenario has such a setting`)
  const parsed = value.split(',').map((part) => (Number.isNaN(Number(part)) ? part : Number(part)))
  return { name, value: parsed }
}

function settingsOf({ full, quick }) {
  const settings = { ...full, ...(values.quick ? quick : {}), isQuick: values.quick }
  for (const { name, value } of changed) if (name in full) settings[name] = Array.isArray(full[name]) ? value : value[0]
  return settings
}

/** The machine may have been busy for a moment: --quick measures twice before it calls a checkout slow. */
async function measuredTwice(one) {
  const first = await measured(one)
  return values.quick && first !== undefined && beyondOf(one, first).length > 0 ? measured(one) : first
}

/** @returns what a scenario found, with the circumstances; undefined when it failed. */
async function measured({ name, scenario }) {
  const before = circumstances()
  const settings = settingsOf(scenario)
  const since = performance.now()
  try {
    const found = await cleanedUp(() => scenario.run(settings))
    const seconds = Math.round((performance.now() - since) / 1000)
    const result = { ...before, seconds, settings, ...(Array.isArray(found) ? { blocks: [found] } : found) }
    console.log(`\n## ${name} (${seconds} s)\n\n${markdownOf(blocksOf(scenario, result))}`)
    return result
  } catch (error) {
    console.error(`\n## ${name} failed`, error)
    failures.push(`${name} failed: ${error.message}`)
  }
}

function blocksOf(scenario, result) {
  return scenario.tell?.(result) ?? result.blocks
}

/** The report of a group, in the order of its scenarios. */
function textOf(group, own) {
  const present = Object.entries(GROUPS[group]).filter(([name]) => own[name] !== undefined)
  return markdownOf(merged(present.flatMap(([name, scenario]) => blocksOf(scenario, own[name]))))
}

function beyondOf({ scenario }, result) {
  return blocksOf(scenario, result).flatMap((block) =>
    typeof block === 'string' ? [] : block.filter((row) => row[BEYOND]),
  )
}
