import type { Timestamp } from '../../timestamp.js'
import { alreadyCommitted, keyLocked } from '../errors.js'
import { isExpired } from '../lock.js'
import { lockInfo } from '../lock-info.js'
import { done, type Outcome, type RowView, refused } from '../row.js'
import { rollbackLock, rollbackMissingLock } from './rollback.js'

/**
 * Rolls back one key whose lock is older than its TTL. The Rollback record is protected, so that a prewrite that comes
 * late can't revive the transaction.
 * @param row history of depth `txn`.
 * @param currentTs 0: the lock counts as expired.
 * @returns Errors: `key_locked` while the lock lives, `already_committed`.
 * @see TiKV `actions/cleanup.rs`.
 */
export function cleanup(row: RowView, startTs: Timestamp, currentTs: Timestamp): Outcome<void> {
  if (row.lock?.startTs === startTs) {
    if (currentTs !== 0 && !isExpired(row.lock, currentTs)) return refused(keyLocked(lockInfo(row.key, row.lock)))
    return done(undefined, rollbackLock(row, row.lock, false))
  }
  const missing = rollbackMissingLock(row, startTs, true)
  if (missing.kind === 'committed') return refused(alreadyCommitted(row.key, startTs, missing.commitTs))
  return done(undefined, missing.kind === 'rolled_back_now' ? missing.mutations : [])
}
