import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CLOCK_MS_MAX } from '../../src/limits.js'
import { Clock, type ClockOptions } from '../../src/oracle/clock.js'

const START_MS = 1_700_000_000_000
const HOUR_MS = 3_600_000

/** A machine whose wall clock can be set wrong. */
class Machine {
  uptimeMs = 5000
  offsetMs = START_MS - 5000
  readonly said: string[] = []

  clock(saved: Pick<ClockOptions, 'savedMs' | 'savedJumps'> = {}): Clock {
    return new Clock({
      now: () => this.wallMs,
      monotonicNow: () => this.uptimeMs,
      onStep: (message) => this.said.push(message),
      ...saved,
    })
  }
  get wallMs(): number {
    return Math.floor(this.uptimeMs) + this.offsetMs
  }
  pass(ms: number): void {
    this.uptimeMs += ms
  }
  step(ms: number): void {
    this.offsetMs += ms
  }
}

describe('a wall clock that runs as it should', () => {
  test('is what the clock says, however rarely it is asked', () => {
    const machine = new Machine()
    const clock = machine.clock()
    for (const ms of [0, 1, 0.3, 20, 500, HOUR_MS, 1]) {
      machine.pass(ms)
      expect(clock.now()).toBe(machine.wallMs)
      expect(clock.steadyMs()).toBe(machine.wallMs)
    }
    expect(clock.jumps).toEqual([])
    expect(machine.said).toEqual([])
  })

  test('may be slewed', () => {
    const machine = new Machine()
    const clock = machine.clock()
    for (let i = 0; i < 10_000; i++) {
      machine.pass(10)
      machine.step(i % 2 === 0 ? -1 : i % 5 === 0 ? 3 : 1)
      expect(Math.abs(clock.now() - machine.wallMs)).toBeLessThan(10)
    }
    expect(clock.jumps).toEqual([])
  })
})

describe('a wall clock that steps back', () => {
  test('never makes the clock step back or stand still; it goes a little slower until the wall clock is there', () => {
    const machine = new Machine()
    const clock = machine.clock()
    machine.step(-HOUR_MS)
    let before = clock.now()
    expect(before).toBe(START_MS)
    for (let i = 0; i < 100; i++) {
      machine.pass(1000)
      expect(clock.now() - before).toBeGreaterThanOrEqual(874)
      expect(clock.now() - before).toBeLessThanOrEqual(876)
      before = clock.now()
    }
    machine.pass(7 * HOUR_MS)
    expect(clock.now()).toBeGreaterThan(machine.wallMs)
    machine.pass(HOUR_MS)
    expect(clock.now()).toBe(machine.wallMs)
    expect(clock.jumps).toEqual([])
    expect(machine.said).toEqual([expect.stringMatching(/stepped back by 60 minutes/)])
  })

  test('while nobody asked for the time', () => {
    const machine = new Machine()
    const clock = machine.clock()
    machine.pass(2 * HOUR_MS)
    machine.step(-HOUR_MS)
    expect(clock.now()).toBe(START_MS + (2 * HOUR_MS * 7) / 8)
  })
})

describe('a wall clock that steps forward', () => {
  test('takes the clock along, and ages leave the jump out', () => {
    const machine = new Machine()
    const clock = machine.clock()
    machine.pass(10_000)
    const before = clock.now()
    const steady = clock.steadyMs()
    machine.step(HOUR_MS)
    machine.pass(100)
    expect(clock.now()).toBe(before + HOUR_MS + 100)
    expect(clock.steadyMs()).toBe(steady + 100)
    expect(clock.jumpedSince(before)).toBe(HOUR_MS)
    expect(clock.jumpedSince(before - 5000)).toBe(HOUR_MS)
    expect(clock.jumpedSince(before + HOUR_MS + 100)).toBe(0)
    expect(clock.ago(0)).toBe(before + HOUR_MS + 100)
    expect(clock.ago(50)).toBe(before + 50)
    expect(clock.ago(300)).toBe(before - 200)
    expect(machine.said).toEqual([expect.stringMatching(/jumped forward by 60 minutes/)])
  })

  test('to where no timestamp is: time alone counts', () => {
    const machine = new Machine()
    const clock = machine.clock()
    machine.step(Date.UTC(2120, 0) - START_MS)
    machine.pass(1000)
    expect(clock.now()).toBe(START_MS + 1000)
    machine.step(START_MS - Date.UTC(2120, 0))
    expect(clock.now()).toBe(START_MS + 1000)
    expect(clock.jumps).toEqual([])
  })
})

