import type { Timestamp } from '../timestamp.js'

export type LockType = 'put' | 'delete' | 'lock' | 'pessimistic'

export interface LockInfo {
  readonly key: Uint8Array
  readonly primary: Uint8Array
  readonly startTs: Timestamp
  /** Milliseconds, counted from the physical part of `startTs`. */
  readonly ttl: number
  readonly type: LockType
  readonly txnSize: number
  readonly forUpdateTs: Timestamp
  readonly minCommitTs: Timestamp
  readonly useAsyncCommit: boolean
  readonly secondaries: readonly Uint8Array[]
  /** Expiry of the version that the transaction writes, if it has one. */
  readonly expireTs?: Timestamp | undefined
  /** Fence of the lease to which the same version is attached, if it is. */
  readonly leaseFence?: Timestamp | undefined
}
