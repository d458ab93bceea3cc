import { decodeCells } from '../../../../src/store/table/layout/layout.js'
import { rowKeyOf } from '../../../../src/store/table/layout/row-keys.js'
import { WakeUps } from '../../../../src/store/table/layout/wake-ups.js'
import { ExpiryRows } from '../../../../src/store/table/log/expiry-rows.js'
import { TableChangeLog, type TableChangeLogOptions } from '../../../../src/store/table/log/table-change-log.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import type { MemoryTable } from '../memory-table.js'

/** A log of changes above all stores on the table, which are never collected. */
export function changeLogOn(
  table: MemoryTable,
  options: Pick<TableChangeLogOptions, 'source' | 'feed' | 'reader'>,
): TableChangeLog {
  const look = async (keys: readonly Uint8Array[], startTs: Timestamp): Promise<Timestamp> => {
    const rows = await table.rows({ keys: keys.map(rowKeyOf), columns: [{ family: 'w' }] })
    const records = rows.flatMap(({ cells }) => decodeCells(cells).writes)
    return records.find((record) => record.startTs === startTs && record.type !== 'rollback')?.commitTs ?? 0
  }
  return new TableChangeLog({
    ...options,
    ...{ table, expiries: new ExpiryRows(table), look },
    wakeUps: new WakeUps(),
    safePoint: { value: 0, fresh: () => undefined },
    format: () => 2,
    seenFormat: () => 2,
  })
}
