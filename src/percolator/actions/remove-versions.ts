import { afterKey } from '../../bytes/key-range.js'
import type { Timestamp } from '../../timestamp.js'
import type { RangeChange } from '../change.js'
import type { Mutation, RowView } from '../row.js'
import { isData } from '../write.js'

export interface Removal {
  readonly mutations: readonly Mutation[]
  /** A change behind each removed version that is ahead of the clock, for feeds that come there. */
  readonly ahead: readonly RangeChange[]
}

/**
 * What a delete_range at `upTo` takes of one key: its versions at or below `upTo`, and those ahead of every timestamp that was handed
 * out, which nobody else could remove. What was committed between them came after it, and stays. The same holds for a lock, by its
 * start_ts.
 * @param row history of depth `all`. @param values in CF_DEFAULT. @param lastTs the newest timestamp that was handed out.
 * @see TiKV `delete_range`, which removes everything.
 */
export function removeVersions(
  { key, lock, writes }: RowView,
  values: Iterable<{ readonly startTs: Timestamp }>,
  upTo: Timestamp,
  lastTs: Timestamp,
): Removal {
  const isGone = (ts: Timestamp): boolean => ts <= upTo || ts > lastTs
  const isUnlocked = lock !== undefined && isGone(lock.startTs)
  const kept = new Set(writes.flatMap(({ commitTs, startTs }) => (isGone(commitTs) ? [] : [startTs])))
  if (lock !== undefined && !isUnlocked) kept.add(lock.startTs)
  const mutations: Mutation[] = isUnlocked ? [{ type: 'delete-lock', key }] : []
  for (const { commitTs } of writes) if (isGone(commitTs)) mutations.push({ type: 'delete-write', key, commitTs })
  for (const { startTs } of values) if (!kept.has(startTs)) mutations.push({ type: 'delete-value', key, startTs })
  const ahead = writes.flatMap((write): RangeChange[] => {
    const { commitTs } = write
    if (commitTs <= lastTs || !isData(write)) return []
    return [{ type: 'delete_range', key, end: afterKey(key), commitTs, startTs: commitTs }]
  })
  return { mutations, ahead }
}
