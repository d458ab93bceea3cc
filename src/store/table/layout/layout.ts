import { decodeLock, encodeLock } from '../../../percolator/codec/lock.js'
import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import { decodeWrite, encodeWrite } from '../../../percolator/codec/write.js'
import type { Lock } from '../../../percolator/lock.js'
import type { HistoryDepth, Mutation } from '../../../percolator/row.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import type { Cell, ColumnRange, ColumnWrite, Family, RowWrite } from './table.js'

export const LOCK = Buffer.from('l')
export const REVISION = Buffer.from('r')
/** The only column of family `o`, except in cells of observers. */
export const RECORD = Buffer.from('o')
export const SECRET_BYTES = 32
/**
 * Limit of a record of the server. The condition of a change names the present value twice, and Bigtable refuses filters over
 * 20 480 bytes, so a longer record could never be changed again. The longest are registrations with two keys as bounds.
 */
export const RECORD_BYTES_MAX = 10_000
/** Column of family `o` with the claim of a cell, next to its hint. */
export const CLAIM = Buffer.from('c')
const COMPLEMENT = 0xff

/** The bitwise complement of a timestamp as 8 bytes, which sorts newest first. @internal */
export function descending(ts: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES)
  writeTs(out, ts, 0)
  return complement(out)
}

export function timestampOf(qualifier: Buffer, record: string): Timestamp {
  return readTs(complement(Buffer.from(qualifier)), 0, record)
}

function complement(bytes: Buffer): Buffer {
  for (let i = 0; i < bytes.length; i++) bytes[i] = COMPLEMENT - (bytes[i] as number)
  return bytes
}

export const LOCK_COLUMN: ColumnRange = { family: 'l' }
export const REVISION_COLUMN: ColumnRange = { family: 'v' }

function downTo(family: Family, ts: Timestamp): ColumnRange {
  return { family, to: descending(ts) }
}

export function atOrBelow(family: Family, ts: Timestamp, limit = 1): ColumnRange {
  return { family, from: descending(ts), limit }
}

export function between(family: Family, least: Timestamp, most: Timestamp): ColumnRange {
  return { family, from: descending(most), to: descending(least) }
}

export function columnsOf(depth: HistoryDepth, ts: Timestamp): readonly ColumnRange[] {
  const columns = [LOCK_COLUMN, REVISION_COLUMN]
  if (depth === 'none') return columns
  if (depth === 'all') return [...columns, { family: 'w' }, { family: 'r' }]
  const below = Math.max(0, ts - 1)
  // `w` has only Puts and Deletes, so the first of them below `ts` serves `data` too.
  return [...columns, downTo('w', ts), atOrBelow('w', below), downTo('r', ts), atOrBelow('r', below)]
}

/** Records that a collection up to `ts` may remove: all but the first of `w`, at most `limit` per family. */
export function garbageColumns(ts: Timestamp, limit: number): readonly ColumnRange[] {
  return [atOrBelow('w', ts, limit + 1), atOrBelow('r', ts, limit)]
}

/**
 * Divides encoded records: a Put without an end sorts below it; a Delete, or a Put that expires, does not. A record is a
 * MessagePack array whose first field is its type, and an expiry makes it longer.
 */
const ENDS_FROM = Buffer.of(0x94, 1)

/** Cells of rows in which a collection up to `ts` may find something. Other rows are not sent. */
export function candidateColumns(ts: Timestamp): readonly ColumnRange[] {
  return [{ ...atOrBelow('w', ts), valuesFrom: ENDS_FROM }, { ...atOrBelow('w', ts), offset: 1 }, atOrBelow('r', ts)]
}

/** Columns for a validation of reads: the version at `startTs`, and everything newer. */
export function versionsSince(startTs: Timestamp): readonly ColumnRange[] {
  return [downTo('w', startTs), atOrBelow('w', startTs)]
}

export interface RowCells {
  /** undefined: the row was never changed, or was removed as a whole. */
  readonly revision: Buffer | undefined
  readonly lock: Lock | undefined
  readonly writes: readonly WriteRecord[]
}

export const NO_CELLS: RowCells = { revision: undefined, lock: undefined, writes: [] }

export function decodeCells(cells: readonly Cell[]): RowCells {
  let revision: Buffer | undefined
  let lock: Lock | undefined
  const writes: WriteRecord[] = []
  for (const { family, qualifier, value } of cells)
    if (family === 'v') revision = value
    else if (family === 'l') lock = decodeLock(value)
    else if (family === 'w' || family === 'r') writes.push(decodeWrite(value, timestampOf(qualifier, 'write')))
  return { revision, lock, writes: writes.sort(newestFirst) }
}

export function valuesIn(cells: readonly Cell[]): { readonly startTs: Timestamp; readonly value: Buffer }[] {
  return cells
    .filter(({ family }) => family === 'd')
    .map(({ qualifier, value }) => ({ startTs: timestampOf(qualifier, 'value'), value }))
    .sort((a, b) => b.startTs - a.startTs)
}

export function newestFirst(a: WriteRecord, b: WriteRecord): number {
  return b.commitTs - a.commitTs
}

export function valueColumn(startTs: Timestamp): ColumnRange {
  const at = descending(startTs)
  return { family: 'd', from: at, to: at }
}

/** Puts and Deletes are stored apart from Rollback and Lock records, so that reads never have to skip those. */
function familyOf(write: WriteRecord): 'w' | 'r' {
  return isData(write) ? 'w' : 'r'
}

/** Without the revision. */
export function writesOf(mutations: readonly Mutation[]): readonly ColumnWrite[] {
  const writes: ColumnWrite[] = []
  for (const mutation of mutations)
    switch (mutation.type) {
      case 'put-lock':
        writes.push({ family: 'l', qualifier: LOCK, value: encodeLock(mutation.lock) })
        break
      case 'delete-lock':
        writes.push({ family: 'l', qualifier: LOCK, value: undefined })
        break
      case 'put-write': {
        const qualifier = descending(mutation.write.commitTs)
        const family = familyOf(mutation.write)
        writes.push({ family: family === 'w' ? 'r' : 'w', qualifier, value: undefined })
        writes.push({ family, qualifier, value: encodeWrite(mutation.write) })
        break
      }
      case 'delete-write': {
        const qualifier = descending(mutation.commitTs)
        writes.push({ family: 'w', qualifier, value: undefined }, { family: 'r', qualifier, value: undefined })
        break
      }
      case 'put-value':
        writes.push({ family: 'd', qualifier: descending(mutation.startTs), value: asBuffer(mutation.value) })
        break
      case 'delete-value':
        writes.push({ family: 'd', qualifier: descending(mutation.startTs), value: undefined })
        break
    }
  return writes
}

export function removalsOf(records: readonly WriteRecord[]): readonly ColumnWrite[] {
  return records.flatMap((write): ColumnWrite[] => {
    const record = { family: familyOf(write), qualifier: descending(write.commitTs), value: undefined }
    if (write.type !== 'put' || write.shortValue !== undefined) return [record]
    return [record, { family: 'd', qualifier: descending(write.startTs), value: undefined }]
  })
}

/** Leaves nothing of a row but the revision. */
export function clearingWrites(revision: Buffer): readonly RowWrite[] {
  const families = ['l', 'w', 'r', 'd'] as const
  return [...families.map((family) => ({ family })), revisionWrite(revision)]
}

export function revisionWrite(value: Buffer): ColumnWrite {
  return { family: 'v', qualifier: REVISION, value }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
}
