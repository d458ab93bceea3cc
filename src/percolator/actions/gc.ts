import type { Mutation, RowView } from '../row.js'
import type { Timestamp } from '../timestamp.js'
import { isData, type WriteRecord } from '../write.js'

/**
 * What may go below the safe point: every reader from there on sees the newest Put at or below it, or nothing when
 * that is a Delete; older records, and Lock and Rollback records, are seen by nobody. A transaction that started exactly
 * at the safe point may still prewrite, so what says that it was rolled back stays.
 * @param row the whole history. @returns the mutations, and how many write records they remove.
 * @see TiKV `actions/gc.rs`.
 */
export function gc(row: RowView, safePoint: Timestamp): { mutations: Mutation[]; removed: number } {
  const mutations: Mutation[] = []
  let removed = 0
  const remove = (write: WriteRecord): void => {
    mutations.push({ type: 'delete-write', key: row.key, commitTs: write.commitTs })
    if (write.type === 'put' && write.shortValue === undefined)
      mutations.push({ type: 'delete-value', key: row.key, startTs: write.startTs })
    removed++
  }
  let newestData: WriteRecord | undefined
  for (const write of row.writes) {
    if (write.commitTs > safePoint) continue
    if (newestData !== undefined) remove(write)
    else if (isData(write)) newestData = write
    else if (!standsForRollback(write, safePoint)) remove(write)
  }
  if (newestData?.type === 'delete' && !standsForRollback(newestData, safePoint)) remove(newestData)
  return { mutations, removed }
}

function standsForRollback(write: WriteRecord, startTs: Timestamp): boolean {
  return write.commitTs === startTs && (write.type === 'rollback' || write.hasOverlappedRollback)
}
