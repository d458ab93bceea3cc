import { KvError } from '../errors/kv-error.js'
import { printKey } from '../errors/print-key.js'
import type { Timestamp } from '../timestamp.js'
import type { Lock } from './lock.js'
import type { Mutation, TxnRecord } from './row.js'

export type MayAccess = (key: Uint8Array) => boolean

/**
 * True when keys that the caller may not access decide the lock's transaction: the primary, or, under async commit, any of its
 * keys.
 * @param primaryLock the lock on the lock's primary, of any transaction. Only that lock lists the other keys of its transaction.
 */
export function isDecidedBeyond(lock: Lock, primaryLock: Lock | undefined, mayAccess: MayAccess): boolean {
  if (!mayAccess(lock.primary)) return true
  if (!lock.useAsyncCommit) return false
  const isPrewritten = primaryLock?.startTs === lock.startTs && primaryLock.type !== 'pessimistic'
  return !isPrewritten || primaryLock.secondaries.some((key) => !mayAccess(key))
}

/**
 * True when mutations bring a lock only to the end that its transaction already has. A pessimistic lock holds no write, so it may
 * be removed once the transaction has ended either way.
 * @param mutations of the lock's key. @param record of the transaction in the primary's history.
 */
export function endsAsDecided(lock: Lock, mutations: readonly Mutation[], record: TxnRecord): boolean {
  let isTouched = false
  let commitTs = 0
  for (const mutation of mutations) {
    if (mutation.type === 'put-lock') return false // The lock was prolonged, pushed, or turned into another lock.
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

/** @returns the commit_ts on record; 0 when rolled back; undefined while undecided. */
function endOf(record: TxnRecord): Timestamp | undefined {
  if (record.kind === 'none') return undefined
  return record.kind === 'record' && record.write.type !== 'rollback' ? record.write.commitTs : 0
}

/** Does not name the keys beyond access, which the caller must not learn. */
export function beyondAccess(key: Uint8Array, startTs: Timestamp): KvError<'forbidden'> {
  const detail = `the transaction at ${startTs} reaches beyond the keys of this token: the lock on ${printKey(key)} may only be ended as its primary says`
  return new KvError('forbidden', detail, {})
}
