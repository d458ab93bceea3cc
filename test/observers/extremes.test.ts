import { describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Notification } from '../../src/percolator/observers-api.js'
import {
  codeOf,
  EngineFailure,
  failureOf,
  prewriteOf,
  put,
  TappedEngine,
  TestClock,
  testStores,
  turn,
  utf8,
} from '../store/support.js'
import { inTwoPhases } from '../store/two-phases.js'
import { commit, keysOf, openObservers, prefix, putNow, runNow } from './support.js'

const stores = testStores()

async function start(limits: Partial<typeof DEFAULT_LIMITS> = {}) {
  const store = await stores.open()
  const observers = await openObservers(store, { limits: { ...DEFAULT_LIMITS, ...limits } })
  await observers.put('words', prefix('doc/'))
  return { store, observers }
}

const keysFrom = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, i) => `doc/${String(from + i).padStart(6, '0')}`)

describe('a claim', () => {
  test('is refused where as many cells as may be are claimed, delayed or parked', async () => {
    const { store, observers } = await start({ claimsMax: 2 })
    await putNow(store, 'doc/1', 'doc/2', 'doc/3')
    const claims = await observers.claim('words', { worker: 'w', limit: 10 })
    expect(claims).toHaveLength(2)
    const claim = () => observers.claim('words', { worker: 'w', waitMs: 60_000 })
    expect(await codeOf(claim())).toBe('overloaded')
    await observers.release(
      'words',
      claims.slice(0, 1).map((one) => ({ ...one, error: 'no', retryAfterMs: 3_600_000 })),
    )
    expect(await codeOf(claim())).toBe('overloaded')
    await runNow(store, 'words', ...claims.slice(1))
    expect(keysOf(await claim())).toEqual(['doc/3'])
  })

  test('works again when other observers have left room for marks that were too deep', async () => {
    const { store, observers } = await start({ claimsMax: 3 })
    await observers.put('deep', { ...prefix('deep/'), maxDepth: 1 })
    await putNow(store, 'doc/1', 'doc/2', 'deep/1')
    const others = await observers.claim('words', { worker: 'w', limit: 2 })
    for (const writes of [['deep/2'], ['deep/3', 'deep/4']]) {
      const claims = await observers.claim('deep', { worker: 'w' })
      const acks = claims.map(({ key, fence }) => ({ observer: 'deep', key, fence }))
      await commit(
        store,
        writes.map((key) => put(key)),
        { acks, seesFence: true },
      )
    }
    const claim = () => observers.claim('deep', { worker: 'w' })
    expect(await codeOf(claim())).toBe('overloaded')
    await runNow(store, 'words', ...others)
    await putNow(store, 'deep/5')
    expect(keysOf(await claim())).toEqual(['deep/5'])
    expect(await observers.get('deep')).toMatchObject({ parked: 2, pending: 1, pendingIsExact: true })
  })

  test('works again when other observers have left room for failures that did not fit at the start', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const limits = { ...DEFAULT_LIMITS, claimsMax: 2 }
    const before = await openObservers(store, { limits })
    await before.put('words', { ...prefix('doc/'), backoffMs: 1, backoffMaxMs: 1 })
    await before.put('others', prefix('other/'))
    await putNow(store, 'doc/1', 'doc/2', 'other/1', 'other/2')
    const [failed] = await before.claim('words', { worker: 'w' })
    if (failed === undefined) throw new Error('nothing to claim')
    await before.release('words', [{ ...failed, error: 'no' }])
    await before.close()
    const observers = await openObservers(store, { limits })
    const others: Notification[] = []
    while (others.length < 2) others.push(...(await observers.claim('others', { worker: 'w', limit: 2, waitMs: 1000 })))
    const claim = () => observers.claim('words', { worker: 'w', limit: 2 })
    clock.ms += 10
    await codeOf(claim())
    await runNow(store, 'others', ...others)
    clock.ms += 1000
    expect([...(await claim()), ...(await claim())].map(({ attempt }) => attempt).sort()).toEqual([1, 2])
  })

  test('that waits does so while a change lies ahead of the clock', async () => {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store)
    await observers.put('words', prefix('doc/'))
    const waiting = observers.claim('words', { worker: 'w', waitMs: 60_000 })
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')]))
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs: startTs + 5000 * 2048 })
    expect(await observers.get('words')).toMatchObject({ delayed: 1 })
    clock.ms += 6000
    expect(await observers.claim('words', { worker: 'w' })).toEqual([])
    expect(keysOf(await waiting)).toEqual(['doc/1'])
  })

  test('of a client that hangs up takes nothing', async () => {
    const { store, observers } = await start()
    const client = new AbortController()
    const waiting = observers.claim('words', { worker: 'gone', waitMs: 60_000, signal: client.signal })
    client.abort()
    expect(await waiting).toEqual([])
    await putNow(store, 'doc/1')
    const late = new AbortController()
    const answered = observers.claim('words', { worker: 'late', values: true, signal: late.signal })
    late.abort()
    expect(await answered).toEqual([])
    expect(await observers.claim('words', { worker: 'w' })).toMatchObject([{ attempt: 1 }])
  })

  test('waits beside 9 999 others, and beside no more; a pause answers all of them', async () => {
    const { observers } = await start()
    const wait = () => observers.claim('words', { worker: 'w', waitMs: 60_000 })
    const waiting = Array.from({ length: 10_000 }, wait)
    expect(await codeOf(wait())).toBe('overloaded')
    expect(await observers.claim('words', { worker: 'w' })).toEqual([])
    await observers.pause('words')
    expect((await Promise.all(waiting)).flat()).toEqual([])
  })

  test('does not wait for locks: a key that is locked comes without its value', async () => {
    const { store, observers } = await start()
    await putNow(store, 'doc/1', 'doc/2')
    await store.prewrite(prewriteOf(await store.tso(1), [put('doc/1')]))
    const claims = await observers.claim('words', { worker: 'w', limit: 10, values: true })
    expect(claims.map(({ found, value }) => [found, value?.toString()])).toEqual([
      [undefined, undefined],
      [true, 'value of doc/2'],
    ])
  })

  test('with long values ends early, and the others are ready again', async () => {
    const { store, observers } = await start()
    const long = Buffer.alloc(5 * 1024 * 1024, 'x')
    for (const key of ['doc/1', 'doc/2', 'doc/3']) await commit(store, [put(key, long)])
    const claim = () => observers.claim('words', { worker: 'w', limit: 10, values: true })
    expect(keysOf(await claim())).toEqual(['doc/1', 'doc/2'])
    expect(keysOf(await claim())).toEqual(['doc/3'])
  })

  test('finds cells of the longest keys, which the queue in memory leaves to the cursor', async () => {
    const { store, observers } = await start()
    const long = (i: number): string => `doc/${String(i).padStart(4092, '0')}`
    const keys = Array.from({ length: 600 }, (_, i) => long(i))
    for (let i = 0; i < keys.length; i += 100) await putNow(store, ...keys.slice(i, i + 100))
    const found = new Set<string>()
    while (found.size < keys.length)
      for (const key of keysOf(await observers.claim('words', { worker: 'w', limit: 100, waitMs: 1000 })))
        found.add(key)
    expect(await observers.get('words')).toMatchObject({ claimed: keys.length, pendingIsExact: true })
  })

  test('that needs the disk while the database is closed fails, and does not keep others from anything', async () => {
    const tapped = new TappedEngine()
    const store = await stores.open({ openEngine: tapped.open })
    const observers = await openObservers(store)
    await observers.put('words', prefix('doc/'))
    for (let i = 0; i < 8000; i += 1000) await putNow(store, ...keysFrom(i, i + 1000))
    let reopen = (): void => {}
    const isHeld = new Promise<void>((resolve) => {
      reopen = resolve
    })
    tapped.onReopen = async (open) => {
      await isHeld
      await open()
    }
    tapped.onWrite = async () => {
      tapped.onWrite = (_, land) => land()
      throw new EngineFailure('disk full')
    }
    const failing = codeOf(putNow(store, 'other'))
    const claim = () => observers.claim('words', { worker: 'w', limit: 1000, waitMs: 60_000 })
    let claimed = 0
    const failed = (async () => {
      for (;;) claimed += (await claim()).length
    })()
    expect(await codeOf(failed)).toBe('storage_unavailable')
    expect(claimed).toBeGreaterThanOrEqual(4096)
    for (let i = 0; i < 3; i++) await turn()
    reopen()
    expect(await failing).toBe('storage_unavailable')
    expect(await claim()).not.toEqual([])
  })
})

