import type { LockInfo } from '../../errors/lock-info.js'
import type { Timestamp } from '../../timestamp.js'
import type { Lock } from '../lock.js'
import { lockInfo } from '../lock-info.js'

/**
 * @param locks of the requested range, in key order. @returns the locks of transactions that started at or before `maxTs`. @see
 *   TiKV `storage/mod.rs`, `scan_lock`.
 */
export function scanLock(
  locks: Iterable<{ readonly key: Uint8Array; readonly lock: Lock }>,
  maxTs: Timestamp,
  limit: number,
): LockInfo[] {
  const found: LockInfo[] = []
  for (const { key, lock } of locks) {
    if (found.length >= limit) break
    if (lock.startTs <= maxTs) found.push(lockInfo(key, lock))
  }
  return found
}
