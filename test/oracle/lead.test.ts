import { expect, test } from 'vitest'
import { isHeldBack, isLastResort, isProved, isUnreachable, patienceMs } from '../../src/oracle/lead.js'

const saying = (...epochs: number[]) =>
  epochs.map((unreachedEpoch) => ({ isAlive: true, knowsTime: true, unreachedEpoch }))

test.each([
  ['alone', [], false],
  ['the other one reaches it', [0], false],
  ['the other one does not', [7], true],
  ['the other one did not reach an earlier leader', [6], false],
  ['one of two', [7, 0], false],
  ['two of two', [7, 7], true],
  ['two of three', [7, 0, 7], true],
  ['two of four', [7, 0, 7, 0], false],
  ['three of four, one of an earlier leader', [7, 6, 7, 0], false],
  ['three of four', [7, 7, 7, 0], true],
] as const)('a leader of epoch 7 resigns: %s', (_, epochs, resigns) => {
  expect(isUnreachable(7, saying(...epochs))).toBe(resigns)
})

test.each([
  ['just now', 0, 0, [0, 0], true],
  ['a minute ago, nearly', 59_999, 9999, [0], true],
  ['a minute ago', 60_000, 0, [0], false],
  ['and nobody else takes over', 12_000, 10_000, [0], false],
  ['and is alone now', 1000, 1000, [], false],
  ['never', Number.POSITIVE_INFINITY, 0, [0], false],
] as const)('a server that has resigned holds back: %s', (_, agoMs, silentMs, epochs, isBack) => {
  expect(isHeldBack({ agoMs, silentMs, others: saying(...epochs) })).toBe(isBack)
})

const NONE = { isAlive: false, knowsTime: false, unreachedEpoch: 0 }
const ALIVE = { ...NONE, isAlive: true, knowsTime: true }
const STARTING = { ...NONE, isAlive: true }
const LEFT_BEHIND = { ...NONE, knowsTime: true }
const HOUR_MS = 3_600_000

test.each([
  ['right', 10_000, [ALIVE, ALIVE], 0],
  ['behind a little', -10_000, [ALIVE], 0],
  ['wrong, but alone', HOUR_MS, [], 0],
  ['behind, but alone', -HOUR_MS, [], 0],
  ['far, and all start together', 24 * HOUR_MS, [STARTING, STARTING], 0],
  ['far, and the others may be dead', HOUR_MS, [LEFT_BEHIND, STARTING], 5000],
  ['11 s ahead', 11_000, [ALIVE], 5055],
  ['11 s behind', -11_000, [ALIVE, STARTING], 5055],
  ['an hour ahead', HOUR_MS, [LEFT_BEHIND, ALIVE], 8397],
  ['years ahead', 1e12, [ALIVE], 9000],
] as const)('a clock that is %s waits', (_, clockOffMs, others, ms) => {
  expect(Math.round(patienceMs({ clockOffMs, others }))).toBe(ms)
})

test('the least wrong clock waits the shortest', () => {
  const waits = [12, 15, 60, 600, 3600].map((s) => patienceMs({ clockOffMs: -1000 * s, others: [ALIVE] }))
  expect(waits.toSorted((a, b) => a - b)).toEqual(waits)
  expect(new Set(waits).size).toBe(5)
})

test.each([
  ['another server reaches it', true, 0, true],
  ['nobody is there to tell', undefined, 0, true],
  ['none reaches it', false, 2000, false],
  ['none reaches it, and nobody else leads', false, 10_000, true],
] as const)('a candidate is proved: %s', (_, isReached, freeMs, is) => {
  expect(isProved({ isReached, freeMs })).toBe(is)
})

test.each([
  ['one that is reached', true, Number.POSITIVE_INFINITY, [0], false],
  ['nobody is there to tell', undefined, Number.POSITIVE_INFINITY, [0], false],
  ['none reaches it', false, Number.POSITIVE_INFINITY, [0], true],
  ['one that has just resigned', undefined, 10_000, [0], true],
  ['one that resigned a minute ago', undefined, 60_000, [0], false],
  ['one that has resigned and is alone now', undefined, 10_000, [], false],
] as const)('a candidate is a last resort: %s', (_, isReached, agoMs, epochs, is) => {
  expect(isLastResort(isReached, { agoMs, others: saying(...epochs) })).toBe(is)
})
