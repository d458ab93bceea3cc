import { describe, expect, test } from 'vitest'
import type { OpenTxn } from '../../src/client/index.js'
import { BACKENDS, testDbs } from './backends.js'

/** A scan is the snapshot and the own writes as of its beginning, whatever its loop writes. */

const keyOf = (i: number): string => `k/${String(i).padStart(4, '0')}`

async function copyAll(txn: OpenTxn, reverse: boolean): Promise<number> {
  let seen = 0
  for await (const { key, value } of txn.scan({ prefix: 'k/', reverse })) {
    seen++
    // In both directions one copy lies before the place of the scan, and one behind it.
    await txn.put(`${key}.copy`, value)
    await txn.put(`k/!${key}`, value)
    await txn.delete(key)
  }
  return seen
}

describe.each(BACKENDS)('a scan whose loop writes, $backend', ({ openDb }) => {
  const start = testDbs(openDb)

  test.each([31, 32, 65, 400])(
    '%i keys, of the snapshot and of the transaction, forwards and backwards',
    async (count) => {
      const { db } = await start()
      await db.transaction(async (txn) => {
        for (let i = 0; i < count; i += 2) await txn.put(keyOf(i), 'v')
      })
      for (const reverse of [false, true]) {
        const txn = await db.begin()
        for (let i = 1; i < count; i += 2) await txn.put(keyOf(i), 'own')
        expect(await copyAll(txn, reverse)).toBe(count)
        let after = 0
        for await (const { key } of txn.scan({ prefix: 'k/' })) {
          if (!key.startsWith('k/!')) expect(key).toMatch(/\.copy$/)
          after++
        }
        expect(after).toBe(2 * count)
        await txn.rollback()
      }
    },
  )

  test('a scan within a scan, and one that was given up, see the writes of their beginning', {
    tags: ['long'],
  }, async () => {
    const { db } = await start()
    await db.transaction(async (txn) => {
      for (let i = 0; i < 40; i++) await txn.put(keyOf(i), 'v')
      const counts: number[] = []
      for await (const { key } of txn.scan({ prefix: 'k/' })) {
        let inner = 0
        for await (const _ of txn.scan({ prefix: 'k/' })) inner++
        counts.push(inner)
        for await (const _ of txn.scan({ prefix: 'k/' })) break
        await txn.put(`${key}.copy`, '')
      }
      expect(counts).toEqual(Array.from({ length: 40 }, (_, i) => 40 + i))
    })
  })
})
