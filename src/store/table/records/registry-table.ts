import { afterPrefix } from '../../../bytes/key-range.js'
import type { RegistryName, RegistryRows } from '../../../cluster/registry-rows.js'
import { RECORD } from '../layout/layout.js'
import { rowKeyOfSystem, systemNameOf } from '../layout/row-keys.js'
import type { RowRange, Table, TableRow } from '../layout/table.js'

const COLUMNS = [{ family: 'o' }] as const
const RANGES: readonly RowRange[] = (['job/', 'server/'] as const).map((prefix) => {
  const start = rowKeyOfSystem(prefix)
  const end = afterPrefix(start)
  return { start, end: end && Buffer.from(end) }
})

export function registryRowsOf(table: Table): RegistryRows {
  return {
    async list() {
      const rows = await table.rows({ ranges: RANGES, columns: COLUMNS })
      const found = new Map<RegistryName, Uint8Array>()
      for (const row of rows) {
        const value = recordOf(row)
        if (value !== undefined) found.set(systemNameOf(row.key) as RegistryName, value)
      }
      return found
    },
    async read(name) {
      const [row] = await table.rows({ keys: [rowKeyOfSystem(name)], columns: COLUMNS })
      return row && recordOf(row)
    },
    swap(name, expected, next) {
      const value = expected && Buffer.from(expected)
      return table.change(rowKeyOfSystem(name), { family: 'o', qualifier: RECORD, value }, [
        { family: 'o', qualifier: RECORD, value: next && Buffer.from(next) },
      ])
    },
  }
}

function recordOf({ cells }: TableRow): Buffer | undefined {
  return cells.find(({ qualifier }) => qualifier.equals(RECORD))?.value
}
