import type { Timestamp } from '../timestamp.js'

export type WriteType = 'put' | 'delete' | 'rollback' | 'lock'

export interface WriteRecord {
  readonly type: WriteType
  readonly startTs: Timestamp
  /** For a rollback, the transaction's own `startTs`. */
  readonly commitTs: Timestamp
  /** Value of a short put. CF_DEFAULT has a longer one, at `startTs`. */
  readonly shortValue: Uint8Array | undefined
  /** Put: readers at or above it find no value; 0: none. It may be at or below `commitTs`. */
  readonly expireTs: Timestamp
  /** Put: fence of the lease whose end deletes the key; 0: none. */
  readonly leaseFence: Timestamp
  /** Rollback only: the record must not be collapsed, because a late prewrite of this transaction could still arrive. */
  readonly isProtected: boolean
  /** A transaction whose startTs equals this record's commitTs was rolled back on this key. */
  readonly hasOverlappedRollback: boolean
}

/**
 * @param writes newest first. @returns the fence of the lease to which the newest version is attached, expired or not; 0: none.
 */
export function attachedFence(writes: readonly WriteRecord[]): Timestamp {
  return writes.find(isData)?.leaseFence ?? 0
}

/** Put and Delete change what readers see. Readers skip Lock and Rollback. */
export function isData(write: WriteRecord): boolean {
  return write.type === 'put' || write.type === 'delete'
}

export function isVisible(write: Pick<WriteRecord, 'type' | 'expireTs'>, ts: Timestamp): boolean {
  return write.type === 'put' && !hasExpired(write.expireTs, ts)
}

/** Independent of the clock, so that a read at `ts` has one answer for ever. */
export function hasExpired(expireTs: Timestamp, ts: Timestamp): boolean {
  return expireTs !== 0 && expireTs <= ts
}

/** The place of the expiry in the order of commits. A version that comes late expires at its own commit. */
export function expiryTs({ expireTs, commitTs }: Pick<WriteRecord, 'expireTs' | 'commitTs'>): Timestamp {
  return Math.max(expireTs, commitTs)
}

export function rollbackRecord(startTs: Timestamp, isProtected: boolean): WriteRecord {
  return {
    type: 'rollback',
    startTs,
    commitTs: startTs,
    shortValue: undefined,
    expireTs: 0,
    leaseFence: 0,
    isProtected,
    hasOverlappedRollback: false,
  }
}
