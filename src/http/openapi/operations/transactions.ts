import type { Operations } from '../operation.js'
import { LOCKING } from '../problems.js'

export const transactions: Operations = {
  'POST /v1/txn': {
    id: 'transact',
    tag: 'Transactions',
    summary: 'Run a transaction in one request',
    description: `A whole transaction: every check holds and all ops take effect, or nothing does. Waits up to 3 s for locks of other transactions, and starts anew after a write conflict.

Under an \`Idempotency-Key\` a repeat gets the values that were read, too. A transaction that writes nothing stores nothing: a repeat reads again. Of serializable transactions that scan, one runs at a time.`,
    headers: ['Idempotency-Key'],
    problems: [
      'not_found',
      'key_locked',
      'write_conflict',
      'already_exists',
      'precondition_failed',
      'ts_below_safe_point',
      'idempotency_mismatch',
    ],
    answers: { 200: { headers: ['Idempotency-Replayed'] } },
  },
  'POST /v1/txn/begin': {
    id: 'beginTransaction',
    tag: 'Transactions',
    summary: 'Begin a transaction of several requests',
    description:
      'It reads the snapshot of its `start_ts` with its own writes in it; others see nothing of them before the commit. The server keeps it in memory: a restart forgets it. Where several servers share the store, its requests may go to any of them, which asks the one in which it began. Requests that write or lock run one at a time, in order; reads may overlap them.\n\nLocks of a pessimistic transaction stand until its end, also those of a condition or of ops that failed, for an hour at most; the server renews them. Where one was lost all the same, and another transaction has locked or written its key since, the next `for_update` of the key and the commit are 409 `pessimistic_lock_not_found`, also where nothing was written.',
  },
  'GET /v1/txn/{txn}': {
    id: 'readTransaction',
    tag: 'Transactions',
    summary: 'State of a transaction',
    description:
      'Restarts its time to live, as every request of it does. An idle transaction is rolled back and forgotten, and so are all open ones when the server stops: 404 from there on. One that was committed or rolled back is remembered for 90 s.',
    problems: ['txn_not_found'],
  },
  'GET /v1/txn/{txn}/kv/{key}': {
    id: 'readKeyInTransaction',
    tag: 'Transactions',
    summary: 'Read a key in a transaction',
    description: `Reads the snapshot of the transaction, with its own writes. An own write has no \`ETag\` yet.

With \`for_update\`, a pessimistic transaction locks the key and reads its latest version: base writes on that. An optimistic one reads the snapshot, and a newer version is a conflict at its commit, as if the key had been written; so it is with the key of a conditional write. Under snapshot isolation a transaction without writes checks nothing.`,
    headers: ['If-None-Match', 'If-Match'],
    problems: [
      'not_found',
      'txn_not_found',
      'key_locked',
      'lock_wait_timeout',
      'write_conflict',
      'deadlock',
      'pessimistic_lock_rolled_back',
      'precondition_failed',
      'payload_too_large',
      'ts_below_safe_point',
    ],
    answers: {
      200: { description: 'The value.', headers: ['ETag', 'Expire-Ts'] },
      304: { description: 'The key has the version that `If-None-Match` names.', headers: ['ETag', 'Expire-Ts'] },
    },
    head: { id: 'headKeyInTransaction', summary: 'Version and length of a key’s value in a transaction' },
  },
  'PUT /v1/txn/{txn}/kv/{key}': {
    id: 'putKeyInTransaction',
    tag: 'Transactions',
    summary: 'Write a key in a transaction',
    description:
      'In a pessimistic transaction it locks the key at its latest version, and waits for other transactions. May be repeated.',
    headers: ['If-Match', 'If-None-Match'],
    bytes: 'The value, as it is, of any content type.',
    problems: ['txn_not_found', ...LOCKING, 'precondition_failed', 'payload_too_large'],
  },
  'DELETE /v1/txn/{txn}/kv/{key}': {
    id: 'deleteKeyInTransaction',
    tag: 'Transactions',
    summary: 'Delete a key in a transaction',
    description: 'As a write. Deleting an absent key succeeds.',
    headers: ['If-Match', 'If-None-Match'],
    problems: ['txn_not_found', ...LOCKING, 'precondition_failed', 'payload_too_large'],
  },
  'GET /v1/txn/{txn}/kv': {
    id: 'scanKeysInTransaction',
    tag: 'Transactions',
    summary: 'Scan or count a range in a transaction',
    description:
      'As a scan outside of transactions, of the snapshot of the transaction with its own writes as of the beginning of the scan, on later pages too. The last 16 scans can go on, fewer where they hold many writes that were replaced since; the cursor of an earlier one, or of another snapshot, is 400.',
    problems: ['txn_not_found', 'key_locked', 'payload_too_large', 'ts_below_safe_point'],
    answers: { 200: { description: 'A page, a count, or a stream of pairs.', headers: ['Snapshot-Ts'] } },
  },
  'POST /v1/txn/{txn}/ops': {
    id: 'runOps',
    tag: 'Transactions',
    summary: 'Run ops in a transaction',
    description:
      'Where one fails, no write of the list is kept, and the transaction goes on. Waits up to 3 s for locks.',
    problems: ['txn_not_found', ...LOCKING, 'already_exists'],
  },
  'POST /v1/txn/{txn}/commit': {
    id: 'commitTransaction',
    tag: 'Transactions',
    summary: 'Commit a transaction',
    description: `A commit that fails has rolled the transaction back, but for 400: 409, 410, 412, and 423 after 3 s of waiting for locks. Begin again, and read again. After 503 \`storage_unavailable\`, or without an answer, commit the same transaction again. A commit that is repeated within 90 s answers the same; under an \`Idempotency-Key\` it does so for ten minutes, over restarts too, unless the token is read-only.`,
    headers: ['Idempotency-Key'],
    problems: [
      'not_found',
      'txn_not_found',
      'key_locked',
      'write_conflict',
      'already_exists',
      'pessimistic_lock_not_found',
      'precondition_failed',
      'ts_below_safe_point',
      'idempotency_mismatch',
    ],
    answers: { 200: { headers: ['Idempotency-Replayed'] } },
  },
  'POST /v1/txn/{txn}/rollback': {
    id: 'rollbackTransaction',
    tag: 'Transactions',
    summary: 'Roll a transaction back',
    description: 'May be repeated. Ends requests of the transaction that wait for locks.',
    problems: ['txn_not_found', 'already_committed'],
  },
}
