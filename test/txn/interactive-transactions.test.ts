import { expect, test } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import { DEFAULT_LIMITS, type Limits } from '../../src/limits.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { InteractiveTransactions } from '../../src/txn/interactive-transactions.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { codeOf, read, testStores, utf8 } from '../store/support.js'

const stores = testStores()
const BEGIN = { mode: 'optimistic', isolation: 'snapshot', ttlMs: 60_000 } as const

async function start(rest: Partial<Limits> = {}) {
  const store = await stores.open()
  const limits = { ...DEFAULT_LIMITS, ...rest }
  const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
  const open = new InteractiveTransactions(store, coordinator, new Outcomes(store, coordinator, limits), limits)
  const put = async (id: string, key: string, value = 'v') =>
    open.put(id, { key: utf8(key), value: utf8(value), lockWaitMs: 0 })
  return { store, coordinator, open, put }
}

test('a commit can be repeated, and a rollback afterwards is refused', async () => {
  const { store, open, put } = await start()
  const { txn } = await open.begin(BEGIN)
  await put(txn, 'k')
  const { answer } = await open.commit(txn, undefined)
  expect((await open.commit(txn, undefined)).answer).toEqual(answer)
  expect(await codeOf(open.rollback(txn))).toBe('already_committed')
  expect(await codeOf(put(txn, 'k'))).toBe('txn_not_found')
  expect([await read(store, 'k'), open.size, open.bytes, open.state(txn).state]).toEqual(['v', 0, 0, 'committed'])
})

test('a rollback can be repeated, and writes nothing', async () => {
  const { store, open, put } = await start()
  const { txn } = await open.begin(BEGIN)
  await put(txn, 'k')
  await open.rollback(txn)
  await open.rollback(txn)
  expect(await codeOf(open.commit(txn, undefined))).toBe('txn_not_found')
  expect([await read(store, 'k'), open.state(txn).state]).toEqual([undefined, 'rolled_back'])
})

test('a commit that was refused is refused again for the same reason', async () => {
  const { open, put } = await start()
  const [{ txn: loser }, { txn: winner }] = [await open.begin(BEGIN), await open.begin(BEGIN)]
  for (const txn of [loser, winner]) await put(txn, 'k')
  await open.commit(winner, undefined)
  for (let tries = 0; tries < 2; tries++) expect(await codeOf(open.commit(loser, undefined))).toBe('write_conflict')
})

test('a transaction is for its owner alone, open or ended', async () => {
  const { open } = await start()
  const { txn } = await open.begin({ ...BEGIN, owner: 'ann' })
  const requireOwner = async (owner: string) => open.requireOwner(txn, owner)
  const codes = async () => [await codeOf(requireOwner('ann')), await codeOf(requireOwner('ben'))]
  expect(await codes()).toEqual(['none', 'txn_not_found'])
  await open.rollback(txn)
  expect(await codes()).toEqual(['none', 'txn_not_found'])
})

test('an idle transaction expires, and gives back what it holds', async () => {
  const { coordinator, open, put } = await start()
  const { txn } = await open.begin({ ...BEGIN, ttlMs: 1 })
  await put(txn, 'k').catch(() => {}) // It may have expired already.
  await expect.poll(() => open.size).toBe(0)
  await coordinator.idle()
  expect([open.bytes, await codeOf(put(txn, 'k'))]).toEqual([0, 'txn_not_found'])
})

test('open transactions are bounded in number and in bytes', async () => {
  const { open, put } = await start({ txnsMax: 2, txnsBytesMax: 100 })
  const { txn } = await open.begin(BEGIN)
  await put(txn, 'k', 'x'.repeat(200))
  expect([await codeOf(put(txn, 'l')), await codeOf(open.begin(BEGIN))]).toEqual(['overloaded', 'overloaded'])
  await open.rollback(txn)
  await open.begin(BEGIN)
  await open.begin(BEGIN)
  expect(await codeOf(open.begin(BEGIN))).toBe('overloaded')
})
