import type { LockInfo } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'

export type WriteConflictReason =
  | 'optimistic'
  | 'pessimistic_retry'
  | 'self_rolled_back'
  | 'lazy_uniqueness_check'
  | 'not_locked_key_conflict'
  | 'serializable_read'

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

/** Every code of the contract that this server answers, with the fields that its problem carries. */
export interface ErrorFields {
  invalid_argument: { readonly field: string }
  unauthorized: Record<never, never>
  /** `field`: the key or range that the caller's token does not reach, where it is that. */
  forbidden: { readonly field?: string }
  not_found: { readonly key?: Uint8Array }
  /** `startTs` where it is known, and `primary` where a lock was looked for. */
  txn_not_found: { readonly startTs?: Timestamp; readonly primary?: Uint8Array }
  /** `allow`: the methods that the path has. */
  method_not_allowed: { readonly allow: readonly string[] }
  key_locked: { readonly key?: Uint8Array; readonly lock?: LockInfo; readonly locks?: readonly LockInfo[] }
  lock_wait_timeout: { readonly key: Uint8Array; readonly lock: LockInfo }
  write_conflict: {
    readonly key: Uint8Array
    readonly startTs: Timestamp
    readonly conflictStartTs: Timestamp
    readonly conflictCommitTs: Timestamp
    readonly primary: Uint8Array
    readonly reason: WriteConflictReason
  }
  already_exists: { readonly key: Uint8Array }
  already_committed: { readonly key?: Uint8Array; readonly startTs: Timestamp; readonly commitTs: Timestamp }
  txn_lock_not_found: { readonly key: Uint8Array; readonly startTs: Timestamp; readonly commitTs: Timestamp }
  commit_ts_expired: {
    readonly key: Uint8Array
    readonly startTs: Timestamp
    readonly attemptedCommitTs: Timestamp
    readonly minCommitTs: Timestamp
  }
  pessimistic_lock_not_found: { readonly key: Uint8Array; readonly startTs: Timestamp }
  pessimistic_lock_rolled_back: { readonly key: Uint8Array; readonly startTs: Timestamp }
  /** `lockTs`: start_ts of the holder of the lock asked for. `waitChain`: from that holder back to it, by the requester. */
  deadlock: {
    readonly lockTs: Timestamp
    readonly lockKey: Uint8Array
    readonly waitChain: readonly WaitForEntry[]
  }
  assertion_failed: {
    readonly key: Uint8Array
    readonly startTs: Timestamp
    readonly assertion: 'exist' | 'not_exist'
    readonly existingStartTs: Timestamp
    readonly existingCommitTs: Timestamp
  }
  primary_mismatch: { readonly lock: LockInfo }
  precondition_failed: {
    readonly key: Uint8Array
    readonly commitTs: Timestamp
    readonly index?: number
    readonly failedChecks?: readonly FailedCheck[]
  }
  idempotency_mismatch: Record<never, never>
  payload_too_large: { readonly field?: string; readonly limit: number }
  unsupported_media_type: Record<never, never>
  ts_below_safe_point: { readonly safePoint: Timestamp }
  overloaded: Record<never, never>
  storage_unavailable: Record<never, never>
}

export type ErrorCode = keyof ErrorFields

/** Races that were lost: the transaction, run again from its beginning, may win. */
const LOST_RACES: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'write_conflict',
  'deadlock',
  'pessimistic_lock_not_found',
  'pessimistic_lock_rolled_back',
  'txn_lock_not_found',
  'commit_ts_expired',
  'key_locked',
  'lock_wait_timeout',
])

/** Whether running the transaction again from its beginning may succeed. An outcome that is not known is not retryable. */
export function isRetryable(error: unknown): boolean {
  return error instanceof KvError && LOST_RACES.has(error.code)
}

/**
 * A failure that a caller can act on. `code` is stable and is what programs test; `fields` go on the wire beside it.
 * Pure actions return it; a store or a route throws it. Nothing else than this is ever shown to a client, but
 * `internal` for defects.
 */
export class KvError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'KvError'
  constructor(
    readonly code: C,
    detail: string,
    readonly fields: ErrorFields[C],
    options?: ErrorOptions & { readonly errors?: readonly KvError[] },
  ) {
    // Answers, not defects: a lost race or an absent key happens a thousand times a second, and a stack costs 20 µs.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(detail, options)
    Error.stackTraceLimit = stackTraceLimit
    this.errors = options?.errors
  }
  /** Prewrite: one entry a failed key; the first is this error again. */
  readonly errors: readonly KvError[] | undefined
}

/** What a pure action may refuse with. */
export type PercolatorError = KvError

export function isKvError<C extends ErrorCode>(error: unknown, code: C): error is KvError<C> {
  return error instanceof KvError && error.code === code
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** A key in a message: text without control characters as it is, anything else as hex. */
export function printKey(key: Uint8Array): string {
  try {
    const text = utf8.decode(key)
    if (!/\p{C}/u.test(text)) return JSON.stringify(text)
  } catch {}
  return `0x${Array.from(key, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

export function invalid(field: string, detail: string): KvError<'invalid_argument'> {
  return new KvError('invalid_argument', detail, { field })
}

export function keyLocked(lock: LockInfo): KvError<'key_locked'> {
  return new KvError('key_locked', `key ${printKey(lock.key)} is locked by the transaction at ${lock.startTs}`, {
    key: lock.key,
    lock,
  })
}

export function keysLocked(locks: readonly LockInfo[]): KvError<'key_locked'> {
  return new KvError('key_locked', `${locks.length} of the keys asked for are locked by other transactions`, { locks })
}

export function belowSafePoint(ts: Timestamp, safePoint: Timestamp): KvError<'ts_below_safe_point'> {
  return new KvError(
    'ts_below_safe_point',
    `timestamp ${ts} is below the safe point ${safePoint}: versions may be collected already`,
    { safePoint },
  )
}

export function lockWaitTimeout(key: Uint8Array, lock: LockInfo): KvError<'lock_wait_timeout'> {
  const detail = `waited for the lock on ${printKey(key)} as long as asked`
  return new KvError('lock_wait_timeout', detail, { key, lock })
}

/** @param conflict what stands in the way; `commitTs` 0: it is not committed yet. */
export function writeConflict(
  key: Uint8Array,
  txn: { readonly startTs: Timestamp; readonly primary: Uint8Array },
  conflict: { readonly startTs: Timestamp; readonly commitTs: Timestamp },
  reason: WriteConflictReason,
  detail: string,
  options?: ErrorOptions,
): KvError<'write_conflict'> {
  const { startTs, primary } = txn
  const conflicting = { conflictStartTs: conflict.startTs, conflictCommitTs: conflict.commitTs }
  return new KvError('write_conflict', detail, { key, startTs, ...conflicting, primary, reason }, options)
}

export function alreadyExists(key: Uint8Array): KvError<'already_exists'> {
  return new KvError('already_exists', `key ${printKey(key)} exists already`, { key })
}

/** @param key where it was found out, if anywhere. */
export function alreadyCommitted(
  key: Uint8Array | undefined,
  startTs: Timestamp,
  commitTs: Timestamp,
): KvError<'already_committed'> {
  const detail = `the transaction at ${startTs} is committed at ${commitTs} and cannot be rolled back`
  return new KvError('already_committed', detail, { ...(key && { key }), startTs, commitTs })
}

/** A failed prewrite lists every key that failed. Its own code is that of the first. */
export function withEntries(errors: readonly KvError[]): KvError {
  const first = errors[0] as KvError
  return new KvError(first.code, first.message, first.fields, { errors })
}
