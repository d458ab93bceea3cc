import { gc } from '../../../percolator/actions/gc.js'
import type { HistoryDepth, Mutation, RowView } from '../../../percolator/row.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { newestFirst, type RowCells } from '../layout/layout.js'

/** A row as of one revision, with the known part of its history. */
export interface KnownRow extends RowCells {
  readonly key: Uint8Array
  /**
   * All records at or above it are known, and the newest of each family below it. `Infinity`: no history is known; 0: all of it.
   */
  readonly since: Timestamp
  /** Records that no reader needs any more, without their values. `writes` may have some of them too. */
  readonly garbage: readonly WriteRecord[]
  /** Number of records added since the row was read with its garbage; infinite if more garbage was left than was read. */
  readonly added: number
  readonly collectableTo: Timestamp
}

const NOTHING = Buffer.alloc(0)
/** Limit on the garbage records read per family. A commit adds one record to a row, and so removes more than it adds. */
export const GARBAGE_MAX = 16
/** Records that a cached row may gain before it is read for garbage. */
const ADDED_MAX = 8

/** A row with more records forgets its older ones, because hot rows would fill memory. */
const WRITES_MAX = 16
const WRITES_KEPT = 8

/**
 * @param depth and `ts`: of the `columnsOf` by which the cells were read.
 * @param collectableTo of the `garbageColumns` read with them; 0: none were read.
 */
export function knownRow(
  key: Uint8Array,
  cells: RowCells,
  depth: HistoryDepth,
  ts: Timestamp,
  collectableTo: Timestamp,
): KnownRow {
  // Every change of a row sets a revision, so a row without one has no cells.
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

/** The records that no reader at or above `safePoint` can see, as far as that is certain without the unknown part of the row. */
function garbageIn(writes: readonly WriteRecord[], safePoint: Timestamp): readonly WriteRecord[] {
  if (safePoint === 0) return []
  return gc({ key: NOTHING, writes }, safePoint, { base: undefined, isLast: false }).garbage
}

function withoutValue(write: WriteRecord): WriteRecord {
  return write.shortValue === undefined ? write : { ...write, shortValue: NOTHING }
}

/** Records that a change of the row may also remove. @param safePoint locks below it are resolved. */
export function collectable({ writes, garbage }: KnownRow, safePoint: Timestamp): readonly WriteRecord[] {
  const known = new Set(garbage.map(({ commitTs }) => commitTs))
  return [...garbage, ...garbageIn(writes, safePoint).filter(({ commitTs }) => !known.has(commitTs))]
}

/** @param cells hold the newest record of each family, and perhaps an older one. */
export function knownByRead(key: Uint8Array, cells: RowCells): KnownRow {
  const newest = [cells.writes.find(isData), cells.writes.find((write) => !isData(write))]
  const writes = newest.filter((write) => write !== undefined).sort(newestFirst)
  const since = cells.revision === undefined ? 0 : (writes[0]?.commitTs ?? -1) + 1
  return { ...cells, key, writes, since, garbage: [], added: 0, collectableTo: 0 }
}

export function isKnown({ since }: KnownRow, depth: HistoryDepth, ts: Timestamp): boolean {
  if (depth === 'none') return true
  return depth === 'all' ? since === 0 : since <= ts
}

/** True when the row may have unknown garbage, which piles up in rows that are written without being read. */
export function isGarbageUnknown({ since, added, collectableTo }: KnownRow, safePoint: Timestamp): boolean {
  if (since === 0) return false
  return added === Number.POSITIVE_INFINITY || (added >= ADDED_MAX && collectableTo < safePoint)
}

export function viewOf({ key, lock, writes }: KnownRow): RowView {
  return { key, lock, writes }
}

/** The row after its mutations, still with its revision. @param removed garbage removed with them. */
export function afterMutations(
  row: KnownRow,
  mutations: readonly Mutation[],
  removed: readonly WriteRecord[],
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
  // The record below a removed one is unknown.
  const isGap = mutations.some(({ type }) => type === 'delete-write') && row.since > 0
  for (const { commitTs } of removed) byCommitTs.delete(commitTs)
  const writes = [...byCommitTs.values()].sort(newestFirst)
  // Below removed garbage there may only be records that no undecided transaction asks for.
  const since = isGap ? Number.POSITIVE_INFINITY : row.since
  return trimmed({ ...row, lock, writes, since, added, garbage: removed.length > 0 ? [] : row.garbage })
}

function trimmed(row: KnownRow): KnownRow {
  const { writes } = row
  if (writes.length <= WRITES_MAX) return row
  const since = Math.max(row.since, (writes[WRITES_KEPT - 1] as WriteRecord).commitTs)
  return { ...row, writes: within(writes, since), since }
}

/** Records at or above `since`, and the newest of each family below it. */
function within(writes: readonly WriteRecord[], since: Timestamp): readonly WriteRecord[] {
  const older = writes.filter(({ commitTs }) => commitTs < since)
  const below = [older.find(isData), older.find((write) => !isData(write))].filter((write) => write !== undefined)
  if (below.length === older.length) return writes
  return [...writes.filter(({ commitTs }) => commitTs >= since), ...below.sort(newestFirst)]
}
