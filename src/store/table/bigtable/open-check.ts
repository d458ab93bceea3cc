import { type AcceptedLoss, acceptLoss } from '../check/accept-loss.js'
import { type CheckedTable, type CheckTableOptions, checkTable } from '../check/check-table.js'
import { servingOf } from './format-admin.js'
import { openTable } from './google-client.js'
import { openRawRows } from './google-rows.js'
import type { TableAddress } from './table-address.js'
import { faultsOf } from './table-admin.js'

/**
 * Checks the settings of a table, then all of its rows.
 * @throws BigtableSetupError when there is no such table, or its format is newer; BigtableMissing; KvError `storage_unavailable`.
 */
export async function checkTableAt(
  address: TableAddress,
  options: Omit<CheckTableOptions, 'serving'>,
): Promise<CheckedTable> {
  const faults = await faultsOf(address)
  for (const message of faults) options.onFinding({ kind: 'bad_settings', isProblem: true, message })
  const rows = await openRawRows(address)
  try {
    const serving = await servingOf(address, () => {}) // A reader of the table may be unable to ask for the cluster.
    const checked = await checkTable(rows, { ...options, serving })
    const { format, cluster, serverRows, versions, locks, bytes, largestRow, newestTs, comparedOneIn, warnings } =
      checked
    const problems = checked.problems + faults.length
    return {
      ...{
        format,
        cluster,
        rows: checked.rows,
        serverRows,
        versions,
        locks,
        bytes,
        largestRow,
        newestTs,
        comparedOneIn,
      },
      ...{ problems, warnings },
    }
  } finally {
    await rows.close()
  }
}

/** Lets servers serve a table that lacks what they had committed. @throws as `checkTableAt` */
export async function acceptLossAt(address: TableAddress, onProgress: (rows: number) => void): Promise<AcceptedLoss> {
  const serving = await servingOf(address, () => {})
  const [rows, table] = await Promise.all([openRawRows(address), openTable(address)])
  try {
    return await acceptLoss(table, rows, { serving, onProgress })
  } finally {
    await Promise.all([rows.close(), table.close()])
  }
}
