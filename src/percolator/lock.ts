import type { LockType } from '../errors/lock-info.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

/** Record in CF_LOCK from prewrite to commit or rollback. A key has at most one. */
export interface Lock {
  readonly type: LockType
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds from the physical part of `startTs`; a lock older than that may be rolled back by anyone. */
  readonly ttlMs: number
  /** Value of a short put. CF_DEFAULT has a longer one, at `startTs`. */
  readonly shortValue: Uint8Array | undefined
  /** Put: `expireTs` of the version that the lock becomes; 0: none. */
  readonly expireTs: Timestamp
  readonly leaseFence: Timestamp
  /** 0 in an optimistic transaction. */
  readonly forUpdateTs: Timestamp
  readonly txnSize: number
  /** Lower bound of the commit_ts; 0: none. */
  readonly minCommitTs: Timestamp
  readonly useAsyncCommit: boolean
  /** Async commit, on the primary: every other key of the transaction. */
  readonly secondaries: readonly Uint8Array[]
  /**
   * start_ts of transactions rolled back on this key while it was locked. A commit at exactly that timestamp would overwrite
   * their Rollback record, so it carries the flag `overlappedRollback` instead. TiKV's `rollback_ts`.
   */
  readonly rollbackTs: readonly Timestamp[]
}

export function expiresInMs(lock: Pick<Lock, 'startTs' | 'ttlMs'>, currentTs: Timestamp): number {
  return Math.max(0, physicalMs(lock.startTs) + lock.ttlMs + 1 - physicalMs(currentTs))
}

/**
 * True from the first millisecond after the TTL, and always at `TIMESTAMP_MAX`. TiKV: `lock.ts.physical() + lock.ttl <
 * current_ts.physical()`.
 */
export function isExpired(lock: Pick<Lock, 'startTs' | 'ttlMs'>, currentTs: Timestamp): boolean {
  return currentTs === TIMESTAMP_MAX || physicalMs(lock.startTs) + lock.ttlMs < physicalMs(currentTs)
}
