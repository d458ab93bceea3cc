import { expect, test } from 'vitest'
import { isKvError, KvError } from '../../../src/errors/kv-error.js'
import type { LockInfo } from '../../../src/errors/lock-info.js'
import { ofUsersKeys } from '../../../src/http/wire/users-keys.js'
import { ackKey, notifiedKey } from '../../../src/observers/rules/codec/cell-key.js'
import { attachedKey } from '../../../src/percolator/codec/attached-key.js'
import { reservedKey } from '../../../src/percolator/codec/reserved-key.js'
import { keyLocked, lockWaitTimeout, withEntries } from '../../../src/percolator/errors.js'
import { text, utf8 } from '../../store/support.js'

const KEY = utf8('k')

function lockOf(key: Uint8Array, primary: Uint8Array = KEY): LockInfo {
  const rest = {
    type: 'put',
    txnSize: 0,
    forUpdateTs: 0,
    minCommitTs: 0,
    useAsyncCommit: false,
    secondaries: [],
  } as const
  return { key, primary, startTs: 5, ttl: 1, ...rest }
}

/** Of an error and its entries: the key, and those of its lock. */
function keysOf(error: unknown): unknown[] {
  if (!isKvError(error, 'key_locked') && !isKvError(error, 'lock_wait_timeout')) throw error
  const { key = utf8('?'), lock = lockOf(utf8('?')) } = error.fields
  return [[key, lock.key, lock.primary].map((bytes) => text(bytes)), ...(error.errors ?? []).flatMap(keysOf)]
}

test.each([
  ['that is attached', attachedKey(7, KEY), 'k'],
  ['whose run was acknowledged', ackKey({ id: 7, key: KEY }), 'k'],
  ['that was notified', notifiedKey({ id: 7, key: KEY }, 5), 'k'],
  ['of an Idempotency-Key: none', reservedKey(utf8('outcome/k')), ''],
])('a lock on a row of the server is shown as one on the key %s', (_, row, key) => {
  const lock = lockOf(row, row)
  expect(keysOf(ofUsersKeys(keyLocked(lock)))).toEqual([[key, key, key]])
  expect(keysOf(ofUsersKeys(lockWaitTimeout(row, lock)))).toEqual([[key, key, key]])
  const all = withEntries([keyLocked(lockOf(utf8('a'))), keyLocked(lock), keyLocked(lock)])
  expect(keysOf(ofUsersKeys(all))).toEqual([
    ['a', 'a', 'k'],
    ['a', 'a', 'k'],
    [key, key, key],
  ])
})

test('what names no row of the server stays as it is', () => {
  for (const error of [keyLocked(lockOf(KEY)), new KvError('not_found', 'no', { key: KEY }), new Error('a defect')])
    expect(ofUsersKeys(error)).toBe(error)
})
