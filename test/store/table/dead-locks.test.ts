import { expect, test, vi } from 'vitest'
import { afterKey } from '../../../src/bytes/key-range.js'
import type { Database } from '../../../src/database/database.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { lockInfo } from '../../../src/percolator/lock-info.js'
import { DeadLocks } from '../../../src/store/table/waits/dead-locks.js'
import { timestampFromMs } from '../../../src/timestamp.js'
import { lockAt } from '../../percolator/builders.js'
import { prewriteOf, put, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const TTL_MS = 1000
/** Within which the dead locks of keys that somebody waits for are gone, from their TTL on. */
const GONE_MS = 5000
const KEY = utf8('k')

/** A server that waits, and one on which the clients die. */
function withTwo(body: (waiting: Database, dying: Database) => Promise<void>): Promise<void> {
  const table = new MemoryTable()
  return inLeaps(table, async () => {
    const [waiting, dying] = (await severalDatabases(table, 2)) as [Database, Database]
    await body(waiting, dying)
    await waiting.close()
    await dying.close()
  })
}

const DEATHS: Record<string, (dying: Database) => Promise<unknown>> = {
  'a primary': async ({ store }) => store.prewrite({ ...prewriteOf(await store.tso(1), [put('k')]), lockTtl: TTL_MS }),
  'a secondary': async ({ store }) =>
    store.prewrite({ ...prewriteOf(await store.tso(1), [put('a'), put('k')]), lockTtl: TTL_MS }),
  'async commit': async ({ store }) => {
    const mutations = [put('k'), put('z')]
    const [, ...secondaries] = mutations.map(({ key }) => key)
    const request = { ...prewriteOf(await store.tso(1), mutations), lockTtl: TTL_MS }
    return store.prewrite({ ...request, useAsyncCommit: true, secondaries })
  },
  'a pessimistic lock': async ({ store }) => {
    const startTs = await store.tso(1)
    const lock = { keys: [KEY], primary: KEY, startTs, forUpdateTs: startTs, lockTtl: TTL_MS }
    return store.acquirePessimisticLock({ ...lock, waitTimeout: -1 })
  },
}

const isLocked = async ({ store }: Database): Promise<boolean> =>
  (await store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER, start: KEY, end: afterKey(KEY), limit: 1 })).locks.length > 0

test.each(Object.entries(DEATHS))('a watch of a key ends a dead lock on it: %s', (_, die) =>
  withTwo(async (waiting, dying) => {
    const end = new AbortController()
    const states = waiting.changes.watch({ key: KEY, signal: end.signal })
    expect((await states.next()).value).toMatchObject({ found: false })
    void states.next()
    await die(dying)
    expect(await isLocked(dying)).toBe(true)
    await sleep(TTL_MS + GONE_MS)
    expect(await isLocked(dying)).toBe(false)
    end.abort()
  }),
)

test.each(Object.entries(DEATHS))('a pessimistic wait for a key ends a dead lock on it: %s', (_, die) =>
  withTwo(async (waiting, dying) => {
    await die(dying)
    const { store } = waiting
    const startTs = await store.tso(1)
    const request = { keys: [KEY], primary: KEY, startTs, forUpdateTs: startTs, lockTtl: 60_000 }
    const began = performance.now()
    await store.acquirePessimisticLock({ ...request, wakeUpMode: 'force_lock', waitTimeout: 60_000 })
    expect(performance.now() - began).toBeLessThanOrEqual(TTL_MS + GONE_MS)
  }),
)

test('a lock is asked about after a grace, and once a second then, however often it is met', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    const resolve = vi.fn(async () => false)
    const lock = lockInfo(KEY, lockAt(1, { ttlMs: 10 }))
    let nowMs = 10
    const dead = new DeadLocks({ resolver: { resolve }, now: () => timestampFromMs(nowMs) })
    const meetFor = async (ms: number): Promise<number> => {
      for (let leftMs = ms; leftMs > 0; leftMs -= 100) {
        dead.met(lock)
        await vi.advanceTimersByTimeAsync(100)
      }
      return resolve.mock.calls.length
    }
    expect(await meetFor(1000)).toBe(0) // It lives.
    nowMs = 11
    expect([await meetFor(900), await meetFor(100)]).toEqual([0, 1])
    nowMs = 3000 // One that may have been placed so is given longer.
    await vi.advanceTimersByTimeAsync(1000)
    expect([await meetFor(2900), await meetFor(100)]).toEqual([1, 2])
    await vi.advanceTimersByTimeAsync(1000)
    for (let i = 0; i < 100; i++) dead.met({ ...lock, key: utf8(`k${i}`) })
    await vi.advanceTimersByTimeAsync(3000)
    expect(resolve).toHaveBeenCalledTimes(102)
  } finally {
    vi.useRealTimers()
  }
})
