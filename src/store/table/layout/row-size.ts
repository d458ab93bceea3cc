import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { REVISION_BYTES } from './revisions.js'
import type { ColumnWrite } from './table.js'

const COUNT_BYTES = 6
const COUNTS_BYTES = 2 * COUNT_BYTES
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
  /** Of the value of the lock that stands, which a rollback removes with it. */
  readonly pending: number
}

const EMPTY: RowSize = { portions: [], open: 0, pending: 0 }

/** A revision without a size is of a row that a restore, a delete_range or a server on format 1 wrote last. */
export function hasSize(revision: Buffer | undefined): boolean {
  const bytes = (revision?.length ?? 0) - REVISION_BYTES - COUNTS_BYTES
  return bytes >= 0 && bytes % PORTION_BYTES === 0
}

export function sizeOf(revision: Buffer | undefined): RowSize {
  if (revision === undefined || !hasSize(revision)) return EMPTY
  const portions: Portion[] = []
  for (let at = REVISION_BYTES + COUNTS_BYTES; at < revision.length; at += PORTION_BYTES)
    portions.push({ upTo: readTs(revision, at, 'size'), bytes: revision.readUIntBE(at + TS_BYTES, COUNT_BYTES) })
  const open = revision.readUIntBE(REVISION_BYTES, COUNT_BYTES)
  return { portions, open, pending: revision.readUIntBE(REVISION_BYTES + COUNT_BYTES, COUNT_BYTES) }
}

export function withSize(revision: Buffer, { portions, open, pending }: RowSize): Buffer {
  const out = Buffer.alloc(REVISION_BYTES + COUNTS_BYTES + portions.length * PORTION_BYTES)
  revision.copy(out)
  out.writeUIntBE(open, REVISION_BYTES, COUNT_BYTES)
  out.writeUIntBE(pending, REVISION_BYTES + COUNT_BYTES, COUNT_BYTES)
  for (const [i, { upTo, bytes }] of portions.entries()) {
    const at = REVISION_BYTES + COUNTS_BYTES + i * PORTION_BYTES
    writeTs(out, upTo, at)
    out.writeUIntBE(bytes, at + TS_BYTES, COUNT_BYTES)
  }
  return out
}

export function bytesOf({ portions, open, pending }: RowSize): number {
  return portions.reduce((sum, { bytes }) => sum + bytes, open + pending)
}

/**
 * What a collection up to `ts` leaves.
 * @param newest the highest timestamp of a record; undefined: it is unknown, or a lock may add a higher one.
 */
export function collectedTo(size: RowSize, ts: Timestamp, newest: Timestamp | undefined): RowSize {
  if (newest !== undefined && newest <= ts) return EMPTY
  return { ...size, portions: size.portions.filter(({ upTo }) => upTo > ts) }
}

/**
 * @param isLocked whether a lock stands after the writes.
 * @param newest as above, after the writes: a portion is complete where no value waits for its record.
 * @param portionBytes from how many bytes on.
 */
export function afterWrites(
  size: RowSize,
  writes: readonly ColumnWrite[],
  isLocked: boolean,
  newest: Timestamp | undefined,
  portionBytes: number,
): RowSize {
  let { open, pending } = size
  let isCommitted = false
  for (const { family, qualifier, value } of writes) {
    if (value === undefined || family === 'l' || family === 'v') continue // A lock is replaced.
    const bytes = qualifier.length + value.length + CELL_BYTES
    if (family === 'd') pending = bytes
    else open += bytes
    isCommitted ||= family === 'w'
  }
  if (isCommitted) open += pending
  if (isCommitted || !isLocked) pending = 0
  if (newest === undefined || open < portionBytes || size.portions.length === PORTIONS_MAX)
    return { ...size, open, pending }
  return { portions: [...size.portions, { upTo: newest, bytes: open }], open: 0, pending }
}
