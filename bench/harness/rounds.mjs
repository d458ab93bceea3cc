// Contenders in turn, so that what else the machine does meets all of them; then medians, and ratios round by round.
import { median, percentile } from './numbers.mjs'
import { cpuMicros } from './process.mjs'
import { row } from './report.mjs'

/** @param contenders functions of seconds by name, or undefined; one that has a function `warm` is warmed up by that. */
export async function inTurn(contenders, { rounds, seconds, warmSeconds = seconds }) {
  const present = Object.entries(contenders).filter(([, run]) => run !== undefined)
  const results = Object.fromEntries(present.map(([name]) => [name, []]))
  for (const [, run] of present) await (run.warm ?? run)(warmSeconds)
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of round % 2 === 0 ? present : present.toReversed()) results[name].push(await run(seconds))
  return results
}

/** Runs, and adds the server's processor time per operation, in µs. @param run answers a `count`. */
export async function metered(server, run) {
  const before = cpuMicros(server)
  const result = await run()
  if (before === undefined) return result
  const after = cpuMicros(server)
  const of = (thread) => (after[thread] - before[thread]) / result.count
  return { ...result, cpu: { all: of('all'), main: of('main') } }
}

const FIELDS = {
  'by CPU': (of, over) => over.cpu.all / of.cpu.all,
  'by main thread': (of, over) => over.cpu.main / of.cpu.main,
  'by rate': (of, over) => of.rate / over.rate,
}

/**
 * What something adds to a request, as ratios with the middle half of the rounds.
 * @param judged the field of which `bounds` are.
 */
export function addedRows(results, name, [of, over], judged, bounds) {
  const micros = (contender) => median(results[contender].map(({ cpu }) => cpu.all))
  const ratios = Object.entries(FIELDS).map(([field, ratio]) => {
    const values = results[of].map((one, round) => ratio(one, results[over][round]))
    const spread = [percentile(values, 0.25), percentile(values, 0.75)]
    return row(`${name}: ${field}`, median(values), { spread, ...(field === judged ? bounds : {}) })
  })
  return [...ratios, row(`${name}: CPU added`, micros(of) - micros(over), { unit: `µs to ${micros(over).toFixed(1)}` })]
}
