import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { KeyRange } from '../../src/bytes/key-range.js'
import { mergedRanges } from '../../src/bytes/key-range.js'

const KEYS = Array.from({ length: 9 }, (_, i) => Buffer.of(97 + i))
const bound = fc.option(fc.constantFrom(...KEYS), { nil: undefined })
const ranges = fc.array(fc.record({ start: bound, end: bound }), { maxLength: 8 })

const holds = ({ start, end }: KeyRange, key: Buffer): boolean =>
  (start === undefined || Buffer.compare(start, key) <= 0) && (end === undefined || Buffer.compare(key, end) < 0)
const has = (all: readonly KeyRange[], key: Buffer): number => all.filter((range) => holds(range, key)).length

test('the same keys, each in one range', () => {
  const probes = KEYS.flatMap((key) => [key, Buffer.concat([key, Buffer.of(0)])])
  fc.assert(
    fc.property(ranges, (given) => {
      const merged = mergedRanges(given)
      for (const key of probes) expect(has(merged, key)).toBe(has(given, key) > 0 ? 1 : 0)
    }),
  )
})

test('a hundred thousand copies are one', () => {
  const range = { start: KEYS[1], end: KEYS[5] }
  expect(mergedRanges(Array.from({ length: 100_000 }, () => range))).toEqual([range])
})
