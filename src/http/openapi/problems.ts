import { ERRORS } from '../../errors/registry.js'
import type { DescribedRoute } from './described-route.js'
import type { Code, Operation } from './operation.js'

/** What each code means. docs/errors.md has what to do about it, and the fields. */
export const MEANINGS: Readonly<Record<Code, string>> = {
  invalid_argument: 'Malformed or out of range: `field` names the part.',
  unauthorized: 'No token, or none that the server knows.',
  forbidden: 'The token may not do this, or does not reach this key or range; or a page of another site has asked.',
  not_supported: 'The store of this server lacks what the request asks for: `capabilities` in `/v1/status`.',
  not_found: 'No such key, path, observer, consumer, lease or pin, or none that the token reaches.',
  txn_not_found:
    'No open transaction of that name: it expired, has ended, or the server was started anew. Where several servers share the store, `server` is the id of the one in which it lived, which is not reached. Of Percolator calls: the key holds no lock and no record of that transaction.',
  expectation_failed: 'The header `Expect` asks for something else than `100-continue`.',
  method_not_allowed: 'The path does not have this method: `allow`, and the header `Allow`, have those that it has.',
  key_locked: 'The lock of another transaction is in the way.',
  lease_held: 'Another holder has the lease, and had it for as long as was asked to wait.',
  lock_wait_timeout: 'The lock of another transaction stood as long as was asked to wait.',
  write_conflict: 'Another transaction was faster. `reason` says where: the whole transaction may run again.',
  already_exists: 'There is a value; or an observer or a consumer of that name has another range.',
  already_committed: 'A rollback of a transaction that is committed.',
  txn_lock_not_found: 'A commit without a lock and without a commit on record: rolled back, or never prewritten.',
  commit_ts_expired: 'A reader raised the `min_commit_ts` of the lock: commit again with a newer timestamp.',
  pessimistic_lock_not_found: 'A pessimistic lock is gone, and the key was written since.',
  pessimistic_lock_rolled_back: 'The transaction was rolled back on this key, and cannot lock it again.',
  deadlock: 'Waiting for `lock_key` would close a cycle of waits, `wait_chain`. Roll back, so that the others go on.',
  assertion_failed: 'The key is, or is not, there against the assertion.',
  primary_mismatch: 'The key is not the primary of its lock: ask `lock.primary`.',
  precondition_failed:
    'A condition does not hold. `commit_ts` is the present version (0: absent); `failed_checks` are all that failed. Of a lease: the `fence` in force (0: it is free), with its `holder`.',
  idempotency_mismatch: 'The `Idempotency-Key` was used for another request within ten minutes.',
  payload_too_large: 'A body, key, value, list, transaction or answer is over its `limit`.',
  unsupported_media_type: 'The body has another media type than those listed, or a `Content-Encoding`.',
  ts_below_safe_point: 'Older than the last collection: versions may be missing.',
  overloaded:
    'More than the server can do at this moment. Nothing was done; send it again after `Retry-After` seconds.',
  deadline_exceeded: 'The `timeout_ms` of the request has passed. Nothing was committed, and nothing will be.',
  storage_unavailable: 'The engine failed, or a restore is not complete. **The change may have landed.**',
  internal: 'A defect of the server. Its log has more under `request_id`. The change may have landed.',
}

/** Of calls that may wait for the lock of another transaction, and take it. */
export const LOCKING: readonly Code[] = [
  'key_locked',
  'lock_wait_timeout',
  'write_conflict',
  'deadlock',
  'pessimistic_lock_rolled_back',
  'ts_below_safe_point',
]

/** Every code that the operation may answer, in the order of their statuses. */
export function problemCodes(
  operation: Operation,
  { method, access, work, query, takesJson, hasBody }: DescribedRoute,
): Code[] {
  const codes = new Set<Code>([
    'invalid_argument',
    'forbidden',
    'expectation_failed',
    'internal',
    'storage_unavailable',
    ...(operation.problems ?? []),
  ])
  if (access !== 'open') codes.add('unauthorized')
  if (access !== 'open' && operation.tag !== 'Server') codes.add('not_supported') // Stores differ: `capabilities` in /v1/status.
  if (work !== 'watching') codes.add('overloaded')
  if (query.includes('timeout_ms')) codes.add('deadline_exceeded')
  // Of a body in a coding too, also where a body means nothing.
  if (takesJson || method !== 'GET') codes.add('unsupported_media_type')
  if (hasBody) codes.add('payload_too_large')
  return [...codes].sort((a, b) => ERRORS[a].status - ERRORS[b].status || a.localeCompare(b))
}
