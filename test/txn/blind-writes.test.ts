import { expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { DEFAULT_LIMITS, SLICE_ITEMS } from '../../src/limits.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { memoryStores, utf8 } from '../store/support.js'

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
