import { isUtf8 } from 'node:buffer'
import type { LockInfo } from './api.js'
import { asBuffer } from './key-text.js'
import type { Timestamp } from './timestamp.js'

export type WriteConflictReason =
  | 'optimistic'
  | 'pessimistic_retry'
  | 'self_rolled_back'
  | 'lazy_uniqueness_check'
  | 'not_locked_key_conflict'
  | 'serializable_read'

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
  not_found: { readonly key?: Uint8Array }
  txn_not_found: { readonly startTs: Timestamp; readonly primary: Uint8Array }
  key_locked: { readonly key?: Uint8Array; readonly lock?: LockInfo; readonly locks?: readonly LockInfo[] }
  write_conflict: {
    readonly key: Uint8Array
    readonly startTs: Timestamp
    readonly conflictStartTs: Timestamp
    readonly conflictCommitTs: Timestamp
    readonly primary: Uint8Array
    readonly reason: WriteConflictReason
  }
  already_exists: { readonly key: Uint8Array }
  already_committed: { readonly key: Uint8Array; readonly startTs: Timestamp; readonly commitTs: Timestamp }
  txn_lock_not_found: { readonly key: Uint8Array; readonly startTs: Timestamp; readonly commitTs: Timestamp }
  commit_ts_expired: {
    readonly key: Uint8Array
    readonly startTs: Timestamp
    readonly attemptedCommitTs: Timestamp
    readonly minCommitTs: Timestamp
  }
  pessimistic_lock_not_found: { readonly key: Uint8Array; readonly startTs: Timestamp }
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
  payload_too_large: { readonly field?: string; readonly limit?: number }
  unsupported_media_type: Record<never, never>
  ts_below_safe_point: { readonly safePoint: Timestamp }
  storage_unavailable: Record<never, never>
}

export type ErrorCode = keyof ErrorFields

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
    super(detail, options)
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

/** A key in a message: text without control characters as it is, anything else as hex. */
export function printKey(key: Uint8Array): string {
  const bytes = asBuffer(key)
  const text = bytes.toString('utf8')
  return isUtf8(bytes) && !/\p{C}/u.test(text) ? JSON.stringify(text) : `0x${bytes.toString('hex')}`
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
