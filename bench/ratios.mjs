// npm run bench [-- --rounds N --seconds N --connections N --only NAME[,NAME] --json FILE --quick]
// PerKV beside its peers on this machine, in turn: medians, their ratios, and the spread of both. The data is in the
// directory for temporary files (TMPDIR), which has to be on a real disk for the durable works to mean anything.
import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { measure, ratiosOf } from './ratios/measure.mjs'
import { Stage } from './ratios/stage.mjs'
import { tableOf, verdictOf } from './ratios/table.mjs'
import { works } from './ratios/works.mjs'

/** The cache of `get_uniform` holds 4 % of its keys. --quick is for finding what got slower: less data, and no wrk. */
const FULL = {
  rounds: 5,
  seconds: 4,
  warmSeconds: 1,
  sizes: {
    keys: 1_000_000,
    cacheBytes: 16 << 20,
    scannedPairs: 100_000,
    bulksInFlight: [1, 4, 8],
    versions: 1000,
    versionedKeys: 1000,
  },
}
const QUICK = {
  rounds: 3,
  seconds: 0.5,
  warmSeconds: 0.25,
  sizes: {
    keys: 100_000,
    cacheBytes: 1_600_000,
    scannedPairs: 100_000,
    bulksInFlight: [4],
    versions: 1000,
    versionedKeys: 50,
  },
}

const { values } = parseArgs({
  options: {
    rounds: { type: 'string' },
    seconds: { type: 'string' },
    connections: { type: 'string', default: '64' },
    only: { type: 'string' },
    json: { type: 'string' },
    quick: { type: 'boolean', default: false },
  },
})
const base = values.quick ? QUICK : FULL
const rounds = positive('rounds', values.rounds ?? base.rounds)
const seconds = positive('seconds', values.seconds ?? base.seconds)
const connections = positive('connections', values.connections)
const chosen = values.only?.split(',') ?? works.map(({ name }) => name)
const unknown = chosen.find((name) => works.every((work) => work.name !== name))
if (unknown !== undefined) throw new Error(`no work "${unknown}": ${works.map(({ name }) => name).join(', ')}`)

function positive(name, text) {
  const number = Number(text)
  if (!(number > 0) || !Number.isFinite(number)) throw new Error(`--${name} has to be a number above 0`)
  return number
}

async function run({ name, unit, ratios, contenders }) {
  try {
    const stage = new Stage({ connections, sizes: base.sizes, withWrk: !values.quick })
    const running = await contenders(stage)
    const results = await measure(running, { rounds, seconds, warmSeconds: base.warmSeconds })
    await stage.close()
    return { name, unit, contenders: Object.keys(running), results, ratios: ratiosOf(results, ratios) }
  } catch (cause) {
    throw new Error(`${name} could not be measured`, { cause })
  }
}

console.log(`${connections} connections, ${rounds} rounds of ${seconds} s each, in turn; 100-byte values\n`)
const reports = []
for (const work of works.filter(({ name }) => chosen.includes(name))) {
  const report = await run(work)
  console.log(tableOf(report))
  reports.push(report)
}

const short = reports.flatMap(({ name, ratios }) =>
  ratios
    .filter(({ attained }) => attained < 1)
    .map((ratio) => ({ ...ratio, line: `${name}: ${ratio.of} / ${ratio.over} ${verdictOf(ratio)}` })),
)
console.log(short.length === 0 ? 'All targets are met.' : short.map(({ line }) => line).join('\n'))
if (values.json !== undefined) {
  const options = { rounds, seconds, connections, quick: values.quick, sizes: base.sizes }
  const measured = reports.map(({ contenders: _, ...report }) => report)
  await writeFile(values.json, `${JSON.stringify({ options, node: process.version, works: measured }, null, 2)}\n`)
}
if (values.quick && short.some(({ isFarShort }) => isFarShort)) process.exitCode = 1
