import { untilDead } from '../../../cluster/living-servers.js'
import { type FormatRecord, NEWEST_FORMAT, requireFit, type Serving } from '../format/format-row.js'
import { moveTable } from '../format/move-table.js'
import { upgradeTable } from '../format/upgrade-table.js'
import type { Table } from '../layout/table.js'
import { registryRowsOf } from '../records/registry-table.js'
import { clusterOf } from './app-profile.js'
import { BigtableSetupError } from './bigtable-setup-error.js'
import { openTable } from './google-client.js'
import { openTableAdminClient } from './google-package.js'
import { waitForReplication } from './replication.js'
import { printTableAddress, type TableAddress } from './table-address.js'
import { type Made, makeTable, requireSoundTable } from './table-admin.js'

export type OnUnknownCluster = (message: string) => void

/** @throws BigtableSetupError; KvError `storage_unavailable` */
export async function servingOf(address: TableAddress, onUnknown: OnUnknownCluster): Promise<Serving> {
  const cluster = await clusterOf(address, onUnknown)
  return { place: printTableAddress(address), newest: NEWEST_FORMAT, cluster }
}

/** Makes a table with the row of its format, or completes one. @throws as `servingOf` */
export async function initTable(
  address: TableAddress,
  onUnknown: OnUnknownCluster,
): Promise<Made & { readonly format: FormatRecord }> {
  const made = await makeTable(address)
  await requireSoundTable(address)
  const serving = await servingOf(address, onUnknown)
  const format = await withTable(address, (table) => requireFit(table, serving, made.table))
  return { ...made, format }
}

/** Raises the format of a table to the newest one. @throws as `servingOf` */
export async function upgradeTableAt(
  address: TableAddress,
  onUnknown: OnUnknownCluster,
): Promise<{ readonly from: number; readonly to: number }> {
  await requireSoundTable(address)
  const serving = await servingOf(address, onUnknown)
  const from = await withTable(address, (table) => upgradeTable(table, registryRowsOf(table), serving, untilDead))
  return { from, to: serving.newest.format }
}

/**
 * Makes the cluster of this app profile the one that all servers use.
 * @param onWait gets one line when it waits for replication. @throws as `servingOf`
 */
export async function moveTableAt(
  address: TableAddress,
  onWait: (message: string) => void,
): Promise<{ readonly from: string | undefined; readonly to: string }> {
  await requireSoundTable(address)
  const refuse = (why: string): never => {
    throw new BigtableSetupError(why)
  }
  const serving = await servingOf(address, refuse)
  const { cluster = refuse(`${printTableAddress(address)}: its app profile names no cluster`) } = serving
  const admin = await openTableAdminClient()
  try {
    const replicated = (): Promise<void> => waitForReplication(admin, address, onWait)
    const from = await withTable(address, (table) =>
      moveTable(table, { ...serving, cluster }, { servers: registryRowsOf(table), replicated, pause: untilDead }),
    )
    return { from, to: cluster }
  } finally {
    await admin.close()
  }
}

async function withTable<T>(address: TableAddress, body: (table: Table) => Promise<T>): Promise<T> {
  const table = await openTable(address)
  try {
    return await body(table)
  } finally {
    await table.close()
  }
}
