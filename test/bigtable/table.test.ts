import { afterAll, beforeEach, expect, test } from 'vitest'
import type { ColumnRange, ColumnWrite, Table } from '../../src/store/table/layout/table.js'
import { tableSuite } from '../store/table/table-suite.js'
import { openOwnTable } from './own-table.js'
import { plant } from './plant.js'

tableSuite(() => openOwnTable())

const W: readonly ColumnRange[] = [{ family: 'w' }]
const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')
const write = (family: 'w', qualifier: string, value: string | Buffer): ColumnWrite => ({
  family,
  qualifier: bytes(qualifier),
  value: typeof value === 'string' ? bytes(value) : value,
})

const opened: Table[] = []
let table: Table

beforeEach(async () => {
  table = await openOwnTable()
  opened.push(table)
})

afterAll(() => Promise.all(opened.map((each) => each.close())))

test('many calls at once share several connections', async () => {
  const sockets = (): number => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length
  let most = 0
  const before = sockets()
  // Connections without calls do not count as active.
  const looks = setInterval(() => {
    most = Math.max(most, sockets() - before)
  }, 1)
  await Promise.all(Array.from({ length: 300 }, (_, i) => plant(table, bytes(`k${i}`), [write('w', 'a', 'x')])))
  clearInterval(looks)
  expect(most).toBeGreaterThan(2)
  expect(most).toBeLessThanOrEqual(16)
})

test('rows of thousands of keys are asked for in several requests', async () => {
  const keys = Array.from({ length: 5500 }, (_, i) => bytes(`key ${String(i).padStart(5, '0')}`))
  for (let i = 0; i < keys.length; i += 100)
    await Promise.all(keys.slice(i, i + 100).map((key) => plant(table, key, [write('w', 'a', key)])))
  const before = table.calls.read
  const shuffled = keys.toSorted(() => Math.random() - 0.5)
  const rows = await table.rows({ keys: shuffled, columns: W })
  expect(rows.map(({ key }) => key.toString())).toEqual(keys.map(String))
  expect(table.calls.read - before).toBe(6)
  expect(await table.rows({ keys: shuffled, columns: W, limit: 1500 })).toEqual(rows.slice(0, 1500))
  expect(table.inFlight).toEqual({ calls: 0, bytes: 0 })
})
