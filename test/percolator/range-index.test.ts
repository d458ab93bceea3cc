import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { afterKey, afterPrefix, type KeyRange } from '../../src/bytes/key-range.js'
import { contains, RangeIndex } from '../../src/percolator/range-index.js'
import { bytes } from './builders.js'

const prefix = (text: string): KeyRange => ({ start: bytes(text), end: afterPrefix(bytes(text)) })
const range = (start?: string, end?: string): KeyRange => ({
  start: start === undefined ? undefined : bytes(start),
  end: end === undefined ? undefined : bytes(end),
})

const cases: readonly {
  readonly name: string
  readonly range: KeyRange
  readonly in: string[]
  readonly out: string[]
}[] = [
  {
    name: 'a prefix',
    range: prefix('doc/'),
    in: ['doc/', 'doc/1', 'doc/\xff\xff'],
    out: ['', 'doc', 'doc.', 'doc0', 'e'],
  },
  { name: 'everything', range: {}, in: ['', '\x00', 'a', '\xff\xff'], out: [] },
  { name: 'the empty prefix', range: prefix(''), in: ['', 'a', '\xff'], out: [] },
  { name: 'the empty start', range: range(''), in: ['', 'a', '\xff'], out: [] },
  {
    name: 'a prefix that ends in 0xff',
    range: prefix('a\xff'),
    in: ['a\xff', 'a\xff\x00', 'a\xff\xff'],
    out: ['a', 'a\xfe\xff', 'b'],
  },
  {
    name: 'a prefix of 0xff alone',
    range: prefix('\xff'),
    in: ['\xff', '\xff\x00', '\xff\xff'],
    out: ['', '\xfe\xff'],
  },
  { name: 'a range without an end', range: range('b'), in: ['b', 'b\x00', '\xff'], out: ['', 'a\xff'] },
  { name: 'a range without a start', range: range(undefined, 'b'), in: ['', 'a\xff'], out: ['b', 'c'] },
  { name: 'a range', range: range('b', 'd'), in: ['b', 'c', 'c\xff'], out: ['', 'a', 'd'] },
  { name: 'the empty key alone', range: range('', '\x00'), in: [''], out: ['\x00', 'a'] },
  { name: 'one key', range: { start: bytes('k'), end: afterKey(bytes('k')) }, in: ['k'], out: ['j', 'k\x00'] },
  { name: 'a range that is empty', range: range('b', 'b'), in: [], out: ['', 'a', 'b'] },
  { name: 'a range whose ends are turned around', range: range('d', 'b'), in: [], out: ['a', 'b', 'c', 'd'] },
]
describe('a range of keys', () => {
  for (const { name, range, in: inside, out } of cases)
    test(name, () => {
      const index = new RangeIndex<string>()
      index.add(range, 'it')
      expect(inside.filter((key) => index.at(key).length !== 1)).toEqual([])
      expect(out.filter((key) => index.at(key).length !== 0)).toEqual([])
      expect(inside.filter((key) => !contains(range, bytes(key)))).toEqual([])
      expect(out.filter((key) => contains(range, bytes(key)))).toEqual([])
    })
})

test('what stands for a key is what was added and not removed, also twice under one prefix', { tags: ['long'] }, () => {
  const key = fc
    .uint8Array({ maxLength: 3 })
    .map((raw) => raw.map((byte) => [0, 1, 0x61, 0xfe, 0xff][byte % 5] as number))
  const bound = fc.option(key, { nil: undefined })
  const ranges: fc.Arbitrary<KeyRange> = fc.oneof(
    key.map((start) => ({ start, end: afterPrefix(start) })),
    fc.record({ start: bound, end: bound }),
  )
  const step = fc.record({ range: ranges, removes: fc.option(fc.nat(), { nil: undefined }) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), fc.array(key, { minLength: 1, maxLength: 20 }), (steps, keys) => {
      const index = new RangeIndex<number>()
      const model: { readonly range: KeyRange; readonly value: number }[] = []
      steps.forEach(({ range, removes }, value) => {
        index.add(range, value)
        model.push({ range, value })
        if (removes === undefined) return
        const [gone] = model.splice(removes % model.length, 1)
        if (gone === undefined) return
        index.remove(gone.range, -1) // Never added.
        index.remove(gone.range, gone.value)
        index.remove(gone.range, gone.value)
      })
      expect(index.size).toBe(model.length)
      for (const each of keys) {
        const expected = model.filter(({ range }) => contains(range, each)).map(({ value }) => value)
        expect([...index.at(Buffer.from(each).toString('latin1'))].sort((a, b) => a - b)).toEqual(expected)
      }
    }),
    { numRuns: 2000 },
  )
})
