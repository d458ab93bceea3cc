import { createHash } from 'node:crypto'
import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import type { ColumnRange, RowRange, RowsRequest, Table, TableRow } from '../../src/store/table/layout/table.js'
import { type ScanOptions, TableScan } from '../../src/store/table/layout/table-scan.js'
import { type EmulatorOptions, startEmulator } from './emulator/emulator.mjs'
import { openOwnTable, withHost } from './own-table.js'
import { plant } from './plant.js'

const D: readonly ColumnRange[] = [{ family: 'd' }]
const V: readonly ColumnRange[] = [{ family: 'v' }]
const ROWS = 60
const ROUNDS = process.env['PERKV_TEST_LONG'] ? 20 : 4
const UNAVAILABLE = { code: 'storage_unavailable' }

const key = (i: number): Buffer => Buffer.from(`key ${String(i).padStart(3, '0')}`)

/** Comparing long buffers byte by byte takes longer than reading them. */
const digest = (bytes: Buffer): string => createHash('sha1').update(bytes).digest('hex')
const printRow = ({ key, cells }: TableRow): string =>
  [key, ...cells.map(({ family, qualifier, value }) => `${family}:${qualifier}=${digest(value)}`)].join(' ')

async function withFaults(faults: EmulatorOptions, body: (table: Table) => Promise<void>): Promise<void> {
  const emulator = await startEmulator(faults)
  try {
    const table = await withHost(emulator.host, () => openOwnTable())
    try {
      await body(table)
    } finally {
      await table.close()
    }
  } finally {
    await emulator.stop()
  }
}

test('reads go on after the last whole row, up and down, when streams break off', async () => {
  await withFaults({ failBefore: 0.1, failAfter: 0.5 }, async (table) => {
    const values = Array.from({ length: ROWS }, (_, i) => Buffer.alloc(i % 7 === 0 ? 300_000 : 100, `value ${i} `))
    for (const [i, value] of values.entries()) {
      await plant(table, key(i), [{ family: 'd', qualifier: Buffer.from('a'), value }])
      await plant(table, key(i), [{ family: 'd', qualifier: Buffer.from('b'), value: Buffer.from([i]) }])
    }
    const all = { start: key(0), end: undefined }
    const keys = values.map((_, i) => key(i))
    const rows = values.map((value, i) => `${key(i)} d:a=${digest(value)} d:b=${digest(Buffer.from([i]))}`)
    const read = async (request: Omit<RowsRequest, 'columns'>): Promise<string[]> =>
      (await table.rows({ ...request, columns: D })).map(printRow)
    const walk = async (range: RowRange, options?: ScanOptions): Promise<string[]> => {
      const found: string[] = []
      for await (const page of new TableScan(table).rowPages(range, D, options)) found.push(...page.map(printRow))
      return found
    }
    for (let n = 0; n < ROUNDS; n++) {
      expect(await read({ ranges: [all] })).toEqual(rows)
      expect(await read({ ranges: [all], limit: 30 })).toEqual(rows.slice(0, 30))
      expect(await read({ keys })).toEqual(rows)
      expect(await walk(all)).toEqual(rows)
      expect(await walk(all, { reverse: true })).toEqual(rows.toReversed())
      const some = { start: key(5), end: key(50) }
      expect(await walk(some, { reverse: true, firstRows: 7 })).toEqual(rows.slice(5, 50).toReversed())
    }
    expect(table.calls.read).toBeGreaterThan(6.5 * ROUNDS)
    await Promise.all(keys.map((each) => plant(table, each, 'remove')))
    expect(await read({ ranges: [all] })).toEqual([])
    expect(table.inFlight).toEqual({ calls: 0, bytes: 0 })
  })
})

