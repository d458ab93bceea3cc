// A work as a scenario: its contenders in turn, and the ratios of their rates.
import { median, summaryOf } from '../../harness/numbers.mjs'
import { BEYOND, lineOf, row, short, whole } from '../../harness/report.mjs'
import { inTurn } from '../../harness/rounds.mjs'
import { GENERATOR, Stage } from './stage.mjs'

/** The cache of `get_uniform` holds 4 % of its keys. */
const FULL = {
  ...{ rounds: 5, seconds: 2, warmSeconds: 1, connections: 64 },
  ...{ keys: 1_000_000, cacheBytes: 16 << 20, scannedPairs: 100_000, versions: 1000, versionedKeys: 1000 },
}
const QUICK = {
  ...{ rounds: 3, seconds: 0.5, warmSeconds: 0.5 },
  ...{ keys: 100_000, cacheBytes: 1_600_000, versionedKeys: 50 },
}

export const scenarioOf = (name, work) => ({
  full: FULL,
  quick: QUICK,
  run: async (settings) => ({ generator: GENERATOR, results: await run(work, settings) }),
  tell: ({ results }) => [rowsOf(name, work, results)],
})

async function run({ ratios, contenders }, settings) {
  const all = Object.entries(await contenders(new Stage(settings)))
  // --quick leaves out contenders whose ratios have no floor.
  const isNeeded = ([contender]) =>
    !settings.isQuick ||
    ratios.some(({ of, over, floor }) => floor !== undefined && (over === contender || of.includes(contender)))
  return inTurn(Object.fromEntries(all.filter(isNeeded)), settings)
}

/** One for each contender that is PerKV. Of several in `of` only the best one has bounds. */
function rowsOf(work, { ratios }, results) {
  const present = (name) => name === undefined || results[name] !== undefined
  const found = ratios.flatMap(({ of, over, ...bounds }) => {
    if (!present(over)) return []
    const ratio = ({ rate }, round) => rate / (over === undefined ? 1 : results[over][round].rate)
    return of
      .filter(present)
      .map((contender) => ({ contender, ...summaryOf(results[contender].map(ratio)) }))
      .toSorted((a, b) => b.median - a.median)
      .map(({ contender, median, min, max }, rank) => ({
        contender,
        ...row(over ?? 'per second', median, { spread: [min, max], ...(rank === 0 ? bounds : {}) }),
      }))
  })
  return [...new Set(found.map(({ contender }) => contender))].map((contender) => {
    const parts = found.filter((one) => one.contender === contender)
    const { value, goal, reached } = lineOf('', parts)
    const of = (field) => median(results[contender].map(field))
    const cpu = results[contender].every((one) => one.cpu !== undefined)
    return {
      work: `\`${work}\`${contender === 'perkv' ? '' : `, ${contender.replace('perkv, ', '')}`}`,
      'per second': whole(of(({ rate }) => rate)),
      'CPU, µs': cpu ? short(of(({ cpu }) => cpu.all)) : '',
      'ratio to': value,
      goal,
      reached,
      [BEYOND]: parts.some((part) => part[BEYOND]),
    }
  })
}
