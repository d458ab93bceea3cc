import type { Timestamp } from '../timestamp.js'
import type { LockInfo } from './lock-info.js'

/** One edge of the wait-for graph: `txn` waits for the lock that `waitForTxn` holds on `key`. Both are start_ts. */
export interface WaitForEntry {
  readonly txn: Timestamp
  readonly waitForTxn: Timestamp
  readonly key: Uint8Array
}

export interface FailedCheck {
  readonly index: number
  readonly key: Uint8Array
  readonly exists: boolean
  /** The key's present version; 0 when it is absent. */
  readonly commitTs: Timestamp
}

/** The kinds of extra fields, each with its type. */
interface FieldTypes {
  readonly text: string
  readonly texts: readonly string[]
  readonly count: number
  readonly bytes: Uint8Array
  /** 0 where the row's comment gives it a meaning. */
  readonly timestamp: Timestamp
  readonly lock: LockInfo
  readonly locks: readonly LockInfo[]
  readonly waitChain: readonly WaitForEntry[]
  readonly failedChecks: readonly FailedCheck[]
}

/** A list instead of the name of a kind: one of these texts. */
export type FieldKind = keyof FieldTypes | readonly string[]

export interface ErrorRow {
  /** Of the HTTP answer. */
  readonly status: number
  /** For people. */
  readonly title: string
  /** Whether the transaction, run again from its beginning, may succeed. Absent where that is not the question. */
  readonly retryable?: boolean
  /** The refused call may have changed something. */
  readonly mayHaveTakenEffect?: true
  /** The code's own fields, which every such error has. Names are camelCase here and snake_case on the wire. */
  readonly fields?: Readonly<Record<string, FieldKind>>
  /** More fields, each where it is known. */
  readonly optional?: Readonly<Record<string, FieldKind>>
}

/**
 * Every code of a failure, with all that is said about it: HTTP's status and title, what a client may conclude, and the
 * fields. docs/errors.md has a line per code.
 */
export const ERRORS = {
  invalid_argument: { status: 400, title: 'Invalid argument', fields: { field: 'text' } },
  unauthorized: { status: 401, title: 'Unauthorized' },
  // `field`: the key or range that the caller's token does not reach.
  forbidden: { status: 403, title: 'Forbidden', optional: { field: 'text' } },
  not_found: { status: 404, title: 'Not found', optional: { key: 'bytes' } },
  // `primary`: the call looked for a lock on it.
  txn_not_found: {
    status: 404,
    title: 'Transaction not found',
    optional: { startTs: 'timestamp', primary: 'bytes' },
  },
  // `allow`: the methods that the path has.
  method_not_allowed: { status: 405, title: 'Method not allowed', fields: { allow: 'texts' } },
  key_locked: {
    status: 423,
    title: 'Key locked',
    retryable: true,
    optional: { key: 'bytes', lock: 'lock', locks: 'locks' },
  },
  lock_wait_timeout: {
    status: 423,
    title: 'Lock wait timeout',
    retryable: true,
    fields: { key: 'bytes', lock: 'lock' },
  },
  // `conflictCommitTs` 0: the conflicting transaction has not committed yet.
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
      ],
    },
  },
  already_exists: { status: 409, title: 'Already exists', retryable: false, fields: { key: 'bytes' } },
  // `key`: where the commit was found on record.
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
  // `lockTs`: start_ts of the holder of the lock asked for. `waitChain`: from that holder back to it, by the requester.
  deadlock: {
    status: 409,
    title: 'Deadlock',
    retryable: true,
    fields: { lockTs: 'timestamp', lockKey: 'bytes', waitChain: 'waitChain' },
  },
  // `existingStartTs`, `existingCommitTs`: 0 where there is no version.
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
  // `commitTs`: of the present version; 0: the key is absent. `index`, `failedChecks`: of a transaction's checks.
  precondition_failed: {
    status: 412,
    title: 'Precondition failed',
    retryable: false,
    fields: { key: 'bytes', commitTs: 'timestamp' },
    optional: { index: 'count', failedChecks: 'failedChecks' },
  },
  idempotency_mismatch: { status: 422, title: 'Idempotency key mismatch' },
  payload_too_large: {
    status: 413,
    title: 'Payload too large',
    fields: { limit: 'count' },
    optional: { field: 'text' },
  },
  unsupported_media_type: { status: 415, title: 'Unsupported media type' },
  ts_below_safe_point: { status: 410, title: 'Timestamp below the safe point', fields: { safePoint: 'timestamp' } },
  overloaded: { status: 503, title: 'Overloaded' },
  storage_unavailable: { status: 503, title: 'Storage unavailable', mayHaveTakenEffect: true },
  // A defect of the server: the only failure that is no `KvError`. `requestId`: of the line in the server's log.
  internal: {
    status: 500,
    title: 'Internal error',
    mayHaveTakenEffect: true,
    fields: { requestId: 'text' },
  },
} as const satisfies Readonly<Record<string, ErrorRow>>

/** The codes of `KvError`s. */
export type ErrorCode = Exclude<keyof typeof ERRORS, 'internal'>

type TypeOf<K> = K extends keyof FieldTypes ? FieldTypes[K] : K extends readonly (infer Text)[] ? Text : never
type TypesOf<F> = { readonly [Name in keyof F]: TypeOf<F[Name]> }
type FieldsOf<R> = (R extends { readonly fields: infer F } ? TypesOf<F> : unknown) &
  (R extends { readonly optional: infer F } ? Partial<TypesOf<F>> : Record<never, never>)

/** The fields of each code's errors. */
export type ErrorFields = { readonly [C in ErrorCode]: FieldsOf<(typeof ERRORS)[C]> }

/** A code's row, without the types of its fields. */
export function errorRow(code: keyof typeof ERRORS): ErrorRow {
  return ERRORS[code]
}

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code) && code !== 'internal'
}
