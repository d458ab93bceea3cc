import type { TxnHeartBeatAnswer, TxnHeartBeatRequest } from '../api.js'
import { done, type Outcome, type RowView, refused } from '../row.js'
import { txnNotFound } from './check-txn-status.js'

/**
 * Raises the TTL of a primary lock to the advised one, but never lowers it. Raises `minCommitTs` likewise, except under async
 * commit, where the prewrites determine it.
 * @param row no history needed.
 * @returns the lock's TTL in milliseconds. Errors: `txn_not_found`.
 * @see TiKV `commands/txn_heart_beat.rs`.
 */
export function txnHeartBeat(row: RowView, request: TxnHeartBeatRequest): Outcome<TxnHeartBeatAnswer> {
  const { lock, key } = row
  if (lock === undefined || lock.startTs !== request.startTs) return refused(txnNotFound(key, request.startTs))
  const ttlMs = Math.max(lock.ttlMs, request.adviseLockTtl)
  const minCommitTs = lock.useAsyncCommit ? lock.minCommitTs : Math.max(lock.minCommitTs, request.minCommitTs ?? 0)
  if (ttlMs === lock.ttlMs && minCommitTs === lock.minCommitTs) return done({ lockTtl: ttlMs })
  return done({ lockTtl: ttlMs }, [{ type: 'put-lock', key, lock: { ...lock, ttlMs, minCommitTs } }])
}
