// Contenders in turn, so that what else the machine does meets all of them; then medians, and ratios round by round.
import { median } from '../process.mjs'

export async function measure(contenders, { rounds, seconds, warmSeconds }) {
  const present = Object.entries(contenders).filter(([, run]) => run !== undefined)
  const results = Object.fromEntries(present.map(([name]) => [name, []]))
  for (const [, run] of present) if (!run.isWarm) await run(warmSeconds)
  for (let round = 0; round < rounds; round++)
    for (const [name, run] of round % 2 === 0 ? present : present.toReversed()) results[name].push(await run(seconds))
  return results
}

/** Of what a contender did in its rounds. */
export const ratesOf = (rounds) => summaryOf(rounds.map(({ rate }) => rate))

export function summaryOf(numbers) {
  return { median: median(numbers), min: Math.min(...numbers), max: Math.max(...numbers) }
}

/** Every ratio that was measured; of one for several contenders only the best has a bound. */
export function ratiosOf(results, ratios) {
  return ratios.flatMap(({ of, over, ...bound }) => {
    const measured = of
      .filter((name) => results[name] && results[over])
      .map((name) => ({
        of: name,
        over,
        ...summaryOf(results[name].map(({ rate }, round) => rate / results[over][round].rate)),
      }))
      .toSorted((a, b) => b.median - a.median)
    return measured.map((ratio, rank) => (rank === 0 ? { ...ratio, ...bound, ...judged(ratio.median, bound) } : ratio))
  })
}

/** `attained`: 1 is the floor, less is below it. */
function judged(ratio, { atLeast, atMost }) {
  if (atLeast === undefined && atMost === undefined) return {}
  const attained = atLeast === undefined ? atMost / ratio : ratio / atLeast
  return { attained }
}
