import { inParts } from '../../../coordinator/in-parts.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import type { ColumnRange, Table } from '../layout/table.js'

const PREFIX = Buffer.from('\0\0expires/', 'latin1')
/** With which all rows of the server begin. */
const ZEROS = 2
const COLUMNS: readonly ColumnRange[] = [{ family: 'o', from: RECORD, to: RECORD }]
const NOTHING = Buffer.of(0)
const ROWS_AT_ONCE = 64
const PAGE = 256

export interface ExpiryRow {
  readonly ts: Timestamp
  readonly key: Uint8Array
}

/**
 * Rows `00 00 expires/TS KEY`, by which readers of changes find the versions that end at a timestamp. A row is written before the
 * commit of its version, so one may be there without a version, and none is missing.
 */
export class ExpiryRows {
  readonly #table: Table

  constructor(table: Table) {
    this.#table = table
  }

  async put(rows: readonly ExpiryRow[]): Promise<void> {
    for (const some of inParts(rows, ROWS_AT_ONCE))
      await Promise.all(
        some.map(({ ts, key }) => {
          const absent = { family: 'o', qualifier: RECORD, value: undefined } as const
          // All rows are equal, so whoever has written it has done it.
          const isDone = async (): Promise<boolean> => true
          const writes = [{ ...absent, value: NOTHING }]
          return certainChange(this.#table, rowOf(ts, key), absent, writes, { isDone })
        }),
      )
  }

  /** Rows in `(since, upTo]`, in order. */
  async *pages(since: Timestamp, upTo: Timestamp): AsyncGenerator<readonly ExpiryRow[], void> {
    const end = rowOf(upTo + 1, NO_KEY)
    for (let start = rowOf(since + 1, NO_KEY); ; ) {
      const rows = await this.#table.rows({ ranges: [{ start, end }], columns: COLUMNS, limit: PAGE })
      if (rows.length > 0)
        yield rows.map(({ key }) => ({
          ts: readTs(key, PREFIX.length, 'expiry'),
          key: key.subarray(PREFIX.length + TS_BYTES),
        }))
      const last = rows.at(-1)
      if (last === undefined || rows.length < PAGE) return
      start = Buffer.concat([last.key, Buffer.of(0)])
    }
  }

  /** Removes the rows up to `ts`. */
  async trim(ts: Timestamp): Promise<void> {
    const condition = { family: 'o', qualifier: RECORD, value: NOTHING } as const
    for await (const page of this.pages(-1, ts))
      for (const some of inParts(page, ROWS_AT_ONCE))
        await Promise.all(some.map(({ ts, key }) => this.#table.change(rowOf(ts, key), condition, 'remove')))
  }
}

/** @param name of the row, without the two zeros. @throws CorruptRecord */
export function requireExpiry(name: string, value: Buffer): void {
  const isSound = name.length >= PREFIX.length - ZEROS + TS_BYTES && value.equals(NOTHING)
  if (!isSound) throw new CorruptRecord('the row of an expiry is damaged')
}

const NO_KEY = new Uint8Array()

function rowOf(ts: Timestamp, key: Uint8Array): Buffer {
  const at = Buffer.allocUnsafe(TS_BYTES)
  writeTs(at, ts, 0)
  return Buffer.concat([PREFIX, at, key])
}