describe('an observer', () => {
  test('is refused by a store that cannot commit in one phase', async () => {
    const observers = await openObservers(inTwoPhases(await stores.open()))
    const { code, message } = await failureOf(observers.put('words', prefix('doc/')))
    expect([code, message]).toEqual([
      'not_found',
      'the store two-phases has no observers, because it cannot commit in one phase',
    ])
  })

  test('that is put and removed at once is there or not', async () => {
    const { store, observers } = await start()
    const calls = Array.from({ length: 50 }, (_, i) =>
      i % 2 === 0
        ? observers.put('both', { ...prefix('doc/'), backfill: true }).catch(() => {})
        : observers.remove('both').catch(() => {}),
    )
    await Promise.all(calls)
    expect(await codeOf(observers.get('both'))).toBe('not_found')
    expect(store.cells.named('both')).toBeUndefined()
    await observers.put('both', prefix('doc/'))
    await putNow(store, 'doc/1')
    expect(await observers.claim('both', { worker: 'w' })).toHaveLength(1)
  })

  test('that is removed takes claims with it, and one of the same name begins anew', async () => {
    const { store, observers } = await start()
    await putNow(store, 'doc/1')
    const claims = await observers.claim('words', { worker: 'w' })
    await observers.remove('words')
    expect(await codeOf(runNow(store, 'words', ...claims))).toBe('not_found')
    await observers.put('words', prefix('doc/'))
    expect(await codeOf(runNow(store, 'words', ...claims))).toBe('write_conflict')
    expect(await observers.extend('words', claims)).toHaveLength(1)
    expect(await observers.release('words', claims)).toEqual({ released: 0, parked: [] })
  })

  test('that is paused during a backfill goes on with it', async () => {
    const { store, observers } = await start()
    for (let i = 0; i < 3000; i += 1000) await putNow(store, ...keysFrom(i, i + 1000).map((key) => `old/${key}`))
    await observers.put('late', { ...prefix('old/'), backfill: true })
    expect(await observers.pause('late')).toMatchObject({ state: 'paused' })
    await observers.resume('late')
    await expect.poll(async () => (await observers.get('late')).state, { timeout: 5000 }).toBe('running')
    expect(await observers.get('late')).toMatchObject({ pending: 3000 })
  })

  test('loses the acknowledgements of runs below the safe point, and no others', async () => {
    const { store, observers } = await start()
    const id = store.cells.named('words')?.id ?? 0
    await putNow(store, 'doc/1', 'doc/2')
    const [one, other] = await observers.claim('words', { worker: 'w', limit: 2 })
    if (one === undefined || other === undefined) throw new Error('nothing to claim')
    const commitTs = await runNow(store, 'words', one)
    await runNow(store, 'words', other)
    await observers.collect(commitTs)
    const acks = await store.cells.acks(id, { after: undefined, limit: 10 })
    expect(keysOf(acks)).toEqual(['doc/2'])
  })
})
