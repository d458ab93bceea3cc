import { describe, expect, test } from 'vitest'
import { widthOf } from '../../../src/commands/client/shown.js'
import { type Cell, Table } from '../../../src/commands/client/table.js'
import { paintFor } from '../../../src/commands/paint.js'

function drawn(columns: number, header: readonly string[], ...rows: (readonly Cell[])[]): string[] {
  const table = new Table(header, columns)
  return (rows.map((row) => table.add(row)).join('') + table.end()).trimEnd().split('\n')
}

const TIME = '2026-11-23T03:59:48.718Z'
const LONG = 'k'.repeat(90)

describe('a table', () => {
  test('the widest columns are cut until a row fits, and times are not', () => {
    expect(drawn(80, ['key', 'began', 'primary'], [LONG, TIME, LONG])).toEqual([
      `key${' '.repeat(23)}  began${' '.repeat(19)}  primary`,
      `${'k'.repeat(25)}…  ${TIME}  ${'k'.repeat(25)}…`,
    ])
    for (const columns of [62, 80, 120, 200, 400])
      for (const line of drawn(columns, ['key', 'began', 'value'], ['short', TIME, 'x'], [LONG, TIME, LONG]))
        expect(widthOf(line)).toBeLessThanOrEqual(columns)
  })

  test('in a narrow terminal a row has a line per column', () => {
    expect(drawn(40, ['key', 'began', 'primary'], [LONG, TIME, 'a'], ['b', TIME, 'c'])).toEqual([
      `key      ${'k'.repeat(30)}…`,
      `began    ${TIME}`,
      'primary  a',
      '',
      'key      b',
      `began    ${TIME}`,
      'primary  c',
    ])
    expect(drawn(10, ['key', 'began', 'primary'])).toEqual(['key  began  primary'])
  })

  test('colours take no room', () => {
    const table = new Table(['a', 'b'], 80, {}, paintFor({ isTTY: true }, {}))
    table.add([{ text: 'x', colour: 'red' }, 'y'])
    expect(table.end()).toBe('\x1b[1ma\x1b[22m  \x1b[1mb\x1b[22m\n\x1b[31mx\x1b[39m  y\n')
  })
})

test.each([
  [true, {}, true],
  [false, {}, false],
  [true, { NO_COLOR: '1' }, false],
  [true, { NO_COLOR: '' }, true],
  [true, { TERM: 'dumb' }, false],
  [false, { FORCE_COLOR: '1' }, true],
  [true, { FORCE_COLOR: '0' }, false],
  [false, { FORCE_COLOR: '1', NO_COLOR: '1' }, true],
])('on a terminal: %s, with %j, colours: %s', (isTTY, env, isColoured) => {
  expect(paintFor({ isTTY }, env)('red', 'x')).toBe(isColoured ? '\x1b[31mx\x1b[39m' : 'x')
})
