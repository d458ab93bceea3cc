import { encodeOracleRecord } from '../../../src/oracle/oracle-row.js'
import { kindOf, requireSoundRecord } from '../../../src/store/leveldb/records/system-kinds.js'
import { FAMILIES } from '../../../src/store/table/bigtable/table-admin.js'
import type { Finding } from '../../../src/store/table/check/check-row.js'
import { type CheckedTable, checkTable } from '../../../src/store/table/check/check-table.js'
import type { ComparedTransactions } from '../../../src/store/table/check/compared-transactions.js'
import type { RawCell, RawRow, RawRows } from '../../../src/store/table/check/raw-rows.js'
import type { Serving } from '../../../src/store/table/format/format-row.js'
import type { Table, TableRow } from '../../../src/store/table/layout/table.js'

const PAGE_ROWS = 3
export const ORACLE_ROW = Buffer.from('\0\0oracle')

/** The rows of a table as a check reads them, and what was planted in the answers. */
export class PlantedRows implements RawRows {
  /** Cells that a row has besides, by its key as latin1. */
  readonly more = new Map<string, readonly RawCell[]>()
  readonly #table: Table

  /** @param mark of the oracle, which has no row in these tests. */
  constructor(table: Table, mark: number | undefined = Number.MAX_SAFE_INTEGER) {
    this.#table = table
    if (mark === undefined) return
    const value = Buffer.from(encodeOracleRecord({ epoch: 1, url: '', id: '', mark, beat: 1 }))
    this.plant(ORACLE_ROW, { family: 'o', qualifier: 'o', value })
  }

  plant(
    key: string | Buffer,
    cell: { family: string; qualifier: string | Buffer; value: Buffer; timestampMicros?: number; valueBytes?: number },
  ): void {
    const { family, value, timestampMicros = 0, valueBytes = value.length } = cell
    const text = Buffer.from(key).toString('latin1')
    const planted = { family, qualifier: Buffer.from(cell.qualifier), value, timestampMicros, valueBytes }
    this.more.set(text, [...(this.more.get(text) ?? []), planted])
  }

  async page(start: Buffer): Promise<readonly RawRow[]> {
    const found = await this.#read({ ranges: [{ start, end: undefined }] })
    const all = [...this.more.keys()].map((key) => Buffer.from(key, 'latin1'))
    const alone = all.filter((key) => Buffer.compare(key, start) >= 0 && !found.some((row) => row.key.equals(key)))
    const rows = [...found, ...alone.map((key) => ({ key, cells: [] }))].sort((a, b) => Buffer.compare(a.key, b.key))
    return rows.slice(0, PAGE_ROWS).map((row) => this.#raw(row))
  }

  async row(key: Buffer): Promise<RawRow | undefined> {
    const [found] = await this.#read({ keys: [key] })
    if (found === undefined && !this.more.has(key.toString('latin1'))) return undefined
    return this.#raw(found ?? { key, cells: [] })
  }

  #read(of: { keys?: Buffer[]; ranges?: { start: Buffer; end: undefined }[] }): Promise<readonly TableRow[]> {
    const limit = of.ranges === undefined ? undefined : PAGE_ROWS
    return this.#table.rows({ ...of, limit, columns: FAMILIES.map((family) => ({ family })) })
  }

  #raw({ key, cells }: TableRow): RawRow {
    const own = cells.map(({ family, qualifier, value }) => ({
      ...{ family, qualifier, timestampMicros: 0, valueBytes: value.length },
      value: family === 'd' ? undefined : value,
    }))
    return { key, cells: [...own, ...(this.more.get(key.toString('latin1')) ?? [])] }
  }
}

/** @returns what a check says, and all that it finds. */
export async function checked(
  rows: RawRows,
  options: { now?: () => number; compared?: ComparedTransactions; serving?: Serving } = {},
): Promise<{ readonly table: CheckedTable; readonly findings: readonly Finding[] }> {
  const findings: Finding[] = []
  const table = await checkTable(rows, {
    ...options,
    onFinding: (finding) => void findings.push(finding),
    requireSystemRecord: (name, value) => {
      const kind = kindOf(name)
      if (kind !== undefined) requireSoundRecord(kind, name, value)
    },
  })
  return { table, findings }
}
