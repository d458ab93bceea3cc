import { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { CheckTxnStatusRequest, TxnStatus, TxnStatusAction } from '../api.js'
import { isExpired, type Lock } from '../lock.js'
import { lockInfo } from '../lock-info.js'
import { done, type Outcome, type RowView, refused, sameKey, txnRecord } from '../row.js'
import { rollbackLock, rollbackMissingLock } from './rollback.js'

/**
 * Finds the state of a transaction from its primary key. Rolls it back when its lock has outlived its TTL, and raises
 * min_commit_ts past a reader when its lock allows that.
 * @param row the primary key, history of depth `txn` for `lockTs`.
 * @param clockTs the newest timestamp that is not in the future. A reader above it pushes no min_commit_ts, or the transaction
 *   would have to commit ahead of the clock. Default: no reader is in the future.
 * @returns Errors: `txn_not_found` (no trace of it, and `rollbackIfNotExist` not set), `primary_mismatch`.
 * @see TiKV `commands/check_txn_status.rs`, `actions/check_txn_status.rs`.
 */
export function checkTxnStatus(
  row: RowView,
  request: CheckTxnStatusRequest,
  clockTs: Timestamp = TIMESTAMP_MAX,
): Outcome<TxnStatus> {
  const lock = row.lock
  if (lock === undefined || lock.startTs !== request.lockTs) return missingLock(row, request)

  if (request.verifyIsPrimary && !sameKey(row.key, lock.primary)) {
    // A prewrite lock points here, so this pessimistic lock is a leftover from before the primary was chosen.
    if (lock.type === 'pessimistic' && !request.resolvingPessimisticLock) {
      const outcome = missingLock({ ...row, lock: undefined }, request)
      if (!outcome.ok) return outcome
      return done(outcome.value, [...outcome.mutations, { type: 'delete-lock', key: row.key }])
    }
    const detail = `key ${printKey(row.key)} is not the primary of the transaction at ${request.lockTs}`
    return refused(new KvError('primary_mismatch', detail, { lock: lockInfo(row.key, lock) }))
  }

  // An async-commit transaction may be committed already, whatever the age of its primary: its secondaries decide.
  if (lock.useAsyncCommit && !request.forceSyncCommit) return done(locked(row.key, lock, 'no_action'))

  if (isExpired(lock, request.currentTs)) {
    if (lock.type === 'pessimistic' && request.resolvingPessimisticLock)
      return done(rolledBack('ttl_expire_pessimistic_rollback'), [{ type: 'delete-lock', key: row.key }])
    return done(rolledBack('ttl_expire_rollback'), rollbackLock(row, lock, true))
  }
  return pushMinCommitTs(row.key, lock, request, clockTs)
}

function missingLock(row: RowView, request: CheckTxnStatusRequest): Outcome<TxnStatus> {
  if (!request.rollbackIfNotExist || request.resolvingPessimisticLock) {
    const record = txnRecord(row.writes, request.lockTs)
    if (record.kind === 'none') {
      if (!request.rollbackIfNotExist) return refused(txnNotFound(row.key, request.lockTs))
      return done(rolledBack('lock_not_exist_do_nothing'))
    }
  }
  const missing = rollbackMissingLock(row, request.lockTs, true)
  switch (missing.kind) {
    case 'committed':
      return done({ status: 'committed', lockTtl: 0, commitTs: missing.commitTs, action: 'no_action' })
    case 'rolled_back_already':
      return done(rolledBack('no_action'))
    case 'rolled_back_now':
      return done(rolledBack('lock_not_exist_rollback'), missing.mutations)
  }
}

/** Leaves a lock without min_commit_ts as it is: its client would not understand a raised one. */
function pushMinCommitTs(
  key: Uint8Array,
  lock: Lock,
  request: CheckTxnStatusRequest,
  clockTs: Timestamp,
): Outcome<TxnStatus> {
  const { callerStartTs, currentTs } = request
  if (callerStartTs === TIMESTAMP_MAX) return done(locked(key, lock, 'min_commit_ts_pushed'))
  if (lock.minCommitTs === 0 || callerStartTs < lock.minCommitTs || callerStartTs > clockTs) {
    const isPast = callerStartTs !== 0 && lock.minCommitTs > callerStartTs
    return done(locked(key, lock, isPast ? 'min_commit_ts_pushed' : 'no_action'))
  }
  const pushed: Lock = { ...lock, minCommitTs: Math.max(callerStartTs + 1, currentTs) }
  return done(locked(key, pushed, 'min_commit_ts_pushed'), [{ type: 'put-lock', key, lock: pushed }])
}

function locked(key: Uint8Array, lock: Lock, action: TxnStatusAction): TxnStatus {
  return { status: 'locked', lockTtl: lock.ttlMs, commitTs: 0, action, lock: lockInfo(key, lock) }
}

function rolledBack(action: TxnStatusAction): TxnStatus {
  return { status: 'rolled_back', lockTtl: 0, commitTs: 0, action }
}

export function txnNotFound(primary: Uint8Array, startTs: Timestamp): KvError {
  const detail = `key ${printKey(primary)} holds no trace of a transaction at ${startTs}`
  return new KvError('txn_not_found', detail, { startTs, primary })
}
