import { describe, expect, test } from 'vitest'
import { Database, type DatabaseOptions } from '../../src/database/database.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { ExpiryMarks } from '../../src/observers/marks/expiry-marks.js'
import type { Observers } from '../../src/observers/observers.js'
import type { Notification, ObserversApi } from '../../src/observers/rules/observers-api.js'
import type { PrewriteMutation } from '../../src/percolator/api.js'
import type { Store } from '../../src/store/store.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../src/timestamp.js'
import { EngineFailure, prewriteOf, put, TappedEngine, TestClock, testStores, utf8 } from '../store/support.js'
import { commit, keysOf, openObservers, prefix, runNow } from './support.js'

const stores = testStores()
const DATABASE: DatabaseOptions = {
  limits: DEFAULT_LIMITS,
  onError: (message, error) => {
    throw new Error(message, { cause: error })
  },
}

const claim = (observers: ObserversApi, name = 'words', values = false) =>
  observers.claim(name, { worker: 'w', limit: 100, values })
/** Waits for so many of them, which come from a look in the background. */
async function claimSome(observers: ObserversApi, name = 'words', values = false, count = 1): Promise<Notification[]> {
  const claims: Notification[] = []
  while (claims.length < count) {
    const more = await observers.claim(name, { worker: 'w', limit: 100, values, waitMs: 10_000 })
    if (more.length === 0) throw new Error(`there are ${claims.length} of ${count}`)
    claims.push(...more)
  }
  return claims
}

describe('a key that expires', () => {
  async function observed() {
    const clock = new TestClock()
    const store = await stores.open({ now: clock.now })
    const observers = await openObservers(store)
    await observers.put('words', prefix('doc/'))
    const inMs = (ms: number): Timestamp => clock.ts() + ms * LOGICAL_PER_MS
    const expiring = (key: string, ms: number): PrewriteMutation => ({ ...put(key), expireTs: inMs(ms) })
    /** Runs what stands, and lets nothing be left. */
    const settle = async (name = 'words'): Promise<void> => {
      for (const one of await claim(observers, name)) await runNow(store, name, one)
    }
    return { clock, store, observers, inMs, expiring, settle }
  }

  test('is handed out without a value, at its expiry, once', async () => {
    const { clock, store, observers, inMs, expiring, settle } = await observed()
    const at = inMs(50)
    await commit(store, [expiring('doc/1', 50), expiring('doc/2', 60), expiring('other', 50)])
    await settle()
    clock.ms += 51
    const [first, ...others] = await claimSome(observers, 'words', true)
    expect(others).toEqual([])
    expect(first).toMatchObject({ key: utf8('doc/1'), commitTs: at, kind: 'expired', attempt: 1, found: false })
    if (first !== undefined) await runNow(store, 'words', first)
    clock.ms += 10
    expect(keysOf(await claimSome(observers))).toEqual(['doc/2'])
    expect(await observers.get('words')).toMatchObject({ pending: 1, acks: 3 })
    await observers.close()
  })

  test('is not handed out where another version came before', async () => {
    const { clock, store, observers, expiring, settle } = await observed()
    await commit(store, [expiring('doc/1', 50), expiring('doc/2', 50), expiring('doc/3', 50)])
    await commit(store, [put('doc/1'), { op: 'delete', key: utf8('doc/2') }])
    await settle()
    clock.ms += 60
    expect(keysOf(await claimSome(observers))).toEqual(['doc/3'])
    await observers.close()
  })

  test('waits for a lock that may still replace its version', async () => {
    const { clock, store, observers, expiring, settle } = await observed()
    await commit(store, [expiring('doc/1', 50), expiring('doc/2', 50)])
    await settle()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('doc/1')], { lockTtl: 60_000 }))
    const commitTs = await store.tso(1)
    clock.ms += 60
    const looks = (): number => store.figures.oracle.meters.timestamps // Each look takes one.
    const before = looks()
    await expect.poll(looks).toBeGreaterThan(before + 1)
    expect(await claim(observers)).toEqual([])
    await store.commit({ keys: [utf8('doc/1')], startTs, commitTs })
    const claims = await claimSome(observers, 'words', false, 2)
    expect(claims.map(({ key, kind }) => `${key} ${kind}`).sort()).toEqual(['doc/1 put', 'doc/2 expired'])
    await observers.close()
  })

  test('marks every observer that was there when it expired, and no later one', async () => {
    const { clock, store, observers, expiring, settle } = await observed()
    await observers.put('more', prefix('doc/1'))
    await commit(store, [expiring('doc/1', 50), expiring('doc/2', 50)])
    await settle()
    await settle('more')
    clock.ms += 60
    expect(keysOf(await claimSome(observers, 'words', false, 2)).sort()).toEqual(['doc/1', 'doc/2'])
    expect(keysOf(await claimSome(observers, 'more'))).toEqual(['doc/1'])
    await observers.put('late', prefix('doc/'))
    await commit(store, [expiring('doc/3', 50)])
    await settle('late')
    clock.ms += 60
    expect(keysOf(await claimSome(observers, 'late'))).toEqual(['doc/3'])
    await observers.close()
  })

  test('takes no resolved_ts while nothing expires', async () => {
    const { clock, store, observers } = await observed()
    const before = await store.tso(1)
    await commit(store, [put('doc/1')])
    clock.ms += 1000
    const now = performance.now()
    await expect.poll(() => performance.now()).toBeGreaterThan(now + 250) // Two looks.
    await store.prewrite(prewriteOf(before, [put('x')]))
    await store.commit({ keys: [utf8('x')], startTs: before, commitTs: before + 1 })
    await observers.close()
  })

  test('is marked before a collection takes its version', async () => {
    const { clock, store, observers, expiring, settle } = await observed()
    await commit(store, [expiring('doc/1', 50), expiring('doc/2', 5000)])
    await settle()
    await observers.close() // No look in the background.
    clock.ms += 60
    const marks = new ExpiryMarks({ store, cells: store.cells, log: store.log, onError: () => expect.fail() })
    const safePoint = await store.tso(1)
    const { versionsRemoved } = await collectGarbage(store, safePoint, { beforehand: (ts) => marks.passTo(ts) })
    expect(versionsRemoved).toBe(1)
    expect((await claim(await openObservers(store))).map(({ key, kind }) => `${key} ${kind}`)).toEqual([
      'doc/1 expired',
    ])
    await observers.close()
  })
})

