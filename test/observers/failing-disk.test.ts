import { expect, test } from 'vitest'
import { codeOf, EngineFailure, TappedEngine, testStores } from '../store/support.js'
import { keysOf, openObservers, prefix, putNow, runNow } from './support.js'

const stores = testStores()

async function claimed() {
  const tapped = new TappedEngine()
  const store = await stores.open({ openEngine: tapped.open })
  const observers = await openObservers(store)
  await observers.put('words', prefix('doc/'))
  await putNow(store, 'doc/1')
  const claim = () => observers.claim('words', { worker: 'w' })
  const [first] = await claim()
  if (first === undefined) throw new Error('nothing to claim')
  return { tapped, store, observers, claim, first }
}

test('a change that was written although it failed is run, whatever is acknowledged meanwhile', async () => {
  const { tapped, store, observers, claim, first } = await claimed()
  tapped.onRequireRoom = async () => {
    throw new EngineFailure('disk full')
  }
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_, land) => land()
    await land()
    throw new EngineFailure('no answer')
  }
  expect(await codeOf(putNow(store, 'doc/1'))).toBe('storage_unavailable')
  expect(await codeOf(runNow(store, 'words', first))).toBe('storage_unavailable')
  tapped.onRequireRoom = async () => {}
  const run = () => runNow(store, 'words', first).catch(() => 0)
  await expect.poll(run, { timeout: 5000 }).toBeGreaterThan(0)
  const [second] = await claim()
  expect(second?.commitTs).toBeGreaterThan(first.fence)
  if (second !== undefined) await runNow(store, 'words', second)
  expect(await observers.get('words')).toMatchObject({ pending: 0, pendingIsExact: true, acks: 2 })
})

test('claims are void when the database was opened again, and failures and parked cells are known', async () => {
  const { tapped, store, observers, claim, first } = await claimed()
  await putNow(store, 'doc/2')
  const [failed] = await claim()
  if (failed === undefined) throw new Error('nothing to claim')
  await observers.release('words', [{ ...failed, error: 'no', retryAfterMs: 3_600_000 }])
  tapped.onWrite = async () => {
    tapped.onWrite = (_, land) => land()
    throw new EngineFailure('disk full')
  }
  expect(await codeOf(putNow(store, 'doc/3'))).toBe('storage_unavailable')
  await putNow(store, 'doc/4')
  expect(await observers.get('words')).toMatchObject({ claimed: 0, delayed: 1, pending: 3, pendingIsExact: true })
  const claims = await observers.claim('words', { worker: 'w', limit: 10 })
  expect(keysOf(claims).sort()).toEqual(['doc/1', 'doc/4'])
  expect(await observers.get('words')).toMatchObject({ claimed: 2, delayed: 1, pending: 3, pendingIsExact: true })
  const again = await codeOf(runNow(store, 'words', first))
  expect(again).toBe('write_conflict') // It was handed out again.
})

test('the failure of a run that cannot be written comes back as a run that has not begun', async () => {
  const { tapped, observers, first } = await claimed()
  tapped.onWrite = async () => {
    tapped.onWrite = (_, land) => land()
    throw new EngineFailure('disk full')
  }
  expect(await codeOf(observers.release('words', [{ ...first, error: 'no' }]))).toBe('storage_unavailable')
  const again = () => observers.claim('words', { worker: 'w' }).catch(() => [])
  await expect.poll(again).toMatchObject([{ attempt: 1 }])
})
