import { expect, test } from 'vitest'
import { ContendedKeys } from '../../../src/store/table/rows/contended-keys.js'
import { utf8 } from '../support.js'

test('the smallest contended key, for five seconds', () => {
  let nowMs = 1000
  const contended = new ContendedKeys(() => nowMs)
  const keys = ['d', 'c', 'b', 'a'].map(utf8)
  expect(contended.smallestOf(keys)).toBeUndefined()
  contended.add(utf8('b'))
  nowMs += 3000
  contended.add(utf8('c'))
  expect(contended.smallestOf(keys)).toBe(2)
  nowMs += 2001
  expect(contended.smallestOf(keys)).toBe(1)
  nowMs += 3000
  expect(contended.smallestOf(keys)).toBeUndefined()
})

test('the longest ago is forgotten of more keys than it remembers', () => {
  const contended = new ContendedKeys(() => 0)
  contended.add(utf8('a'))
  for (let i = 0; i < 10_000; i++) contended.add(utf8(`b${i}`))
  expect(contended.smallestOf([utf8('a'), utf8('b9')])).toBe(1)
})
