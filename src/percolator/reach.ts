import { KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import type { Timestamp } from '../timestamp.js'
import type { Lock } from './lock.js'
import type { Mutation, TxnRecord } from './row.js'

/** Whether a caller may act on a key. */
export type Reaches = (key: Uint8Array) => boolean

/**
 * Whether the end of a lock's transaction is decided by keys that the caller does not reach: by its primary, or, under
 * async commit, where every lock decides, by any of its keys.
 * @param primaryLock the lock on the lock's primary, whoever holds it. It alone lists the other keys of the transaction.
 */
export function reachesBeyond(lock: Lock, primaryLock: Lock | undefined, reaches: Reaches): boolean {
  if (!reaches(lock.primary)) return true
  if (!lock.useAsyncCommit) return false
  const isPrewritten = primaryLock?.startTs === lock.startTs && primaryLock.type !== 'pessimistic'
  return !isPrewritten || primaryLock.secondaries.some((key) => !reaches(key))
}

/**
 * Whether mutations do to the lock of a transaction that reaches beyond the caller's keys only what is decided already.
 * A pessimistic lock holds no write: it may go once the transaction has ended, either way.
 * @param mutations of the lock's key. @param record what the primary's history says of the transaction.
 */
export function endsAsDecided(lock: Lock, mutations: readonly Mutation[], record: TxnRecord): boolean {
  let isTouched = false
  let commitTs = 0
  for (const mutation of mutations) {
    if (mutation.type === 'put-lock') return false // Prolonged, pushed, or turned into another lock.
    if (mutation.type === 'delete-lock') isTouched = true
    if (mutation.type === 'put-write' && mutation.write.startTs === lock.startTs) {
      isTouched = true
      if (mutation.write.type !== 'rollback') commitTs = mutation.write.commitTs
    }
  }
  if (!isTouched) return true
  const decidedAt = endOf(record)
  if (decidedAt === undefined) return false
  return commitTs === decidedAt || (lock.type === 'pessimistic' && commitTs === 0)
}

/** The commit_ts on record; 0: rolled back; undefined: not decided yet. */
function endOf(record: TxnRecord): Timestamp | undefined {
  if (record.kind === 'none') return undefined
  return record.kind === 'record' && record.write.type !== 'rollback' ? record.write.commitTs : 0
}

/** The keys beyond are not named: the caller must not be told of them. */
export function beyondReach(key: Uint8Array, startTs: Timestamp): KvError<'forbidden'> {
  const detail = `the transaction at ${startTs} reaches beyond the keys of this token: the lock on ${printKey(key)} may only be ended as its primary says`
  return new KvError('forbidden', detail, {})
}
