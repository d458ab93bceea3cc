import { beforeEach, expect } from 'vitest'
import { KvError } from '../../../src/errors/kv-error.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../../src/percolator/api.js'
import type { Store } from '../../../src/store/store.js'
import { codeOf, del, failureOf, prewriteOf, put, read, utf8, watch, write } from '../support.js'
import { lockedKeys } from './contents.js'
import type { Contract } from './contract.js'

/** Longer than any test. */
const FOR_EVER_MS = 600_000

/** Locks before the prewrite, and the waiting for them. */
export function pessimisticCases({ open, test, needing }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open()
  })
  const acquire = (
    startTs: number,
    keys: readonly string[],
    rest: Partial<AcquirePessimisticLockRequest> = {},
  ): Promise<AcquirePessimisticLockAnswer> =>
    store.acquirePessimisticLock({
      keys: keys.map(utf8),
      primary: utf8(keys[0] ?? ''),
      startTs,
      forUpdateTs: startTs,
      lockTtl: 3000,
      waitTimeout: -1,
      ...rest,
    })
  /** Has asked for a key that is locked, and stands in its queue. */
  const waiting = async (startTs: number, key: string, rest: Partial<AcquirePessimisticLockRequest> = {}) => {
    const { waiting: before } = store.figures
    const watched = watch(acquire(startTs, [key], { waitTimeout: FOR_EVER_MS, ...rest }))
    watched.promise.catch(() => {})
    await expect.poll(() => watched.isSettled() || store.figures.waiting > before, { interval: 1 }).toBe(true)
    expect(watched.isSettled()).toBe(false)
    return watched
  }
  const release = (startTs: number, keys: readonly string[], forUpdateTs = startTs): Promise<void> =>
    store.pessimisticRollback({ keys: keys.map(utf8), startTs, forUpdateTs })

  test('a lock holds off writers, and no reader; asking again is no harm', async () => {
    await write(store, 5, 6, [put('a', 'old')])
    expect(await acquire(10, ['a', 'b'])).toEqual({ results: [{}, {}] })
    expect(await acquire(10, ['a', 'b'])).toEqual({ results: [{}, {}] })
    const { locks } = await store.scanLock({ maxTs: 10 })
    expect(locks).toMatchObject([
      { key: utf8('a'), primary: utf8('a'), startTs: 10, forUpdateTs: 10, type: 'pessimistic' },
      { key: utf8('b'), primary: utf8('a'), startTs: 10, forUpdateTs: 10, type: 'pessimistic' },
    ])
    expect(await codeOf(store.prewrite(prewriteOf(20, [put('a')])))).toBe('key_locked')
    expect(await read(store, 'a', 100)).toBe('old')
    expect(await read(store, 'a')).toBe('old')
    expect((await store.scan({ ts: 100, limit: 10 })).pairs).toHaveLength(1)
  })

  test('a lock that was waited for lives as long from its grant on as one that was granted at once', async () => {
    await acquire(10, ['k'])
    const beganMs = performance.now()
    const waiter = await waiting(20, 'k')
    const waitsSinceMs = performance.now()
    await expect.poll(() => performance.now() - waitsSinceMs > 30, { interval: 5 }).toBe(true)
    await release(10, ['k'])
    await waiter.promise
    await acquire(30, ['free'])
    const { locks } = await store.scanLock({ maxTs: 100 })
    const [free, waited] = locks
    expect(free?.ttl).toBe(3000)
    expect(waited?.ttl).toBeGreaterThanOrEqual(3000 + 30)
    expect(waited?.ttl).toBeLessThanOrEqual(3000 + Math.ceil(performance.now() - beganMs))
  })

  test('is written over by the prewrite of its transaction', async () => {
    await acquire(10, ['a', 'b'])
    const request = prewriteOf(10, [put('a', '1'), put('b', '2')], {
      forUpdateTs: 10,
      pessimisticActions: ['do', 'do'],
    })
    await store.prewrite(request)
    await store.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 20 })
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['1', '2'])
  })

  test('a prewrite without its lock takes it while nobody wrote the key, and is refused afterwards', async () => {
    const request = (key: string) =>
      prewriteOf(10, [put(key, 'mine')], { forUpdateTs: 10, pessimisticActions: ['do'], primary: utf8(key) })
    await store.prewrite(request('a'))
    await write(store, 15, 16, [put('b', 'other')])
    expect(await codeOf(store.prewrite(request('b')))).toBe('pessimistic_lock_not_found')
  })

  test('answers values, existence, or neither, as asked', async () => {
    await write(store, 5, 6, [put('a', '1'), put('gone', '1')])
    await write(store, 7, 8, [del('gone')])
    const keys = ['gone', 'a', 'none']
    const found = { found: true, value: utf8('1'), commitTs: 6 }
    expect((await acquire(10, keys, { returnValues: true })).results).toEqual([
      { found: false },
      found,
      { found: false },
    ])
    expect((await acquire(10, keys, { checkExistence: true })).results.map((each) => each.found)).toEqual([
      false,
      true,
      false,
    ])
    await release(10, keys)
    const some = await acquire(20, keys, { returnValues: true, lockOnlyIfExists: true, primary: utf8('a') })
    expect(some.results.map((each) => each.found)).toEqual([false, true, false])
    expect(await lockedKeys(store)).toEqual(['a'])
    expect(await codeOf(acquire(20, ['a'], { insert: true }))).toBe('already_exists')
    await acquire(20, ['gone', 'none'], { insert: true, primary: utf8('a') })
    expect(await lockedKeys(store)).toEqual(keys.sort())
  })

  test('all or nothing: a locked, newer or existing key in the list', async () => {
    await write(store, 5, 50, [put('new')])
    await write(store, 5, 6, [put('old')])
    await acquire(10, ['held'])
    expect(await codeOf(acquire(20, ['x', 'held', 'y']))).toBe('key_locked')
    expect(await codeOf(acquire(20, ['x', 'held', 'y'], { waitTimeout: 5 }))).toBe('lock_wait_timeout')
    const conflict = await failureOf(acquire(20, ['x', 'new']))
    expect(conflict).toMatchObject({
      code: 'write_conflict',
      fields: { key: utf8('new'), conflictCommitTs: 50, reason: 'pessimistic_retry' },
    })
    expect(await codeOf(acquire(20, ['x', 'old'], { insert: true }))).toBe('already_exists')
    expect(await lockedKeys(store)).toEqual(['held'])
    await acquire(20, ['x', 'new'], { forUpdateTs: 50 })
    expect(await lockedKeys(store)).toEqual(['held', 'new', 'x'])
  })

  test('until_expired: the wait ends when the TTL of the lock in the way has ended', async () => {
    const expired = (key: string) =>
      codeOf(acquire(20, [key], { forUpdateTs: 200, waitTimeout: FOR_EVER_MS, untilExpired: true }))
    await acquire(10, ['a'])
    await store.prewrite(prewriteOf(11, [put('b')]))
    expect([await expired('a'), await expired('b')]).toEqual(['lock_wait_timeout', 'lock_wait_timeout'])
    await acquire(await store.tso(1), ['c'], { lockTtl: 50 })
    expect(await expired('c')).toBe('lock_wait_timeout')
    const living = await store.tso(1)
    await acquire(living, ['d'], { lockTtl: FOR_EVER_MS })
    const { promise } = await waiting(20, 'd', { wakeUpMode: 'force_lock', untilExpired: true })
    await release(living, ['d'])
    expect(await promise).toEqual({ results: [{}] })
  })

  test('goes by its own transaction alone, up to its for_update_ts', async () => {
    await acquire(10, ['a', 'b'], { forUpdateTs: 50 })
    await release(10, ['a'], 49)
    await release(11, ['a', 'b'], 99)
    expect(await lockedKeys(store)).toEqual(['a', 'b'])
    await release(10, ['a', 'nobody'], 50)
    expect(await lockedKeys(store)).toEqual(['b'])
  })

  test('a transaction that was rolled back locks nothing', async () => {
    await store.rollback({ keys: [utf8('a')], startTs: 10 })
    expect(await codeOf(acquire(10, ['a']))).toBe('pessimistic_lock_rolled_back')
  })

  test('force_lock locks over a newer version, and answers it', async () => {
    await write(store, 30, 31, [put('a', 'newer')])
    const { results } = await acquire(10, ['a'], { wakeUpMode: 'force_lock', returnValues: true })
    expect(results).toEqual([{ found: true, value: utf8('newer'), commitTs: 31, lockedWithConflictTs: 31 }])
    expect((await store.scanLock({ maxTs: 10 })).locks).toMatchObject([{ forUpdateTs: 31 }])
  })

  test('a request waits for the lock, and sees what its holder wrote', async () => {
    await acquire(10, ['a'])
    const next = await waiting(20, 'a', { forUpdateTs: 40, returnValues: true })
    await store.prewrite(prewriteOf(10, [put('a', '1')], { forUpdateTs: 10, pessimisticActions: ['do'] }))
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 30 })
    expect(await next.promise).toEqual({ results: [{ found: true, value: utf8('1'), commitTs: 30 }] })
    expect((await store.scanLock({ maxTs: 100 })).locks.map(({ startTs }) => startTs)).toEqual([20])
  })

  test('locks of ordinary prewrites are waited for as well', async () => {
    await store.prewrite(prewriteOf(10, [put('a')]))
    const next = await waiting(20, 'a')
    await store.rollback({ keys: [utf8('a')], startTs: 10 })
    await next.promise
    expect((await store.scanLock({ maxTs: 100 })).locks.map(({ startTs }) => startTs)).toEqual([20])
  })

  test('a lock that delete_range removes is free for those who wait', async () => {
    await acquire(10, ['a'])
    const next = await waiting(20, 'a')
    await store.deleteRange({ start: utf8('a'), end: utf8('b') })
    await next.promise
  })

  test('a wait ends when its signal does', async () => {
    await acquire(10, ['a'])
    const abort = new AbortController()
    const next = await waiting(20, 'a', { signal: abort.signal })
    abort.abort(new KvError('overloaded', 'on purpose', {}))
    expect(await codeOf(next.promise)).toBe('overloaded')
    await release(10, ['a'])
    expect(await lockedKeys(store)).toEqual([])
  })

  test('waits end when the store is closed', async () => {
    await acquire(10, ['a'])
    const next = await waiting(20, 'a')
    await store.close()
    expect(await codeOf(next.promise)).toBe('storage_unavailable')
  })

  test('many who wait for one key all get it, one after another', async () => {
    await acquire(10, ['a'])
    const got: number[] = []
    const all = Array.from({ length: 20 }, async (_, i) => {
      const startTs = 20 + i
      await acquire(startTs, ['a'], { waitTimeout: FOR_EVER_MS })
      got.push(startTs)
      await release(startTs, ['a'])
    })
    await release(10, ['a'])
    await Promise.all(all)
    expect(got.sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => 20 + i))
    expect(await lockedKeys(store)).toEqual([])
  })

  needing('queues')('the lowest start_ts is served first', async () => {
    await acquire(10, ['a'])
    const got: number[] = []
    const all = []
    for (const startTs of [40, 20, 30]) {
      const next = await waiting(startTs, 'a')
      all.push(next.promise.then(() => got.push(startTs)).then(() => release(startTs, ['a'])))
    }
    await release(10, ['a'])
    await Promise.all(all)
    expect(got).toEqual([20, 30, 40])
  })

  needing('deadlocks')('a wait that would close a circle is refused, with the circle', async () => {
    await acquire(10, ['a'])
    await acquire(20, ['b'])
    const next = await waiting(10, 'b')
    const failure = await failureOf(acquire(20, ['a'], { waitTimeout: FOR_EVER_MS }))
    expect(failure).toMatchObject({
      code: 'deadlock',
      fields: {
        lockTs: 10,
        lockKey: utf8('a'),
        waitChain: [
          { txn: 10, waitForTxn: 20, key: utf8('b') },
          { txn: 20, waitForTxn: 10, key: utf8('a') },
        ],
      },
    })
    await release(20, ['b'])
    await next.promise
    expect(await lockedKeys(store)).toEqual(['a', 'b'])
  })
}
