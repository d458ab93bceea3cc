import type { Timestamp } from '../timestamp.js'

export type WriteType = 'put' | 'delete' | 'rollback' | 'lock'

/** Record in CF_WRITE of one transaction on one key, stored under the key and `commitTs`. */
export interface WriteRecord {
  readonly type: WriteType
  readonly startTs: Timestamp
  /** For a rollback, the transaction's own `startTs`. */
  readonly commitTs: Timestamp
  /** Value of a put, when it is short. A longer one stands in CF_DEFAULT at `startTs`. */
  readonly shortValue: Uint8Array | undefined
  /** Of a put: readers at or above it find no value; 0: none. It may be at or below `commitTs`. */
  readonly expireTs: Timestamp
  /** Of a put that is attached to a lease, whose end deletes the key: the fence of that grant; 0: none. */
  readonly leaseFence: Timestamp
  /** Rollback only: the record must not be collapsed, because a late prewrite of this transaction could still arrive. */
  readonly isProtected: boolean
  /** A transaction whose startTs equals this record's commitTs was rolled back on this key. */
  readonly hasOverlappedRollback: boolean
}

/** @param writes newest first. @returns the lease to which the newest version is attached, expired or not; 0: none. */
export function attachedFence(writes: readonly WriteRecord[]): Timestamp {
  return writes.find(isData)?.leaseFence ?? 0
}

/** Put and Delete change what readers see; Lock and Rollback do not, and readers skip them. */
export function isData(write: WriteRecord): boolean {
  return write.type === 'put' || write.type === 'delete'
}

/** Whether a read at `ts` finds the value of this version, which is the newest Put or Delete at or below `ts`. */
export function isVisible(write: Pick<WriteRecord, 'type' | 'expireTs'>, ts: Timestamp): boolean {
  return write.type === 'put' && !hasExpired(write.expireTs, ts)
}

/** No clock is asked, so a read at `ts` has one answer for ever. */
export function hasExpired(expireTs: Timestamp, ts: Timestamp): boolean {
  return expireTs !== 0 && expireTs <= ts
}

/** The timestamp from which on the version is absent, in the order of commits. It has expired before it was there if it came late. */
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
