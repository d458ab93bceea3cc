// Contenders in turn, so that what else the machine does meets all of them; then medians, and ratios round by round.
import { median } from '../process.mjs'

/** @param contenders functions of seconds; one that has a function `warm` is warmed up by that. */
export async function measure(contenders, { rounds, seconds, warmSeconds }) {
  const present = Object.entries(contenders).filter(([, run]) => run !== undefined)
  const results = Object.fromEntries(present.map(([name]) => [name, []]))
  for (const [, run] of present) await (run.warm ?? run)(warmSeconds)
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of round % 2 === 0 ? present : present.toReversed()) results[name].push(await run(seconds))
  return results
}

export function summaryOf(numbers) {
  return { median: median(numbers), min: Math.min(...numbers), max: Math.max(...numbers) }
}

/** Of what a contender did in its rounds. */
export const ratesOf = (rounds) => summaryOf(rounds.map(({ rate }) => rate))

/** @returns medians of processor time per operation, in microseconds; undefined where it was not measured. */
export function cpuOf(rounds) {
  if (rounds?.[0].cpu === undefined) return undefined
  return { all: median(rounds.map(({ cpu }) => cpu.all)), main: median(rounds.map(({ cpu }) => cpu.main)) }
}

/** Every ratio that was measured, or rate where there is nothing to divide by; of one for several contenders only the best
 * has bounds. */
export function ratiosOf(results, ratios) {
  return ratios.flatMap(({ of, over, goal, floor }) => {
    const divisors = over === undefined ? undefined : (results[over] ?? [])
    const measured = of
      .filter((name) => results[name] && (divisors === undefined || divisors.length > 0))
      .map((name) => ({
        of: name,
        over,
        ...summaryOf(results[name].map(({ rate }, round) => rate / (divisors?.[round].rate ?? 1))),
      }))
      .toSorted((a, b) => b.median - a.median)
    return measured.map((ratio, rank) => (rank === 0 ? { ...ratio, goal, floor } : ratio))
  })
}

export const isBelow = ({ median, floor }) => floor !== undefined && median < floor
