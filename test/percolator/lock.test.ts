import { expect, test } from 'vitest'
import { isExpired } from '../../src/percolator/lock.js'
import { TIMESTAMP_MAX, timestampFromMs } from '../../src/timestamp.js'

test('a lock is over its TTL from the first millisecond after it', () => {
  const lock = { startTs: timestampFromMs(1000) + 7, ttlMs: 50 }
  expect(isExpired(lock, timestampFromMs(1051) - 1)).toBe(false)
  expect(isExpired(lock, timestampFromMs(1051))).toBe(true)
})

test('at the highest timestamp it is, however long its TTL', () => {
  expect(isExpired({ startTs: timestampFromMs(Date.UTC(2100, 0)), ttlMs: 2 ** 41 }, TIMESTAMP_MAX)).toBe(true)
})
