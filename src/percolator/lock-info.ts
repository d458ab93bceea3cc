import type { LockInfo } from '../errors/lock-info.js'
import type { Lock } from './lock.js'

export function lockInfo(key: Uint8Array, lock: Lock): LockInfo {
  return {
    key,
    primary: lock.primary,
    startTs: lock.startTs,
    ttl: lock.ttlMs,
    type: lock.type,
    txnSize: lock.txnSize,
    forUpdateTs: lock.forUpdateTs,
    minCommitTs: lock.minCommitTs,
    useAsyncCommit: lock.useAsyncCommit,
    secondaries: lock.secondaries,
    ...(lock.expireTs === 0 ? {} : { expireTs: lock.expireTs }),
    ...(lock.leaseFence === 0 ? {} : { leaseFence: lock.leaseFence }),
  }
}
