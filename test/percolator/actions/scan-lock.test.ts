import { describe, expect, test } from 'vitest'
import { scanLock } from '../../../src/percolator/actions/scan-lock.js'
import { asyncAt, bytes, lockAt, lockInfoOf, pessimisticAt, readable } from '../builders.js'

const LOCKS = [
  { key: bytes('a'), lock: lockAt(5) },
  { key: bytes('b'), lock: lockAt(10, { type: 'lock' }) },
  { key: bytes('c'), lock: pessimisticAt(3) },
  { key: bytes('d'), lock: asyncAt(11) },
]

describe('scan_lock over locks at 5, 10, 3 and 11', () => {
  const cases = [
    { name: 'up to 10', maxTs: 10, limit: 100, want: 'abc' },
    { name: 'up to 9', maxTs: 9, limit: 100, want: 'ac' },
    { name: 'up to 2', maxTs: 2, limit: 100, want: '' },
    { name: 'all', maxTs: 11, limit: Number.POSITIVE_INFINITY, want: 'abcd' },
    { name: 'the limit counts locks found, not met', maxTs: 9, limit: 2, want: 'ac' },
    { name: 'a limit reached', maxTs: 11, limit: 2, want: 'ab' },
  ]
  for (const { name, maxTs, limit, want } of cases)
    test(name, () => {
      const found = scanLock(LOCKS, maxTs, limit)
      expect(found.map((lock) => readable(lock.key)).join('')).toBe(want)
    })
})

test('every field of a lock is shown, but its value and the rollbacks it remembers', () => {
  const lock = asyncAt(5, { secondaries: [bytes('s')], rollbackTs: [7], forUpdateTs: 6, txnSize: 2, ttlMs: 9 })
  expect(readable(scanLock([{ key: bytes('a'), lock }], 5, 1))).toEqual([
    lockInfoOf('a', 5, {
      ttl: 9,
      txnSize: 2,
      forUpdateTs: 6,
      minCommitTs: 6,
      useAsyncCommit: true,
      secondaries: ['s'],
    }),
  ])
})
