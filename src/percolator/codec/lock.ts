import type { LockType } from '../../errors/lock-info.js'
import type { Lock } from '../lock.js'
import { asBytes, asInteger, asList, asOneOf, asOptionalBytes, packRecord, unpackRecord } from './record.js'

/** The index of a name is its number on disk. */
const TYPES: readonly LockType[] = ['put', 'delete', 'lock', 'pessimistic']
const LOCK = 'lock'

/**
 * [type, primary, start_ts, ttl_ms, short_value | nil, for_update_ts, txn_size, min_commit_ts, use_async_commit, secondaries,
 * rollback_ts], then expire_ts and lease_fence, up to the last one that is not 0.
 */
export function encodeLock(lock: Lock): Buffer {
  const fields = [
    TYPES.indexOf(lock.type),
    lock.primary,
    lock.startTs,
    lock.ttlMs,
    lock.shortValue ?? null,
    lock.forUpdateTs,
    lock.txnSize,
    lock.minCommitTs,
    lock.useAsyncCommit ? 1 : 0,
    lock.secondaries,
    lock.rollbackTs,
  ]
  if (lock.leaseFence !== 0) return packRecord([...fields, lock.expireTs, lock.leaseFence])
  return packRecord(lock.expireTs === 0 ? fields : [...fields, lock.expireTs])
}

export function decodeLock(bytes: Uint8Array): Lock {
  const fields = unpackRecord(bytes, LOCK, 11)
  return {
    type: asOneOf(fields[0], LOCK, TYPES),
    primary: asBytes(fields[1], LOCK),
    startTs: asInteger(fields[2], LOCK),
    ttlMs: asInteger(fields[3], LOCK),
    shortValue: asOptionalBytes(fields[4], LOCK),
    forUpdateTs: asInteger(fields[5], LOCK),
    txnSize: asInteger(fields[6], LOCK),
    minCommitTs: asInteger(fields[7], LOCK),
    useAsyncCommit: fields[8] === 1,
    secondaries: asList(fields[9], LOCK, asBytes),
    rollbackTs: asList(fields[10], LOCK, asInteger),
    expireTs: fields.length > 11 ? asInteger(fields[11], LOCK) : 0,
    leaseFence: fields.length > 12 ? asInteger(fields[12], LOCK) : 0,
  }
}
