import type { LockType } from '../errors/lock-info.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

/** Record in CF_LOCK from prewrite to commit or rollback. A key has at most one. */
export interface Lock {
  readonly type: LockType
  /** The key whose lock or write record decides the whole transaction. */
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds from the physical part of `startTs`; a lock older than that may be rolled back by anyone. */
  readonly ttlMs: number
  /** Value of a put, when it is short. A longer one stands in CF_DEFAULT at `startTs`. */
  readonly shortValue: Uint8Array | undefined
  /** Of the version that the lock of a put becomes; 0: none. */
  readonly expireTs: Timestamp
  /** Of the same version: see `WriteRecord`. */
  readonly leaseFence: Timestamp
  /** 0 in an optimistic transaction. */
  readonly forUpdateTs: Timestamp
  readonly txnSize: number
  /** The transaction cannot commit below this; 0 when it is not set. */
  readonly minCommitTs: Timestamp
  readonly useAsyncCommit: boolean
  /** Async commit, on the primary: every other key of the transaction. */
  readonly secondaries: readonly Uint8Array[]
  /**
   * start_ts of transactions rolled back on this key while it was locked: a commit at exactly that timestamp would
   * overwrite their Rollback record, so it carries the flag `overlappedRollback` instead. (TiKV's `rollback_ts`.)
   */
  readonly rollbackTs: readonly Timestamp[]
}

/** Milliseconds until `isExpired`; 0 when it is. */
export function expiresInMs(lock: Pick<Lock, 'startTs' | 'ttlMs'>, currentTs: Timestamp): number {
  return Math.max(0, physicalMs(lock.startTs) + lock.ttlMs + 1 - physicalMs(currentTs))
}

/** True from the first millisecond after the TTL, and always at `TIMESTAMP_MAX`. TiKV: `lock.ts.physical() + lock.ttl < current_ts.physical()`. */
export function isExpired(lock: Pick<Lock, 'startTs' | 'ttlMs'>, currentTs: Timestamp): boolean {
  return currentTs === TIMESTAMP_MAX || physicalMs(lock.startTs) + lock.ttlMs < physicalMs(currentTs)
}
