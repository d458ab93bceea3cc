import { expect, test } from 'vitest'
import { WorldModel } from './model.js'
import { everySchedule } from './schedules.js'
import { type Model, search } from './search.js'
import { WORLDS } from './worlds.js'

/** Two counters that wrap at `modulus`. What is wrong is reached by more than one way. */
function counters(modulus: number, wrong?: string): Model<readonly [number, number]> {
  const move = (label: string, [a, b]: readonly [number, number]) => ({
    label,
    state: [a % modulus, b % modulus] as const,
  })
  return {
    initial: [move('begin', [0, 0])],
    keyOf: (state) => state.join(),
    next: async ([a, b]) => [move('left', [a + 1, b]), move('right', [a, b + 1])],
    violation: (state) => (state.join() === wrong ? 'here it is' : undefined),
  }
}

test('a search visits every state once, and says the shortest way to what is wrong', async () => {
  expect(await search(counters(5))).toEqual({ states: 25, steps: 50, depth: 8 })
  const { violation } = await search(counters(5, '1,2'))
  expect(violation?.what).toBe('here it is')
  expect(violation?.trace[0]).toBe('begin')
  expect([...(violation?.trace ?? [])].sort()).toEqual(['begin', 'left', 'right', 'right'])
  await expect(search(counters(5), 24)).rejects.toThrow('more than 24 states')
})

test('every way with so few deviations is taken, those with the fewest first', async () => {
  const runs: string[] = []
  const searched = await everySchedule(async (decisions) => {
    const ways = [1, 2, 3].map(() => decisions.next(['a', 'b', 'c'], ''))
    runs.push(ways.join(''))
    return undefined
  }, 2)
  expect(searched).toEqual({ states: 19, steps: 57, depth: 2 })
  expect(new Set(runs).size).toBe(19)
  expect(runs[0]).toBe('aaa')
  const { violation } = await everySchedule(async (decisions) => {
    const ways = [decisions.next(['left', 'right'], 'first '), decisions.next(['left', 'right'], 'then ')]
    return ways.every((way) => way === 'right') ? 'here it is' : undefined
  }, 2)
  expect(violation).toEqual({ what: 'here it is', trace: ['first right', 'then right'] })
})

test('two transactions on two keys are what they promise, in every order in which their calls can arrive', async () => {
  const { states, violation } = await search(new WorldModel(WORLDS['everyday']?.plans?.[0] ?? expect.fail()))
  expect(violation).toBeUndefined()
  // A world in which little happens promises little.
  expect(states).toBeGreaterThan(5_000)
}, 300_000) // A second of a processor, which others may want too.
