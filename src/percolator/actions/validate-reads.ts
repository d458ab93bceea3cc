import type { KvError } from '../../errors/kv-error.js'
import { printKey } from '../../errors/print-key.js'
import type { Timestamp } from '../../timestamp.js'
import type { ReadSet, ValidateReadsRequest } from '../api.js'
import { writeConflict } from '../errors.js'
import type { Lock } from '../lock.js'
import { hasExpired, isData, type WriteRecord } from '../write.js'
import { blocksRead } from './get.js'

type Span = Omit<ValidateReadsRequest, keyof ReadSet>

/**
 * Decides about another transaction's lock on a key that was read. `free`: it cannot commit up to `commitTs`. `conflict`: it may,
 * and is the older of the two. `wait`: it may, and is the younger. Of two transactions that validate each other's writes, the
 * younger gives way, so that one commits and neither waits for ever.
 */
export function decideLock(key: Uint8Array, lock: Lock, { startTs, commitTs }: Span): 'free' | 'wait' | 'conflict' {
  if (lock.startTs === startTs || !blocksRead(lock, key, commitTs)) return 'free'
  return lock.startTs < startTs ? 'conflict' : 'wait'
}

/** True for another transaction's version that a read at `commitTs` would have seen. */
export function isNewer(write: WriteRecord, { startTs, commitTs }: Span): boolean {
  return isData(write) && write.startTs !== startTs && write.commitTs > startTs && write.commitTs <= commitTs
}

/**
 * True when the version that the transaction has seen is expired for a read at `commitTs`.
 * @param seen the Put or Delete that a read at `startTs` sees.
 */
export function hasExpiredSince(seen: WriteRecord, { startTs, commitTs }: Span): boolean {
  const { type, expireTs } = seen
  if (type !== 'put' || seen.commitTs > startTs) return false
  return !hasExpired(expireTs, startTs) && hasExpired(expireTs, commitTs)
}

/**
 * @param conflict the newer write; its `commitTs` is 0 while it is not committed. A version from before `startTs` has expired
 *   since.
 */
export function readChanged(
  key: Uint8Array,
  startTs: Timestamp,
  conflict: {
    readonly startTs: Timestamp
    readonly commitTs: Timestamp
    readonly primary?: Uint8Array
    readonly expireTs?: Timestamp
  },
): KvError<'write_conflict'> {
  const { commitTs, expireTs } = conflict
  const isNewer = commitTs > startTs
  const when =
    commitTs === 0 ? 'is being written' : isNewer ? `was written at ${commitTs}` : `has expired at ${expireTs}`
  const detail = `key ${printKey(key)}, read by the transaction at ${startTs}, ${when}`
  return writeConflict(key, { startTs, primary: conflict.primary ?? key }, conflict, 'serializable_read', detail)
}
