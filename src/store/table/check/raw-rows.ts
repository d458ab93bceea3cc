/** A cell as it stands in the table, whatever wrote it. */
export interface RawCell {
  readonly family: string
  readonly qualifier: Buffer
  readonly timestampMicros: number
  /** Absent: a long value, of which only the length is kept. */
  readonly value: Buffer | undefined
  readonly valueBytes: number
}

export interface RawRow {
  readonly key: Buffer
  readonly cells: readonly RawCell[]
}

/** All rows of a table, with all cells. */
export interface RawRows {
  /**
   * The next rows from `start` on, ascending: some hundreds at most, and fewer where they are large. Empty: there are none.
   * @throws KvError `storage_unavailable`
   */
  page(start: Buffer): Promise<readonly RawRow[]>
  /** @returns undefined when there is no such row. @throws KvError `storage_unavailable` */
  row(key: Buffer): Promise<RawRow | undefined>
}

/** Beside the bytes of names and values, of each cell. */
const CELL_BYTES = 8

/** Of keys, names and values: Bigtable itself takes a little less, since it compresses. */
export function bytesOf({ key, cells }: RawRow): number {
  return cells.reduce(
    (sum, { family, qualifier, valueBytes }) => sum + family.length + qualifier.length + valueBytes + CELL_BYTES,
    key.length,
  )
}
