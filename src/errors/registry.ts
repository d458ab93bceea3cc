import type { Timestamp } from '../timestamp.js'
import type { LockInfo } from './lock-info.js'

/** One edge of the wait-for graph: `txn` waits for the lock that `waitForTxn` holds on `key`. Both are start_ts. */
export interface WaitForEntry {
  readonly txn: Timestamp
  readonly waitForTxn: Timestamp
  readonly key: Uint8Array
}

export type FailedCheck =
  | {
      readonly index: number
      readonly key: Uint8Array
      readonly exists: boolean
      /** commit_ts of the present version; 0 when the key is absent. */
      readonly commitTs: Timestamp
    }
  /** `fence`: the fence in force; 0: the lease is free. */
  | { readonly index: number; readonly lease: string; readonly fence: Timestamp }

/** The TypeScript type of each kind of field. */
interface FieldTypes {
  readonly text: string
  readonly texts: readonly string[]
  readonly count: number
  readonly flag: boolean
  readonly bytes: Uint8Array
  /** May be 0 only where a comment on the row says so. */
  readonly timestamp: Timestamp
  readonly lock: LockInfo
  readonly locks: readonly LockInfo[]
  readonly waitChain: readonly WaitForEntry[]
  readonly failedChecks: readonly FailedCheck[]
}

export type FieldKind = keyof FieldTypes | readonly string[]

export interface ErrorRow {
  /** HTTP status. */
  readonly status: number
  /** Shown to people. */
  readonly title: string
  /** Whether the transaction may succeed when it runs again from its beginning. Absent for errors of other calls. */
  readonly retryable?: boolean
  /** The failed call may have changed something. */
  readonly mayHaveTakenEffect?: true
  /** Fields that every error with this code has. Names are camelCase here and snake_case on the wire. */
  readonly fields?: Readonly<Record<string, FieldKind>>
  /** Fields that an error with this code has when they are known. */
  readonly optional?: Readonly<Record<string, FieldKind>>
}

