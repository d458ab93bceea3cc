export interface RawCell {
  readonly family: string
  readonly qualifier: Buffer
  readonly timestampMicros: number
  /** Absent for a long value, of which only the length is kept. */
  readonly value: Buffer | undefined
  readonly valueBytes: number
}

export interface RawRow {
  readonly key: Buffer
  readonly cells: readonly RawCell[]
}

export interface RawRows {
  /**
   * The next rows from `start` on, ascending: some hundreds at most, fewer when they are large; empty at the end.
   * @throws KvError `storage_unavailable`
   */
  page(start: Buffer): Promise<readonly RawRow[]>
  row(key: Buffer): Promise<RawRow | undefined>
}

/** Cost of a cell beyond its name and value. */
const CELL_BYTES = 8

/** Bytes of keys, names and values. Bigtable itself takes a little less, because it compresses. */
export function rawRowBytes({ key, cells }: RawRow): number {
  return cells.reduce(
    (sum, { family, qualifier, valueBytes }) => sum + family.length + qualifier.length + valueBytes + CELL_BYTES,
    key.length,
  )
}
