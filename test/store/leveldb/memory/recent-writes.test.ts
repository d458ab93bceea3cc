import fc from 'fast-check'
import { expect, test } from 'vitest'
import { RecentWrites } from '../../../../src/store/leveldb/memory/recent-writes.js'
import { utf8 } from '../../support.js'

const FUTURE = 2 ** 53 - 2

test('a key that nobody wrote since the start has the bound', () => {
  expect(new RecentWrites(0).newest(utf8('k'))).toBe(0)
  expect(new RecentWrites(FUTURE).newest(utf8('k'))).toBe(FUTURE)
})

test('a key has its newest timestamp, in whatever order they came', () => {
  const recent = new RecentWrites(5)
  for (const [ts, newest] of [
    [10, 10],
    [8, 10],
    [10, 10],
    [FUTURE, FUTURE],
    [11, FUTURE],
  ] as const) {
    recent.note(utf8('k'), ts)
    expect(recent.newest(utf8('k'))).toBe(newest)
  }
})

test('a timestamp below the bound hides none of the records that the bound stands for', () => {
  const recent = new RecentWrites(30)
  recent.note(utf8('k'), 20)
  expect(recent.newest(utf8('k'))).toBe(30)
})

test('keys are told apart by their bytes, wherever they stand in memory', () => {
  const recent = new RecentWrites(0)
  recent.note(utf8('a key').subarray(2), 7)
  expect(recent.newest(new Uint8Array(utf8('key')))).toBe(7)
})

test('one timestamp of the future does not make every key look newer', () => {
  const recent = new RecentWrites(0)
  recent.note(utf8('future'), FUTURE)
  for (let i = 0; i < 50_000; i++) recent.note(utf8(`key${i}`), 10 + i)
  const newer = Array.from({ length: 1000 }, (_, i) => recent.newest(utf8(`other${i}`))).filter((ts) => ts === FUTURE)
  expect(newer.length).toBeLessThan(5)
  expect(recent.newest(utf8('future'))).toBe(FUTURE)
})

test('similar keys rarely share what is known of them', () => {
  for (const keyOf of [
    (n: number) => utf8(`key${n}`),
    (n: number) => utf8(`user/${String(n).padStart(12, '0')}/balance`),
    (n: number) => Buffer.from(n.toString(16).padStart(16, '0'), 'hex'),
  ]) {
    const recent = new RecentWrites(0)
    for (let n = 0; n < 10_000; n++) recent.note(keyOf(n), n + 1)
    let shared = 0
    for (let n = 0; n < 10_000; n++) if (recent.newest(keyOf(n)) !== n + 1) shared++
    expect(shared).toBeLessThan(500) // 10 000 keys thrown into half a million slots: about one in a hundred meets another.
  }
})

test('property: never below a record, of before the start or noted since; never above everything noted', () => {
  const key = fc.uint8Array({ maxLength: 3 })
  const ts = fc.oneof(fc.integer({ min: 1, max: 60 }), fc.integer({ min: FUTURE - 20, max: FUTURE }))
  fc.assert(
    fc.property(fc.nat(40), fc.array(fc.tuple(key, ts), { maxLength: 40 }), (bound, notes) => {
      const recent = new RecentWrites(bound)
      const model = new Map<string, number>()
      let highest = bound
      for (const [noted, at] of notes) {
        recent.note(noted, at)
        highest = Math.max(highest, at)
        const text = Buffer.from(noted).toString('hex')
        model.set(text, Math.max(bound, at, model.get(text) ?? 0))
        for (const [known, newest] of model) {
          const said = recent.newest(Buffer.from(known, 'hex'))
          expect(said).toBeGreaterThanOrEqual(newest)
          expect(said).toBeLessThanOrEqual(highest)
        }
      }
    }),
  )
})
