// npm run bench:scale-out [-- --seed N --median-ms MS --p99-ms MS --measure --markdown FILE --json FILE --svg DIR]
// PerKV on Bigtable by the number of nodes: a simulation in time of its own, from costs that were measured, throughputs that Google
// documents, and latencies that are assumed. No real Bigtable is reached. The same seed gives the same figures.
// --measure takes the costs again, into docs/performance/scale-out-measured.json; it needs what `npm run test:bigtable` installs.
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { circumstances } from './circumstances.mjs'
import { marked } from './ratios/marked.mjs'
import { checked } from './scale-out/check.mjs'
import { ASSUMED, costsOf } from './scale-out/costs.mjs'
import { markdownOf } from './scale-out/markdown.mjs'
import { pictures } from './scale-out/pictures.mjs'
import { study } from './scale-out/study.mjs'

const MEASURED = new URL('../docs/performance/scale-out-measured.json', import.meta.url)
const RATIOS = new URL('../docs/performance/ratios.json', import.meta.url)
/** Of a call to the emulator, where the model is compared with real servers. */
const DELAY_MS = 5

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    'median-ms': { type: 'string', default: String(ASSUMED.medianMs) },
    'p99-ms': { type: 'string', default: String(ASSUMED.p99Ms) },
    measure: { type: 'boolean', default: false },
    markdown: { type: 'string' },
    json: { type: 'string' },
    svg: { type: 'string' },
  },
})
const seed = Number(values.seed)
const assumed = { ...ASSUMED, medianMs: Number(values['median-ms']), p99Ms: Number(values['p99-ms']) }
if (!Number.isSafeInteger(seed)) throw new Error('--seed has to be a whole number')
if (!(assumed.medianMs > 0 && assumed.p99Ms >= assumed.medianMs))
  throw new Error('--median-ms and --p99-ms have to be above 0, and the latter not below the former')
const document = values.markdown && marked(values.markdown, 'npm run bench:scale-out -- --markdown')

if (values.measure) await measure()
const measured = JSON.parse(await readFile(MEASURED, 'utf8'))
const costs = costsOf(measured, assumed)
const results = study(costs, seed, ({ kind, nodes, oracle, rate }) =>
  process.stderr.write(`${kind}, ${nodes} nodes${oracle === undefined ? '' : `, ${oracle}`}: ${Math.round(rate)}/s\n`),
)
const levelDb = await levelDbRates(measured.levelDb)
const checks = checked(measured, seed)
const text = markdownOf({ seed, assumed, measured, results, checks, levelDb })
console.log(text)
document?.replace(text)
if (values.json !== undefined)
  await writeFile(values.json, `${JSON.stringify({ seed, assumed, ...results }, null, 2)}\n`)
if (values.svg !== undefined)
  for (const [name, picture] of Object.entries(pictures(results, levelDb.find(({ kind }) => kind === 'transfer').rate)))
    await writeFile(join(values.svg, `scale-out-${name}.svg`), picture)
process.exit(0) // Google's client keeps its connections open.

async function measure() {
  const { measureLatencies, measureLevelDb, measureOracle, measureServer } = await import('./scale-out/measure.mjs')
  const measured = {
    ...circumstances('bench/scale-out.mjs'),
    oracle: await measureOracle(),
    server: await measureServer(),
    levelDb: await measureLevelDb(),
    latencies: await measureLatencies(DELAY_MS),
  }
  await writeFile(MEASURED, `${JSON.stringify(measured)}\n`)
}

/** One server on LevelDB: what `npm run bench` measured by wrk, and what its main thread's time allows. */
async function levelDbRates(measuredHere) {
  const { works } = JSON.parse(await readFile(RATIOS, 'utf8'))
  const rateOf = (work) => {
    const rates = works.find(({ name }) => name === work).results.perkv.map(({ rate }) => rate)
    return rates.toSorted((a, b) => a - b)[Math.floor(rates.length / 2)]
  }
  return [
    { name: '`put` of performance.md', kind: 'put', rate: rateOf('put') },
    { name: '`txn` of performance.md: a check and two puts', kind: 'transfer', rate: rateOf('txn') },
    { name: 'transfers, as many as its core can do', kind: 'transfer', rate: 1e6 / measuredHere.transfer.micros },
  ]
}
