import fc from 'fast-check'
import { expect, test } from 'vitest'
import { afterKey, afterPrefix, type KeyRange } from '../../../src/bytes/key-range.js'
import { ChangeFilter } from '../../../src/changes/rules/change-filter.js'
import type { RangeChange } from '../../../src/percolator/change.js'
import { contains } from '../../../src/percolator/range-index.js'
import { bytes } from '../../percolator/builders.js'

const putAt = (key: Uint8Array) => ({ type: 'put', key, commitTs: 2, startTs: 1 }) as const
const removal = (key: Uint8Array, end: Uint8Array): RangeChange => ({
  type: 'delete_range',
  key,
  end,
  commitTs: 2,
  startTs: 2,
})
const textOf = (change: RangeChange): string =>
  [change.key, change.end].map((each) => Buffer.from(each).toString('latin1')).join('..')

const prefix = (text: string): KeyRange => ({ start: bytes(text), end: afterPrefix(bytes(text)) })
const oneKey = (text: string): KeyRange => ({ start: bytes(text), end: afterKey(bytes(text)) })

const cases: readonly { readonly name: string; readonly ranges?: KeyRange[]; readonly clipped: string[] }[] = [
  { name: 'no ranges are every key', clipped: ['b..d'] },
  { name: 'an open range', ranges: [{}], clipped: ['b..d'] },
  { name: 'none at all', ranges: [], clipped: [] },
  { name: 'one that covers it', ranges: [{ start: bytes('a'), end: bytes('e') }], clipped: ['b..d'] },
  { name: 'one inside', ranges: [prefix('c')], clipped: ['c..d'] },
  { name: 'one over its start', ranges: [{ end: bytes('c') }], clipped: ['b..c'] },
  { name: 'one over its end', ranges: [{ start: bytes('cc') }], clipped: ['cc..d'] },
  { name: 'one up to its start', ranges: [{ end: bytes('b') }], clipped: [] },
  { name: 'one from its end on', ranges: [{ start: bytes('d') }], clipped: [] },
  { name: 'two, in any order', ranges: [oneKey('cx'), prefix('ba')], clipped: ['ba..bb', 'cx..cx\x00'] },
  { name: 'two that touch are one', ranges: [prefix('bb'), prefix('ba')], clipped: ['ba..bc'] },
]
for (const { name, ranges, clipped } of cases)
  test(`the removal of [b, d): ${name}`, () => {
    const filter = new ChangeFilter(ranges)
    const change = removal(bytes('b'), bytes('d'))
    expect(filter.clip(change).map(textOf)).toEqual(clipped)
    expect(filter.has(change)).toBe(clipped.length > 0)
  })

test('a change is in the union of any ranges, and a removal is clipped to exactly the keys in both', {
  tags: ['long'],
}, () => {
  const key = fc
    .uint8Array({ maxLength: 3 })
    .map((raw) => Buffer.from(raw.map((byte) => [0, 0x61, 0x62, 0xff][byte % 4] ?? 0)))
  const bound = fc.option(key, { nil: undefined })
  const range: fc.Arbitrary<KeyRange> = fc.oneof(
    key.map((start) => ({ start, end: afterPrefix(start) })),
    key.map((start) => ({ start, end: afterKey(start) })),
    fc.record({ start: bound, end: bound }), // Some are empty, or turned around.
  )
  const isIn = (ranges: readonly KeyRange[] | undefined, each: Uint8Array): boolean =>
    ranges === undefined || ranges.some((one) => contains(one, each))
  fc.assert(
    fc.property(
      fc.option(fc.array(range, { maxLength: 6 }), { nil: undefined }),
      fc.array(key, { maxLength: 20 }),
      fc.array(fc.tuple(key, key), { maxLength: 6 }),
      (ranges, keys, ends) => {
        const filter = new ChangeFilter(ranges)
        for (const each of keys) expect(filter.has(putAt(each))).toBe(isIn(ranges, each))
        for (const [a, b] of ends) {
          const [start, end] = Buffer.compare(a, b) < 0 ? [a, b] : [b, a]
          if (start.equals(end)) continue
          const change = removal(start, end)
          const parts = filter.clip(change)
          expect(filter.has(change)).toBe(parts.length > 0)
          for (const part of parts) {
            expect(Buffer.compare(part.key, part.end)).toBeLessThan(0)
            expect([part.commitTs, part.startTs, part.type]).toEqual([2, 2, 'delete_range'])
          }
          for (let i = 1; i < parts.length; i++)
            expect(Buffer.compare(parts[i - 1]?.end ?? a, parts[i]?.key ?? a)).toBeLessThan(0)
          for (const each of [...keys, start]) {
            const inBoth = contains({ start, end }, each) && isIn(ranges, each)
            expect(parts.some((part) => contains({ start: part.key, end: part.end }, each))).toBe(inBoth)
          }
        }
      },
    ),
    { numRuns: 2000 },
  )
})
