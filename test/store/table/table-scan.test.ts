import { expect, test } from 'vitest'
import type { ColumnRange, RowRange, WalkRequest } from '../../../src/store/table/layout/table.js'
import { type ScanOptions, TableScan } from '../../../src/store/table/layout/table-scan.js'
import { MemoryTable } from './memory-table.js'

const ROWS = 1000
const LOCKS: readonly ColumnRange[] = [{ family: 'l' }]
const ALL: RowRange = { start: Buffer.from('k'), end: Buffer.from('l') }

const keyOf = (i: number): Buffer => Buffer.from(`k${String(i).padStart(4, '0')}`)

/** A table of rows of which few have a lock. A walk over it looks at a part of them only. */
async function tableWithLocks(locked: readonly number[]): Promise<MemoryTable> {
  const table = new MemoryTable()
  for (let i = 0; i < ROWS; i++) {
    const family = locked.includes(i) ? 'l' : 'v'
    table.put(keyOf(i), [{ family, qualifier: Buffer.from('x'), value: Buffer.from('x') }])
  }
  return table
}

async function pagesOf(table: MemoryTable, range = ALL, options: ScanOptions = {}): Promise<string[][]> {
  const pages: string[][] = []
  for await (const rows of new TableScan(table).rowPages(range, LOCKS, options))
    pages.push(rows.map(({ key }) => String(key)))
  return pages
}

test('a scan passes rows that match nothing, up and down, and tells its caller of each step', async () => {
  const locked = [0, 7, 63, 64, 500, 999]
  const table = await tableWithLocks(locked)
  const keys = locked.map((i) => String(keyOf(i)))
  const up = await pagesOf(table)
  expect(up.flat()).toEqual(keys)
  expect(up.filter((page) => page.length === 0).length).toBeGreaterThan(10)
  expect((await pagesOf(table, ALL, { reverse: true })).flat()).toEqual(keys.toReversed())
  const part = { start: keyOf(7), end: keyOf(999) }
  expect((await pagesOf(table, part)).flat()).toEqual(keys.slice(1, 5))
  expect((await pagesOf(table, part, { reverse: true })).flat()).toEqual(keys.slice(1, 5).toReversed())
  expect(await pagesOf(table, { start: keyOf(7), end: keyOf(7) })).toEqual([])
})

test('a scan that wants few rows asks for few, and for more where it finds none', async () => {
  const table = await tableWithLocks([0, 1, 500, 900])
  const limits: number[] = []
  const walk = table.walk.bind(table)
  table.walk = (request: WalkRequest) => {
    limits.push(request.limit)
    return walk(request)
  }
  const pages = await pagesOf(table, ALL, { firstRows: 2 })
  expect(pages[0]).toEqual(['k0000', 'k0001'])
  expect(limits.slice(0, 2)).toEqual([2, 256])
  expect(pages.flat()).toHaveLength(4)

  limits.length = 0
  const later = await pagesOf(table, { start: keyOf(2), end: keyOf(499) }, { firstRows: 2 })
  expect(later.flat()).toEqual([])
  expect(limits.length).toBeGreaterThan(7)
  expect(limits.slice(0, 8)).toEqual([2, 4, 8, 16, 32, 64, 128, 256])
})
