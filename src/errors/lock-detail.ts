import { physicalMs, type Timestamp } from '../timestamp.js'
import { isKvError } from './kv-error.js'
import type { LockInfo } from './lock-info.js'
import { printKey } from './print-key.js'

export function lockDetail(locks: readonly LockInfo[], now?: Timestamp): string {
  const [first] = locks
  if (first === undefined) return 'the key is locked by another transaction'
  const text = `key ${printKey(first.key)} is locked by the transaction at ${first.startTs}`
  const leftMs = now === undefined ? undefined : Math.max(0, physicalMs(first.startTs) + first.ttl - physicalMs(now))
  const others = locks.length === 1 ? '' : `; ${locks.length - 1} more of the keys are locked`
  return `${text}${leftMs === undefined ? '' : `, with ${leftMs} ms left`}${others}`
}

/** Adds to the message how long the locks remain. Only the store has the clock by which they expire. */
export function addTimeLeft(error: unknown, now: () => Timestamp): void {
  if (isKvError(error, 'key_locked')) {
    const { lock, locks = lock && [lock] } = error.fields
    if (locks !== undefined) error.message = lockDetail(locks, now())
  } else if (isKvError(error, 'lock_wait_timeout')) error.message = waitDetail(error.fields.lock, now())
}

export function waitDetail(lock: LockInfo, now?: Timestamp): string {
  return `waited as long as asked: ${lockDetail([lock], now)}`
}
