import { afterAll, expect, test } from 'vitest'
import { openTable } from '../../src/store/table/bigtable/google-client.js'
import { printTableAddress, type TableAddress } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import { changeFormat, FIRST_FORMAT, NEWEST_FORMAT, readFormat } from '../../src/store/table/format/format-row.js'
import type { Table } from '../../src/store/table/layout/table.js'
import { registryRowsOf } from '../../src/store/table/records/registry-table.js'
import { type Finished, killAll, runCli } from '../process/server-process.js'
import { ownAddress } from './own-table.js'

afterAll(killAll)

function run(...args: string[]): Promise<Finished> {
  return runCli(args, { BIGTABLE_EMULATOR_HOST: process.env['BIGTABLE_EMULATOR_HOST'] as string })
}

const serve = (address: TableAddress): Promise<Finished> =>
  run('serve', '--port', '0', '--log-level', 'error', '--store', printTableAddress(address))

async function raise(table: Table): Promise<void> {
  const found = await readFormat(table)
  expect(await changeFormat(table, found, { format: NEWEST_FORMAT.format + 1, program: '99.0.0' })).toBeDefined()
}

test('servers end in one line when the format is raised, and refuse to start afterwards', async () => {
  const address = ownAddress()
  const text = printTableAddress(address)
  await makeTable(address) // As before there was the row.
  const table = await openTable(address)
  const running = serve(address)
  await expect.poll(async () => (await registryRowsOf(table).list()).size).toBe(1)
  expect(await readFormat(table)).toMatchObject(FIRST_FORMAT)
  await raise(table)
  const line = `perkv: ${text}: the table has format 3, written by a newer PerKV (99.0.0 or later); this one reads up to 2\n`
  expect(await running).toMatchObject({ code: 1, stdout: expect.stringContaining('is ready on'), stderr: line })
  const left = await registryRowsOf(table).list() // It changes no row any more, so the others forget it after a while.
  expect(left.size).toBe(1)
  for (const start of [serve(address), run('bigtable', 'init', text), run('bigtable', 'check', text)])
    expect(await start).toEqual({ code: 1, stdout: '', stderr: line })
  expect(await registryRowsOf(table).list()).toEqual(left)
  await table.close()
})

test('the newest format is not raised, and a table without clusters is not moved', async () => {
  const address = ownAddress()
  const text = printTableAddress(address)
  expect(await run('bigtable', 'init', text)).toMatchObject({ code: 0, stderr: '' })
  expect(await run('bigtable', 'upgrade', text)).toMatchObject({
    code: 0,
    stdout: `${text} has format 2 already, the newest of this PerKV\n`,
  })
  expect(await run('bigtable', 'move', text)).toEqual({
    ...{ code: 1, stdout: '' },
    stderr: `perkv: ${text}: its app profile names no cluster\n`,
  })
})
