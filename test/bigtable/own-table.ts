import { openTable, type TableOptions } from '../../src/store/table/bigtable/google-client.js'
import { callOptions, type GcRule, openTableAdminClient } from '../../src/store/table/bigtable/google-package.js'
import { instanceName, type TableAddress } from '../../src/store/table/bigtable/table-address.js'
import { makeTable } from '../../src/store/table/bigtable/table-admin.js'
import type { Table } from '../../src/store/table/layout/table.js'

let count = 0

/** Of a table that no other test has. */
export function ownAddress(): TableAddress {
  return { project: 'tests', instance: 'emulator', table: `table-${process.pid}-${++count}` }
}

/** A new, empty table on the emulator. */
export async function openOwnTable(options?: TableOptions): Promise<Table> {
  const address = ownAddress()
  await makeTable(address)
  return openTable(address, options)
}

/** A table with these families and rules, as another program may have made it. */
export async function makeTableOf(
  address: TableAddress,
  families: Readonly<Record<string, GcRule | undefined>>,
): Promise<void> {
  const columnFamilies = Object.fromEntries(Object.entries(families).map(([id, gcRule]) => [id, { gcRule }]))
  const request = { parent: instanceName(address), tableId: address.table, table: { columnFamilies } }
  const admin = await openTableAdminClient()
  try {
    await admin.createTable(request, callOptions(5000))
  } finally {
    await admin.close()
  }
}

/** Clients that `body` opens go to this server. */
export async function withHost<T>(host: string, body: () => Promise<T>): Promise<T> {
  const usual = process.env['BIGTABLE_EMULATOR_HOST']
  process.env['BIGTABLE_EMULATOR_HOST'] = host
  try {
    return await body()
  } finally {
    if (usual === undefined) delete process.env['BIGTABLE_EMULATOR_HOST']
    else process.env['BIGTABLE_EMULATOR_HOST'] = usual
  }
}
