import { certainChange } from './certain-change.js'
import { RECORD, REVISION, revisionWrite } from './layout.js'
import { REVISION_BYTES } from './revisions.js'
import type { RowWrite, Table } from './table.js'

/** Names of records that a late first write must not bring back. */
export const LEAVES_TOMBSTONE = /^(?:pin|observer|consumer)\//
const COLUMN = { family: 'o', qualifier: RECORD } as const
/** Neither MessagePack nor text begins with it, and other records do not have the length. */
const TOMBSTONE = 0xc1

/**
 * Stands where a record was removed, so that a late copy of its first write does not find an empty row. A collection removes the
 * row, as any with nothing but a revision.
 * @param revision a new one.
 */
export function tombstoneOf(revision: Buffer): Buffer {
  return Buffer.concat([Buffer.of(TOMBSTONE), revision])
}

export function isTombstone(value: Uint8Array | undefined): boolean {
  return value?.length === 1 + REVISION_BYTES && value[0] === TOMBSTONE
}

/** True when this tombstone has left this revision, and so the row may go with it. */
export function hasLeft(tombstone: Buffer, revision: Buffer): boolean {
  return isTombstone(tombstone) && tombstone.subarray(1).equals(revision)
}

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

/** As `writeRecord`: a late removal must not meet a later record. @param tombstone left in its place; undefined: nothing is. */
export async function removeRecord(table: Table, row: Buffer, tombstone?: Buffer): Promise<void> {
  for (;;) {
    const present = await readRecord(table, row)
    if (present === undefined || isTombstone(present)) return
    if (await replaceRecord(table, row, present, tombstone)) return
  }
}

/** @param expected a tombstone, where there is one. @param value may be one. @returns whether the record is `value` now. */
export function replaceRecord(
  table: Table,
  row: Buffer,
  expected: Buffer | undefined,
  value: Buffer | undefined,
): Promise<boolean> {
  const isDone = async (): Promise<boolean> => {
    const found = await readRecord(table, row)
    const isGone = found === undefined || isTombstone(found)
    return value === undefined || isTombstone(value) ? isGone : found?.equals(value) === true
  }
  const writes: RowWrite[] = [{ ...COLUMN, value }]
  if (value !== undefined && isTombstone(value)) writes.push(revisionWrite(value.subarray(1)))
  else if (isTombstone(expected)) writes.push({ family: 'v', qualifier: REVISION, value: undefined })
  return certainChange(table, row, { ...COLUMN, value: expected }, writes, { isDone })
}

export async function readRecord(table: Table, row: Buffer): Promise<Buffer | undefined> {
  const [read] = await table.rows({ keys: [row], columns: [{ family: 'o', from: RECORD, to: RECORD }] })
  return read?.cells[0]?.value
}
