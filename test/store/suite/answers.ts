import { expect } from 'vitest'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { codeOf, prewriteOf, put, utf8, write } from '../support.js'
import type { Contract } from './contract.js'

const VALUE = 'x'.repeat(10_000)

/** Reads that grow too large are refused before they hold much more than they may. */
export function answerCases({ open, test }: Contract): void {
  async function filled(limits: { readonly answerBytesMax?: number; readonly answersBytesMax?: number }) {
    const answers = new AnswerBudget({ ...DEFAULT_LIMITS, ...limits })
    const store = await open({ answers })
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
    await write(
      store,
      5,
      6,
      keys.map((key) => put(key, VALUE)),
    )
    return { store, answers, keys: keys.map(utf8) }
  }

  test('an answer alone is bounded, and holds nothing once it is given', async () => {
    const { store, answers, keys } = await filled({ answerBytesMax: 100_000 })
    expect(await codeOf(store.batchGet({ keys }))).toBe('payload_too_large')
    expect(await codeOf(store.scan({ ts: 10, limit: 100 }))).toBe('payload_too_large')
    expect((await store.batchGet({ keys: keys.slice(0, 5) })).pairs).toHaveLength(5)
    expect((await store.scan({ ts: 10, limit: 5 })).pairs).toHaveLength(5)
    expect((await store.scan({ ts: 10, limit: 100, bytesMax: 50_000 })).isCut).toBe(true)
    expect(answers.heldBytes).toBe(0)
  })

  test('reads begin only where the answers that clients have not taken leave room', async () => {
    const { store, answers, keys } = await filled({ answersBytesMax: 100_000 })
    const lease = answers.lease()
    lease.hold(100_000)
    for (const read of [
      store.batchGet({ keys }),
      store.scan({ ts: 10, limit: 5 }),
      store.mvccGetByKey({ key: utf8('k1') }),
    ])
      expect(await codeOf(read)).toBe('overloaded')
    lease.end()
    expect((await store.batchGet({ keys })).pairs).toHaveLength(20)
  })

  test('locks that are found for a client count towards its answer', { tags: ['long'] }, async () => {
    const { store, answers } = await filled({ answerBytesMax: 100_000 })
    const mutations = Array.from({ length: 1000 }, (_, i) => put(`${'l'.repeat(100)}${i}`))
    await store.prewrite(prewriteOf(10, mutations))
    const lease = answers.lease()
    expect(await codeOf(store.scanLock({ maxTs: 10 }, lease))).toBe('payload_too_large')
    lease.end()
    expect((await store.scanLock({ maxTs: 10 })).locks).toHaveLength(1000)
  })
}
