import { afterKey } from '../../bytes/key-range.js'
import { WRITE_AHEAD_MS_MAX } from '../../limits.js'
import { type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { RangeChange } from '../change.js'
import { deleteWrite, type Mutation, type RowView } from '../row.js'
import { isData } from '../write.js'

export interface Removal {
  readonly mutations: readonly Mutation[]
  /** A change behind each removed version that is far ahead of the clock, for feeds that come there. */
  readonly ahead: readonly RangeChange[]
}

/**
 * What a delete_range at `upTo` takes of one key: its versions at or below `upTo`, and those so far ahead of the clock that no client
 * may write there, which nothing else could remove. The others were committed after it, or for later, and stay. A lock goes by its
 * start_ts, also if that is ahead of every timestamp that was handed out: nobody else could end it.
 * @param row history of depth `all`. @param values in CF_DEFAULT. @param lastTs the newest timestamp that was handed out.
 * @see TiKV `delete_range`, which removes everything.
 */
export function removeVersions(
  { key, lock, writes }: RowView,
  values: Iterable<{ readonly startTs: Timestamp }>,
  upTo: Timestamp,
  lastTs: Timestamp,
): Removal {
  const farTs = lastTs + timestampFromMs(WRITE_AHEAD_MS_MAX)
  const isGone = (commitTs: Timestamp): boolean => commitTs <= upTo || commitTs > farTs
  const isUnlocked = lock !== undefined && (lock.startTs <= upTo || lock.startTs > lastTs)
  const kept = new Set(writes.flatMap(({ commitTs, startTs }) => (isGone(commitTs) ? [] : [startTs])))
  if (lock !== undefined && !isUnlocked) kept.add(lock.startTs)
  const mutations: Mutation[] = isUnlocked ? [{ type: 'delete-lock', key }] : []
  for (const write of writes) if (isGone(write.commitTs)) mutations.push(deleteWrite(key, write))
  for (const { startTs } of values) if (!kept.has(startTs)) mutations.push({ type: 'delete-value', key, startTs })
  const ahead = writes.flatMap((write): RangeChange[] => {
    const { commitTs } = write
    if (commitTs <= farTs || !isData(write)) return []
    return [{ type: 'delete_range', key, end: afterKey(key), commitTs, startTs: commitTs }]
  })
  return { mutations, ahead }
}
