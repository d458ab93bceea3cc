import type { LockInfo } from '../../errors/lock-info.js'
import type { Timestamp } from '../../timestamp.js'
import { lockInfo } from '../lock-info.js'
import { done, type Mutation, type Outcome, type RowView, txnRecord } from '../row.js'
import { collapsePrevious, markOnOtherLock, rollbackMark } from './rollback.js'

export type SecondaryStatus =
  | { readonly kind: 'locked'; readonly lock: LockInfo }
  | { readonly kind: 'committed'; readonly commitTs: Timestamp }
  | { readonly kind: 'rolled_back' }

/**
 * Finds the state of one secondary of an async-commit transaction: locked, committed, or missing. A missing lock gets a protected
 * Rollback record, so that the answer stays true. A pessimistic lock is removed and gets one too.
 * @param row history of depth `none` suffices while the transaction holds a lock that is not pessimistic, `txn` otherwise.
 * @see TiKV `commands/check_secondary_locks.rs`.
 */
export function checkSecondaryLock(row: RowView, startTs: Timestamp): Outcome<SecondaryStatus, never> {
  const { key, lock } = row
  const mutations: Mutation[] = []
  if (lock?.startTs === startTs) {
    if (lock.type !== 'pessimistic') return done({ kind: 'locked', lock: lockInfo(key, lock) })
    mutations.push({ type: 'delete-lock', key })
  }
  const record = txnRecord(row.writes, startTs)
  if (record.kind === 'record' && record.write.type !== 'rollback')
    return done({ kind: 'committed', commitTs: record.write.commitTs }, mutations)
  if (record.kind === 'none') {
    if (lock !== undefined && lock.startTs !== startTs) mutations.push(...markOnOtherLock(row, startTs))
    mutations.push(...rollbackMark(key, startTs, true, record.overlapped), ...collapsePrevious(row, startTs))
  }
  return done({ kind: 'rolled_back' }, mutations)
}
