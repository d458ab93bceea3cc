import { gc } from '../../../percolator/actions/gc.js'
import type { HistoryDepth, Mutation, RowView } from '../../../percolator/row.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { newestFirst, type RowCells } from '../layout/layout.js'

/** A row as it stood at one revision, as far back as it is known. */
export interface KnownRow extends RowCells {
  readonly key: Uint8Array
  /**
   * All records at or above it are known, and the newest of each family below it. `Infinity`: nothing is known of the
   * history, 0: all of it.
   */
  readonly since: Timestamp
  /** Records that no reader needs any more, without their values, of which `writes` may have some too. */
  readonly garbage: readonly WriteRecord[]
  /** Records that were added since the row was read with its garbage, or more, if there was more than was read. */
  readonly added: number
  /** Up to which timestamp its garbage was read. */
  readonly collectableTo: Timestamp
}

const NOTHING = Buffer.alloc(0)
/** Records of a family that are read as garbage at once. A commit adds one record to a row, and so removes more than it adds. */
export const GARBAGE_MAX = 16
/** Records that are added to a row of the cache before it is read for garbage. */
const ADDED_MAX = 8

/** Rows with more records than this forget their older ones, because hot rows would fill memory. */
const WRITES_MAX = 16
const WRITES_KEPT = 8

/**
 * @param depth and `ts`: of `columnsOf`, by which the cells were read.
 * @param collectableTo of `garbageColumns`, which were read beside them; 0: nothing was.
 */
export function knownRow(
  key: Uint8Array,
  cells: RowCells,
  depth: HistoryDepth,
  ts: Timestamp,
  collectableTo: Timestamp,
): KnownRow {
  // Every change of a row gives it a revision, so one without it has no cell.
  const isWhole = depth === 'all' || cells.revision === undefined
  const since = isWhole ? 0 : depth === 'none' ? Number.POSITIVE_INFINITY : ts
  const garbage = garbageIn(cells.writes, collectableTo)
  const versions = garbage.filter(isData).length
  const isMore = !isWhole && Math.max(versions, garbage.length - versions) >= GARBAGE_MAX
  return {
    ...cells,
    ...{ key, since, collectableTo },
    writes: within(cells.writes, since),
    garbage: garbage.map(withoutValue),
    added: isMore ? Number.POSITIVE_INFINITY : 0,
  }
}

/** Of records that no reader at or above `safePoint` can see those that are certain, whatever is unknown of the row. */
function garbageIn(writes: readonly WriteRecord[], safePoint: Timestamp): readonly WriteRecord[] {
  if (safePoint === 0) return []
  return gc({ key: NOTHING, writes }, safePoint, { base: undefined, isLast: false }).garbage
}

function withoutValue(write: WriteRecord): WriteRecord {
  return write.shortValue === undefined ? write : { ...write, shortValue: NOTHING }
}

/** What a change of the row may remove beside. @param safePoint locks below it are resolved. */
export function collectable({ writes, garbage }: KnownRow, safePoint: Timestamp): readonly WriteRecord[] {
  const known = new Set(garbage.map(({ commitTs }) => commitTs))
  return [...garbage, ...garbageIn(writes, safePoint).filter(({ commitTs }) => !known.has(commitTs))]
}

/** By cells that hold the newest record of each family, and perhaps an older one. */
export function knownByRead(key: Uint8Array, cells: RowCells): KnownRow {
  const newest = [cells.writes.find(isData), cells.writes.find((write) => !isData(write))]
  const writes = newest.filter((write) => write !== undefined).sort(newestFirst)
  const since = cells.revision === undefined ? 0 : (writes[0]?.commitTs ?? -1) + 1
  return { ...cells, key, writes, since, garbage: [], added: 0, collectableTo: 0 }
}

/** Whether an action may decide on what is known. */
export function isKnown({ since }: KnownRow, depth: HistoryDepth, ts: Timestamp): boolean {
  if (depth === 'none') return true
  return depth === 'all' ? since === 0 : since <= ts
}

/** Whether the row may have garbage that is not known, which piles up in rows that are written without being read. */
export function isGarbageUnknown({ since, added, collectableTo }: KnownRow, safePoint: Timestamp): boolean {
  if (since === 0) return false
  return added === Number.POSITIVE_INFINITY || (added >= ADDED_MAX && collectableTo < safePoint)
}

export function viewOf({ key, lock, writes }: KnownRow): RowView {
  return { key, lock, writes }
}

/** The row after its mutations. @param removed garbage that went with them. */
export function afterMutations(
  row: KnownRow,
  mutations: readonly Mutation[],
  removed: readonly WriteRecord[],
  revision: Buffer,
): KnownRow {
  let { lock, added } = row
  const byCommitTs = new Map<Timestamp, WriteRecord>(row.writes.map((write) => [write.commitTs, write]))
  for (const mutation of mutations)
    if (mutation.type === 'put-lock') lock = mutation.lock
    else if (mutation.type === 'delete-lock') lock = undefined
    else if (mutation.type === 'put-write') {
      byCommitTs.set(mutation.write.commitTs, mutation.write)
      added++
    } else if (mutation.type === 'delete-write') byCommitTs.delete(mutation.commitTs)
  // The record below a removed one is not known.
  const isGap = mutations.some(({ type }) => type === 'delete-write') && row.since > 0
  for (const { commitTs } of removed) byCommitTs.delete(commitTs)
  const writes = [...byCommitTs.values()].sort(newestFirst)
  // Below removed garbage there is nothing else, which no transaction asks for that may still decide anything.
  const since = isGap ? Number.POSITIVE_INFINITY : row.since
  return trimmed({ ...row, revision, lock, writes, since, added, garbage: removed.length > 0 ? [] : row.garbage })
}

function trimmed(row: KnownRow): KnownRow {
  const { writes } = row
  if (writes.length <= WRITES_MAX) return row
  const since = Math.max(row.since, (writes[WRITES_KEPT - 1] as WriteRecord).commitTs)
  return { ...row, writes: within(writes, since), since }
}

/** Records at or above `since`, and the newest of each family below. */
function within(writes: readonly WriteRecord[], since: Timestamp): readonly WriteRecord[] {
  const older = writes.filter(({ commitTs }) => commitTs < since)
  const below = [older.find(isData), older.find((write) => !isData(write))].filter((write) => write !== undefined)
  if (below.length === older.length) return writes
  return [...writes.filter(({ commitTs }) => commitTs >= since), ...below.sort(newestFirst)]
}
