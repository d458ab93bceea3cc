import type { Timestamp } from '../timestamp.js'
import type { Lock } from './lock.js'

/**
 * @returns the highest resolved_ts that a lock allows, just below every timestamp at which its transaction may commit. It is also
 *   the highest timestamp at which a read passes the lock (see `blocksRead`). undefined for locks that change no value: their
 *   transaction has yet to prewrite, or writes a Lock record.
 */
export function resolvedBelow({
  type,
  startTs,
  minCommitTs,
}: Pick<Lock, 'type' | 'startTs' | 'minCommitTs'>): Timestamp | undefined {
  if (type === 'pessimistic' || type === 'lock') return undefined
  return Math.max(startTs, minCommitTs) - 1
}
