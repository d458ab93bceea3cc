import type { Mutation, RowView } from '../row.js'
import type { Timestamp } from '../timestamp.js'
import type { WriteRecord } from '../write.js'

/**
 * What may go below the safe point: every reader from there on sees the newest Put at or below it, or nothing when
 * that is a Delete; older records, and Lock and Rollback records, are seen by nobody.
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
    else if (write.type === 'put' || write.type === 'delete') newestData = write
    else remove(write)
  }
  if (newestData?.type === 'delete') remove(newestData)
  return { mutations, removed }
}
