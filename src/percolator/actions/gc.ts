import type { Timestamp } from '../../timestamp.js'
import { deleteWrite, type Mutation, type RowView } from '../row.js'
import { isData, isVisible, type WriteRecord } from '../write.js'

export interface GcPart {
  /** Newest Put or Delete at or below the safe point in the earlier parts, if any. */
  readonly base: WriteRecord | undefined
  readonly isLast: boolean
}

export interface GcAnswer {
  readonly mutations: Mutation[]
  readonly removed: number
  readonly garbage: readonly WriteRecord[]
  readonly base: WriteRecord | undefined
}

/**
 * Decides which records below the safe point are removed. Every reader from the safe point on sees the newest Put at or below it,
 * or nothing when the newest record is a Delete or has expired. No reader sees older records, or Lock and Rollback records. A
 * transaction that started exactly at the safe point may still prewrite, so its Rollback record stays. A Delete or an expired Put
 * is removed only after all older records, so that readers never see what it deleted or replaced.
 * @param row the whole history, or the part that `part` describes.
 * @see TiKV `actions/gc.rs`.
 */
export function gc(
  row: Pick<RowView, 'key' | 'writes'>,
  safePoint: Timestamp,
  part: GcPart = { base: undefined, isLast: true },
): GcAnswer {
  const mutations: Mutation[] = []
  const garbage: WriteRecord[] = []
  const remove = (write: WriteRecord): void => {
    mutations.push(deleteWrite(row.key, write))
    if (write.type === 'put' && write.shortValue === undefined)
      mutations.push({ type: 'delete-value', key: row.key, startTs: write.startTs })
    garbage.push(write)
  }
  let { base } = part
  for (const write of row.writes) {
    if (write.commitTs > safePoint) continue
    if (base !== undefined) remove(write)
    else if (isData(write)) base = write
    else if (!standsForRollback(write, safePoint)) remove(write)
  }
  // A record of an earlier part may have been flagged in the meantime.
  const stands =
    base !== undefined && (base === part.base ? base.commitTs === safePoint : standsForRollback(base, safePoint))
  if (part.isLast && base !== undefined && !isVisible(base, safePoint) && !stands) remove(base)
  return { mutations, removed: garbage.length, garbage, base }
}

function standsForRollback(write: WriteRecord, startTs: Timestamp): boolean {
  return write.commitTs === startTs && (write.type === 'rollback' || write.hasOverlappedRollback)
}
