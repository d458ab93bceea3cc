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

test.each([
  ['landed', true],
  ['did not', false],
])(
  'a registration that failed, and whose write %s: what a restart brings back has missed nothing',
  async (_, lands) => {
    const tapped = new TappedEngine()
    const directory = await stores.directory()
    const store = await stores.open({ directory, openEngine: tapped.open })
    const observers = await openObservers(store)
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_, land) => land()
      if (lands) await land()
      throw new EngineFailure('no answer')
    }
    expect(await codeOf(observers.put('words', prefix('doc/')))).toBe('storage_unavailable')
    await expect.poll(() => putNow(store, 'doc/1').catch(() => 0), { timeout: 5000 }).toBeGreaterThan(0)
    const known = () => observers.list().then((all) => all.map(({ name, pending }) => [name, pending]))
    const expected = lands ? [['words', 1]] : []
    await expect.poll(known, { timeout: 5000 }).toEqual(expected)
    await expect.poll(() => store.cells.named('words') !== undefined).toBe(lands)
    await observers.close()
    await store.close()
    const reopened = await openObservers(await stores.open({ directory }))
    expect((await reopened.list()).map(({ name, pending }) => [name, pending])).toEqual(expected)
  },
)
