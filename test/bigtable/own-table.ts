import { openTable, type TableOptions } from '../../src/store/bigtable/google-client.js'
import type { Table } from '../../src/store/bigtable/table.js'
import type { TableAddress } from '../../src/store/bigtable/table-address.js'
import { makeTable } from '../../src/store/bigtable/table-admin.js'

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
