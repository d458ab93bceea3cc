import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { REVISION_BYTES } from './revisions.js'
import type { ColumnWrite } from './table.js'

const COUNT_BYTES = 6
const PORTION_BYTES = TS_BYTES + COUNT_BYTES
/** More are not begun. A full row has some 16, unless Deletes still go into it. */
const PORTIONS_MAX = 32
/** What a cell takes beyond its name and its value. */
const CELL_BYTES = 32

/** Bytes of some changes of a row. None of their records is above `upTo`. */
interface Portion {
  readonly upTo: Timestamp
  readonly bytes: number
}

/**
 * What was written to a row: an upper bound of what it holds, but for one version. Nobody has to know how long a removed value
 * was: a portion goes when a collection up to `upTo` or later has left at most one version of it.
 *
 * It stands behind the revision, so each change replaces it, each read has it, and the condition of a change covers it.
 */
export interface RowSize {
  /** Oldest first. */
  readonly portions: readonly Portion[]
  /** Bytes of later changes. */
  readonly open: number
}

const EMPTY: RowSize = { portions: [], open: 0 }

/** A revision without a size is of a row that a restore, a delete_range or a server on format 1 wrote last. */
export function hasSize(revision: Buffer | undefined): boolean {
  const bytes = (revision?.length ?? 0) - REVISION_BYTES - COUNT_BYTES
  return bytes >= 0 && bytes % PORTION_BYTES === 0
}

export function sizeOf(revision: Buffer | undefined): RowSize {
  if (revision === undefined || !hasSize(revision)) return EMPTY
  const portions: Portion[] = []
  for (let at = REVISION_BYTES + COUNT_BYTES; at < revision.length; at += PORTION_BYTES)
    portions.push({ upTo: readTs(revision, at, 'size'), bytes: revision.readUIntBE(at + TS_BYTES, COUNT_BYTES) })
  return { portions, open: revision.readUIntBE(REVISION_BYTES, COUNT_BYTES) }
}

export function withSize(revision: Buffer, { portions, open }: RowSize): Buffer {
  const out = Buffer.alloc(REVISION_BYTES + COUNT_BYTES + portions.length * PORTION_BYTES)
  revision.copy(out)
  out.writeUIntBE(open, REVISION_BYTES, COUNT_BYTES)
  for (const [i, { upTo, bytes }] of portions.entries()) {
    const at = REVISION_BYTES + COUNT_BYTES + i * PORTION_BYTES
    writeTs(out, upTo, at)
    out.writeUIntBE(bytes, at + TS_BYTES, COUNT_BYTES)
  }
  return out
}

export function bytesOf({ portions, open }: RowSize): number {
  return portions.reduce((sum, { bytes }) => sum + bytes, open)
}

/**
 * What a collection up to `ts` leaves.
 * @param newest the highest timestamp of a record; undefined: it is unknown, or a lock may add a higher one.
 */
export function collectedTo(size: RowSize, ts: Timestamp, newest: Timestamp | undefined): RowSize {
  if (newest !== undefined && newest <= ts) return EMPTY
  return { portions: size.portions.filter(({ upTo }) => upTo > ts), open: size.open }
}

/**
 * @param newest as above, after the writes: a portion is complete where no value waits for its record.
 * @param portionBytes from how many bytes on.
 */
export function afterWrites(
  { portions, open }: RowSize,
  writes: readonly ColumnWrite[],
  newest: Timestamp | undefined,
  portionBytes: number,
): RowSize {
  let bytes = open
  // A lock is replaced, and its value is counted with its record.
  for (const { family, qualifier, value } of writes)
    if (value !== undefined && family !== 'l' && family !== 'v') bytes += qualifier.length + value.length + CELL_BYTES
  if (newest === undefined || bytes < portionBytes || portions.length === PORTIONS_MAX) return { portions, open: bytes }
  return { portions: [...portions, { upTo: newest, bytes }], open: 0 }
}
