import { printKey } from '../../errors/print-key.js'
import type { Timestamp } from '../../timestamp.js'
import { alreadyCommitted } from '../errors.js'
import type { Lock } from '../lock.js'
import { done, type Mutation, type Outcome, type RowView, refused, sameKey, txnRecord } from '../row.js'
import { rollbackRecord, type WriteRecord } from '../write.js'

export type MissingLockOutcome =
  | { readonly kind: 'committed'; readonly commitTs: Timestamp }
  | { readonly kind: 'rolled_back_already' }
  | { readonly kind: 'rolled_back_now'; readonly mutations: readonly Mutation[] }

/**
 * Rolls back one key of a transaction that is known to have failed, whatever the age of its lock. The Rollback record is
 * protected on the primary only.
 * @param row history of depth `txn`.
 * @returns Errors: `already_committed`.
 * @see TiKV `commands/rollback.rs`.
 */
export function rollback(row: RowView, startTs: Timestamp): Outcome<{ released: boolean }> {
  if (row.lock?.startTs === startTs) return done({ released: true }, rollbackLock(row, row.lock, true))
  const missing = rollbackMissingLock(row, startTs, false)
  if (missing.kind === 'committed') return refused(alreadyCommitted(row.key, startTs, missing.commitTs))
  return done({ released: false }, missing.kind === 'rolled_back_now' ? missing.mutations : [])
}

/**
 * Removes a transaction's lock and its long value, and leaves a Rollback record against a late prewrite.
 * @param row history of depth `txn`, without a commit of this transaction: a key is never both locked and committed.
 * @see TiKV `actions/check_txn_status.rs`, `rollback_lock`.
 */
export function rollbackLock(row: RowView, lock: Lock, collapse: boolean): Mutation[] {
  const mutations: Mutation[] = [{ type: 'delete-lock', key: row.key }]
  if (lock.type === 'put' && lock.shortValue === undefined)
    mutations.push({ type: 'delete-value', key: row.key, startTs: lock.startTs })
  const record = txnRecord(row.writes, lock.startTs)
  if (record.kind !== 'none') {
    if (record.kind === 'record' && record.write.type !== 'rollback')
      throw new Error(`key ${printKey(row.key)} holds both a lock and a commit of the transaction at ${lock.startTs}`)
    return mutations // The key was rolled back before, and the lock came from a late request.
  }
  mutations.push(...rollbackMark(row.key, lock.startTs, sameKey(row.key, lock.primary), record.overlapped))
  if (collapse) mutations.push(...collapsePrevious(row, lock.startTs))
  return mutations
}

/**
 * @param isProtected the Rollback record must stay: it decides the whole transaction, or stops a late prewrite.
 * @see TiKV `actions/check_txn_status.rs`, `check_txn_status_missing_lock`.
 */
export function rollbackMissingLock(row: RowView, startTs: Timestamp, isProtected: boolean): MissingLockOutcome {
  const record = txnRecord(row.writes, startTs)
  if (record.kind === 'overlapped-rollback') return { kind: 'rolled_back_already' }
  if (record.kind === 'record') {
    if (record.write.type === 'rollback') return { kind: 'rolled_back_already' }
    return { kind: 'committed', commitTs: record.write.commitTs }
  }
  const mutations: Mutation[] = []
  if (!isProtected) mutations.push(...collapsePrevious(row, startTs))
  if (isProtected && record.overlapped === undefined) mutations.push(...markOnOtherLock(row, startTs))
  mutations.push(...rollbackMark(row.key, startTs, isProtected, record.overlapped))
  return { kind: 'rolled_back_now', mutations }
}

/**
 * The record that stops a late prewrite. If another transaction's record already stands at `startTs`, a protected rollback
 * becomes a flag on it, and an unprotected one is left out.
 */
export function rollbackMark(
  key: Uint8Array,
  startTs: Timestamp,
  isProtected: boolean,
  overlapped: WriteRecord | undefined,
): Mutation[] {
  if (overlapped === undefined) return [{ type: 'put-write', key, write: rollbackRecord(startTs, isProtected) }]
  return isProtected
    ? [{ type: 'put-write', key, write: { ...overlapped, hasOverlappedRollback: true }, isFlag: true }]
    : []
}

/** Keeps only the newest of consecutive unprotected Rollback records, which would pile up on a hot key. */
export function collapsePrevious(row: RowView, startTs: Timestamp): Mutation[] {
  const previous = row.writes.find((write) => write.commitTs <= startTs)
  if (previous === undefined || previous.type !== 'rollback' || previous.isProtected) return []
  return [{ type: 'delete-write', key: row.key, commitTs: previous.commitTs }]
}

/**
 * Another transaction's async-commit lock may still commit at exactly `startTs` and overwrite the Rollback record there, so the
 * lock remembers it. @see TiKV `mvcc/txn.rs`, `mark_rollback_on_mismatching_lock`.
 */
export function markOnOtherLock(row: RowView, startTs: Timestamp): Mutation[] {
  const lock = row.lock
  if (lock === undefined || !lock.useAsyncCommit || startTs < lock.minCommitTs) return []
  return [{ type: 'put-lock', key: row.key, lock: { ...lock, rollbackTs: [...lock.rollbackTs, startTs] } }]
}
