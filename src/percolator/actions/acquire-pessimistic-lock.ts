import { invalid, KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { AcquirePessimisticLockRequest } from '../api.js'
import { alreadyExists, keyLocked, writeConflict } from '../errors.js'
import type { Lock } from '../lock.js'
import { lockInfo } from '../lock-info.js'
import { done, type Outcome, type RowView, recordsToPass, refused, rollbackOf, txnRecord } from '../row.js'
import { isData, isVisible, type WriteRecord } from '../write.js'

export interface AcquiredKey {
  readonly version: WriteRecord | undefined
  readonly isLocked: boolean
  /** `force_lock`: timestamp of the lock, above the requested `forUpdateTs`; `version` is read there too. */
  readonly lockedWithConflictTs?: Timestamp
}

/**
 * Decides the pessimistic lock of one key. A locking read sees the versions up to `forUpdateTs`. A newer record of any kind is a
 * conflict, which `force_lock` answers by locking at that record.
 *
 * A repeated request raises the lock's TTL and `forUpdateTs` (then with the request's primary) to its own, and changes nothing
 * else. It ignores `lockOnlyIfExists`, because the lock is there.
 *
 * After the transaction's own commit TiKV locks once more; this refuses.
 *
 * @param row history of depth `data` for `startTs`, or for `forUpdateTs` if that is lower.
 * @param request its `keys` are ignored; `lockTtl` in milliseconds. @param clockTs see `recordsToPass`.
 * @returns at most one mutation. Errors: `key_locked`, `write_conflict` (`pessimistic_retry`), `already_exists`,
 *   `pessimistic_lock_rolled_back`, `invalid_argument` (the transaction has prewritten the key already).
 * @see TiKV `actions/acquire_pessimistic_lock.rs`.
 */
export function acquirePessimisticLock(
  { key, lock, writes: found }: RowView,
  request: AcquirePessimisticLockRequest,
  clockTs?: Timestamp,
): Outcome<AcquiredKey> {
  const row = { key, lock, writes: recordsToPass(found, request.startTs, clockTs) }
  if (lock === undefined) return lockFree(row, request)
  if (lock.startTs !== request.startTs) return refused(keyLocked(lockInfo(key, lock)))
  if (lock.type !== 'pessimistic') {
    const detail = `the transaction at ${request.startTs} has prewritten ${printKey(key)}: too late for a pessimistic lock`
    return refused(invalid('for_update_ts', detail))
  }
  if (rollbackOf(row.writes, request.startTs) !== undefined) return refused(rolledBack(key, request.startTs))
  return lockAgain(row, lock, request)
}

function lockFree(row: RowView, request: AcquirePessimisticLockRequest): Outcome<AcquiredKey> {
  const { key, writes } = row
  const newest = writes[0]
  const conflict = newest !== undefined && newest.commitTs > request.forUpdateTs ? newest : undefined
  if (conflict !== undefined && request.wakeUpMode !== 'force_lock') return refused(newer(key, request, conflict))
  if (rollbackOf(writes, request.startTs) !== undefined) return refused(rolledBack(key, request.startTs))
  const own = txnRecord(writes, request.startTs)
  // The request is late. A lock beside its commit would make the transaction look alive.
  if (own.kind === 'record') return refused(newer(key, request, own.write))

  const version = newestPut(writes, TIMESTAMP_MAX, conflict?.commitTs ?? request.forUpdateTs)
  if (request.insert && version !== undefined)
    return refused(conflict === undefined ? alreadyExists(key) : newer(key, request, conflict))
  if (request.lockOnlyIfExists && version === undefined) {
    // The transaction's other reads may not have seen this absence, so it must read again.
    if (conflict !== undefined) return refused(newer(key, request, conflict))
    return done({ version, isLocked: false })
  }

  const lock: Lock = {
    type: 'pessimistic',
    primary: request.primary,
    startTs: request.startTs,
    ttlMs: request.lockTtl,
    shortValue: undefined,
    expireTs: 0,
    leaseFence: 0,
    forUpdateTs: conflict?.commitTs ?? request.forUpdateTs,
    txnSize: 0,
    minCommitTs: 0,
    useAsyncCommit: false,
    secondaries: [],
    rollbackTs: [],
  }
  return done(acquired(version, conflict?.commitTs), [{ type: 'put-lock', key, lock }])
}

/** The transaction holds the lock already: a repeat, or a later statement. */
function lockAgain(row: RowView, lock: Lock, request: AcquirePessimisticLockRequest): Outcome<AcquiredKey> {
  const { key } = row
  const { forUpdateTs } = request
  const isForced = request.wakeUpMode === 'force_lock' && forUpdateTs < lock.forUpdateTs
  const readTs = isForced ? lock.forUpdateTs : forUpdateTs
  const version = newestPut(row.writes, readTs, readTs)
  if (request.insert && version !== undefined)
    return refused(version.commitTs > forUpdateTs ? newer(key, request, version) : alreadyExists(key))
  const raised: Lock = {
    ...lock,
    primary: forUpdateTs > lock.forUpdateTs ? request.primary : lock.primary,
    forUpdateTs: Math.max(forUpdateTs, lock.forUpdateTs),
    ttlMs: Math.max(request.lockTtl, lock.ttlMs),
  }
  const isRaised = raised.forUpdateTs !== lock.forUpdateTs || raised.ttlMs !== lock.ttlMs
  return done(
    acquired(version, isForced ? lock.forUpdateTs : undefined),
    isRaised ? [{ type: 'put-lock', key, lock: raised }] : [],
  )
}

function acquired(version: WriteRecord | undefined, lockedWithConflictTs: Timestamp | undefined): AcquiredKey {
  return { version, isLocked: true, ...(lockedWithConflictTs === undefined ? {} : { lockedWithConflictTs }) }
}

/** @param at decides whether the version has expired. */
function newestPut(writes: readonly WriteRecord[], ts: Timestamp, at: Timestamp): WriteRecord | undefined {
  const newest = writes.find((write) => write.commitTs <= ts && isData(write))
  return newest !== undefined && isVisible(newest, at) ? newest : undefined
}

function newer(key: Uint8Array, request: AcquirePessimisticLockRequest, write: WriteRecord): KvError {
  const detail = `key ${printKey(key)} was written at ${write.commitTs}, after the for_update_ts ${request.forUpdateTs}`
  return writeConflict(key, request, write, 'pessimistic_retry', detail)
}

function rolledBack(key: Uint8Array, startTs: Timestamp): KvError {
  const detail = `the transaction at ${startTs} was rolled back on ${printKey(key)} and can't lock it again`
  return new KvError('pessimistic_lock_rolled_back', detail, { key, startTs })
}
