import type { Table } from '../../src/store/table/layout/table.js'
import { type PostgresAddress, parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable, type PostgresTableOptions } from '../../src/store/table/postgres/postgres-table.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'

let count = 0

/** Of a table that no other test has. @param database default: the one of this run. */
export function ownAddress(database = process.env['PERKV_TEST_POSTGRES'] ?? ''): PostgresAddress {
  return parsePostgresAddress(`${database}?table=t_${process.pid}_${++count}`)
}

/** A new, empty table. */
export async function openOwnTable(options?: PostgresTableOptions, address = ownAddress()): Promise<Table> {
  await makeTable(address)
  return openTable(address, options)
}
