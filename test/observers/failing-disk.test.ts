import { describe, expect, test } from 'vitest'
import type { Observers } from '../../src/observers/observers.js'
import { codeOf, EngineFailure, put, TappedEngine, testStores } from '../store/support.js'
import { commit, keysOf, openObservers, prefix, putNow, runNow } from './support.js'

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
  await expect.poll(run).toBeGreaterThan(0)
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

/** The next write fails, on disk or not. */
function failNextWrite(tapped: TappedEngine, lands: boolean): void {
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_, land) => land()
    if (lands) await land()
    throw new EngineFailure('no answer')
  }
}

describe('a registration whose write failed is what stands on disk, now and after a restart', () => {
  const options = { ...prefix('doc/'), maxDepth: 1 }
  const calls: Record<string, (observers: Observers) => Promise<unknown>> = {
    put: (observers) => observers.put('new', prefix('doc/')),
    'put with a backfill': (observers) => observers.put('new', { ...prefix('doc/'), backfill: true }),
    options: (observers) => observers.put('words', options),
    pause: (observers) => observers.pause('words'),
    backfill: (observers) => observers.backfill('words'),
    remove: (observers) => observers.remove('words'),
  }
  const seen = (observers: Observers) =>
    Promise.all(
      ['words', 'new'].map((name) =>
        observers.get(name).then(
          ({ state, sinceTs, maxDepth, pending }) => ({ state, sinceTs, maxDepth, pending }),
          ({ code }) => code,
        ),
      ),
    )
  const words = { state: 'running', maxDepth: 64, pending: 2 }
  test.each([
    ['put', true, 'later', [words, { state: 'running', pending: 1 }]],
    ['put', false, 'later', [words, 'not_found']],
    ['put with a backfill', true, 'at once', [words, { state: 'running', pending: 2 }]],
    ['put with a backfill', false, 'at once', [words, 'not_found']],
    ['options', true, 'at once', [{ ...words, maxDepth: 1 }, 'not_found']],
    ['options', false, 'at once', [words, 'not_found']],
    ['pause', true, 'at once', [{ ...words, state: 'paused' }, 'not_found']],
    ['pause', false, 'at once', [words, 'not_found']],
    ['backfill', true, 'at once', [words, 'not_found']],
    ['remove', true, 'later', ['not_found', 'not_found']],
    ['remove', false, 'at once', [words, 'not_found']],
  ] as const)('%s, landed: %s, opened again %s', async (call, lands, reopened, expected) => {
    const tapped = new TappedEngine()
    const directory = await stores.directory()
    const store = await stores.open({ openEngine: tapped.open, directory })
    const observers = await openObservers(store)
    await observers.put('words', prefix('doc/'))
    await putNow(store, 'doc/1')
    failNextWrite(tapped, lands)
    let isFull = reopened === 'later' // Than the call has failed.
    tapped.onRequireRoom = async () => {
      if (isFull) throw new EngineFailure('disk full')
    }
    expect(await codeOf(calls[call]?.(observers) as Promise<unknown>)).toBe('storage_unavailable')
    isFull = false
    await expect.poll(() => store.upkeep.probe()).toBe(true)
    await putNow(store, 'doc/2')
    await expect.poll(() => seen(observers)).toMatchObject(expected)
    expect(store.observed.named('words')?.maxDepth).toBe(
      call === 'remove' && lands ? undefined : call === 'options' && lands ? 1 : 64,
    )
    const before = await seen(observers)
    await observers.close()
    const again = await openObservers(store)
    await expect.poll(() => seen(again)).toEqual(before)
    await again.close()
  })
})

test('options that could not be written do not hold', async () => {
  const { tapped, store, observers } = await claimed()
  failNextWrite(tapped, false)
  expect(await codeOf(observers.put('words', { ...prefix('doc/'), maxDepth: 1 }))).toBe('storage_unavailable')
  expect([(await observers.get('words')).maxDepth, store.observed.named('words')?.maxDepth]).toEqual([64, 64])
})

test('a collection of acknowledgements that failed is tried again', async () => {
  const { tapped, store, observers, first } = await claimed()
  await runNow(store, 'words', first)
  const safePoint = await store.upkeep.raiseSafePoint(await store.tso(1))
  failNextWrite(tapped, false)
  expect(await codeOf(observers.collect(safePoint))).toBe('storage_unavailable')
  await expect.poll(() => store.upkeep.probe()).toBe(true)
  await observers.collect(safePoint)
  const id = store.observed.named('words')?.id ?? 0
  expect(await store.cells.acks(id, { after: undefined, limit: 10 })).toEqual([])
})

test('an acknowledgement that was written although its run failed is collected', async () => {
  const { tapped, store, observers, first, claim } = await claimed()
  await observers.release('words', [first])
  await observers.collect(await store.upkeep.raiseSafePoint(await store.tso(1))) // There is none.
  const again = await claim()
  failNextWrite(tapped, true)
  expect(await codeOf(runNow(store, 'words', ...again))).toBe('storage_unavailable')
  await expect.poll(() => store.upkeep.probe()).toBe(true)
  await commit(store, [put('other')])
  await observers.collect(await store.upkeep.raiseSafePoint(await store.tso(1)))
  const id = store.observed.named('words')?.id ?? 0
  expect(await store.cells.acks(id, { after: undefined, limit: 10 })).toEqual([])
})

test('the sweep of an observer that is removed goes on when the disk is back', async () => {
  const { tapped, store, observers } = await claimed()
  const id = store.observed.named('words')?.id ?? 0
  tapped.onWrite = async (_, land) => {
    failNextWrite(tapped, false)
    await land()
  }
  await observers.remove('words')
  await expect
    .poll(() => store.cells.notifications(id, { after: undefined, limit: 10 }).catch(() => undefined))
    .toEqual([])
})
