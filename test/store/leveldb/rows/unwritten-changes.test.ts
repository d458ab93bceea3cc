import { expect, test } from 'vitest'
import { codeOf, EngineFailure, prewriteOf, put, TappedEngine, testStores, utf8, WriteGate } from '../../support.js'

const stores = testStores()
const p = utf8('p')

async function withPessimisticLock() {
  const tapped = new TappedEngine()
  const store = await stores.open({ openEngine: tapped.open })
  const startTs = await store.tso(1)
  const lock = { primary: p, startTs, forUpdateTs: startTs, lockTtl: 3000 }
  await store.acquirePessimisticLock({ ...lock, keys: [p] })
  const rollBack = () => store.pessimisticRollback({ keys: [p], startTs, forUpdateTs: startTs })
  const heartBeat = () => store.txnHeartBeat({ primary: p, startTs, adviseLockTtl: 9000 })
  return { tapped, store, rollBack, heartBeat }
}

test('a change of pessimistic locks alone does not wait for the write of others', async () => {
  const { tapped, store, rollBack, heartBeat } = await withPessimisticLock()
  const gate = new WriteGate(tapped)
  const writing = store.prewrite(prewriteOf(await store.tso(1), [put('x')]))
  expect(await heartBeat()).toMatchObject({ lockTtl: 9000 })
  await rollBack()
  gate.open()
  await writing
  expect(store.locks.count).toBe(1)
})

test('nor does it fail with that write', async () => {
  const { tapped, store, heartBeat } = await withPessimisticLock()
  tapped.onWrite = async () => {
    tapped.onWrite = (_, land) => land()
    throw new EngineFailure('disk full')
  }
  const writing = codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('x')])))
  const beating = heartBeat()
  expect(await writing).toBe('storage_unavailable')
  expect(await beating).toMatchObject({ lockTtl: 9000 })
  expect(store.locks.count).toBe(1)
})
