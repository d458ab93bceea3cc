import { expect, test } from 'vitest'
import { descending, REVISION } from '../../../src/store/table/layout/layout.js'
import type { Cell } from '../../../src/store/table/layout/table.js'
import { wholeRow } from '../../../src/store/table/rows/whole-row.js'
import { MemoryTable } from './memory-table.js'
import { WatchedTable } from './watched-table.js'

const KEY = Buffer.from('k')
const revised = (revision: string): Cell => ({ family: 'v', qualifier: REVISION, value: Buffer.from(revision) })
const cells = (family: 'd' | 'r' | 'w', count: number): readonly Cell[] =>
  Array.from({ length: count }, (_, i) => ({ family, qualifier: descending(count - i), value: Buffer.from(`${i}`) }))
const CELLS = [...cells('d', 9), ...cells('r', 1000), ...cells('w', 2500)]

function watched(): { table: MemoryTable; watch: WatchedTable } {
  const table = new MemoryTable()
  table.put(KEY, [...CELLS, revised('1')])
  return { table, watch: new WatchedTable(table) }
}

test('a long history is read in parts, and whole', async () => {
  const { watch } = watched()
  const parts: number[] = []
  expect(await wholeRow(watch, KEY, (part) => parts.push(part?.length ?? -1))).toEqual(CELLS)
  expect(parts).toEqual([2004, 1004, 501])
  expect(await wholeRow(watch, Buffer.from('none'), () => {})).toEqual([])
})

test('parts of two moments are read again, and what was read before does not count', async () => {
  const { table, watch } = watched()
  const parts: number[] = []
  watch.onRows = async () => {
    if (watch.reads === 2) table.put(KEY, [revised('2')])
  }
  expect(await wholeRow(watch, KEY, (part) => parts.push(part?.length ?? -1))).toEqual(CELLS)
  expect(parts).toEqual([2004, -1, 2004, 1004, 501])
  watch.onRows = async () => table.put(KEY, [revised(`${watch.reads}`)])
  await expect(wholeRow(watch, KEY, () => {})).rejects.toMatchObject({ code: 'overloaded' })
})

test('no more is read than there is room for', async () => {
  const { watch } = watched()
  const full = new Error('full')
  const read = wholeRow(watch, KEY, () => {
    throw full
  })
  await expect(read).rejects.toBe(full)
  expect(watch.reads).toBe(1)
})
