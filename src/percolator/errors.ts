import { KvError } from '../errors/kv-error.js'
import { lockDetail, waitDetail } from '../errors/lock-detail.js'
import type { LockInfo } from '../errors/lock-info.js'
import { printKey } from '../errors/print-key.js'
import type { ErrorFields } from '../errors/registry.js'
import type { Timestamp } from '../timestamp.js'

export type WriteConflictReason = ErrorFields['write_conflict']['reason']

export function keyLocked(lock: LockInfo): KvError<'key_locked'> {
  return new KvError('key_locked', lockDetail([lock]), { key: lock.key, lock })
}

export function keysLocked(locks: readonly LockInfo[]): KvError<'key_locked'> {
  return new KvError('key_locked', lockDetail(locks), { locks })
}

export function belowSafePoint(ts: Timestamp, safePoint: Timestamp): KvError<'ts_below_safe_point'> {
  return new KvError(
    'ts_below_safe_point',
    `timestamp ${ts} is below the safe point ${safePoint}: versions may be collected already`,
    { safePoint },
  )
}

export function lockWaitTimeout(key: Uint8Array, lock: LockInfo, now?: Timestamp): KvError<'lock_wait_timeout'> {
  return new KvError('lock_wait_timeout', waitDetail(lock, now), { key, lock })
}

/** @param conflict the blocking write; `commitTs` is 0 while it is not committed. */
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

/** For a client that chooses its own timestamps and used one that the server handed out later. */
export function startTsTaken(
  key: Uint8Array,
  txn: { readonly startTs: Timestamp; readonly primary: Uint8Array },
  commitTs = 0,
): KvError<'write_conflict'> {
  const { startTs } = txn
  const detail = `another transaction uses the start_ts ${startTs} on ${printKey(key)}`
  return writeConflict(key, txn, { startTs, commitTs }, 'self_rolled_back', detail)
}

export function alreadyExists(key: Uint8Array): KvError<'already_exists'> {
  return new KvError('already_exists', `key ${printKey(key)} exists already`, { key })
}

/** @param key where the commit was found, if on a key at all. */
export function alreadyCommitted(
  key: Uint8Array | undefined,
  startTs: Timestamp,
  commitTs: Timestamp,
): KvError<'already_committed'> {
  const detail = `the transaction at ${startTs} is committed at ${commitTs} and cannot be rolled back`
  return new KvError('already_committed', detail, { ...(key && { key }), startTs, commitTs })
}

export function withEntries(errors: readonly KvError[]): KvError {
  const first = errors[0] as KvError
  return new KvError(first.code, first.message, first.fields, { errors })
}
