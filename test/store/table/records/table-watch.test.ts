import { expect, test } from 'vitest'
import { KvError } from '../../../../src/errors/kv-error.js'
import { encodeOracleRecord } from '../../../../src/oracle/oracle-row.js'
import { RECORD } from '../../../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../../../src/store/table/layout/row-keys.js'
import { TableWatch } from '../../../../src/store/table/records/table-watch.js'
import { MemoryTable } from '../memory-table.js'

const SECRET = Buffer.alloc(32, 7)

async function watched(): Promise<{ table: MemoryTable; watch: TableWatch; ends: string[] }> {
  const table = new MemoryTable()
  put(table, 'secret', SECRET)
  put(table, 'oracle', oracleAt(3))
  const ends: string[] = []
  const onEnd = (why: string): void => void ends.push(why)
  const watch = new TableWatch({ table, secret: SECRET, onAnother: onEnd, onSetBack: onEnd })
  await watch.look()
  return { table, watch, ends }
}

function oracleAt(epoch: number): Buffer {
  return Buffer.from(encodeOracleRecord({ epoch, url: 'http://one', id: 'one', mark: 1000, beat: 1 }))
}

function put(table: MemoryTable, name: 'secret' | 'oracle', value: Buffer): void {
  table.put(rowKeyOfSystem(name), [{ family: 'o', qualifier: RECORD, value }])
}

test('a table that stays is no fault, and one that is away is one until it is back', async () => {
  const { table, watch, ends } = await watched()
  expect(watch.fault).toBeUndefined()
  const { rows } = table
  table.rows = () => Promise.reject(new KvError('storage_unavailable', 'Bigtable: 5 NOT_FOUND: no such table', {}))
  await watch.look()
  expect(watch.fault).toBe('Bigtable: 5 NOT_FOUND: no such table')
  table.rows = rows
  await watch.look()
  expect([watch.fault, ends]).toEqual([undefined, []])
})

test('a row that is gone or damaged is a fault until it is back', async () => {
  const { table, watch, ends } = await watched()
  table.remove([rowKeyOfSystem('secret')])
  await watch.look()
  expect(watch.fault).toMatch(/secret/)
  put(table, 'secret', SECRET)
  put(table, 'oracle', Buffer.from('?'))
  await watch.look()
  expect(watch.fault).toMatch(/damaged/)
  put(table, 'oracle', oracleAt(4))
  await watch.look()
  expect([watch.fault, ends]).toEqual([undefined, []])
})

test('a table that was made anew, or set back, ends the server once', async () => {
  for (const change of [
    (table: MemoryTable) => table.remove([rowKeyOfSystem('secret'), rowKeyOfSystem('oracle')]),
    (table: MemoryTable) => put(table, 'secret', Buffer.alloc(32, 8)),
    (table: MemoryTable) => put(table, 'oracle', oracleAt(2)),
  ]) {
    const { table, watch, ends } = await watched()
    await change(table)
    await watch.look()
    await watch.look()
    expect(ends).toEqual([watch.fault])
  }
})

test('a server that stops is not ended', async () => {
  const { table, watch, ends } = await watched()
  watch.close()
  put(table, 'secret', Buffer.alloc(32, 8))
  await watch.look()
  expect(ends).toEqual([])
})
