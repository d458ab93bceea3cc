import { afterAll, expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import {
  type CallOptions,
  drain,
  openDataClient,
  type ReadRowsAnswer,
  streamOptions,
} from '../../src/store/table/bigtable/google-package.js'
import { filterOf } from '../../src/store/table/bigtable/row-filters.js'
import { rowSetMessage, rowSetOf } from '../../src/store/table/bigtable/row-set.js'
import { type TableAddress, tableName } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import type { ColumnWrite, Table } from '../../src/store/table/layout/table.js'
import { type EmulatorOptions, startEmulator } from './emulator/emulator.mjs'
import { ownAddress, withHost } from './own-table.js'
import { plant } from './plant.js'

/** What Bigtable does, according to its documents, and Google's server in memory does not: without it other tests show nothing. */

const ROWS = 50
const CALL_MS = 20_000
const ALL = { start: Buffer.from('k'), end: undefined }
const VALUE: ColumnWrite = { family: 'w', qualifier: Buffer.from('a'), value: Buffer.from('x') }
const V = [{ family: 'v' }] as const
const W = [{ family: 'w' }] as const
const INVALID_ARGUMENT = { code: 3 }
const UNIMPLEMENTED = { code: 12 }
const DEADLINE_EXCEEDED = { code: 4 }

const keyOf = (i: number): Buffer => Buffer.from(`k${i + 10}`)

const ends: (() => Promise<void>)[] = []
afterAll(async () => {
  for (const end of ends.reverse()) await end()
})

async function opened(options: EmulatorOptions, waitMs?: number): Promise<{ table: Table; read: Reader }> {
  const emulator = await startEmulator(options)
  ends.push(emulator.stop)
  const address = ownAddress()
  return withHost(emulator.host, async () => {
    await makeTable(address)
    const table = await openTable(address, waitMs === undefined ? {} : { waitMs })
    const client = await openDataClient()
    ends.push(() => table.close())
    ends.push(() => client.close())
    return { table, read: readerOf(client, address) }
  })
}

type Reader = (
  columns: Parameters<typeof filterOf>[0],
  reversed: boolean,
  options: CallOptions,
) => Promise<{ readonly keys: string[]; readonly scanned: string[] }>

/** Calls without the store's repeats. */
function readerOf(client: Awaited<ReturnType<typeof openDataClient>>, address: TableAddress): Reader {
  return async (columns, reversed, options) => {
    const keys: string[] = []
    const scanned: string[] = []
    const request = {
      ...{ tableName: tableName(address), appProfileId: '', rows: rowSetMessage(rowSetOf({ ranges: [ALL] })) },
      ...{ filter: filterOf(columns), rowsLimit: 0, reversed },
    }
    await drain(client.readRows(request, options), ({ chunks, lastScannedRowKey }: ReadRowsAnswer) => {
      for (const { rowKey } of chunks) keys.push(String(rowKey))
      if (lastScannedRowKey.length > 0) scanned.push(String(lastScannedRowKey))
    })
    return { keys, scanned }
  }
}

/** As a client that announces nothing. */
function silent(ms: number): CallOptions {
  return { ...streamOptions(ms), otherArgs: { headers: {} } }
}

test('it refuses descending reads of clients that do not announce them, large filters, and keys without or with many bytes', async () => {
  const { table, read } = await opened({})
  await plant(table, keyOf(0), [VALUE])
  await plant(table, keyOf(1), [VALUE])
  expect((await read(W, true, streamOptions(CALL_MS))).keys).toEqual([keyOf(1), keyOf(0)].map(String))
  await expect(read(W, true, silent(CALL_MS))).rejects.toMatchObject(UNIMPLEMENTED)
  const large = (bytes: number) => ({ family: 'w' as const, qualifier: Buffer.from('a'), value: Buffer.alloc(bytes) })
  expect(await table.change(keyOf(0), large(10_100), [VALUE])).toBe('refused')
  const refused = { code: 'storage_unavailable', cause: expect.objectContaining(INVALID_ARGUMENT) }
  await expect(table.change(keyOf(0), large(10_240), [VALUE])).rejects.toMatchObject(refused)
  const many = Array.from({ length: 200 }, (_, i) => ({ family: 'w' as const, from: Buffer.alloc(100, i) }))
  await expect(read(many, false, streamOptions(CALL_MS))).rejects.toMatchObject(INVALID_ARGUMENT)
  await plant(table, Buffer.alloc(4096), [VALUE])
  for (const key of [Buffer.alloc(0), Buffer.alloc(4097)]) {
    await expect(table.change(key, { ...VALUE, value: undefined }, [VALUE])).rejects.toMatchObject(refused)
  }
})

test('a read takes its time for each row that it passes, and says how far it has come to those who announce that', async () => {
  const { table, read } = await opened({ rowDelayMs: 4, progressMs: 20 })
  for (let i = 0; i < ROWS; i++) await plant(table, keyOf(i), [VALUE])
  const { keys, scanned } = await read(V, false, streamOptions(CALL_MS))
  expect(keys).toEqual([])
  expect(scanned.length).toBeGreaterThan(1)
  expect(scanned).toEqual(scanned.toSorted())
  const down = await read(V, true, streamOptions(CALL_MS))
  expect(down.scanned.length).toBeGreaterThan(1)
  expect(down.scanned).toEqual(down.scanned.toSorted().reverse())
  expect(await read(V, false, silent(CALL_MS))).toEqual({ keys: [], scanned: [] })
  expect((await read(W, false, silent(CALL_MS))).keys).toHaveLength(ROWS)
  await expect(read(V, false, silent(ROWS * 2))).rejects.toMatchObject(DEADLINE_EXCEEDED)
  const none = await opened({ rowDelayMs: 4, progressMs: 0 })
  for (let i = 0; i < ROWS; i++) await plant(none.table, keyOf(i), [VALUE])
  expect(await none.read(V, false, streamOptions(CALL_MS))).toEqual({ keys: [], scanned: [] })
})

test('a change is done late, the removal of a row too', async () => {
  const { table } = await opened({ late: 1 }, 300)
  const count = async (): Promise<number> => (await table.rows({ ranges: [ALL], columns: W })).length
  expect(await table.change(keyOf(0), { ...VALUE, value: undefined }, [VALUE])).toBe('unknown')
  await expect.poll(count).toBe(1)
  expect(await table.change(keyOf(0), VALUE, 'remove')).toBe('unknown')
  await expect.poll(count).toBe(0)
})
