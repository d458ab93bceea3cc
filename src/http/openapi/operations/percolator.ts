import type { Code, Operations } from '../operation.js'
import { LOCKING } from '../problems.js'

const RANGE_LOCKS: readonly Code[] = ['key_locked', 'ts_below_safe_point']

export const percolator: Operations = {
  'POST /v1/percolator/tso': {
    id: 'percolatorTso',
    tag: 'Percolator',
    summary: 'Take timestamps',
    description:
      'There are 2048 timestamps per millisecond; more run ahead of the clock, by 5 s at most (by 4 s where `count` is above 1). Beyond that the call waits, and answers 503 `overloaded` after 3 s.',
  },
  'POST /v1/percolator/prewrite': {
    id: 'percolatorPrewrite',
    tag: 'Percolator',
    summary: 'Lock keys with their new values',
    description: `All of a request or none of it. On failure the problem has \`errors\`, one entry per lock met, or one for any other failure; its own code is that of the first.

A repeat after the commit locks nothing and answers the real commit_ts. Where one key is committed and another shows neither lock nor record, somebody else used the \`start_ts\`: 409 \`write_conflict\`, \`self_rolled_back\`. \`max_commit_ts\` is for keys that this request locks, and \`check_not_exists\` takes no part and does not go with \`for_update_ts\`.`,
    problems: [
      'not_found',
      'key_locked',
      'write_conflict',
      'already_exists',
      'assertion_failed',
      'pessimistic_lock_not_found',
      'precondition_failed',
      'ts_below_safe_point',
    ],
  },
  'POST /v1/percolator/commit': {
    id: 'percolatorCommit',
    tag: 'Percolator',
    summary: 'Commit keys',
    description: 'Commit the primary first: that is the moment at which the transaction commits.',
    problems: ['txn_lock_not_found', 'commit_ts_expired', 'ts_below_safe_point'],
  },
  'POST /v1/percolator/get': {
    id: 'percolatorGet',
    tag: 'Percolator',
    summary: 'Read a key',
    description:
      '423 when a transaction that may commit at or below `ts` holds the key. Without `ts` it passes over the primary lock of a transaction without async commit: while that stands, the transaction has not committed.',
    problems: RANGE_LOCKS,
  },
  'POST /v1/percolator/batch_get': {
    id: 'percolatorBatchGet',
    tag: 'Percolator',
    summary: 'Read keys',
    description: '423 with `locks`, in order of keys.',
    problems: RANGE_LOCKS,
  },
  'POST /v1/percolator/scan': {
    id: 'percolatorScan',
    tag: 'Percolator',
    summary: 'Read a range',
    description: 'The pairs of a snapshot, in order of keys.',
    problems: RANGE_LOCKS,
  },
  'POST /v1/percolator/check_txn_status': {
    id: 'percolatorCheckTxnStatus',
    tag: 'Percolator',
    summary: 'Tell, or decide, the end of a transaction',
    description: 'Asked at the primary of a lock that is in the way.',
    problems: ['txn_not_found', 'primary_mismatch'],
  },
  'POST /v1/percolator/resolve_lock': {
    id: 'percolatorResolveLock',
    tag: 'Percolator',
    summary: 'End locks of transactions whose end is known',
    description:
      '`start_ts` and `commit_ts` for one transaction, or `txns` for several. Without `keys` it needs a token without prefixes.',
    problems: ['commit_ts_expired'],
  },
  'POST /v1/percolator/check_secondary_locks': {
    id: 'percolatorCheckSecondaryLocks',
    tag: 'Percolator',
    summary: 'Check the secondaries of an async commit',
    description: 'Answers all locks when all are there; otherwise it stops at the first that is not.',
  },
  'POST /v1/percolator/txn_heart_beat': {
    id: 'percolatorTxnHeartBeat',
    tag: 'Percolator',
    summary: 'Keep a transaction alive',
    description: 'Raises the TTL of a living primary lock.',
    problems: ['txn_not_found'],
  },
  'POST /v1/percolator/acquire_pessimistic_lock': {
    id: 'percolatorAcquirePessimisticLock',
    tag: 'Percolator',
    summary: 'Lock keys before their values are known',
    description: `All of a request or none of it. A pessimistic lock keeps other writers away and blocks no read. Asking again for a lock that stands succeeds, and raises its \`for_update_ts\` and TTL.

Requests that wait for a key form a queue, the lowest \`start_ts\` first. A woken one gets the lock or \`pessimistic_retry\`: take a new timestamp and ask again. A wait that would close a cycle is 409 \`deadlock\` at once. A client that hangs up ends its wait.

The locks live in memory: a restart drops them. To end that of a dead client, call [check_txn_status](#percolatorCheckTxnStatus) of its primary with \`resolving_pessimistic_lock\`, once its TTL is over, then [pessimistic_rollback](#percolatorPessimisticRollback).`,
    problems: [...LOCKING, 'already_exists'],
  },
  'POST /v1/percolator/pessimistic_rollback': {
    id: 'percolatorPessimisticRollback',
    tag: 'Percolator',
    summary: 'Give pessimistic locks up',
    description:
      'The transaction goes on. Succeeds whether there were any or not, and leaves no record: the keys may be locked again, which they may not after [rollback](#percolatorRollback).',
  },
  'POST /v1/percolator/validate_reads': {
    id: 'percolatorValidateReads',
    tag: 'Percolator',
    summary: 'Validate what a transaction read, and its leases',
    description: `Extension. Makes sure that nobody else writes up to \`commit_ts\` what the transaction read at \`start_ts\`. Prewrite everything, without async commit, take \`commit_ts\` from [tso](#percolatorTso), validate, then commit at it; validate again for another one. \`conflict_commit_ts\` 0 means an older transaction that may still commit up to \`commit_ts\`. 423 tells the \`locks\` of younger ones that may: resolve them or wait, and ask again.

In one request: \`reads\` of a prewrite with \`try_one_pc\`. Where that falls back to two phases (no \`one_pc_commit_ts\` in the answer) nothing was validated.`,
    problems: ['key_locked', 'write_conflict', 'ts_below_safe_point', 'precondition_failed'],
  },
  'POST /v1/percolator/scan_lock': {
    id: 'percolatorScanLock',
    tag: 'Percolator',
    summary: 'List locks',
    description: 'In order of keys.',
  },
  'POST /v1/percolator/get_lock_wait_info': {
    id: 'percolatorGetLockWaitInfo',
    tag: 'Percolator',
    summary: 'List who waits for whom',
    description:
      'Requests that wait for pessimistic locks now. Readers and writers that wait for a prewrite lock ask again from time to time, and are not among them. Of several servers on one table each tells of its own requests.',
  },
  'POST /v1/percolator/cleanup': {
    id: 'percolatorCleanup',
    tag: 'Percolator',
    summary: 'Roll one key of an expired transaction back',
    description: '423 while the lock lives.',
    problems: ['key_locked', 'already_committed'],
  },
  'POST /v1/percolator/rollback': {
    id: 'percolatorRollback',
    tag: 'Percolator',
    summary: 'Roll the own transaction back',
    description: 'Leaves Rollback records against a late prewrite.',
    problems: ['already_committed'],
  },
  'POST /v1/percolator/mvcc_get_by_key': {
    id: 'percolatorMvccGetByKey',
    tag: 'Percolator',
    summary: 'All that is stored of a key',
    description: 'Its lock, write records and values.',
  },
  'POST /v1/percolator/mvcc_get_by_start_ts': {
    id: 'percolatorMvccGetByStartTs',
    tag: 'Percolator',
    summary: 'All that is stored of the first key of a transaction',
    description: 'The first key that the transaction locked or wrote. It looks at every write record in the range.',
  },
  'POST /v1/percolator/delete_range': {
    id: 'percolatorDeleteRange',
    tag: 'Percolator',
    summary: 'Remove every version in a range',
    description:
      'Removes every version and lock at once, for data that is dropped for good. Readers of the past lose it too. What others commit meanwhile stays, and so do versions up to 60 s ahead of the clock. First it ends every transaction that has a lock in the range, or its primary there, whatever its TTL: a committed one is committed on all of its keys, others are rolled back on all, so nothing changes outside of the range that was acknowledged. On a shared store that takes a walk over the table.',
  },
  'POST /v1/percolator/gc': {
    id: 'percolatorGc',
    tag: 'Percolator',
    summary: 'Collect old versions, asking nobody',
    description:
      'Ends the transactions that started before the safe point and still hold locks, living ones too; then removes the versions that no reader from there on can see. Reads, prewrites and commits below it are 410 `ts_below_safe_point` from then on. Pins and consumers are not asked.',
  },
}
