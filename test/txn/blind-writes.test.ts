import { expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { DEFAULT_LIMITS, SLICE_ITEMS } from '../../src/limits.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import type { Timestamp } from '../../src/timestamp.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { memoryStores, text, utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
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

test('a start_ts below versions that others have committed meanwhile costs no retry', async () => {
  const given: (Timestamp | undefined)[] = []
  const store = Object.assign(await openTableStore(new MemoryTable()), { blindTs: () => given.shift() })
  const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
  const oneShots = new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS))
  const put = (value: string) =>
    oneShots.run({
      ...{ checks: [], maxRetries: 0, lockWaitMs: 0 },
      ops: [{ op: 'put', key: utf8('k'), value: utf8(value) }],
    })
  const early = await store.tso(1)
  const first = (await put('first')).answer
  given.push(early)
  const second = (await put('second')).answer
  expect(given).toEqual([])
  expect(second.startTs).toBeGreaterThan(first.commitTs ?? Number.POSITIVE_INFINITY)
  const found = await store.get({ key: utf8('k'), ts: await store.tso(1) })
  expect(found.found && text(found.value)).toBe('second')
  await store.close()
})