describe('a start', () => {
  test('goes on from the saved clock, where the wall clock is behind', () => {
    const machine = new Machine()
    const savedMs = Date.UTC(2030, 0)
    const clock = machine.clock({ savedMs })
    expect(clock.now()).toBe(savedMs)
    machine.pass(8000)
    expect(clock.now()).toBe(savedMs + 7000)
    expect(machine.said).toEqual([expect.stringMatching(/is \d+ days behind the timestamps of the last run/)])
  })

  test('after a crash: the saved clock is ahead of the last reading, and what was there before looks no older', () => {
    const machine = new Machine()
    const before = machine.clock().now()
    machine.pass(500)
    const clock = machine.clock({ savedMs: before + 3000 })
    expect(clock.now()).toBe(before + 3000)
    expect(clock.now() - before - clock.jumpedSince(before)).toBe(500)
    expect(clock.steadyMs()).toBe(before + 500)
    expect(machine.said).toEqual([])
  })

  test('after a stop the time that it took counts, but no more than a day of it', () => {
    const machine = new Machine()
    const savedMs = machine.clock().now() + 1
    machine.pass(20 * HOUR_MS)
    expect(machine.clock({ savedMs }).steadyMs()).toBe(savedMs - 1 + 20 * HOUR_MS)
    expect(machine.said).toEqual([])
    machine.step(Date.UTC(2030, 0) - machine.wallMs)
    const clock = machine.clock({ savedMs })
    expect(clock.now()).toBe(Date.UTC(2030, 0))
    expect(clock.steadyMs()).toBe(savedMs + 24 * HOUR_MS)
    expect(machine.said).toEqual([expect.stringMatching(/is \d+ days ahead of the last run/)])
  })

  test('knows the jumps of earlier runs', () => {
    const machine = new Machine()
    const first = machine.clock()
    first.now()
    machine.step(HOUR_MS)
    const savedMs = first.now()
    const second = machine.clock({ savedMs, savedJumps: first.jumps })
    expect(second.steadyMs()).toBe(START_MS)
    expect(second.ago(1000)).toBe(START_MS - 1000)
  })
})

test('it can be told to go ahead', () => {
  const machine = new Machine()
  const clock = machine.clock()
  clock.advanceTo(START_MS + HOUR_MS)
  expect(clock.now()).toBe(START_MS + HOUR_MS)
  expect(clock.aheadMs).toBe(HOUR_MS)
  expect(clock.steadyMs()).toBe(START_MS)
  clock.advanceTo(START_MS)
  expect(clock.now()).toBe(START_MS + HOUR_MS)
  expect(machine.said).toEqual([])
})

describe('property', () => {
  const step = fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({ type: fc.constant('pass' as const), ms: fc.integer({ min: 0, max: 100_000 }) }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        type: fc.constant('step' as const),
        ms: fc.integer({ min: -10 * HOUR_MS, max: 10 * HOUR_MS }),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ type: fc.constant('restart' as const), ms: fc.integer({ min: 0, max: 3000 }) }),
    },
  )

  test('whatever the wall clock does, the clock goes on, and ages are at most what has passed', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const machine = new Machine()
        let clock = machine.clock()
        const readings = [{ ms: clock.now(), steadyMs: clock.steadyMs(), passedMs: 0 }]
        let passedMs = 0
        for (const action of steps) {
          if (action.type === 'step') machine.step(action.ms)
          else if (action.type === 'pass') {
            machine.pass(action.ms)
            passedMs += action.ms
          } else clock = machine.clock({ savedMs: clock.now() + action.ms, savedJumps: clock.jumps })
          const now = clock.now()
          const last = readings.at(-1) as (typeof readings)[number]
          expect(now).toBeGreaterThanOrEqual(last.ms)
          expect(now).toBeLessThan(CLOCK_MS_MAX)
          expect(clock.jumps.length).toBeLessThanOrEqual(64)
          readings.push({ ms: now, steadyMs: clock.steadyMs(), passedMs })
          if (action.type === 'restart') continue
          expect(clock.steadyMs() - last.steadyMs).toBeLessThanOrEqual(passedMs - last.passedMs + 1000)
          if (action.type === 'pass') expect(now - last.ms).toBeGreaterThanOrEqual(Math.floor(action.ms * 0.875) - 1)
          // Both ways of measuring an age agree where no jumps were put together.
          if (clock.jumps.length < 64)
            expect(now - last.ms - clock.jumpedSince(last.ms)).toBe(clock.steadyMs() - last.steadyMs)
          expect(clock.ago(0)).toBe(now)
        }
      }),
      { numRuns: 300 },
    )
  })
})