test('a change with no answer is unknown, and a guard by revisions counts each exactly once', async () => {
  await withFaults({ failBefore: 0.1, failAfter: 0.1, late: 0.05 }, async (table) => {
    const row = Buffer.from('counter')
    const seen = { done: 0, refused: 0, unknown: 0 }
    const read = async (): Promise<{ value: Buffer | undefined; count: number }> => {
      const [found] = await table.rows({ keys: [row], columns: V })
      const value = found?.cells[0]?.value
      return { value, count: value === undefined ? 0 : value.readUInt32BE() }
    }
    /** A value that nobody else writes: whoever finds it there later knows that its change was done, or what came after it. */
    const increment = async (worker: number, n: number): Promise<void> => {
      for (;;) {
        const { value: was, count } = await read()
        const value = Buffer.alloc(12)
        value.writeUInt32BE(count + 1)
        value.writeUInt32BE(worker, 4)
        value.writeUInt32BE(n, 8)
        const history = { family: 'o' as const, qualifier: value.subarray(4), value: Buffer.alloc(0) }
        const guard = { family: 'v' as const, qualifier: Buffer.from('r'), value: was }
        const changed = await table.change(row, guard, [{ ...guard, value }, history])
        seen[changed]++
        if (changed === 'done') return
        if (changed === 'refused') continue
        // The row remembers each change, so the caller need not guess. A late one is refused, because somebody goes on.
        if (await isSettled(history.qualifier, was)) return
      }
    }
    const isSettled = async (qualifier: Buffer, was: Buffer | undefined): Promise<boolean> => {
      for (;;) {
        const columns = [...V, { family: 'o' as const, from: qualifier, to: qualifier }]
        const [found] = await table.rows({ keys: [row], columns })
        if (found?.cells.some(({ family }) => family === 'o')) return true
        const now = found?.cells.find(({ family }) => family === 'v')?.value
        if (now !== undefined && (was === undefined || !now.equals(was))) return false
        // Nobody has gone on: the change may still come, unless another one takes its place.
        const guard = { family: 'v' as const, qualifier: Buffer.from('r'), value: was }
        const same = Buffer.concat([was?.subarray(0, 4) ?? Buffer.alloc(4), qualifier, Buffer.of(1)])
        await table.change(row, guard, [{ ...guard, value: same }])
      }
    }
    const worker = async (_: unknown, id: number): Promise<void> => {
      for (let n = 0; n < 15; n++) await increment(id, n)
    }
    await Promise.all(Array.from({ length: 8 }, worker))
    expect((await read()).count).toBe(8 * 15)
    expect(seen.unknown).toBeGreaterThan(0)
    expect(seen.refused).toBeGreaterThan(0)
  })
})

test('what fails for ever is unavailable after the time to wait, and a change is unknown', async () => {
  const emulator = await startEmulator({ failBefore: 1 })
  const table = await withHost(emulator.host, () => openOwnTable({ waitMs: 300 }))
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined } as const
  await expect(table.rows({ keys: [key(1)], columns: V })).rejects.toMatchObject(UNAVAILABLE)
  expect(await table.change(key(1), guard, [{ ...guard, value: key(1) }])).toBe('unknown')
  // A call is tried again within its time. How much time that takes depends on the machine.
  for (let waitMs = 300; ; waitMs *= 2) {
    const patient = await withHost(emulator.host, () => openOwnTable({ waitMs }))
    await expect(patient.rows({ keys: [key(1)], columns: V })).rejects.toMatchObject(UNAVAILABLE)
    await patient.close()
    if (patient.calls.read > 2) break
    expect(waitMs).toBeLessThan(30_000)
  }
  await emulator.stop()
  await expect(table.rows({ keys: [key(1)], columns: V })).rejects.toMatchObject(UNAVAILABLE)
  expect(await table.change(key(1), guard, [{ ...guard, value: key(1) }])).toBe('unknown')
  expect(table.inFlight).toEqual({ calls: 0, bytes: 0 })
  await table.close()
})

test('a server that takes connections and never answers holds up no call for ever', async () => {
  const silent = createServer(() => {})
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
  const { port } = silent.address() as { port: number }
  const address = { project: 'tests', instance: 'emulator', table: 'none' }
  const table = await withHost(`127.0.0.1:${port}`, () => openTable(address, { waitMs: 300 }))
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined } as const
  await expect(table.rows({ keys: [key(1)], columns: V })).rejects.toMatchObject(UNAVAILABLE)
  expect(await table.change(key(1), guard, [{ ...guard, value: key(1) }])).toBe('unknown')
  await table.close()
  silent.close()
})

test('a change of a table that is not there is not done', async () => {
  const table = await openTable({ project: 'tests', instance: 'emulator', table: 'none' })
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined } as const
  await expect(table.change(key(1), guard, [{ ...guard, value: key(1) }])).rejects.toMatchObject(UNAVAILABLE)
  await expect(table.rows({ keys: [key(1)], columns: V })).rejects.toMatchObject({
    ...UNAVAILABLE,
    message: expect.stringContaining('not found'),
  })
  expect(table.calls).toEqual({ read: 1, change: 1 })
  await table.close()
})
