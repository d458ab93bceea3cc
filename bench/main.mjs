// npm run bench [-- all|GROUP|NAME|GROUP/NAME... --quick --set SETTING=VALUE --out DIR --markdown FILE]
// Measures scenarios or groups of them, `ratios` without a name, and prints one report. Exits with 1 when something is beyond its
// floor or fails. The data is in the directory for temporary files (TMPDIR), which has to be on a real disk for durable writes to
// mean anything. Most need Linux.
import { parseArgs } from 'node:util'
import { timeFsyncs } from './harness/disk.mjs'
import { BEYOND, markdownOf, merged, partOf, settingOf, write } from './harness/report.mjs'
import { changes } from './scenarios/changes/index.mjs'
import { expiry } from './scenarios/expiry.mjs'
import { leases } from './scenarios/leases/index.mjs'
import { observers } from './scenarios/observers/index.mjs'
import { overload } from './scenarios/overload/index.mjs'
import { ratios } from './scenarios/ratios/index.mjs'
import { scale } from './scenarios/scale/index.mjs'

/** In the order of docs/performance.md. A scenario is `{ full, quick, run(settings) }`. */
const GROUPS = { ratios, scale, observers, changes, expiry: { expiry }, leases, overload }
/** Not of docs/performance.md: on Google's Bigtable server in memory, or simulated. Loaded when named, since they need more. */
const LOADED = { bigtable: './scenarios/bigtable.mjs', 'scale-out': './scale-out/index.mjs' }
const FSYNCS = 50

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false }, // Little data and few rounds: for finding what is broken, or got slower.
    set: { type: 'string', multiple: true, default: [] }, // Of every chosen scenario that has such a setting.
    out: { type: 'string' }, // Where GROUP.json and pictures go.
    markdown: { type: 'string' }, // A document that has the report of the group between marks.
  },
})

for (const [group, path] of Object.entries(LOADED))
  if (positionals.some((name) => name.split('/')[0] === group)) GROUPS[group] = (await import(path)).scenarios
const chosen = chosenOf(positionals.length === 0 ? ['ratios'] : positionals)
const groups = [...new Set(chosen.map(({ group }) => group))]
const changed = values.set.map(changeOf)
const document = values.markdown && partOf(values.markdown, groups.join(' '))

const began = performance.now()
const fsyncs = timeFsyncs(FSYNCS)
const results = []
const failures = []
for (const one of chosen) {
  const first = await measured(one)
  // The machine may have been busy for a moment: --quick measures twice before it calls a checkout slow.
  const result = values.quick && first !== undefined && beyondOf(first).length > 0 ? await measured(one) : first
  if (result === undefined) continue
  failures.push(...beyondOf(result).map((row) => `${one.name} is beyond its floor: ${Object.values(row).join(' ')}`))
  if (values.out !== undefined) write(values.out, one.group, one.name, result)
  results.push({ ...one, result })
}

const reports = groups.flatMap((group) => {
  const own = results.filter((one) => one.group === group).map(({ result }) => result)
  return own.length === 0 ? [] : { group, text: markdownOf(merged(own)) }
})
const setting = markdownOf([settingOf(fsyncs)])
console.log(`\n# Report, after ${secondsSince(began)} s\n\n${setting}`)
for (const { group, text } of reports) console.log(`\n## ${group}\n\n${text}`)
if (results.length > 0)
  console.log(`\n${markdownOf([results.map(({ name, result }) => ({ scenario: name, seconds: result.seconds }))])}`)
document?.replace([setting, ...reports.map(({ text }) => text)].join('\n\n'))
console.log(failures.length === 0 ? '\nAll floors hold.' : `\n${failures.join('\n')}`)
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

/** @returns what a scenario found, and its seconds; undefined when it failed. */
async function measured({ name, scenario }) {
  fsyncs.push(...timeFsyncs(FSYNCS))
  const since = performance.now()
  const settings = settingsOf(scenario)
  try {
    const found = await scenario.run(settings)
    const { blocks = [found], ...more } = Array.isArray(found) ? {} : found
    const result = { seconds: secondsSince(since), settings, blocks, ...more }
    console.log(`\n## ${name} (${result.seconds} s)\n\n${markdownOf(blocks.filter((block) => block.length > 0))}`)
    return result
  } catch (error) {
    console.error(`\n## ${name} failed`, error)
    failures.push(`${name} failed: ${error.message}`)
  }
}

function beyondOf({ blocks }) {
  return blocks.flatMap((block) => (typeof block === 'string' ? [] : block.filter((row) => row[BEYOND])))
}

function secondsSince(time) {
  return Math.round((performance.now() - time) / 1000)
}
