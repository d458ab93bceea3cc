/** Column families of the table: see README.md in this folder. */
export type Family = 'l' | 'w' | 'r' | 'd' | 'v' | 'o'

/** The newest cell of a column. */
export interface Cell {
  readonly family: Family
  readonly qualifier: Buffer
  readonly value: Buffer
}

export interface TableRow {
  readonly key: Buffer
  /** Families in the order of their names, qualifiers ascending. No column twice. */
  readonly cells: readonly Cell[]
}

/** Columns of a family, in `[from, to]`; absent bounds are open. */
export interface ColumnRange {
  readonly family: Family
  readonly from?: Buffer | undefined
  readonly to?: Buffer | undefined
  /** Of these columns per row, so many first ones are left out. */
  readonly offset?: number | undefined
  /** Of these columns per row, after those that `offset` leaves out. */
  readonly limit?: number | undefined
  /** Of the columns that are left, those whose values are at or above it. */
  readonly valuesFrom?: Buffer | undefined
}

/** Keys of rows, in `[start, end)`. An absent end is open. */
export interface RowRange {
  readonly start: Buffer
  readonly end: Buffer | undefined
}

export interface RowsRequest {
  readonly keys?: readonly Buffer[]
  readonly ranges?: readonly RowRange[]
  /** Rows without a cell in any of them do not come back. */
  readonly columns: readonly ColumnRange[]
  /** Rows that have nothing but a revision come back with it, too. */
  readonly orBare?: boolean | undefined
  /** Rows, not cells. Only with ranges. */
  readonly limit?: number | undefined
  /** Descending keys. Only with one range. */
  readonly reverse?: boolean | undefined
}

/** `undefined` deletes the column. */
export interface ColumnWrite {
  readonly family: Family
  readonly qualifier: Buffer
  readonly value: Buffer | undefined
}

/** A column that has to have exactly this value; undefined: that has to be absent. */
export interface Expected {
  readonly family: Family
  readonly qualifier: Buffer
  readonly value: Buffer | undefined
}

/** What came of one call that changes a row. `unknown`: it may be done, not done, or be done later. */
export type Changed = 'done' | 'refused' | 'unknown'

/** The database server that has the table. */
export interface TableEngine {
  /** Of a store on it, as `/v1/status` shows it. */
  readonly name: string
  /** As texts name it. */
  readonly title: string
}

/** One table, whose reads are strongly consistent. A column has one value: a write replaces it. */
export interface Table {
  readonly engine: TableEngine
  /**
   * Repeats what is transient until `TABLE_WAIT_MS` are over. Rows in order of their keys (descending with `reverse`).
   * @throws KvError `storage_unavailable`
   */
  rows(request: RowsRequest): Promise<readonly TableRow[]>
  /**
   * Writes all of `writes`, atomically, or removes the whole row, if it is as expected. Tried once, because only the caller can tell whether
   * an earlier try was done.
   * @throws KvError `storage_unavailable` for a failure that is not transient, such as a missing permission: it is not done.
   */
  change(key: Buffer, expected: Expected, writes: readonly ColumnWrite[] | 'remove'): Promise<Changed>
  /** Writes without a condition, repeated until it is done. @throws KvError `storage_unavailable`: it may be done or not. */
  put(key: Buffer, writes: readonly ColumnWrite[]): Promise<void>
  /** Removes whole rows, repeated until it is done. @throws KvError `storage_unavailable`: some may be gone. */
  remove(keys: readonly Buffer[]): Promise<void>
  /** Calls so far, by kind. */
  readonly calls: { readonly read: number; readonly change: number; readonly put: number; readonly remove: number }
  /** Calls in flight, and the bytes that they send. */
  readonly inFlight: { readonly calls: number; readonly bytes: number }
  close(): Promise<void>
}
