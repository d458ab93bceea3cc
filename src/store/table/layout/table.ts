import type { Broadcast } from './broadcast.js'

/** Column families of the table: see README.md in this folder. */
export type Family = 'l' | 'w' | 'r' | 'd' | 'v' | 'o'

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
  /** Leaves out this many first columns per row. */
  readonly offset?: number | undefined
  readonly limit?: number | undefined
  /** Leaves out columns whose values are below it. */
  readonly valuesFrom?: Buffer | undefined
}

/**
 * Set for a read at a timestamp: it waits for each `changeTogether` that had locked one of its rows when the read began. So it
 * misses no commit whose timestamp was taken earlier.
 */
type Settled = boolean | undefined

export interface RowRange {
  readonly start: Buffer
  readonly end: Buffer | undefined
}

export interface RowsRequest {
  readonly keys?: readonly Buffer[]
  /** Short ones: an engine may give up on a range whose rows take long to look at. */
  readonly ranges?: readonly RowRange[]
  /** Rows without a cell in any of them are left out. */
  readonly columns: readonly ColumnRange[]
  readonly limit?: number | undefined
  readonly settled?: Settled
}

/** A step through a range of any length. */
export interface WalkRequest {
  readonly range: RowRange
  /** Rows without a cell in any of them are left out. */
  readonly columns: readonly ColumnRange[]
  /** Also rows of which only the revision is left, with or without the tombstone of a record. */
  readonly orBare?: boolean | undefined
  readonly limit: number
  readonly reverse?: boolean | undefined
  readonly settled?: Settled
}

export interface WalkedRows {
  /** In key order, descending with `reverse`. */
  readonly rows: readonly TableRow[]
  /** The part of the range that is still to be looked at; undefined: none. */
  readonly left: RowRange | undefined
}

/** A `value` of undefined deletes the column. */
export interface ColumnWrite {
  readonly family: Family
  readonly qualifier: Buffer
  readonly value: Buffer | undefined
}

/** Deletes all columns of a family. */
interface FamilyRemoval {
  readonly family: Family
  readonly qualifier?: undefined
  readonly value?: undefined
}

export type RowWrite = ColumnWrite | FamilyRemoval

/** The required value of a column; undefined: the column must be absent. */
export interface Expected {
  readonly family: Family
  readonly qualifier: Buffer
  readonly value: Buffer | undefined
}

/** A row that is there, which is locked if it is as expected. */
export interface RowCondition {
  readonly key: Buffer
  readonly expected: Expected & { readonly value: Buffer }
}

/** Outcome of one change. `unknown`: it may be done, not done, or done later. */
export type Changed = 'done' | 'refused' | 'unknown'

export type ChangeTogether = (
  rows: readonly RowCondition[],
  writes: () => Promise<readonly (readonly RowWrite[])[] | undefined>,
  withinMs?: number,
) => Promise<Changed>

export interface TableEngine {
  readonly name: string
  readonly title: string
  readonly rowKeyBytesMax: number
}

/**
 * One table, whose reads are strongly consistent. A column has one value: a write replaces it. Every change has a condition,
 * because a copy of a change may land after its answer was given up, and must then find that the row is another one.
 */
export interface Table {
  readonly engine: TableEngine
  /**
   * Repeats transient failures until `TABLE_WAIT_MS_MAX` are over. Rows come in key order.
   * @throws KvError `storage_unavailable`
   */
  rows(request: RowsRequest): Promise<readonly TableRow[]>
  /**
   * As `rows`, but looks at as much of the range as a call can, which is at least one row. So it may find fewer rows than the
   * limit, or none, and leave a part of the range.
   * @throws KvError `storage_unavailable`
   */
  walk(request: WalkRequest): Promise<WalkedRows>
  /**
   * Writes all of `writes` atomically, or removes the whole row, if it is as expected. Tried once, because only the caller can
   * tell whether an earlier try landed.
   * @param withinMs the outcome is `unknown` without an answer by then; at most as long as the table gives a call anyway.
   * @throws KvError `storage_unavailable` for a lasting failure, such as a missing permission: the change is not done.
   */
  change(key: Buffer, expected: Expected, writes: readonly RowWrite[] | 'remove', withinMs?: number): Promise<Changed>
  /**
   * Changes several rows at one moment, or none. Absent: the engine changes one row at a time.
   * @param writes called once all rows are locked, if all are as expected; it may run for `LOCKED_MS_MAX`. It returns what to write
   *   to `rows[i]`; undefined: nothing, and the change is refused.
   * @param withinMs as for `change`.
   * @throws KvError `storage_unavailable` for a lasting failure: the change is not done; an error of `writes`, likewise.
   */
  readonly changeTogether?: ChangeTogether | undefined
  readonly calls: { readonly read: number; readonly change: number }
  /** Calls in flight, and the bytes that they send. */
  readonly inFlight: { readonly calls: number; readonly bytes: number }
  /** Absent where an engine has nothing of the kind. */
  readonly broadcast?: Broadcast | undefined
  close(): Promise<void>
}
