import type { KeyRange } from '../../../bytes/key-range.js'
import { rowRangeOf } from './row-keys.js'
import type { ColumnRange, RowRange, Table, TableRow } from './table.js'

/** A page has at most some 2 MiB, with values of up to 4 KiB in lock and write records. */
const PAGE_ROWS = 256

export interface ScanOptions {
  readonly reverse?: boolean | undefined
  /** Rows of the first page, if few will probably do. */
  readonly firstRows?: number | undefined
  readonly orBare?: boolean | undefined
}

export class TableScan {
  readonly #table: Table

  constructor(table: Table) {
    this.#table = table
  }

  /** Rows of users with a cell in any of the columns, in key order. */
  pages(
    range: KeyRange,
    columns: readonly ColumnRange[],
    options?: ScanOptions,
  ): AsyncGenerator<readonly TableRow[], void> {
    return this.rowPages(rowRangeOf(range), columns, options)
  }

  async *rowPages(
    range: RowRange,
    columns: readonly ColumnRange[],
    { reverse = false, firstRows = PAGE_ROWS, orBare }: ScanOptions = {},
  ): AsyncGenerator<readonly TableRow[], void> {
    let { start, end } = range
    for (let limit = Math.max(1, Math.min(firstRows, PAGE_ROWS)); ; limit = PAGE_ROWS) {
      // Some engines refuse an empty range.
      if (end !== undefined && Buffer.compare(start, end) >= 0) return
      const rows = await this.#table.rows({ ranges: [{ start, end }], columns, orBare, limit, reverse })
      if (rows.length > 0) yield rows
      const last = rows.at(-1)
      if (last === undefined || rows.length < limit) return
      if (reverse) end = last.key
      else start = Buffer.concat([last.key, Buffer.of(0)])
    }
  }
}
