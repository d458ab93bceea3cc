// PerKV on Bigtable by the number of nodes: a simulation in time of its own, from costs that were measured, throughputs that Google
// documents, and latencies that are assumed. No real Bigtable is reached. The same seed gives the same figures.
import { readFile, writeFile } from 'node:fs/promises'
import { circumstances } from '../harness/report.mjs'
import { checked } from './check.mjs'
import { ASSUMED, costsOf } from './costs.mjs'
import { pictures } from './pictures.mjs'
import { study } from './study.mjs'
import { blocksOf } from './tables.mjs'

const MEASURED = new URL('../../docs/performance/scale-out-measured.json', import.meta.url)

const simulated = {
  full: { seed: 1, medianMs: ASSUMED.medianMs, p99Ms: ASSUMED.p99Ms },
  quick: {},
  async run({ seed, medianMs, p99Ms }) {
    const assumed = { ...ASSUMED, medianMs, p99Ms }
    const measured = JSON.parse(await readFile(MEASURED, 'utf8'))
    const results = study(costsOf(measured, assumed), seed)
    const levelDb = levelDbRates(measured.levelDb)
    const blocks = blocksOf({ seed, assumed, measured, results, checks: checked(measured, seed), levelDb })
    return { blocks, results, charts: pictures(results, levelDb.find(({ kind }) => kind === 'transfer').rate) }
  },
}

/** Takes the costs of processors again, on the emulator, into docs/performance/scale-out-measured.json. */
const processors = {
  isOnlyByName: true,
  /** Of a call to the emulator, where the model is compared with real servers. */
  full: { delayMs: 5 },
  quick: {},
  async run({ delayMs }) {
    const { measureLatencies, measureLevelDb, measureServer } = await import('./measure.mjs')
    const { leaderOverHttp, oracleAlone } = await import('./oracle-cost.mjs')
    const measured = {
      ...circumstances(),
      oracle: { aloneAskMicros: await oracleAlone(), ...(await leaderOverHttp()) },
      server: await measureServer(),
      levelDb: await measureLevelDb(),
      latencies: await measureLatencies(delayMs),
    }
    await writeFile(MEASURED, `${JSON.stringify(measured)}\n`)
    return Object.entries(measured.server).map(([kind, micros]) => ({ transaction: kind, 'server CPU, µs': micros }))
  },
}

export const scenarios = { simulated, processors }

/** One server on LevelDB: what its main thread's time allows. */
const levelDbRates = ({ put, transfer }) => [
  { name: 'PUTs', kind: 'put', rate: 1e6 / put.micros },
  { name: 'transfers', kind: 'transfer', rate: 1e6 / transfer.micros },
]
