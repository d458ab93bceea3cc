import { expect, test } from 'vitest'
import { laterTurn, runSliced, runToEnd, TimeSlicer } from '../../src/event-loop/time-slicer.js'

const turn = (): Promise<void> => new Promise((next) => setImmediate(next))

/** Work of some steps, each of which takes all of a slice. */
function* work(name: string, steps: number, log: string[]): Generator<void, string, void> {
  for (let step = 0; step < steps; step++) {
    log.push(name)
    const end = performance.now() + 11
    while (performance.now() < end);
    yield
  }
  return name
}

test('what ends before its first yield runs on the spot', () => {
  const log: string[] = []
  expect(runSliced(work('short', 0, log))).toBe('short')
  expect(runToEnd(work('whole', 2, log))).toBe('whole')
})

test('long works take turns, one slice each turn of the event loop', async () => {
  const log: string[] = []
  const works = [runSliced(work('a', 4, log)), runSliced(work('b', 4, log)), runSliced(work('c', 2, log))]
  expect(log.splice(0)).toEqual(['a', 'b', 'c']) // The first step of each.
  await Promise.resolve()
  for (let turns = 0; turns < 3; turns++) {
    const before = log.length
    await turn()
    expect(log.length - before).toBeLessThanOrEqual(1)
  }
  expect(await Promise.all(works)).toEqual(['a', 'b', 'c'])
  expect(log.filter((name) => name === 'a')).toHaveLength(3)
  expect(log.lastIndexOf('a')).toBeGreaterThan(log.indexOf('b')) // Nobody has it all at once.
})

test('what work throws is thrown, on the spot or later', async () => {
  function* failing(steps: number): Generator<void, void, void> {
    for (let step = 0; step < steps; step++) yield
    throw new Error('failed')
  }
  expect(() => runSliced(failing(0))).toThrow('failed')
  await expect(runSliced(failing(2))).rejects.toThrow('failed')
})

test('a loop that never waits ends its turn all the same', async () => {
  const slicer = new TimeSlicer(1)
  let turns = 0
  const count = (): void => {
    turns++
    if (turns < 100) setImmediate(count)
  }
  setImmediate(count)
  for (let rounds = 0; rounds < 10_000_000 && turns < 3; rounds++) await slicer.next()
  expect(turns).toBeGreaterThan(2)
})

test('a later turn is never the present one', async () => {
  await turn()
  await turn() // Nothing of the tests before is on its way.
  let isLater = false
  setImmediate(() => {
    isLater = true
  })
  await laterTurn()
  expect(isLater).toBe(true)
})
