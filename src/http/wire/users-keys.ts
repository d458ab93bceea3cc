import { keyText } from '../../bytes/key-text.js'
import { isReserved } from '../../bytes/reserved-keys.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { ackedCell, notifiedCell } from '../../observers/rules/codec/cell-key.js'
import { isAttachedKey, keyOfAttached } from '../../percolator/codec/attached-key.js'

const NO_KEY = new Uint8Array()

/**
 * Maps locks on internal rows to user keys: clients do not know the server's rows, so a lock on one is shown as a lock on the
 * key that the row is about.
 */
export function ofUsersKeys(error: unknown): unknown {
  if (!isKvError(error, 'key_locked') && !isKvError(error, 'lock_wait_timeout')) return error
  const { lock } = error.fields
  const { locks } = isKvError(error, 'key_locked') ? error.fields : {}
  const all = [
    ...(locks ?? []),
    ...(error.errors ?? []).flatMap((entry) => lockOf(entry) ?? []),
    ...(lock ? [lock] : []),
  ]
  if (!all.some(isOfServer)) return error
  const shown = lock && usersLock(lock)
  const errors = error.errors && distinct(error.errors.map(usersEntry), (entry) => lockOf(entry))
  const fields = {
    ...error.fields,
    ...(shown && { key: shown.key, lock: shown }),
    ...(locks && { locks: distinct(locks.map(usersLock), (one) => one) }),
  }
  return new KvError(error.code, error.message, fields, { ...(errors && { errors }) })
}

function isOfServer({ key, primary }: LockInfo): boolean {
  return isReserved(key) || isReserved(primary)
}

function lockOf(error: KvError): LockInfo | undefined {
  return isKvError(error, 'key_locked') ? error.fields.lock : undefined
}

function usersEntry(entry: KvError): KvError {
  return ofUsersKeys(entry) as KvError
}

function usersLock(lock: LockInfo): LockInfo {
  return { ...lock, key: usersKey(lock.key), primary: usersKey(lock.primary) }
}

/** @returns an empty key, which is never a real one, for a row that is not about a key. */
function usersKey(key: Uint8Array): Uint8Array {
  if (!isReserved(key)) return key
  if (isAttachedKey(key)) return keyOfAttached(key)
  return (ackedCell(key) ?? notifiedCell(key))?.key ?? NO_KEY
}

/** Drops entries whose lock another entry has already. */
function distinct<T>(all: readonly T[], lockIn: (one: T) => LockInfo | undefined): T[] {
  const seen = new Set<string>()
  return all.filter((one) => {
    const lock = lockIn(one)
    if (lock === undefined) return true
    const text = `${lock.startTs} ${keyText(lock.key)}`
    return !seen.has(text) && seen.add(text)
  })
}
