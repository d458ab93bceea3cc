import type { HistoryDepth, Mutation, RowView } from '../../percolator/row.js'
import { isData, type WriteRecord } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import { newestFirst, type RowCells } from './layout.js'

/** A row as it stood at one revision, as far back as it is known. */
export interface KnownRow extends RowCells {
  readonly key: Uint8Array
  /**
   * All records at or above it are known, and the newest of each family below it. `Infinity`: nothing is known of the
   * history, 0: all of it.
   */
  readonly since: Timestamp
}

/** Rows with more records than this forget their older ones, because hot rows would fill memory. */
const WRITES_MAX = 16
const WRITES_KEPT = 8

/** @param depth and `ts`: of `columnsOf`, by which the cells were read. */
export function knownRow(key: Uint8Array, cells: RowCells, depth: HistoryDepth, ts: Timestamp): KnownRow {
  // Every change of a row gives it a revision, so one without it has no cell.
  const isWhole = depth === 'all' || cells.revision === undefined
  return { ...cells, key, since: isWhole ? 0 : depth === 'none' ? Number.POSITIVE_INFINITY : ts }
}

/** By cells that hold the newest record of each family, and perhaps an older one. */
export function knownByRead(key: Uint8Array, cells: RowCells): KnownRow {
  const newest = [cells.writes.find(isData), cells.writes.find((write) => !isData(write))]
  const writes = newest.filter((write) => write !== undefined).sort(newestFirst)
  const since = cells.revision === undefined ? 0 : (writes[0]?.commitTs ?? -1) + 1
  return { ...cells, key, writes, since }
}

/** Whether an action may decide on what is known. */
export function isKnown({ since }: KnownRow, depth: HistoryDepth, ts: Timestamp): boolean {
  if (depth === 'none') return true
  return depth === 'all' ? since === 0 : since <= ts
}

export function viewOf({ key, lock, writes }: KnownRow): RowView {
  return { key, lock, writes }
}

/** The row after its mutations. */
export function afterMutations(row: KnownRow, mutations: readonly Mutation[], revision: Buffer): KnownRow {
  let { lock } = row
  const byCommitTs = new Map<Timestamp, WriteRecord>(row.writes.map((write) => [write.commitTs, write]))
  for (const mutation of mutations)
    if (mutation.type === 'put-lock') lock = mutation.lock
    else if (mutation.type === 'delete-lock') lock = undefined
    else if (mutation.type === 'put-write') byCommitTs.set(mutation.write.commitTs, mutation.write)
    else if (mutation.type === 'delete-write') byCommitTs.delete(mutation.commitTs)
  // The record below a removed one is not known.
  const isGap = mutations.some(({ type }) => type === 'delete-write') && row.since > 0
  const since = isGap ? Number.POSITIVE_INFINITY : row.since
  return trimmed({ ...row, revision, lock, writes: [...byCommitTs.values()].sort(newestFirst), since })
}

function trimmed(row: KnownRow): KnownRow {
  const { writes } = row
  if (writes.length <= WRITES_MAX) return row
  const since = (writes[WRITES_KEPT - 1] as WriteRecord).commitTs
  const older = writes.slice(WRITES_KEPT)
  const below = [older.find(isData), older.find((write) => !isData(write))].filter((write) => write !== undefined)
  return {
    ...row,
    writes: [...writes.slice(0, WRITES_KEPT), ...below.sort(newestFirst)],
    since: Math.max(since, row.since),
  }
}
