import { keyText } from '../../src/bytes/key-text.js'
import { kindOf, requireSoundRecord } from '../../src/store/leveldb/records/system-kinds.js'
import { FAMILIES } from '../../src/store/table/bigtable/table-admin.js'
import { checkTable } from '../../src/store/table/check/check-table.js'
import type { RawRow } from '../../src/store/table/check/raw-rows.js'
import type { TableRows } from '../store/table/table-rows.js'
import type { Violations } from './violations.js'

const COLUMNS = FAMILIES.map((family) => ({ family }))

function rawRows(rows: TableRows, start: Buffer, end?: Buffer): RawRow[] {
  return rows.read({ ranges: [{ start, end }], columns: COLUMNS }).map(({ key, cells }) => ({
    key,
    cells: cells.map(({ family, qualifier, value }) => ({
      ...{ family, qualifier, timestampMicros: 0, valueBytes: value.length },
      value: family === 'd' ? undefined : value,
    })),
  }))
}

/** Whether `perkv bigtable check` finds nothing. */
export async function checkRows(rows: TableRows, violations: Violations): Promise<void> {
  const raw = {
    page: async (start: Buffer) => rawRows(rows, start),
    row: async (key: Buffer) => rawRows(rows, key, Buffer.concat([key, Buffer.of(0)]))[0],
  }
  await checkTable(raw, {
    onFinding: ({ kind, isProblem, message }) => {
      if (isProblem) violations.add('table', `${kind}: ${message}`)
    },
    requireSystemRecord: (name, value) => {
      const kind = kindOf(name)
      if (kind !== undefined) requireSoundRecord(kind, name, value)
    },
  })
}

/** Rows with a lock. */
export function lockedRows(rows: TableRows): string[] {
  return rows
    .read({ ranges: [{ start: Buffer.alloc(0), end: undefined }], columns: [{ family: 'l' }] })
    .map(({ key }) => keyText(key))
}
