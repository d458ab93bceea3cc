import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { LockInfo } from '../../../src/errors/lock-info.js'
import { locksWithinLimit } from '../../../src/percolator/actions/scan.js'
import { lockInfo } from '../../../src/percolator/lock-info.js'
import { bytes, lockAt, readable } from '../builders.js'

const pairsOf = (keys: string): { key: Uint8Array }[] => [...keys].map((key) => ({ key: bytes(key) }))
const locksOf = (keys: string): LockInfo[] => [...keys].map((key) => lockInfo(bytes(key), lockAt(5)))

function met(pairs: string, locks: string, limit: number, reverse = false): string {
  return locksWithinLimit(pairsOf(pairs), locksOf(locks), limit, reverse)
    .map((lock) => readable(lock.key))
    .join('')
}

describe('the locks that a scan meets within its limit', () => {
  const cases = [
    { name: 'none', pairs: 'abc', locks: '', limit: 3, want: '' },
    { name: 'one among the pairs', pairs: 'ac', locks: 'b', limit: 3, want: 'b' },
    { name: 'full before the lock', pairs: 'ab', locks: 'c', limit: 2, want: '' },
    { name: 'the lock is the last within the limit', pairs: 'ab', locks: 'c', limit: 3, want: 'c' },
    { name: 'a locked key counts', pairs: 'bd', locks: 'ac', limit: 2, want: 'a' },
    { name: 'a key both locked and visible counts once', pairs: 'abc', locks: 'ac', limit: 3, want: 'ac' },
    { name: 'and no more', pairs: 'abc', locks: 'ad', limit: 3, want: 'a' },
    { name: 'locks alone', pairs: '', locks: 'abc', limit: 2, want: 'ab' },
    { name: 'a lock before every pair', pairs: 'b', locks: 'a', limit: 1, want: 'a' },
    { name: 'backwards, among the pairs', pairs: 'ca', locks: 'b', limit: 3, want: 'b', reverse: true },
    { name: 'backwards, full before the lock', pairs: 'cb', locks: 'a', limit: 2, want: '', reverse: true },
    { name: 'backwards, before every pair', pairs: 'ba', locks: 'dc', limit: 2, want: 'dc', reverse: true },
    { name: 'limit 0', pairs: '', locks: 'a', limit: 0, want: '' },
  ]
  for (const { name, pairs, locks, limit, want, reverse } of cases)
    test(name, () => expect(met(pairs, locks, limit, reverse)).toBe(want))
})

test('the same as merging both lists, dropping doubles and cutting at the limit', () => {
  const keys = fc.uniqueArray(fc.constantFrom(...'abcdefgh'), { maxLength: 8 })
  fc.assert(
    fc.property(keys, keys, fc.integer({ min: 1, max: 9 }), fc.boolean(), (visible, locked, limit, reverse) => {
      const inOrder = (list: readonly string[]): string[] => (reverse ? [...list].sort().reverse() : [...list].sort())
      const first = inOrder([...new Set([...visible, ...locked])]).slice(0, limit)
      const pairs = inOrder(visible).slice(0, limit).join('')
      const want = first.filter((key) => locked.includes(key)).join('')
      expect(met(pairs, inOrder(locked).join(''), limit, reverse)).toBe(want)
    }),
    { numRuns: 500 },
  )
})
