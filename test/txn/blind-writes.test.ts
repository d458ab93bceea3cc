import { describe, expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { DEFAULT_LIMITS, SLICE_ITEMS } from '../../src/limits.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import type { Timestamp } from '../../src/timestamp.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { memoryStores, text, utf8 } from '../store/support.js'
import { type Fate, MemoryTable } from '../store/table/memory-table.js'
import { openTableStore } from '../store/table/open-table-store.js'

const stores = memoryStores()

test('a transaction of many writes and no reads holds nothing once it is over', async () => {
  const answers = new AnswerBudget(DEFAULT_LIMITS)
  const store = await stores.open({ answers })
  const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
  const oneShots = new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS))
  const value = utf8('v')
  const ops = Array.from({ length: 2 * SLICE_ITEMS }, (_, i) => ({ op: 'put' as const, key: utf8(`k${i}`), value }))
  await oneShots.run({ checks: [], ops, maxRetries: 0, lockWaitMs: 0 })
  expect(answers.heldBytes).toBe(0)
})

describe.each([
  ['change one by one', false],
  ['change together', true],
] as const)('on a shared store whose rows %s', (_, isTogether) => {
  async function opened(fates: Fate[] = []) {
    const table = new MemoryTable(() => fates.shift() ?? 'done', undefined, undefined, { isTogether })
    const given: Timestamp[] = []
    const store = await openTableStore(table)
    const next = async (): Promise<Timestamp> => store.tso(1)
    Object.assign(store, { blindTs: () => given.shift() })
    const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
    const oneShots = new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS))
    const put = async (value: string, lockWaitMs = 0) => {
      given.push(await next())
      const ops = ['a', 'b'].map((key) => ({ op: 'put' as const, key: utf8(key), value: utf8(value) }))
      const { answer } = await oneShots.run({ checks: [], maxRetries: 0, lockWaitMs, ops })
      expect(given).toEqual([])
      return answer
    }
    const shown = async (key: string) => {
      const found = await store.get({ key: utf8(key), ts: await next() })
      return found.found && { value: text(found.value), commitTs: found.commitTs }
    }
    return { table, store, given, next, put, shown }
  }

  test('a start_ts below versions that others have committed meanwhile costs no retry', async () => {
    const { store, given, next, put, shown } = await opened()
    const early = await next()
    const first = await put('first')
    Object.assign(store, { blindTs: () => (given.splice(0).length > 0 ? early : undefined) })
    const second = await put('second')
    expect(second.startTs).toBeGreaterThan(first.commitTs ?? Number.POSITIVE_INFINITY)
    for (const key of ['a', 'b']) expect(await shown(key)).toEqual({ value: 'second', commitTs: second.commitTs })
    await store.close()
  })

  test.each(['not done', 'late', 'done, answer lost'] as const)(
    'an answer that is lost, of a change %s, is found out',
    async (fate) => {
      const fates: Fate[] = []
      const { table, store, put, shown } = await opened(fates)
      await put('first')
      fates.push(fate)
      const { commitTs } = await put('second')
      table.catchUp()
      for (const key of ['a', 'b']) expect(await shown(key)).toEqual({ value: 'second', commitTs })
      const { writes } = await store.mvccGetByKey({ key: utf8('a') })
      expect(writes.filter(({ type }) => type === 'put')).toHaveLength(2)
      await store.close()
    },
  )

  test('the lock of a client is waited for', async () => {
    const { store, next, put, shown } = await opened()
    await put('first')
    const startTs = await next()
    const mutation = { op: 'put', key: utf8('a'), value: utf8('theirs') } as const
    await store.prewrite({ primary: utf8('a'), startTs, lockTtl: 20_000, mutations: [mutation] })
    const written = put('second', 10_000)
    await expect(put('third')).rejects.toMatchObject({ code: 'key_locked' })
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await next(), primary: utf8('a') })
    const { commitTs } = await written
    expect(await shown('a')).toEqual({ value: 'second', commitTs })
    await store.close()
  })
})
