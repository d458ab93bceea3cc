import { expect, test } from 'vitest'
import { KvError } from '../../src/errors/kv-error.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { encodeWrite } from '../../src/percolator/codec/write.js'
import { rollbackRecord } from '../../src/percolator/write.js'
import { descending, REVISION } from '../../src/store/table/layout/layout.js'
import { Revisions } from '../../src/store/table/layout/revisions.js'
import type { Table } from '../../src/store/table/layout/table.js'
import { TableScan } from '../../src/store/table/layout/table-scan.js'
import { openTableStore } from '../store/table/open-table-store.js'
import { type EmulatorOptions, startEmulator } from './emulator/emulator.mjs'
import { openOwnTable, withHost } from './own-table.js'
import { plant } from './plant.js'

const ROWS = 600
const revisions = new Revisions()

const keyOf = (i: number): Buffer => Buffer.from(`k${String(i).padStart(4, '0')}`)

/** Rows of one version, in which a collection finds nothing. */
async function putClean(table: Table): Promise<void> {
  const commitTs = 10
  const type = 'put'
  const record = { ...rollbackRecord(commitTs - 1, false), commitTs, type, shortValue: Buffer.of(1) } as const
  const writes = [
    { family: 'v', qualifier: REVISION, value: revisions.next() },
    { family: 'w', qualifier: descending(commitTs), value: encodeWrite(record) },
  ] as const
  for (let from = 0; from < ROWS; from += 100)
    await Promise.all(Array.from({ length: 100 }, (_, i) => plant(table, keyOf(from + i), writes)))
}

/**
 * Runs `body` on a table of clean rows. A call of it ends before it has passed all of them, and so does the time to wait for
 * progress. A machine that is too busy for short times gets longer ones.
 */
async function onSlowTable(options: EmulatorOptions, body: (table: Table) => Promise<void>): Promise<void> {
  for (let rowMs = 1; ; rowMs *= 2) {
    const emulator = await startEmulator({
      ...options,
      rowDelayMs: rowMs,
      progressMs: (options.progressMs ?? 20) * rowMs,
    })
    try {
      const table = await withHost(emulator.host, () => openOwnTable({ waitMs: (rowMs * ROWS * 2) / 3 }))
      await putClean(table)
      await body(table)
      await table.close()
      return
    } catch (error) {
      const isBusy = error instanceof KvError && error.code === 'storage_unavailable'
      if (!isBusy || rowMs > 30) throw error
    } finally {
      await emulator.stop()
    }
  }
}

test.each([
  ['says how far it has come', 20],
  ['says nothing', 0],
])('a walk that finds nothing for long goes on when Bigtable %s', async (_, progressMs) => {
  await onSlowTable({ progressMs }, async (table) => {
    await plant(table, keyOf(ROWS), [{ family: 'l', qualifier: Buffer.from('l'), value: Buffer.from('lock') }])
    for (const reverse of [false, true]) {
      const pages: string[][] = []
      const all = { start: keyOf(0), end: undefined }
      for await (const rows of new TableScan(table).rowPages(all, [{ family: 'l' }], { reverse }))
        pages.push(rows.map(({ key, cells }) => `${key} ${cells.map(({ value }) => value)}`))
      expect(pages.flat()).toEqual([`k0${ROWS} lock`])
      expect(pages.length).toBeGreaterThan(1)
    }
  })
})

test.each([
  ['says how far it has come', 20],
  ['says nothing', 0],
])('a collection over rows that are clean ends when Bigtable %s', { tags: ['long'] }, async (_, progressMs) => {
  await onSlowTable({ progressMs }, async (table) => {
    const store = await openTableStore(table)
    const { versionsRemoved } = await collectGarbage(store, await store.tso(1))
    expect(versionsRemoved).toBe(0)
    await store.close()
  })
})
