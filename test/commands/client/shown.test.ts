import { expect, test } from 'vitest'
import { cutTo, shown, widthOf } from '../../../src/commands/client/shown.js'
import { Table } from '../../../src/commands/client/table.js'

test.each([
  ['a b', 'a b'],
  ['a\tb\n', 'a\\tb\\n'],
  ['\u0000\u007f\u009b', '\\x00\\x7f\\x9b'],
  ['日本 🙂 é', '日本 🙂 é'],
  ['\u2028\u2066', '\\u{2028}\\u{2066}'],
])('%j is shown as %s', (text, want) => {
  expect(shown(Buffer.from(text))).toBe(want)
})

test('bytes that are not UTF-8 are shown as hex', () => {
  expect(shown(Buffer.from([0xff, 0x00]))).toBe('0xff00')
})

test.each([
  ['abc', 3, 'abc'],
  ['abcd', 3, 'ab…'],
  ['日本語', 6, '日本語'],
  ['日本語', 5, '日本…'],
  ['日本語', 4, '日…'],
  ['👨‍👩‍👧x', 3, '👨‍👩‍👧x'],
  ['e\u0301e\u0301', 2, 'e\u0301e\u0301'],
])('%s in %i columns is %s', (text, width, want) => {
  expect(cutTo(text, width)).toBe(want)
  expect(widthOf(want)).toBeLessThanOrEqual(width)
})

test('a table takes its widths from the first rows, and cuts what is longer', () => {
  const table = new Table(['a', 'b'], 30)
  const lines =
    Array.from({ length: 100 }, (_, i) => table.add([`k${i}`, 'v'])).join('') +
    table.add(['longer key', 'w']) +
    table.end()
  expect(lines.split('\n').slice(0, 2)).toEqual(['a    b', 'k0   v'])
  expect(lines.split('\n').at(-2)).toBe('lo…  w')
})

test('a live table shows each row at once, and grows', () => {
  const table = new Table(['a', 'b'], 30, { isLive: true })
  expect(table.add(['1', 'x'])).toBe('a  b\n1  x\n')
  expect(table.add(['123', 'y'])).toBe('123  y\n')
  expect(table.add(['4', 'z'])).toBe('4    z\n')
})
