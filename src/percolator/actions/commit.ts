import { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { Timestamp } from '../../timestamp.js'
import type { CommitAnswer } from '../api.js'
import { done, type Mutation, type Outcome, type RowView, refused, txnRecord } from '../row.js'
import type { WriteRecord } from '../write.js'

export interface CommitKey {
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
  /** The primary is committed at `commitTs`, so this key has to be committed too. */
  readonly isDecided?: boolean | undefined
}

/**
 * Decides the commit of one prewritten key.
 * @param row history of depth `none` suffices while the transaction's lock is there, `txn` otherwise.
 * @param request `startTs < commitTs`.
 * @returns the commitTs on record; after an earlier commit it is that commit's, without mutations. A pessimistic lock that was
 *   never prewritten is removed without a record. Errors: `txn_lock_not_found` (rolled back or never prewritten),
 *   `commit_ts_expired` (a reader raised the lock's min_commit_ts).
 * @see Peng and Dabek, OSDI 2010, section 2.2 (figure 6); TiKV `src/storage/txn/actions/commit.rs`.
 */
export function commit(row: RowView, request: CommitKey): Outcome<{ commitTs: Timestamp; released: boolean }> {
  const { key, lock } = row
  const { startTs, commitTs } = request
  if (lock === undefined || lock.startTs !== startTs) {
    const record = txnRecord(row.writes, startTs)
    if (record.kind === 'record' && record.write.type !== 'rollback')
      return done({ commitTs: record.write.commitTs, released: false })
    const detail = `key ${printKey(key)} has neither a lock nor a commit of the transaction at ${startTs}`
    return refused(new KvError('txn_lock_not_found', detail, { key, startTs, commitTs }))
  }
  if (commitTs < lock.minCommitTs && !request.isDecided) {
    const detail = `commit_ts ${commitTs} is below the min_commit_ts ${lock.minCommitTs} of the lock on ${printKey(key)}`
    const fields = { key, startTs, attemptedCommitTs: commitTs, minCommitTs: lock.minCommitTs }
    return refused(new KvError('commit_ts_expired', detail, fields))
  }
  const unlock: Mutation = { type: 'delete-lock', key }
  if (lock.type === 'pessimistic') return done({ commitTs, released: true }, [unlock])
  const write: WriteRecord = {
    type: lock.type,
    startTs,
    commitTs,
    shortValue: lock.shortValue,
    expireTs: lock.expireTs,
    leaseFence: lock.leaseFence,
    isProtected: false,
    hasOverlappedRollback: lock.rollbackTs.includes(commitTs),
  }
  return done({ commitTs, released: true }, [{ type: 'put-write', key, write }, unlock])
}

/**
 * Decides the commit of all keys of a request. When one key was committed before at another timestamp, the other keys are
 * committed at that timestamp too, so that a transaction never has two.
 */
export function commitAll(rows: readonly RowView[], request: CommitKey): Outcome<CommitAnswer> {
  let commitTs = request.commitTs
  for (const row of rows) {
    if (row.lock?.startTs === request.startTs) continue
    const record = txnRecord(row.writes, request.startTs)
    if (record.kind === 'record' && record.write.type !== 'rollback') commitTs = record.write.commitTs
  }
  const mutations: Mutation[] = []
  for (const row of rows) {
    const outcome = commit(row, { startTs: request.startTs, commitTs })
    if (!outcome.ok) return outcome
    mutations.push(...outcome.mutations)
  }
  return done({ commitTs }, mutations)
}
