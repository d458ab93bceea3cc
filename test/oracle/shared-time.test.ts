import { expect, test } from 'vitest'
import { SharedTime } from '../../src/oracle/shared-time.js'

/** A wall clock that is off, beside time that passes. */
function timeOf(offMs = 0) {
  const state = { elapsedMs: 0, offMs }
  const time = new SharedTime({
    now: () => 1_000_000 + state.elapsedMs + state.offMs,
    elapsedMs: () => state.elapsedMs,
  })
  return { state, time }
}

test('is the clock of the server while it knows nothing else', () => {
  const { state, time } = timeOf(500)
  expect([time.isKnown, time.now()]).toEqual([false, 1_000_500])
  state.elapsedMs = 1000
  expect(time.now()).toBe(1_001_500)
  time.lead(time.now())
  state.elapsedMs = 2000
  expect([time.isKnown, time.now()]).toEqual([true, 1_002_500])
})

test('of a follower runs on from the last answer, whatever its clock shows', () => {
  const { state, time } = timeOf(3_600_000)
  time.follow(900_000)
  state.elapsedMs = 5000
  state.offMs = -3_600_000
  expect(time.now()).toBe(905_000)
  time.follow(904_000)
  expect(time.now()).toBe(904_000)
})

test.each<[number, ...(readonly [number, number])[]]>([
  [80_000, [1000, 1125], [8000, 9000], [80_000, 90_000], [1_000_000, 1_080_000]],
  [-80_000, [1000, 875], [8000, 7000], [80_000, 70_000], [1_000_000, 920_000]],
  [0, [1000, 1000], [8000, 8000], [80_000, 80_000], [1_000_000, 1_000_000]],
])('of a leader whose clock is off by %d ms comes nearer by an eighth', (offMs, ...steps) => {
  for (const stepMs of [1, 10, 1000]) {
    const { state, time } = timeOf(offMs)
    time.follow(1_000_000)
    time.lead(0)
    for (const [elapsedMs, passedMs] of steps) {
      while (state.elapsedMs < elapsedMs) {
        state.elapsedMs += stepMs
        time.now()
      }
      expect(Math.abs(time.now() - 1_000_000 - passedMs)).toBeLessThanOrEqual(1)
    }
  }
})

test('runs on by time alone once another server leads', () => {
  const { state, time } = timeOf(80_000)
  time.follow(1_000_000)
  time.lead(0)
  state.elapsedMs = 8000
  time.stopLeading()
  state.elapsedMs = 16_000
  expect(time.now()).toBe(1_017_000)
})
