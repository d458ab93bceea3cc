import { describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Notification } from '../../src/observers/rules/observers-api.js'
import {
  codeOf,
  EngineFailure,
  prewriteOf,
  put,
  TappedEngine,
  TestClock,
  testStores,
  turn,
  utf8,
} from '../store/support.js'
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
  test('is refused where as many cells as may be are claimed or delayed', async () => {
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

  test('is not refused for failures of any observer, over restarts too', async () => {
    const store = await stores.open()
    const limits = { ...DEFAULT_LIMITS, claimsMax: 2 }
    const sizes = { fifo: 1, fifoBytes: 1000, found: 1 }
    let observers = await openObservers(store, { limits, sizes })
    await observers.put('words', { ...prefix('doc/'), maxAttempts: 0 })
    await observers.put('parks', { ...prefix('doc/'), maxAttempts: 1 })
    await observers.put('others', prefix('other/'))
    const claim = (name: string) => observers.claim(name, { worker: 'w', limit: 10, waitMs: 1000 })
    const fail = async (name: string) => {
      const claims = await claim(name)
      await observers.release(
        name,
        claims.map((one) => ({ ...one, error: 'no', retryAfterMs: 0 })),
      )
      return claims.length
    }
    await putNow(store, ...keysFrom(0, 10), 'other/1')
    for (let failed = 0; failed < 10; ) failed += await fail('parks')
    for (let failed = 0; failed < 50; ) failed += await fail('words')
    expect(keysOf(await claim('others'))).toEqual(['other/1'])
    await observers.close()
    observers = await openObservers(store, { limits, sizes })
    expect(await observers.get('parks')).toMatchObject({ parked: 10 })
    const done = new Set<string>()
    while (done.size < 10) {
      const claims = await claim('words')
      await runNow(store, 'words', ...claims)
      for (const key of keysOf(claims)) done.add(key)
    }
    await putNow(store, 'doc/x')
    expect(keysOf(await claim('parks'))).toEqual(['doc/x'])
    expect(keysOf(await claim('others'))).toEqual(['other/1'])
    expect(
      (await store.cells.failures(store.observed.named('words')?.id ?? 0, { after: undefined, limit: 10 })).length,
    ).toBe(0)
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

  test('waits beside 9 999 others, and beside no more; a pause answers all of them', { tags: ['long'] }, async () => {
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

  test('with long values ends early, and the others are ready again', { tags: ['long'] }, async () => {
    const { store, observers } = await start()
    const long = Buffer.alloc(5 * 1024 * 1024, 'x')
    for (const key of ['doc/1', 'doc/2', 'doc/3']) await commit(store, [put(key, long)])
    const claim = () => observers.claim('words', { worker: 'w', limit: 10, values: true })
    expect(keysOf(await claim())).toEqual(['doc/1', 'doc/2'])
    expect(keysOf(await claim())).toEqual(['doc/3'])
  })

  test('finds cells of the longest keys, which the queue in memory leaves to the cursor', {
    tags: ['long'],
  }, async () => {
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

  test('that needs the disk while the database is closed fails, and does not keep others from anything', {
    tags: ['long'],
  }, async () => {
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
  test.each([
    { on: 'at once', restarts: false },
    { on: 'after a restart', restarts: true },
  ])(
    'counts, lists, retries and skips parked cells that are not in memory, and parks them again, $on',
    async ({ restarts }) => {
      const clock = new TestClock()
      const store = await stores.open({ now: clock.now })
      const limits = { ...DEFAULT_LIMITS, claimsMax: 2 }
      let observers = await openObservers(store, { limits })
      await observers.put('words', { ...prefix('doc/'), maxAttempts: 3 })
      const claim = () => observers.claim('words', { worker: 'w', limit: 2 })
      const fail = async (claims: readonly Notification[]) =>
        observers.release(
          'words',
          claims.map((one) => ({ ...one, error: 'no', retryAfterMs: 0 })),
        )
      const keys = keysFrom(0, 7)
      await putNow(store, ...keys)
      for (let parked = 0; parked < 7; ) parked += (await fail(await claim())).parked.length
      if (restarts) {
        await observers.close()
        observers = await openObservers(store, { limits })
      }
      const state = () => observers.get('words')
      const listed = async () => keysOf((await observers.parked('words', { limit: 100 })).parked)
      expect([(await state()).parked, await listed()]).toEqual([7, keys])

      for (const key of [...keys, ...keys]) {
        await putNow(store, key)
        const claims = await claim()
        expect(keysOf(claims)).toEqual([key])
        expect(keysOf((await fail(claims)).parked.map((parked) => ({ key: parked })))).toEqual([key])
      }
      expect([(await state()).parked, await listed()]).toEqual([7, keys])

      const bytes = keys.map(utf8)
      expect(await observers.skip('words', [bytes[0], bytes[6]] as Uint8Array[])).toBe(2)
      expect(await observers.retry('words', [bytes[1], bytes[5]] as Uint8Array[])).toBe(2)
      expect([(await state()).parked, await listed()]).toEqual([3, keys.slice(2, 5)])
      const retried = await claim()
      expect(retried.map(({ attempt }) => attempt)).toEqual([1, 1])
      await runNow(store, 'words', ...retried)

      await putNow(store, ...keys.slice(2, 5))
      expect((await state()).pending).toBe(3)
      for (let run = 0; run < 2; run++) await runNow(store, 'words', ...(await claim()))
      clock.ms += 2000
      await observers.retry('words')
      await state()
      expect(await state()).toMatchObject({ parked: 0, pending: 0 })
    },
  )

  test('that is put and removed at once is there or not', async () => {
    const { store, observers } = await start()
    const calls = Array.from({ length: 50 }, (_, i) =>
      i % 2 === 0
        ? observers.put('both', { ...prefix('doc/'), backfill: true }).catch(() => {})
        : observers.remove('both').catch(() => {}),
    )
    await Promise.all(calls)
    expect(await codeOf(observers.get('both'))).toBe('not_found')
    expect(store.observed.named('both')).toBeUndefined()
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

  test('that is paused during a backfill goes on with it', { tags: ['long'] }, async () => {
    const { store, observers } = await start()
    for (let i = 0; i < 3000; i += 1000) await putNow(store, ...keysFrom(i, i + 1000).map((key) => `old/${key}`))
    await observers.put('late', { ...prefix('old/'), backfill: true })
    expect(await observers.pause('late')).toMatchObject({ state: 'paused' })
    await observers.resume('late')
    await expect.poll(async () => (await observers.get('late')).state).toBe('running')
    expect(await observers.get('late')).toMatchObject({ pending: 3000 })
  })

  test('loses the acknowledgements of runs below the safe point, and no others', async () => {
    const { store, observers } = await start()
    const id = store.observed.named('words')?.id ?? 0
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
