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
