import { expect, test } from 'vitest'
import { rollbackRecord } from '../../../src/percolator/write.js'
import { NO_CELLS } from '../../../src/store/table/layout/layout.js'
import { knownRow } from '../../../src/store/table/rows/known-row.js'
import { RowCache } from '../../../src/store/table/rows/row-cache.js'
import { text, utf8 } from '../support.js'

const absent = (key: Uint8Array) => knownRow(key, NO_CELLS, 'txn', 5, 0)

test('the least recently used rows go when there are too many bytes', () => {
  const cache = new RowCache(3000)
  for (const name of ['a', 'b', 'c']) cache.set(absent(utf8(name)))
  cache.get(utf8('a'))
  for (const name of ['d', 'e']) cache.set(absent(utf8(name)))
  const left = ['a', 'b', 'c', 'd', 'e'].filter((name) => cache.get(utf8(name)) !== undefined)
  expect(left).toContain('a')
  expect(left).not.toContain('b')
  expect(cache.bytes).toBeLessThanOrEqual(3000)
  cache.clear()
  expect(cache.bytes).toBe(0)
})

test('no row keeps the request in memory of which it was a part', () => {
  const request = new Uint8Array(2 ** 20).fill(97)
  const cache = new RowCache(2 ** 20)
  const write = { ...rollbackRecord(5, false), type: 'put' as const, shortValue: request.subarray(100, 103) }
  cache.set({ ...absent(request.subarray(0, 3)), writes: [write] })
  const kept = cache.get(utf8('aaa'))
  expect(kept?.key.buffer.byteLength).toBe(3)
  expect(kept?.writes[0]?.shortValue?.buffer.byteLength).toBe(3)
  expect(text(kept?.writes[0]?.shortValue ?? utf8(''))).toBe('aaa')
})
