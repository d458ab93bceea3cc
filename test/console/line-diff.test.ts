import { expect, test } from 'vitest'
import { lineDiff, linesOf } from '../../src/console/line-diff.js'

const SIGNS = { same: ' ', removed: '-', added: '+' }
const diff = (before: readonly string[], after: readonly string[]): string[] =>
  lineDiff(before, after).map(({ kind, text }) => SIGNS[kind] + text)
const chars = (before: string, after: string): string => diff([...before], [...after]).join('')

test.each([
  ['', '', ''],
  ['', 'ab', '+a+b'],
  ['ab', '', '-a-b'],
  ['abc', 'abc', ' a b c'],
  ['abc', 'axc', ' a-b+x c'],
  ['ac', 'abc', ' a+b c'],
  ['abcabba', 'cbabac', '-a-b c+b a b-b a+c'],
])('%s to %s', (before, after, expected) => expect(chars(before, after)).toBe(expected))

test('random texts: the edit makes one of the other, and is the shortest', () => {
  let seed = 7
  const random = (below: number): number => {
    seed = (seed * 48_271) % 2_147_483_647
    return seed % below
  }
  const text = () => Array.from({ length: random(12) }, () => 'abc'[random(3)] ?? '')
  for (let run = 0; run < 2000; run++) {
    const [before, after] = [text(), text()]
    const lines = lineDiff(before, after)
    expect(lines.filter(({ kind }) => kind !== 'added').map((line) => line.text)).toEqual(before)
    expect(lines.filter(({ kind }) => kind !== 'removed').map((line) => line.text)).toEqual(after)
    const edits = lines.filter(({ kind }) => kind !== 'same').length
    expect(edits).toBe(before.length + after.length - 2 * commonOf(before, after))
  }
})

function commonOf(before: readonly string[], after: readonly string[]): number {
  const row = new Array<number>(after.length + 1).fill(0)
  for (const line of before) {
    let diagonal = 0
    for (const [i, other] of after.entries()) {
      const above = row[i + 1] ?? 0
      row[i + 1] = line === other ? diagonal + 1 : Math.max(above, row[i] ?? 0)
      diagonal = above
    }
  }
  return row.at(-1) ?? 0
}

test('texts without a line in common, too long for the shortest edit, are told as changed', () => {
  const lines = (name: string) => Array.from({ length: 2000 }, (_, i) => `${name}${i}`)
  const told = diff(['same', ...lines('a'), 'end'], ['same', ...lines('b'), 'end'])
  expect(told).toHaveLength(4002)
  expect([told[0], told[1], told[2001], told.at(-1)]).toEqual([' same', '-a0', '+b0', ' end'])
})

test('JSON is compared as indented, bytes as hex, and long lines are broken', () => {
  const json = linesOf('{"a":1,"b":2}', '{"a":1,\n"b":3}').lines
  expect(diff(...json)).toEqual([' {', '   "a": 1,', '-  "b": 2', '+  "b": 3', ' }'])
  const large = linesOf('[12345678901234567890]', '[12345678901234567891]').lines
  expect(diff(...large)).toEqual([' [', '-  12345678901234567890', '+  12345678901234567891', ' ]'])
  const hex = linesOf({ base64: '/wA=' }, 'A').lines
  expect(diff(...hex).map((line) => line.slice(0, 15))).toEqual(['-000000  ff 00 ', '+000000  41    '])
  expect(linesOf('x'.repeat(2500), '').lines[0].map((line) => line.length)).toEqual([1000, 1000, 500])
  expect(linesOf('x'.repeat(600_000), '')).toMatchObject({ isCut: true })
})
