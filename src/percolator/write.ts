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
  /** Rollback only: the record must not be collapsed, because a late prewrite of this transaction could still arrive. */
  readonly isProtected: boolean
  /** A transaction whose startTs equals this record's commitTs was rolled back on this key. */
  readonly hasOverlappedRollback: boolean
}

/** Put and Delete change what readers see; Lock and Rollback do not, and readers skip them. */
export function isData(write: WriteRecord): boolean {
  return write.type === 'put' || write.type === 'delete'
}

export function rollbackRecord(startTs: Timestamp, isProtected: boolean): WriteRecord {
  return {
    type: 'rollback',
    startTs,
    commitTs: startTs,
    shortValue: undefined,
    isProtected,
    hasOverlappedRollback: false,
  }
}
