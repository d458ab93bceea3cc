import type { Timestamp } from '../../timestamp.js'
import type { Mutation, RowView } from '../row.js'
import { isData, type WriteRecord } from '../write.js'

/** Where a long history stands that is collected in parts, newest first. */
export interface GcPart {
  /** The newest Put or Delete at or below the safe point, if an earlier part had it. */
  readonly base: WriteRecord | undefined
  /** No older record follows. */
  readonly isLast: boolean
}

export interface GcAnswer {
  readonly mutations: Mutation[]
  /** Write records that they remove. */
  readonly removed: number
  /** For the next part. */
  readonly base: WriteRecord | undefined
}

/**
 * What may go below the safe point: every reader from there on sees the newest Put at or below it, or nothing when
 * that is a Delete; older records, and Lock and Rollback records, are seen by nobody. A transaction that started exactly
 * at the safe point may still prewrite, so what says that it was rolled back stays. A Delete goes after all that is
 * older: in between, readers must not see what it deleted.
 * @param row the whole history, or the part of it that `part` tells of.
 * @see TiKV `actions/gc.rs`.
 */
export function gc(
  row: Pick<RowView, 'key' | 'writes'>,
  safePoint: Timestamp,
  part: GcPart = { base: undefined, isLast: true },
): GcAnswer {
  const mutations: Mutation[] = []
  let removed = 0
  const remove = (write: WriteRecord): void => {
    mutations.push({ type: 'delete-write', key: row.key, commitTs: write.commitTs })
    if (write.type === 'put' && write.shortValue === undefined)
      mutations.push({ type: 'delete-value', key: row.key, startTs: write.startTs })
    removed++
  }
  let { base } = part
  for (const write of row.writes) {
    if (write.commitTs > safePoint) continue
    if (base !== undefined) remove(write)
    else if (isData(write)) base = write
    else if (!standsForRollback(write, safePoint)) remove(write)
  }
  // One from an earlier part may have been flagged since.
  const stands =
    base !== undefined && (base === part.base ? base.commitTs === safePoint : standsForRollback(base, safePoint))
  if (part.isLast && base?.type === 'delete' && !stands) remove(base)
  return { mutations, removed, base }
}

function standsForRollback(write: WriteRecord, startTs: Timestamp): boolean {
  return write.commitTs === startTs && (write.type === 'rollback' || write.hasOverlappedRollback)
}
