import { expect, test } from 'vitest'
import { batchGetValues } from '../../src/client/batch-get.js'
import { type PageRequest, scanPages } from '../../src/client/scan.js'
import { KvError } from '../../src/errors/kv-error.js'
import type { Pair } from '../../src/percolator/api.js'
import { answerTooLarge } from '../../src/store/answer-budget.js'
import { collect, failureOf } from '../coordinator/support.js'

/** A server that answers with at most some pairs at a time, as it does with some bytes. */
const PAIRS_MAX = 5
const pairs: Pair[] = Array.from({ length: 100 }, (_, i) => ({
  key: new Uint8Array([i]),
  value: new Uint8Array([i]),
  commitTs: i + 1,
}))

function readPage({ start, end, limit, reverse }: PageRequest): Promise<readonly Pair[]> {
  const from = start?.[0] === undefined ? 0 : start[0] + start.length - 1 // [i, 0] is right behind [i].
  const found = pairs.slice(from, end?.[0] ?? pairs.length)
  const page = (reverse ? found.reverse() : found).slice(0, limit)
  return page.length > PAIRS_MAX ? Promise.reject(answerTooLarge(64)) : Promise.resolve(page)
}

test.each([false, true])('a scan asks for less where an answer would be too large (reverse: %s)', async (reverse) => {
  const found = await collect(scanPages({ as: 'bytes', reverse }, async (page) => ({ pairs: await readPage(page) })))
  const keys = pairs.map(({ key }) => key)
  expect(found.map(({ key }) => key)).toEqual(reverse ? keys.reverse() : keys)
})

test('a batch too', async () => {
  const sizes: number[] = []
  const read = (keys: readonly Uint8Array[]): Promise<readonly Pair[]> => {
    sizes.push(keys.length)
    if (keys.length > PAIRS_MAX) return Promise.reject(answerTooLarge(64))
    return Promise.resolve(keys.flatMap(([i = -1]) => pairs[i] ?? []))
  }
  const keys = [...pairs.map(({ key }) => key), new Uint8Array([200])]
  const values = await batchGetValues(keys, 'bytes', read)
  expect(values).toEqual([...pairs.map(({ value }) => value), undefined])
  expect(sizes.some((size) => size > PAIRS_MAX)).toBe(true)
})

test('a single pair that is too large, or a request that is, fails', async () => {
  const tooLarge = answerTooLarge(64)
  expect(await failureOf(collect(scanPages({}, () => Promise.reject(tooLarge))))).toBe(tooLarge)
  expect(await failureOf(batchGetValues([new Uint8Array([1])], 'text', () => Promise.reject(tooLarge)))).toBe(tooLarge)
  let asked = 0
  const tooLong = new KvError('payload_too_large', 'start has 5000 bytes', { field: 'start', limit: 4096 })
  const refuse = (): Promise<never> => {
    asked++
    return Promise.reject(tooLong)
  }
  expect(await failureOf(collect(scanPages({}, refuse)))).toBe(tooLong)
  expect(asked).toBe(1)
})
