import type { KeyRange } from '../../../bytes/key-range.js'
import { rowRangeOf } from './row-keys.js'
import type { ColumnRange, RowRange, Table, TableRow, WalkedRows } from './table.js'

/** A page has at most some 2 MiB, with values of up to 4 KiB in lock and write records. */
const PAGE_ROWS = 256

export interface ScanOptions {
  readonly reverse?: boolean | undefined
  /** Rows of the first page, if few will probably do. */
  readonly firstRows?: number | undefined
  readonly orBare?: boolean | undefined
  readonly settled?: boolean | undefined
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

  /** A page may be empty, so that the caller can pause or stop where rows are found rarely. */
  async *rowPages(
    range: RowRange,
    columns: readonly ColumnRange[],
    { reverse = false, firstRows = PAGE_ROWS, orBare, settled }: ScanOptions = {},
  ): AsyncGenerator<readonly TableRow[], void> {
    let limit = Math.max(1, Math.min(firstRows, PAGE_ROWS))
    // Some engines refuse an empty range.
    for (let left: RowRange | undefined = range; left !== undefined && !isEmpty(left); ) {
      const walked: WalkedRows = await this.#table.walk({ range: left, columns, orBare, limit, reverse, settled })
      yield walked.rows
      left = walked.left
      // Rows that an engine passes without a find may count for its limit, so a small one would take many steps.
      if (walked.rows.length === 0) limit = Math.min(2 * limit, PAGE_ROWS)
      else if (walked.rows.length === limit) limit = PAGE_ROWS
    }
  }
}

function isEmpty({ start, end }: RowRange): boolean {
  return end !== undefined && Buffer.compare(start, end) >= 0
}
