// A work as a scenario: its contenders in turn, and the ratios of their rates.
import { median, summaryOf } from '../../harness/numbers.mjs'
import { BEYOND, short, whole } from '../../harness/report.mjs'
import { inTurn } from '../../harness/rounds.mjs'
import { Stage } from './stage.mjs'

/** The cache of `get_uniform` holds 4 % of its keys. */
const FULL = {
  ...{ rounds: 5, seconds: 2, warmSeconds: 1, connections: 64 },
  ...{ keys: 1_000_000, cacheBytes: 16 << 20, scannedPairs: 100_000, versions: 1000, versionedKeys: 1000 },
}
const QUICK = {
  ...{ rounds: 3, seconds: 0.5, warmSeconds: 0.5 },
  ...{ keys: 100_000, cacheBytes: 1_600_000, versionedKeys: 50 },
}
const PEERS = ['bare', 'one record', 'naive', 'etcd']

export const scenarioOf = (name, work) => ({ full: FULL, quick: QUICK, run: (settings) => run(name, work, settings) })

async function run(name, { unit, ratios, contenders }, settings) {
  const stage = new Stage(settings)
  try {
    const all = Object.entries(await contenders(stage))
    // --quick leaves out contenders whose ratios have no floor.
    const isNeeded = ([contender]) =>
      !settings.isQuick ||
      ratios.some(({ of, over, floor }) => floor !== undefined && (over === contender || of.includes(contender)))
    const results = await inTurn(Object.fromEntries(all.filter(isNeeded)), settings)
    const rows = ratios.flatMap((ratio) => ratioRows(`\`${name}\`, ${unit} per second`, results, ratio))
    return { blocks: [rows, cpuRows(name, results)], results }
  } finally {
    await stage.close()
  }
}

/** Without `over` it is the rate itself. Of several in `of` only the best one has bounds. */
function ratioRows(work, results, { of, over, goal, floor }) {
  const rateOf = (name) =>
    name === undefined ? '' : `${name}: ${whole(median(results[name].map(({ rate }) => rate)))}`
  if (over !== undefined && results[over] === undefined) return []
  const ratio = ({ rate }, round) => rate / (over === undefined ? 1 : results[over][round].rate)
  const print = over === undefined ? whole : (number) => number.toFixed(2)
  return of
    .filter((name) => results[name] !== undefined)
    .map((name) => ({ name, ...summaryOf(results[name].map(ratio)) }))
    .toSorted((a, b) => b.median - a.median)
    .map(({ name, median, min, max }, rank) => {
      const bound = (value) => (value === undefined || rank > 0 ? '' : print(value))
      return {
        Work: work,
        PerKV: rateOf(name),
        Beside: rateOf(over),
        Ratio: over === undefined ? '' : print(median),
        Spread: over === undefined ? '' : `${print(min)} to ${print(max)}`,
        Goal: bound(goal),
        Reached: bound(goal) === '' ? '' : median >= goal ? 'yes' : 'no',
        Floor: bound(floor),
        [BEYOND]: bound(floor) !== '' && median < floor,
      }
    })
}

/** A row for each contender that is PerKV, with the others beside it. */
function cpuRows(name, results) {
  const cpuOf = (contender, thread) => {
    const micros = results[contender]?.flatMap(({ cpu }) => cpu?.[thread] ?? []) ?? []
    return micros.length === 0 ? '' : short(median(micros))
  }
  return Object.keys(results)
    .filter((contender) => !PEERS.includes(contender) && cpuOf(contender, 'all') !== '')
    .map((contender) => ({
      'CPU µs per operation': `\`${name}\``,
      '': contender,
      PerKV: cpuOf(contender, 'all'),
      'main thread': cpuOf(contender, 'main'),
      ...Object.fromEntries(PEERS.map((peer) => [peer, cpuOf(peer, 'all')])),
    }))
}
