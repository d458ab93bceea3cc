import { certainChange } from './certain-change.js'
import { RECORD } from './layout.js'
import type { Table } from './table.js'

const COLUMN = { family: 'o', qualifier: RECORD } as const

/**
 * Writes the record of a row of the server, whatever it is at the moment. Still on a condition, because a late copy must not
 * replace what others have written since.
 * @param next returns a value that the record never had.
 * @throws KvError `storage_unavailable`: the record may or may not be written.
 */
export async function writeRecord(table: Table, row: Buffer, next: () => Buffer): Promise<void> {
  // Usually there is none yet.
  for (let present: Buffer | undefined; ; present = await readRecord(table, row))
    if (await replaceRecord(table, row, present, next())) return
}

/** As `writeRecord`: a late removal must not meet a later record. */
export async function removeRecord(table: Table, row: Buffer): Promise<void> {
  for (let present = await readRecord(table, row); present !== undefined; present = await readRecord(table, row))
    if (await replaceRecord(table, row, present, undefined)) return
}

/** @returns whether the record is `value` now. */
export function replaceRecord(
  table: Table,
  row: Buffer,
  expected: Buffer | undefined,
  value: Buffer | undefined,
): Promise<boolean> {
  const isDone = async (): Promise<boolean> => {
    const found = await readRecord(table, row)
    return value === undefined ? found === undefined : found?.equals(value) === true
  }
  return certainChange(table, row, { ...COLUMN, value: expected }, [{ ...COLUMN, value }], { isDone })
}

async function readRecord(table: Table, row: Buffer): Promise<Buffer | undefined> {
  const [read] = await table.rows({ keys: [row], columns: [{ family: 'o', from: RECORD, to: RECORD }] })
  return read?.cells[0]?.value
}
