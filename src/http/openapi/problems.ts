import { ERRORS } from '../../errors/registry.js'
import type { DescribedRoute } from './described-route.js'
import type { Code, Operation } from './operation.js'

interface ProblemText {
  readonly meaning: string
  /** What the client should do. */
  readonly remedy?: string
  /** Meanings by `reason`, or by the call that answers it. */
  readonly cases?: Readonly<Record<string, Omit<ProblemText, 'cases'>>>
}

/**
 * What each code means, and what to do about it. Markdown; docs/errors.md is made from it, and turns the name of a document into
 * a link.
 */
export const PROBLEM_TEXTS: Readonly<Record<Code, ProblemText>> = {
  invalid_argument: { meaning: 'Malformed or out of range: `field` names the part.', remedy: 'Fix the request.' },
  unauthorized: {
    meaning:
      'No token, none that the server knows, or one that has expired. The header `WWW-Authenticate` is `Bearer`.',
    remedy: 'Send `Authorization: Bearer TOKEN`.',
  },
  forbidden: {
    meaning:
      'The token may not do this, does not reach the key or range that `field` names, or may not end a transaction that reaches beyond its prefixes (docs/security.md#transactions-that-reach-beyond-a-prefix). Without tokens: a foreign `Host`, or a page of another site has asked (docs/security.md#without-tokens).',
    remedy: 'Ask for another token, or for less.',
  },
  not_supported: {
    meaning:
      'The store of this server lacks what the request asks for, and will at every repeat: `capabilities` in `/v1/status` (docs/bigtable.md#what-is-different).',
  },
  not_found: {
    meaning:
      'No such key, path, observer, consumer, lease or pin, or none that the token reaches. `commit_ts`, for a key that was waited for: of the deletion, or its `expire_ts` (0: not known).',
  },
  txn_not_found: {
    meaning: 'There is no such transaction, or its end is not known.',
    cases: {
      '`/v1/txn/{txn}`': {
        meaning:
          'No transaction of that name is open: it expired, was committed or rolled back, or the server was started anew. `server`: id of the server of the store in which it lived, which is not reached (docs/bigtable.md#when-servers-die).',
        remedy:
          'Begin again. When a commit is repeated because its answer was lost: `GET /v1/txn/{txn}` tells its `state` for 90 s; after that, or a restart, read before writing again, unless the commit had an `Idempotency-Key`.',
      },
      '`check_txn_status`': {
        meaning: 'The key `primary` holds no lock and no record of that transaction.',
        remedy: 'Its prewrite may be late: wait for the TTL, then ask with `rollback_if_not_exist`.',
      },
      '`txn_heart_beat`': {
        meaning: 'The key `primary` holds no lock of that transaction.',
        remedy: 'Stop, and ask `check_txn_status` what became of it.',
      },
    },
  },
  expectation_failed: {
    meaning: 'The header `Expect` asks for something else than `100-continue`.',
    remedy: 'Leave it out.',
  },
  method_not_allowed: {
    meaning: 'The path does not have this method: `allow`, and the header `Allow`, have those that it has.',
    remedy: 'Use one of these.',
  },
  key_locked: {
    meaning: "Another transaction's lock is in the way: `detail` names the first, with the time that its TTL leaves.",
    remedy:
      'REST and `/v1/txn` have waited and resolved already: try again later. Percolator clients: `check_txn_status` of `lock.primary`, then `resolve_lock`, or wait.',
  },
  lease_held: {
    meaning:
      'Another holder has the lease, and had it for as long as was asked to wait. It ends at `expires_at`, unless it is renewed.',
    remedy: 'Ask again, with `wait_ms`.',
  },
  lock_wait_timeout: {
    meaning:
      "Another transaction's `lock` stood for as long as was asked to wait. The transaction goes on, without this lock.",
    remedy:
      'Try again, or roll back so that others need not wait for this one. Percolator clients: `check_txn_status` of `lock.primary` with `resolving_pessimistic_lock`, then `pessimistic_rollback` of the lock if its transaction has ended.',
  },
  write_conflict: {
    meaning:
      'Another transaction was faster: `reason` says where. `conflict_commit_ts` is 0 while that one has not committed.',
    cases: {
      optimistic: {
        meaning: 'The key was written after `start_ts`.',
        remedy: 'Begin again at a new timestamp, with a back-off. `/v1/txn` has done so `max_retries` times already.',
      },
      pessimistic_retry: {
        meaning: '`acquire_pessimistic_lock`: the key was written after `for_update_ts`; nothing is locked.',
        remedy: 'Take a new timestamp as `for_update_ts` and ask again; an earlier read of the key is old.',
      },
      serializable_read: {
        meaning:
          'A key or range that a serializable transaction read was written by another, or is being written (`conflict_commit_ts` 0).',
        remedy: 'Begin again, and read again; after `validate_reads` roll back first.',
      },
      self_rolled_back: {
        meaning: 'This transaction was rolled back on this key.',
        remedy: 'Begin again; its other locks may be rolled back.',
      },
      lazy_uniqueness_check: {
        meaning: 'A pessimistic prewrite with `constraint` found a newer version.',
        remedy: 'Begin again.',
      },
      acknowledged: {
        meaning:
          'With `observer`: somebody else has run the change since it was claimed (`conflict_start_ts` and `conflict_commit_ts` are those of that run; 0: none), or nothing that this run has seen is left to acknowledge. `retryable` `true`: there is a newer change.',
        remedy: '`retryable` `false`: drop the notification. `true`: release it and claim again.',
      },
      '`acknowledged`, of a position': {
        meaning:
          'With `consumer`: somebody has acknowledged since `from`, or nobody has acknowledged up to it. `conflict_start_ts` and `conflict_commit_ts` are those of the last transaction that acknowledged (0: none). `retryable` is `false`. Without writes `key` is the name.',
        remedy: 'Go on from `position`: what lies below it is done.',
      },
      superseded: {
        meaning:
          'The lease of the claim ran out, and the cell was handed out to somebody else. `retryable` is `false`.',
        remedy: "Drop the notification: its run is somebody else's.",
      },
    },
  },
  already_exists: {
    meaning:
      'An `insert` or `check_not_exists` found a value at `key`; or the `observer` or `consumer` has another range, which never changes.',
    remedy: 'Decide: it is there. Delete the observer or the consumer, or take another name.',
  },
  already_committed: {
    meaning: 'A rollback of a committed transaction. `key` is the one whose record shows the commit.',
    remedy: 'Take it as committed, and commit or resolve its other keys at `commit_ts`.',
  },
  txn_lock_not_found: {
    meaning: 'A commit without a lock and without a commit on record: rolled back, or never prewritten.',
    remedy: 'For the primary: the transaction did not commit; roll back, and begin again.',
  },
  commit_ts_expired: {
    meaning: 'A reader raised the `min_commit_ts` of the lock.',
    remedy: 'Take a new timestamp, at least `min_commit_ts`, and commit again.',
  },
  pessimistic_lock_not_found: {
    meaning: 'A pessimistic prewrite or commit whose lock is gone, and the key was written since.',
    remedy: 'Roll back, and begin again.',
  },
  pessimistic_lock_rolled_back: {
    meaning: 'The transaction was rolled back on this key, and cannot lock it again.',
    remedy: 'Begin again; its other locks may be rolled back.',
  },
  deadlock: {
    meaning:
      'Waiting for `lock_key` would close a cycle of waits: `wait_chain`, from the holder of that lock, whose `start_ts` is `lock_ts`, back to it. The transaction stays open, with its locks.',
    remedy:
      'Roll back, so that the others go on; then begin again, with a back-off. Locking keys in one order everywhere avoids it.',
  },
  assertion_failed: {
    meaning:
      'The key is, or is not, there against the assertion. `existing_start_ts` and `existing_commit_ts` are 0 where it has no version.',
    remedy: 'A defect of the client or of the data: look at both.',
  },
  primary_mismatch: {
    meaning: '`check_txn_status` with `verify_is_primary` of a key that is not the primary of its lock.',
    remedy: 'Ask `lock.primary`.',
  },
  precondition_failed: {
    meaning:
      '`If-Match`, `If-None-Match` or a check does not hold. `commit_ts` is the present version (0: absent). Of `checks`, `index` is the first that failed, and `failed_checks` are all. Of a lease: it is not held under the `fence` that was named; `fence` is the one in force (0: it is free), with its `holder` and `expires_at` in calls of the lease.',
    remedy:
      'Read again and decide anew. Of a lease: stop the work that depends on it, and take the lease anew to begin again.',
  },
  idempotency_mismatch: {
    meaning: 'The `Idempotency-Key` was used for another request within ten minutes.',
    remedy: 'Take a new key for a new request.',
  },
  payload_too_large: {
    meaning:
      'A body, key, value, list, transaction or answer is over its `limit`; `field` names it where one is meant.',
    remedy: 'Make it smaller, or ask for less. Each limit is a flag: docs/flags.md#limits.',
  },
  unsupported_media_type: {
    meaning: 'The body is neither JSON nor MessagePack where these are wanted, or has a `Content-Encoding`.',
    remedy: 'Set `Content-Type` (curl: `--json`).',
  },
  ts_below_safe_point: {
    meaning:
      'Older than the last collection: versions may be missing. Of the feed, `resync` and a header `Link` have the path that begins with a snapshot.',
    remedy: 'Read at a newer timestamp, or begin again.',
  },
  overloaded: {
    meaning:
      'More than the server can do at this moment (docs/operations.md#overload), `tso` is as far ahead of the clock as it goes, or a key on a shared store has too many bytes of versions (docs/bigtable.md#three-servers-behind-a-load-balancer). **Nothing was done.**',
    remedy: 'Send it again after `Retry-After` seconds, with a back-off.',
  },
  deadline_exceeded: {
    meaning:
      'The `timeout_ms` of the request has passed. Nothing was committed, and nothing will be: an interactive transaction whose `commit` this answers is rolled back. A commit that has begun is waited for instead, whatever the time.',
    remedy: 'Try again with more time, or less to do.',
  },
  storage_unavailable: {
    meaning:
      'The engine failed (a full disk, say), and writes are refused until it was opened again; or a record or a file is damaged (docs/operations.md#damage), or a restore is not complete; or the server in which the transaction lives has not answered a commit that another one forwarded. **The change may have landed.**',
    remedy:
      'Repeat Percolator calls and a commit of `/v1/txn/{txn}`; repeat REST and `/v1/txn` under their `Idempotency-Key`; without one, read before writing again. Damage stays.',
  },
  internal: {
    meaning: 'A defect of the server: its log has more under `request_id`. **The change may have landed.**',
    remedy: 'Report it.',
  },
}

export function problemDescription(code: Code): string {
  const { meaning, remedy, cases = {} } = PROBLEM_TEXTS[code]
  const more = Object.entries(cases).map(([name, one]) => `${name}: ${one.meaning}${afterBlank(one.remedy)}`)
  return [meaning + afterBlank(remedy), ...more].join('\n\n')
}

const afterBlank = (text: string | undefined): string => (text === undefined ? '' : ` ${text}`)

/** Codes of calls that may wait for the lock of another transaction, and take it. */
export const LOCKING: readonly Code[] = [
  'key_locked',
  'lock_wait_timeout',
  'write_conflict',
  'deadlock',
  'pessimistic_lock_rolled_back',
  'ts_below_safe_point',
]

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
  // For a body in a coding too, even where bodies are ignored.
  if (takesJson || method !== 'GET') codes.add('unsupported_media_type')
  if (hasBody) codes.add('payload_too_large')
  return [...codes].sort((a, b) => ERRORS[a].status - ERRORS[b].status || a.localeCompare(b))
}