describe('over a restart', () => {
  /** The observers of a process that ends at once. */
  async function kill(observers: Observers, store: Store): Promise<void> {
    await observers.close()
    await store.close()
  }

  test('what expired meanwhile is marked, and what was acknowledged is not marked again', async () => {
    const clock = new TestClock()
    const directory = await stores.directory()
    const first = await stores.open({ directory, now: clock.now })
    const before = await openObservers(first)
    await before.put('words', prefix('doc/'))
    const at = (ms: number) => clock.ts() + ms * LOGICAL_PER_MS
    await commit(first, [
      { ...put('doc/1'), expireTs: at(50) },
      { ...put('doc/2'), expireTs: at(50) },
      { ...put('doc/3'), expireTs: at(90) },
    ])
    for (const one of await claim(before)) await runNow(first, 'words', one)
    clock.ms += 60
    const claims = await claimSome(before, 'words', false, 2)
    expect(keysOf(claims).sort()).toEqual(['doc/1', 'doc/2'])
    for (const one of claims) await runNow(first, 'words', one)
    await kill(before, first)

    clock.ms += 5000
    const again = await stores.open({ directory, now: clock.now })
    const after = await openObservers(again)
    expect(keysOf(await claimSome(after))).toEqual(['doc/3'])
    await after.close()
  })

  test('a collection that found a higher safe point leaves the acknowledgements of versions that are still there', async () => {
    const clock = new TestClock()
    const directory = await stores.directory()
    const first = await Database.open(await stores.open({ directory, now: clock.now }), DATABASE)
    await first.observers.put('words', prefix('doc/'))
    await commit(first.store, [{ ...put('doc/1'), expireTs: clock.ts() + 50 * LOGICAL_PER_MS }])
    for (const one of await claimSome(first.observers)) await runNow(first.store, 'words', one)
    clock.ms += 60
    const [expired] = await claimSome(first.observers)
    expect(expired).toMatchObject({ kind: 'expired' })
    if (expired !== undefined) await runNow(first.store, 'words', expired)
    const safePoint = await first.store.tso(1)
    await first.store.upkeep.raiseSafePoint(safePoint) // As a collection that ends early leaves it.
    await first.gc(safePoint - 1)
    await first.close()

    const after = await Database.open(await stores.open({ directory, now: clock.now }), DATABASE)
    await after.observers.passTo(safePoint)
    expect(await after.observers.get('words')).toMatchObject({ pending: 0 })
    await after.close()
  })

  test('of many keys that expire together some were marked: all are run, each once', { tags: ['long'] }, async () => {
    const clock = new TestClock()
    const tapped = new TappedEngine()
    const directory = await stores.directory()
    const first = await stores.open({ directory, openEngine: tapped.open, now: clock.now })
    const before = await openObservers(first)
    const keys = Array.from({ length: 600 }, (_, i) => `doc/${i}`)
    const expireTs = clock.ts() + 50 * LOGICAL_PER_MS
    for (let from = 0; from < keys.length; from += 100)
      await commit(
        first,
        keys.slice(from, from + 100).map((key) => ({ ...put(key), expireTs })),
      )
    await before.put('words', prefix('doc/'))
    let batches = 0
    let cut = (): void => {}
    const isCut = new Promise<void>((resolve) => (cut = resolve))
    tapped.onWrite = async ({ ops }, land) => {
      const isMark = ops.some(({ key }) => key.toString('latin1').startsWith('snotify/'))
      if (!isMark || ++batches === 1) return land()
      cut()
      throw new EngineFailure('the machine is gone')
    }
    clock.ms += 60
    await isCut
    const some = await claimSome(before)
    expect(some.length).toBeLessThan(keys.length)
    await kill(before, first)

    const again = await stores.open({ directory, now: clock.now })
    const after = await openObservers(again)
    const ran: string[] = []
    while (ran.length < keys.length) {
      const claims = await claimSome(after)
      for (const one of claims) await runNow(again, 'words', one)
      ran.push(...keysOf(claims))
    }
    expect(ran.sort()).toEqual([...keys].sort())
    await commit(again, [put('doc/last')])
    expect(keysOf(await claimSome(after))).toEqual(['doc/last'])
    await after.close()
  })

  test('marks that are written, and perhaps not, although their batch failed: each is run once', {
    tags: ['long'],
  }, async () => {
    for (const lands of [true, false]) {
      const clock = new TestClock()
      const tapped = new TappedEngine()
      const store = await stores.open({ openEngine: tapped.open, now: clock.now })
      const observers = await openObservers(store)
      await observers.put('words', prefix('doc/'))
      const expireTs = clock.ts() + 50 * LOGICAL_PER_MS
      await commit(store, [
        { ...put('doc/1'), expireTs },
        { ...put('doc/2'), expireTs },
      ])
      for (const one of await claim(observers)) await runNow(store, 'words', one)
      let isFailed = false
      tapped.onWrite = async ({ ops }, land) => {
        const isMark = ops.some(({ key }) => key.toString('latin1').startsWith('sexpiry/cursor'))
        if (isFailed || !isMark) return land()
        isFailed = true
        if (lands) await land()
        throw new EngineFailure('no answer')
      }
      clock.ms += 60
      await expect.poll(() => isFailed).toBe(true)
      const ran: string[] = []
      await expect
        .poll(async () => {
          for (const one of await claim(observers).catch(() => [])) {
            await runNow(store, 'words', one)
            ran.push(...keysOf([one]))
          }
          return ran.length
        })
        .toBe(2)
      expect(ran.sort()).toEqual(['doc/1', 'doc/2'])
      await commit(store, [put('doc/9')])
      expect(keysOf(await claimSome(observers))).toEqual(['doc/9'])
      await observers.close()
    }
  })
})
