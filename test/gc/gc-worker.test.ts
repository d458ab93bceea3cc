import { afterEach, describe, expect, test, vi } from 'vitest'
import type { Registry } from '../../src/cluster/registry.js'
import { SingleServer } from '../../src/cluster/single-server.js'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { type GcOptions, GcWorker } from '../../src/gc/gc-worker.js'
import { Pins } from '../../src/gc/pins.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { codeOf, prewriteOf, put, read, START_MS, TestClock, testStores, utf8, write } from '../store/support.js'

const stores = testStores()
const MINUTE = 60_000

async function start(
  options: GcOptions = { lifeTimeMs: 10 * MINUTE, intervalMs: MINUTE },
  registry: Registry = new SingleServer(),
) {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now })
  const open: Timestamp[] = []
  const pins = await Pins.open(store)
  const errors: unknown[] = []
  const sources = { store, pins, registry, openTransactions: () => open, onError: (e: unknown) => errors.push(e) }
  const gc = new GcWorker(sources, options)
  const at = (minutes: number) => (START_MS + minutes * MINUTE) * 2048
  /** Two versions, a minute after the start and two. */
  const fill = async () => {
    clock.ms += 5 * MINUTE
    await write(store, at(1), at(1) + 1, [put('a', 'old')])
    await write(store, at(2), at(2) + 1, [put('a', 'new')])
  }
  return { clock, store, open, pins, gc, errors, at, fill }
}
const versionsOf = async (store: Store, key: string) => (await store.mvccGetByKey({ key: utf8(key) })).writes.length

test('collects what was overwritten a life time ago', async () => {
  const { clock, store, gc, at, fill } = await start()
  await fill()
  expect(await gc.run(gc.wanted())).toMatchObject({ versionsRemoved: 0 })
  clock.ms += 10 * MINUTE
  expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(5), versionsRemoved: 1 })
  expect(await codeOf(read(store, 'a', at(5) - 1))).toBe('ts_below_safe_point')
  expect(await read(store, 'a', at(5))).toBe('new')
  expect(gc.status).toMatchObject({ isRunning: false, pins: 0, lastRun: { versionsRemoved: 1, safePoint: at(5) } })
  // A clock that stepped back lowers nothing.
  clock.ms -= 8 * MINUTE
  expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(5), versionsRemoved: 0 })
})

describe('what must stay readable', () => {
  test('an open transaction, for a day', async () => {
    const { clock, store, open, gc, at, fill } = await start()
    await fill()
    open.push(at(1) + 1)
    clock.ms += 60 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 1, heldBackBy: 'transaction' })
    expect(await read(store, 'a', at(1) + 1)).toBe('old')
    clock.ms += 24 * 60 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ versionsRemoved: 1 })
  })

  test('a pin, until it is removed or its time is over', async () => {
    const { clock, store, pins, gc, at, fill } = await start()
    await fill()
    const first = await pins.create({ ts: at(1) + 1, ttlMs: 20 * MINUTE })
    clock.ms += 19 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 1, heldBackBy: 'pin', versionsRemoved: 0 })
    await pins.renew(first.pin, 20 * MINUTE)
    clock.ms += 19 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ heldBackBy: 'pin' })
    expect(await read(store, 'a', at(1) + 1)).toBe('old')
    clock.ms += 2 * MINUTE
    expect(pins.list()).toEqual([])
    expect(await gc.run(gc.wanted())).toMatchObject({ versionsRemoved: 1 })
  })

  test('a stream that the server holds', async () => {
    const { pins, gc, at, clock, fill } = await start()
    await fill()
    const release = pins.hold(at(1) + 1)
    clock.ms += 60 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ heldBackBy: 'pin' })
    release()
    expect(await gc.run(gc.wanted())).toMatchObject({ versionsRemoved: 1 })
  })

  test('the transaction of a lock that lives; one that is over loses its locks', async () => {
    const { clock, store, gc, at, fill } = await start()
    await fill()
    await store.prewrite(prewriteOf(at(1) + 5, [put('alive')], { lockTtl: 60 * MINUTE }))
    await store.prewrite(prewriteOf(at(1) + 2, [put('dead')], { lockTtl: MINUTE }))
    clock.ms += 30 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 4, heldBackBy: 'lock' })
    expect((await store.scanLock({ maxTs: at(100) })).locks.map(({ startTs }) => startTs)).toEqual([at(1) + 5])
    await store.commit({ keys: [utf8('alive')], startTs: at(1) + 5, commitTs: at(30) })
    expect(await gc.run(gc.wanted())).not.toHaveProperty('heldBackBy')
    expect(await versionsOf(store, 'a')).toBe(1)
  })

  const HOLDING = {
    'a prewrite lock': async (store: Store, startTs: Timestamp, _pins: Pins) => {
      await store.prewrite(prewriteOf(startTs, [put('k')], { lockTtl: 600 * MINUTE }))
      return () => store.commit({ keys: [utf8('k')], startTs, commitTs: startTs + 1 })
    },
    'a pessimistic lock': async (store: Store, startTs: Timestamp, _pins: Pins) => {
      const keys = [utf8('k')]
      const locking = { keys, primary: utf8('k'), startTs, forUpdateTs: startTs, lockTtl: 600 * MINUTE }
      await store.acquirePessimisticLock(locking)
      return () => store.pessimisticRollback({ keys, startTs, forUpdateTs: startTs })
    },
    'a pin': async (_store: Store, startTs: Timestamp, pins: Pins) => {
      const { pin } = await pins.create({ ts: startTs, ttlMs: 600 * MINUTE })
      return () => pins.remove(pin)
    },
  }
  test.each(Object.entries(HOLDING))('%s at the very safe point', async (_name, hold) => {
    const { clock, store, pins, gc, at, fill } = await start()
    await fill()
    const end = await hold(store, at(3), pins)
    clock.ms += 60 * MINUTE
    await collectGarbage(store, at(3))
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(3) })
    await end()
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(55) })
  })

  test('but nothing that the safe point was raised past by hand: it holds nothing back', async () => {
    const { clock, store, open, pins, gc, at, fill } = await start()
    await fill()
    await pins.create({ ts: at(1) + 1, ttlMs: 600 * MINUTE })
    open.push(at(1) + 1)
    clock.ms += 60 * MINUTE
    await store.upkeep.raiseSafePoint(at(2))
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(55), versionsRemoved: 1 })
  })

  test('nothing is pinned below where a collection is going', async () => {
    const { clock, pins, gc, at, fill } = await start()
    await fill()
    clock.ms += 60 * MINUTE
    const run = gc.run(gc.wanted())
    await new Promise((resolve) => setImmediate(resolve))
    const pinned = await codeOf(pins.create({ ts: at(1) + 1, ttlMs: MINUTE }))
    const { safePoint = 0 } = (await run) ?? {}
    expect([pinned, safePoint]).toEqual(safePoint > at(1) + 1 ? ['ts_below_safe_point', at(55)] : ['none', at(1) + 1])
    expect(await codeOf(pins.create({ ts: safePoint - 1, ttlMs: MINUTE }))).toBe('ts_below_safe_point')
  })
})

