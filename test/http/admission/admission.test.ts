import { describe, expect, test } from 'vitest'
import {
  bodyOverloadOf,
  type Load,
  NO_PRESSURE,
  overloadOf,
  type Pressure,
  pressureOf,
  type Work,
} from '../../../src/http/admission/admission.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'

const limits = {
  ...DEFAULT_LIMITS,
  requestsMax: 10,
  bodiesBytesMax: 1000,
  answersBytesMax: 1000,
  writeQueueMax: 100,
  writeQueueBytesMax: 1000,
  loopDelayMsMax: 200,
  locksMax: 50,
}
const IDLE: Load = {
  requests: 0,
  answerBytes: 0,
  locks: 0,
  queuedBatches: 0,
  queuedBytes: 0,
  loopDelayMs: 0,
}
const WORKS: readonly Work[] = ['ending', 'reading', 'writing', 'watching']

const cases: readonly { name: string; load: Partial<Load>; shed: readonly Work[] }[] = [
  { name: 'an idle server', load: {}, shed: [] },
  { name: 'one below each bound', load: { requests: 9, locks: 49 }, shed: [] },
  { name: 'requests', load: { requests: 10 }, shed: ['reading', 'writing'] },
  { name: 'twice as many requests', load: { requests: 20 }, shed: ['ending', 'reading', 'writing'] },
  { name: 'answers not taken', load: { answerBytes: 1000 }, shed: ['reading', 'writing'] },
  { name: 'batches in the queue', load: { queuedBatches: 100 }, shed: ['writing'] },
  { name: 'bytes in the queue', load: { queuedBytes: 1000 }, shed: ['writing'] },
  { name: 'a late event loop', load: { loopDelayMs: 201 }, shed: ['reading', 'writing'] },
  { name: 'locks', load: { locks: 50 }, shed: ['writing'] },
]
for (const { name, load: part, shed } of cases) {
  test(`${name}: sheds ${shed.join(', ') || 'nothing'}`, () => {
    const load = { ...IDLE, ...part }
    const pressure = pressureOf(load, limits, NO_PRESSURE)
    expect(WORKS.filter((work) => overloadOf(work, load, pressure, limits) !== undefined)).toEqual(shed)
  })
}

const bodies: readonly { name: string; bytes: number; others: number; shed: readonly Work[] }[] = [
  { name: 'as many as fit', bytes: 100, others: 900, shed: [] },
  { name: 'one byte more', bytes: 100, others: 901, shed: ['reading', 'writing'] },
  { name: 'twice as many', bytes: 100, others: 1901, shed: ['ending', 'reading', 'writing'] },
  { name: 'one over the bound alone', bytes: 5000, others: 0, shed: [] },
]
for (const { name, bytes, others, shed } of bodies) {
  test(`bodies, ${name}: sheds ${shed.join(', ') || 'nothing'}`, () => {
    const works: readonly Work[] = ['ending', 'reading', 'writing']
    expect(works.filter((work) => bodyOverloadOf(work, bytes, others, limits) !== undefined)).toEqual(shed)
  })
}

test('a bound of 0 on the delay of the event loop is none', () => {
  const pressure = pressureOf({ ...IDLE, loopDelayMs: 10_000 }, { ...limits, loopDelayMsMax: 0 }, NO_PRESSURE)
  expect(pressure).toEqual(NO_PRESSURE)
})

describe('pressure lasts until three quarters of its bound', () => {
  const sequences: readonly { of: Partial<Record<keyof Load, number[]>>; holds: keyof Pressure; want: boolean[] }[] = [
    {
      of: { queuedBatches: [99, 100, 76, 75, 74, 99] },
      holds: 'isQueueLong',
      want: [false, true, true, true, false, false],
    },
    { of: { queuedBytes: [1000, 750, 749] }, holds: 'isQueueLong', want: [true, true, false] },
    { of: { loopDelayMs: [200, 201, 151, 150] }, holds: 'isLoopLate', want: [false, true, true, false] },
  ]
  for (const { of, holds, want } of sequences) {
    test(JSON.stringify(of), () => {
      const [[counter, values]] = Object.entries(of) as [[string, number[]]]
      let pressure = NO_PRESSURE
      const seen = values.map((value) => {
        pressure = pressureOf({ ...IDLE, [counter]: value }, limits, pressure)
        return pressure[holds]
      })
      expect(seen).toEqual(want)
    })
  }
})
