import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'
import type { Lock } from '../lock.js'
import { sameKey } from '../row.js'
import { isData, isVisible, type WriteRecord } from '../write.js'

/**
 * True when a read at `ts` has to respect this lock, because its transaction may commit, or has committed, at or below `ts`.
 *
 * A read passes a lock younger than the read, one that can only commit above it, and one that changes no value. A read of the
 * latest version (`TIMESTAMP_MAX`) also passes the primary of a transaction that commits by its primary: while that lock stands,
 * it has not committed. @see TiKV `txn_types/src/lock.rs`, `check_ts_conflict_si`.
 */
export function blocksRead(lock: Lock, key: Uint8Array, ts: Timestamp): boolean {
  if (lock.startTs > ts || lock.type === 'lock' || lock.type === 'pessimistic') return false
  if (lock.minCommitTs > ts) return false
  return ts !== TIMESTAMP_MAX || lock.useAsyncCommit || !sameKey(key, lock.primary)
}

/**
 * Finds the version of a key that is visible at `ts`.
 * @param writes newest first, as far as they are known.
 * @returns the visible put; `absent`; or `older` when the given records do not decide.
 * @internal Each store finds the version in its own way; tests hold the stores to this rule.
 */
export function get(writes: readonly WriteRecord[], ts: Timestamp): WriteRecord | 'absent' | 'older' {
  for (const write of writes) {
    if (write.commitTs <= ts && isData(write)) return isVisible(write, ts) ? write : 'absent'
  }
  return 'older'
}
