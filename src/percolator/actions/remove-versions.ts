import { afterKey } from '../../bytes/key-range.js'
import { WRITE_AHEAD_MS_MAX } from '../../limits.js'
import { type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { RangeChange } from '../change.js'
import { deleteWrite, type Mutation, type RowView } from '../row.js'
import { isData, type WriteRecord } from '../write.js'

export interface Removal {
  readonly mutations: readonly Mutation[]
  /** For feeds that get there: one change behind each removed version that is far ahead of the clock. */
  readonly ahead: readonly RangeChange[]
}

/** True when no client may write so far ahead. @param ts the newest timestamp handed out, or the clock's. */
export function isFarAhead(writtenTs: Timestamp, ts: Timestamp): boolean {
  return writtenTs > ts + timestampFromMs(WRITE_AHEAD_MS_MAX)
}

/**
 * True when a delete_range at `upTo` removes the version: if it is at or below `upTo`, or so far ahead of the clock that no
 * client may write there and nothing else could remove it. Other versions were committed after the call, or for later, and stay.
 * A rollback above every timestamp that was handed out blocks no transaction, so it may go.
 * @param lastTs the newest timestamp that was handed out.
 */
export function isTaken({ type, commitTs }: WriteRecord, upTo: Timestamp, lastTs: Timestamp): boolean {
  return commitTs <= upTo || (type === 'rollback' ? commitTs > lastTs : isFarAhead(commitTs, lastTs))
}

/**
 * Decides the removals of a delete_range at `upTo` on one key. Locks stay: the transactions of those that stood when the call
 * began are ended, and a later one commits above `upTo`. Only a lock far ahead of the clock is removed, because nothing else
 * could end it.
 * @param row history of depth `all`. @param values in CF_DEFAULT. @param lastTs see `isTaken`.
 * @see TiKV `delete_range`, which removes everything.
 */
export function removeVersions(
  { key, lock, writes }: RowView,
  values: Iterable<{ readonly startTs: Timestamp }>,
  upTo: Timestamp,
  lastTs: Timestamp,
): Removal {
  const isUnlocked = lock !== undefined && isFarAhead(lock.startTs, lastTs)
  const taken = writes.filter((write) => isTaken(write, upTo, lastTs))
  const kept = new Set(writes.flatMap((write) => (isTaken(write, upTo, lastTs) ? [] : [write.startTs])))
  if (lock !== undefined && !isUnlocked) kept.add(lock.startTs)
  const mutations: Mutation[] = isUnlocked ? [{ type: 'delete-lock', key }] : []
  for (const write of taken) mutations.push(deleteWrite(key, write))
  for (const { startTs } of values) if (!kept.has(startTs)) mutations.push({ type: 'delete-value', key, startTs })
  const ahead = taken.flatMap((write): RangeChange[] => {
    const { commitTs } = write
    if (commitTs <= upTo || !isData(write)) return []
    return [{ type: 'delete_range', key, end: afterKey(key), commitTs, startTs: commitTs }]
  })
  return { mutations, ahead }
}