describe('a store that other servers serve too', () => {
  class Others extends SingleServer implements Registry {
    override readonly isShared: boolean = true
    isLeader = true
    oldestTs: Timestamp = TIMESTAMP_MAX
    readonly lost = new AbortController()
    override async oldest() {
      return this.oldestTs
    }
    override async lead<T>(_job: 'gc', body: (signal: AbortSignal) => Promise<T>): Promise<T> {
      return this.isLeader ? body(this.lost.signal) : (undefined as T)
    }
  }
  const startAmong = async (others: Others) => {
    const started = await start(undefined, others)
    await started.fill()
    started.clock.ms += 60 * MINUTE
    return started
  }

  test('one of them collects', async () => {
    const others = new Others()
    const { store, gc } = await startAmong(others)
    others.isLeader = false
    expect(await gc.run(gc.wanted())).toBeUndefined()
    expect(gc.status).not.toHaveProperty('lastRun')
    expect([store.safePoint, await versionsOf(store, 'a')]).toEqual([0, 2])
    others.isLeader = true
    expect(await gc.run(gc.wanted())).toMatchObject({ versionsRemoved: 1 })
  })

  test('what they read holds the safe point back', async () => {
    const others = new Others()
    const { gc, at } = await startAmong(others)
    others.oldestTs = at(1) + 1
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 1, heldBackBy: 'transaction' })
  })

  test('so do pins that they have made and renewed meanwhile', async () => {
    const { clock, store, gc, at } = await startAmong(new Others())
    const elsewhere = await Pins.open(store)
    const { pin } = await elsewhere.create({ ts: at(1) + 1, ttlMs: MINUTE })
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 1, heldBackBy: 'pin' })
    await elsewhere.renew(pin, 60 * MINUTE)
    clock.ms += 30 * MINUTE
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(1) + 1, heldBackBy: 'pin' })
  })

  test('a server that lost its lead removes nothing more', async () => {
    const others = new Others()
    const { store, gc } = await startAmong(others)
    others.lost.abort()
    await gc.run(gc.wanted())
    expect(await versionsOf(store, 'a')).toBe(2)
  })
})

test('pins outlive a restart', async () => {
  const directory = await stores.directory()
  const clock = new TestClock()
  const store = await stores.open({ directory, now: clock.now })
  const pins = await Pins.open(store)
  const kept = await pins.create({ ts: clock.ts() - 5, ttlMs: MINUTE })
  const removed = await pins.create({ ttlMs: MINUTE })
  await pins.remove(removed.pin)
  await store.close()
  const again = await Pins.open(await stores.open({ directory, now: clock.now }))
  expect(again.list()).toEqual([kept])
  expect(await codeOf(again.renew(removed.pin, 1))).toBe('not_found')
})

describe('by itself', () => {
  afterEach(() => void vi.useRealTimers())

  test('from time to time, until it is closed; a failure is told and the next one comes', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const { store, gc, errors, clock, fill } = await start()
    await fill()
    clock.ms += 60 * MINUTE
    const fails = vi.spyOn(store, 'scanLock').mockRejectedValueOnce(new Error('no disk'))
    vi.advanceTimersByTime(MINUTE)
    await vi.waitFor(() => expect(errors).toEqual([new Error('no disk')]))
    fails.mockRestore()
    await vi.waitFor(() => expect(gc.status.isRunning).toBe(false))
    vi.advanceTimersByTime(MINUTE)
    await vi.waitFor(() => expect(gc.status.lastRun).toMatchObject({ versionsRemoved: 1 }))
    await gc.close()
    const { lastRun } = gc.status
    vi.advanceTimersByTime(10 * MINUTE)
    expect(gc.status).toMatchObject({ isRunning: false, lastRun })
  })

  test('never with a life time of 0, and asked it keeps ten minutes', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    const { gc, clock, fill, at } = await start({ lifeTimeMs: 0, intervalMs: MINUTE })
    await fill()
    clock.ms += 60 * MINUTE
    vi.advanceTimersByTime(10 * MINUTE)
    expect(gc.status.isRunning).toBe(false)
    expect(await gc.run(gc.wanted())).toMatchObject({ safePoint: at(55) })
  })
})
