import { type CheckedTable, type CheckTableOptions, checkTable } from '../check/check-table.js'
import { openRawRows } from './google-rows.js'
import type { TableAddress } from './table-address.js'
import { faultsOf } from './table-admin.js'

/**
 * Checks the settings of a table, then all of its rows.
 * @throws BigtableSetupError when there is no such table; BigtableMissing; KvError `storage_unavailable`.
 */
export async function checkTableAt(address: TableAddress, options: CheckTableOptions): Promise<CheckedTable> {
  const faults = await faultsOf(address)
  for (const message of faults) options.onFinding({ kind: 'bad_settings', isProblem: true, message })
  const rows = await openRawRows(address)
  try {
    const checked = await checkTable(rows, options)
    const { serverRows, versions, locks, bytes, largestRow, comparedOneIn, warnings } = checked
    const problems = checked.problems + faults.length
    return { rows: checked.rows, serverRows, versions, locks, bytes, largestRow, comparedOneIn, problems, warnings }
  } finally {
    await rows.close()
  }
}
