import { untilDead } from '../../../cluster/living-servers.js'
import { askOverHttp } from '../../../oracle/ask-over-http.js'
import { Clock } from '../../../oracle/clock.js'
import type { Asks } from '../../../oracle/signed-ask.js'
import { type AcceptedLoss, acceptLoss } from '../check/accept-loss.js'
import { type CheckedTable, type CheckTableOptions, checkTable } from '../check/check-table.js'
import { type FormatRecord, type FoundLoss, NEWEST_FORMAT, requireFit, type Serving } from '../format/format-row.js'
import { upgradeTable } from '../format/upgrade-table.js'
import { type JoinCallbacks, joinTable, type Member } from '../join-table.js'
import type { Table } from '../layout/table.js'
import { registryRowsOf } from '../records/registry-table.js'
import type { TableStore } from '../table-store.js'
import type { PostgresAddress } from './postgres-address.js'
import { openRawRows } from './postgres-rows.js'
import { openTable } from './postgres-table.js'
import { makeTable, requireSoundTable } from './table-admin.js'

export interface OpenPostgresOptions extends JoinCallbacks {
  readonly address: PostgresAddress
  readonly onClockStep: (message: string) => void
  readonly onWarning: (message: string) => void
}

/** @throws PostgresMissing; UnusableTable when the table can't be served from; KvError `storage_unavailable`. */
export async function openPostgres(options: OpenPostgresOptions): Promise<{ store: TableStore; member: Member }> {
  const { address, onClockStep, onWarning } = options
  await requireSoundTable(address)
  const asksOf = (secret: Uint8Array): Asks => askOverHttp({ secret })
  const clock = new Clock({ onStep: onClockStep })
  let lose = (_: FoundLoss): void => {}
  const lost = new Promise<FoundLoss>((resolve) => {
    lose = resolve
  })
  const apart = (body: (table: Table) => Promise<void>): Promise<void> => withTable(address, body)
  const table = await openTable(address, { onWarning, onLoss: lose })
  return joinTable(table, { ...options, serving: servingOf(address), asksOf, clock, lost, apart })
}

/** Makes a table with the row of its format, or completes one. @throws as `openPostgres` */
export async function initTable(
  address: PostgresAddress,
  onWarning: (message: string) => void,
): Promise<{ readonly isMade: boolean; readonly format: FormatRecord }> {
  const isMade = await makeTable(address, onWarning)
  return { isMade, format: await withTable(address, (table) => requireFit(table, servingOf(address), isMade)) }
}

/** Raises the format of a table to the newest one. @throws as `openPostgres` */
export async function upgradeTableAt(
  address: PostgresAddress,
): Promise<{ readonly from: number; readonly to: number }> {
  await requireSoundTable(address)
  const serving = servingOf(address)
  const from = await withTable(address, (table) => upgradeTable(table, registryRowsOf(table), serving, untilDead))
  return { from, to: serving.newest.format }
}

/** Reads all rows of a table. @throws as `openPostgres`, and UnusableTable for a newer format. */
export async function checkTableAt(
  address: PostgresAddress,
  options: Omit<CheckTableOptions, 'serving'>,
): Promise<CheckedTable> {
  await requireSoundTable(address)
  const rows = await openRawRows(address)
  try {
    return await checkTable(rows, { ...options, serving: servingOf(address) })
  } finally {
    await rows.close()
  }
}

/** Lets servers serve a table that lacks what they had committed. @throws as `openPostgres` */
export async function acceptLossAt(
  address: PostgresAddress,
  onProgress: (rows: number) => void,
): Promise<AcceptedLoss> {
  await requireSoundTable(address)
  const serving = servingOf(address)
  const rows = await openRawRows(address)
  try {
    return await withTable(address, (table) => acceptLoss(table, rows, { serving, onProgress }))
  } finally {
    await rows.close()
  }
}

function servingOf({ place }: PostgresAddress): Serving {
  // No program serves PostgreSQL that knows format 1 alone.
  return { place, newest: NEWEST_FORMAT, first: NEWEST_FORMAT }
}

async function withTable<T>(address: PostgresAddress, body: (table: Table) => Promise<T>): Promise<T> {
  const table = await openTable(address)
  try {
    return await body(table)
  } finally {
    await table.close()
  }
}
