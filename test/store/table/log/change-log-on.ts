import { ExpiryRows } from '../../../../src/store/table/log/expiry-rows.js'
import { TableChangeLog, type TableChangeLogOptions } from '../../../../src/store/table/log/table-change-log.js'
import type { MemoryTable } from '../memory-table.js'

/** A log of changes above all stores on the table, which are never collected. */
export function changeLogOn(
  table: MemoryTable,
  options: Pick<TableChangeLogOptions, 'source' | 'feed' | 'reader'>,
): TableChangeLog {
  return new TableChangeLog({
    ...options,
    ...{ table, expiries: new ExpiryRows(table) },
    safePoint: { value: 0, fresh: () => undefined },
    format: () => 2,
    seenFormat: () => 2,
    look: async () => 0,
  })
}