/** Every error code. http/openapi/problems.ts says what each means, and docs/errors.md is made from both. */
export const ERRORS = {
  invalid_argument: { status: 400, title: 'Invalid argument', fields: { field: 'text' } },
  unauthorized: { status: 401, title: 'Unauthorized' },
  // `field`: the key or range that the caller's token does not permit.
  forbidden: { status: 403, title: 'Forbidden', optional: { field: 'text' } },
  // `commitTs`: of the deletion, 0 when none is known; only after a wait for a version.
  not_found: { status: 404, title: 'Not found', optional: { key: 'bytes', commitTs: 'timestamp' } },
  // `primary`: the key on which the call looked for a lock. `server`: id of the server of the transaction, which is not this
  // one.
  txn_not_found: {
    status: 404,
    title: 'Transaction not found',
    optional: { startTs: 'timestamp', primary: 'bytes', server: 'text' },
  },
  expectation_failed: { status: 417, title: 'Expectation failed' },
  // `allow`: the methods that the path supports.
  method_not_allowed: { status: 405, title: 'Method not allowed', fields: { allow: 'texts' } },
  key_locked: {
    status: 423,
    title: 'Key locked',
    retryable: true,
    optional: { key: 'bytes', lock: 'lock', locks: 'locks' },
  },
  // `expiresAt`: unless the holder renews it.
  lease_held: {
    status: 423,
    title: 'Lease held',
    retryable: true,
    fields: { lease: 'text', holder: 'text', expiresAt: 'text' },
  },
  lock_wait_timeout: {
    status: 423,
    title: 'Lock wait timeout',
    retryable: true,
    fields: { key: 'bytes', lock: 'lock' },
  },
  // `conflictCommitTs`: 0 when the conflicting transaction has not committed.
  write_conflict: {
    status: 409,
    title: 'Write conflict',
    retryable: true,
    fields: {
      key: 'bytes',
      startTs: 'timestamp',
      conflictStartTs: 'timestamp',
      conflictCommitTs: 'timestamp',
      primary: 'bytes',
      reason: [
        'optimistic',
        'pessimistic_retry',
        'self_rolled_back',
        'lazy_uniqueness_check',
        'not_locked_key_conflict',
        'serializable_read',
        'acknowledged',
        'superseded',
      ],
    },
    // For a refused acknowledgement. `retryable`: claiming again makes sense. `position`: that of the consumer; it may be 0.
    optional: { observer: 'text', consumer: 'text', position: 'timestamp', retryable: 'flag' },
  },
  // `key`: it has a value. `observer`, `consumer`: it has another range.
  already_exists: {
    status: 409,
    title: 'Already exists',
    retryable: false,
    optional: { key: 'bytes', observer: 'text', consumer: 'text' },
  },
  // `key`: the key whose write record shows the commit.
  already_committed: {
    status: 409,
    title: 'Already committed',
    retryable: false,
    fields: { startTs: 'timestamp', commitTs: 'timestamp' },
    optional: { key: 'bytes' },
  },
  txn_lock_not_found: {
    status: 409,
    title: 'Transaction lock not found',
    retryable: true,
    fields: { key: 'bytes', startTs: 'timestamp', commitTs: 'timestamp' },
  },
  commit_ts_expired: {
    status: 409,
    title: 'Commit timestamp expired',
    retryable: true,
    fields: { key: 'bytes', startTs: 'timestamp', attemptedCommitTs: 'timestamp', minCommitTs: 'timestamp' },
  },
  pessimistic_lock_not_found: {
    status: 409,
    title: 'Pessimistic lock not found',
    retryable: true,
    fields: { key: 'bytes', startTs: 'timestamp' },
  },
  pessimistic_lock_rolled_back: {
    status: 409,
    title: 'Pessimistic lock rolled back',
    retryable: true,
    fields: { key: 'bytes', startTs: 'timestamp' },
  },
  // `lockTs`: start_ts of the transaction that holds the requested lock. `waitChain`: the cycle, from that holder
  // through the requester back to the holder.
  deadlock: {
    status: 409,
    title: 'Deadlock',
    retryable: true,
    fields: { lockTs: 'timestamp', lockKey: 'bytes', waitChain: 'waitChain' },
  },
  // `existingStartTs`, `existingCommitTs`: 0 when the key has no version.
  assertion_failed: {
    status: 409,
    title: 'Assertion failed',
    retryable: false,
    fields: {
      key: 'bytes',
      startTs: 'timestamp',
      assertion: ['exist', 'not_exist'],
      existingStartTs: 'timestamp',
      existingCommitTs: 'timestamp',
    },
  },
  primary_mismatch: { status: 409, title: 'Primary mismatch', retryable: false, fields: { lock: 'lock' } },
  // `commitTs`: of the present version; 0 when the key is absent. `lease`, `fence` (0: free), `holder`, `expiresAt`: of a lease,
  // instead of a key. `index`, `failedChecks`: of the request's `checks`.
  precondition_failed: {
    status: 412,
    title: 'Precondition failed',
    retryable: false,
    optional: {
      key: 'bytes',
      commitTs: 'timestamp',
      lease: 'text',
      fence: 'timestamp',
      holder: 'text',
      expiresAt: 'text',
      index: 'count',
      failedChecks: 'failedChecks',
    },
  },
  idempotency_mismatch: { status: 422, title: 'Idempotency key mismatch' },
  payload_too_large: {
    status: 413,
    title: 'Payload too large',
    fields: { limit: 'count' },
    optional: { field: 'text' },
  },
  // The store lacks the feature, at every repetition.
  not_supported: { status: 501, title: 'Not supported' },
  unsupported_media_type: { status: 415, title: 'Unsupported media type' },
  // `resync`: path of a feed that begins with a snapshot.
  ts_below_safe_point: {
    status: 410,
    title: 'Timestamp below the safe point',
    fields: { safePoint: 'timestamp' },
    optional: { resync: 'text' },
  },
  // `timeout_ms` of the request has passed. Nothing was committed.
  deadline_exceeded: { status: 504, title: 'Deadline exceeded', retryable: true },
  overloaded: { status: 503, title: 'Overloaded' },
  storage_unavailable: { status: 503, title: 'Storage unavailable', mayHaveTakenEffect: true },
  // A defect of the server: the only failure that is not a `KvError`. `requestId`: names the line in the server's log.
  internal: {
    status: 500,
    title: 'Internal error',
    mayHaveTakenEffect: true,
    fields: { requestId: 'text' },
  },
} as const satisfies Readonly<Record<string, ErrorRow>>

export type ErrorCode = Exclude<keyof typeof ERRORS, 'internal'>

type TypeOf<K> = K extends keyof FieldTypes ? FieldTypes[K] : K extends readonly (infer Text)[] ? Text : never
type TypesOf<F> = { readonly [Name in keyof F]: TypeOf<F[Name]> }
type FieldsOf<R> = (R extends { readonly fields: infer F } ? TypesOf<F> : unknown) &
  (R extends { readonly optional: infer F } ? Partial<TypesOf<F>> : Record<never, never>)

export type ErrorFields = { readonly [C in ErrorCode]: FieldsOf<(typeof ERRORS)[C]> }

export function errorRow(code: keyof typeof ERRORS): ErrorRow {
  return ERRORS[code]
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code) && code !== 'internal'
}
