import { afterAll, expect, test } from 'vitest'
import { requireFree } from '../../src/server/listen-address.js'
import {
  callOptions,
  openTableAdminClient,
  type TableAdminClient,
} from '../../src/store/table/bigtable/google-package.js'
import { printTableAddress, type TableAddress, tableName } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import { killAll, runCli } from '../process/server-process.js'
import { ownAddress } from './own-table.js'

afterAll(killAll)

interface Deleting extends TableAdminClient {
  deleteTable(request: { readonly name: string }, options: object): Promise<unknown>
}

async function deleteTable(address: TableAddress): Promise<void> {
  const admin = (await openTableAdminClient()) as Deleting
  try {
    await admin.deleteTable({ name: tableName(address) }, callOptions(5000))
  } finally {
    await admin.close()
  }
}

test('a server whose table is deleted is not ready, and ends with one line once the table was made anew', async () => {
  const address = ownAddress()
  await makeTable(address)
  const store = printTableAddress(address)
  const port = await requireFree('127.0.0.1', 0)
  const env = { BIGTABLE_EMULATOR_HOST: process.env['BIGTABLE_EMULATOR_HOST'] as string }
  const ended = runCli(['serve', '--port', String(port), '--store', store, '--log-level', 'error'], env)
  const ready = async (): Promise<{ status: number; code?: string; detail?: string }> => {
    try {
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`)
      return { ...((await answer.json()) as object), status: answer.status }
    } catch {
      return { status: 0 }
    }
  }
  await expect.poll(async () => (await ready()).status).toBe(200)
  await deleteTable(address)
  const gone = { status: 503, code: 'storage_unavailable', detail: expect.stringContaining('not found') }
  await expect.poll(ready).toMatchObject(gone)
  await makeTable(address)
  const { code, stderr } = await ended
  expect(code).toBe(1)
  expect(stderr.trimEnd().split('\n')).toEqual([
    `perkv: ${store}: the table was made anew, or emptied: the rows of its servers are gone; this server ends`,
  ])
})
