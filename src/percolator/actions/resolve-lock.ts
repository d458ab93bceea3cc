import type { Timestamp } from '../../timestamp.js'
import { done, type Outcome, type RowView } from '../row.js'
import { commit } from './commit.js'
import { rollback } from './rollback.js'

/**
 * Brings one key to its transaction's known end.
 * @param row history of depth `txn`; for a locked key of a committed transaction see `commit`.
 * @param commitTs 0: rolled back.
 * @param keyIsNamed the caller named the key instead of finding its lock by a walk. A missing lock is then rolled back or
 *   refused, as in a rollback or commit of that key.
 * @param isDecided see `CommitKey`.
 * @returns whether a lock was removed. Errors: those of commit and rollback.
 * @see TiKV `commands/resolve_lock.rs`, `commands/resolve_lock_lite.rs`.
 */
export function resolveLock(
  row: RowView,
  startTs: Timestamp,
  commitTs: Timestamp,
  keyIsNamed: boolean,
  isDecided = false,
): Outcome<{ released: boolean }> {
  // Another call has resolved it in the meantime.
  if (!keyIsNamed && row.lock?.startTs !== startTs) return done({ released: false })
  if (commitTs === 0) return rollback(row, startTs)
  const outcome = commit(row, { startTs, commitTs, isDecided })
  if (!outcome.ok) return outcome
  return done({ released: outcome.value.released }, outcome.mutations)
}
