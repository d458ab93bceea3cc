import fc from 'fast-check'
import { expect, test } from 'vitest'
import { beyond, keyBytes, type RowSet, requestsOf, rowSetOf } from '../../../../src/store/table/bigtable/row-set.js'

/** Short keys over few bytes, so that keys and bounds of ranges meet often. */
const key = fc.array(fc.constantFrom(0, 1, 255), { maxLength: 2 }).map((bytes) => Buffer.from(bytes))
const range = fc.record({ start: key, end: fc.option(key, { nil: undefined }) })
const UNIVERSE = [0, 1, 255].flatMap((a) => [[a], ...[0, 1, 255].map((b) => [a, b])]).map((bytes) => Buffer.from(bytes))

const isIn = (set: RowSet | readonly { start: Buffer; end: Buffer | undefined }[], row: Buffer): boolean =>
  set.some(({ start, end }) => Buffer.compare(start, row) <= 0 && (!end || Buffer.compare(row, end) < 0))
const rowsIn = (set: RowSet): string[] => UNIVERSE.filter((row) => isIn(set, row)).map((row) => row.toString('hex'))

test('a set has the rows of all keys and ranges, in order, none twice', () => {
  fc.assert(
    fc.property(fc.array(key), fc.array(range), (keys, ranges) => {
      const set = rowSetOf({ keys, ranges })
      const asked = UNIVERSE.filter((row) => isIn(ranges, row) || keys.some((each) => each.equals(row)))
      expect(rowsIn(set)).toEqual(asked.map((row) => row.toString('hex')))
      for (const [i, { start, end, isKey }] of set.entries()) {
        if (end) expect(Buffer.compare(start, end)).toBeLessThan(0)
        if (isKey) expect(end).toEqual(Buffer.concat([start, Buffer.of(0)]))
        const before = set[i - 1]
        if (before) expect(Buffer.compare(before.end ?? Buffer.of(255, 255, 255), start)).toBeLessThanOrEqual(0)
      }
    }),
  )
})

test('what is beyond a row are the rows after it, or before it', () => {
  fc.assert(
    fc.property(fc.array(key), fc.array(range), key, (keys, ranges, row) => {
      const set = rowSetOf({ keys, ranges })
      const rows = rowsIn(set)
      const hex = row.toString('hex')
      expect(rowsIn(beyond(set, row, false))).toEqual(rows.filter((each) => each > hex))
      expect(rowsIn(beyond(set, row, true))).toEqual(rows.filter((each) => each < hex))
    }),
  )
})

test('requests have a bound for parts and for bytes', () => {
  expect(requestsOf(rowSetOf({}))).toEqual([])
  const keys = Array.from({ length: 2500 }, (_, i) => Buffer.from(`key ${String(i).padStart(4, '0')}`))
  const requests = requestsOf(rowSetOf({ keys }))
  expect(requests.map(({ length }) => length)).toEqual([1000, 1000, 500])
  expect(requests.flat().map(({ start }) => String(start))).toEqual(keys.map(String))
  const long = keys.slice(0, 200).map((each) => Buffer.concat([each, Buffer.alloc(4000)]))
  const some = requestsOf(rowSetOf({ keys: long }))
  expect(some.flat()).toHaveLength(200)
  for (const each of some) expect(keyBytes(each)).toBeLessThanOrEqual(256 << 10)
  expect(some.length).toBe(4)
})
