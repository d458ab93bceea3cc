import type { Searched } from './search.js'

/** In a run: at this decision, another way than the first is taken. */
interface Deviation {
  readonly at: number
  readonly way: number
}

/** What one run decides: the first of all ways, but where it deviates. */
export class Decisions {
  /** How many ways there were at each decision. */
  readonly ways: number[] = []
  readonly taken: string[] = []
  readonly #deviations: ReadonlyMap<number, number>

  constructor(deviations: readonly Deviation[]) {
    this.#deviations = new Map(deviations.map(({ at, way }) => [at, way]))
  }

  /** @param ways what may happen, in words: the first of them is what happens as a rule. */
  next<T extends string>(ways: readonly [T, ...T[]], where: string): T {
    const at = this.ways.length
    if (ways.length === 1) return ways[0]
    this.ways.push(ways.length)
    const way = ways[this.#deviations.get(at) ?? 0]
    if (way === undefined) throw new Error('a run with the same decisions was another one')
    if (way !== ways[0]) this.taken.push(where + way)
    return way
  }
}

/**
 * Runs a program in every way that has so few deviations, those with the fewest first: a search without states, of programs whose
 * state nobody can write down. A run with the same decisions has to be the same.
 * @param run what is wrong at its end; undefined: nothing.
 */
export async function everySchedule(
  run: (decisions: Decisions) => Promise<string | undefined>,
  deviationsMax: number,
): Promise<Searched> {
  let layer: (readonly Deviation[])[] = [[]]
  let states = 0
  let steps = 0
  for (let depth = 0; ; depth++) {
    const nextLayer: (readonly Deviation[])[] = []
    for (const deviations of layer) {
      const decisions = new Decisions(deviations)
      const what = await run(decisions)
      states++
      steps += decisions.ways.length
      if (what !== undefined) return { states, steps, depth, violation: { what, trace: decisions.taken } }
      if (depth === deviationsMax) continue
      for (let at = (deviations.at(-1)?.at ?? -1) + 1; at < decisions.ways.length; at++)
        for (let way = 1; way < (decisions.ways[at] as number); way++) nextLayer.push([...deviations, { at, way }])
    }
    if (nextLayer.length === 0) return { states, steps, depth }
    layer = nextLayer
  }
}
