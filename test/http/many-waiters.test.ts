import { afterEach, describe, expect, test, vi } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import type { AcquirePessimisticLockRequest } from '../../src/percolator/api.js'
import type { Engine, EngineReader } from '../../src/store/leveldb/engine/engine.js'
import type { Store } from '../../src/store/store.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { codeOf, put, START_MS, TappedEngine, testStores, text, turn, utf8, watch, write } from '../store/support.js'
import { type Json, okBody, testServers } from './support.js'

const start = testServers()
const stores = testStores()

afterEach(() => {
  vi.useRealTimers()
})

test('200 pessimistic increments of one key at once all commit', { tags: ['long'] }, async () => {
  const server = await start()
  const increment = async (): Promise<number> => {
    const begun = await server.post('/v1/txn/begin', { mode: 'pessimistic' })
    const txn = `/v1/txn/${begun.json<Json>()['txn']}`
    const read = await server.get(`${txn}/kv/n?for_update=true&lock_wait_ms=60000`)
    if (read.statusCode !== 404) expect(read.statusCode, read.body).toBe(200)
    const value = read.statusCode === 404 ? 0 : Number(read.body)
    okBody(await server.send('PUT', `${txn}/kv/n`, {}, `${value + 1}`))
    await server.post(`${txn}/commit`, {}).then(okBody)
    return value
  }
  const seen = await Promise.all(Array.from({ length: 200 }, increment))
  expect(seen.sort((a, b) => a - b)).toEqual(Array.from({ length: 200 }, (_, i) => i)) // One after another.
  expect((await server.get('/v1/kv/n')).body).toBe('200')
  await expect.poll(() => server.lockCount(), { timeout: 30_000 }).toBe(0)
})

const HOT = utf8('hot')
const acquireOf = (startTs: number, waitTimeout: number): AcquirePessimisticLockRequest => ({
  keys: [HOT],
  primary: HOT,
  startTs,
  forUpdateTs: startTs,
  lockTtl: 3_600_000,
  isFirstLock: true,
  waitTimeout,
  returnValues: true,
})
const release = (store: Store, startTs: number): Promise<void> =>
  store.pessimisticRollback({ keys: [HOT], startTs, forUpdateTs: startTs })

describe('the time to wait', () => {
  const TIMERS = ['setTimeout', 'clearTimeout', 'performance'] as const

  /** A store with a clock that stands still unless the test advances it. */
  async function open(): Promise<{ store: Store; tapped: TappedEngine; advance: (ms: number) => Promise<void> }> {
    const tapped = new TappedEngine()
    let nowMs = START_MS
    const store = await stores.open({ openEngine: tapped.open, now: () => nowMs })
    await write(store, 5, 6, [put('hot', 'value')])
    vi.useFakeTimers({ toFake: [...TIMERS] })
    const advance = async (ms: number): Promise<void> => {
      nowMs += ms
      vi.advanceTimersByTime(ms)
      for (let i = 0; i < 20; i++) await turn()
      await tapped.quiet()
    }
    return { store, tapped, advance }
  }

  test('is over at its deadline while the lock goes from hand to hand before it', async () => {
    const { store, advance } = await open()
    await store.acquirePessimisticLock(acquireOf(10, -1))
    const events: string[] = []
    const wait = (startTs: number, ms: number): Promise<unknown> =>
      codeOf(store.acquirePessimisticLock(acquireOf(startTs, ms))).then((code) => events.push(`${startTs} ${code}`))
    const olders = Array.from({ length: 30 }, (_, i) => 20 + i)
    const waiting = [wait(1000, 1000), wait(1001, 1500), ...olders.map((startTs) => wait(startTs, 60_000))]
    await advance(0)
    const expected: string[] = []
    for (const [i, holder] of [10, ...olders.slice(0, -1)].entries()) {
      await release(store, holder)
      await advance(0)
      expected.push(`${olders[i]} none`)
      expect(events).toEqual(expected)
      await advance(99)
      await advance(1)
      if (i === 9) expected.push('1000 lock_wait_timeout')
      if (i === 14) expected.push('1001 lock_wait_timeout')
      expect(events).toEqual(expected)
    }
    await release(store, 49)
    await Promise.all(waiting)
    expect(store.locks?.count).toBe(0)
  })

  test('of an interactive transaction too, which looks at the holder again only when its time is over', async () => {
    const { store, advance } = await open()
    const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
    const begin = () => coordinator.begin({ mode: 'pessimistic', isolation: 'snapshot', lockWaitMs: 60_000 })
    const olders = await Promise.all(Array.from({ length: 6 }, begin))
    const late = await begin()
    const acquire = vi.spyOn(store, 'acquirePessimisticLock')
    const order: string[] = []
    const lock = (txn: typeof late, ms: number): Promise<unknown> =>
      codeOf(txn.getForUpdate(HOT, ms)).then((code) =>
        order.push(`${txn === late ? 'late' : olders.indexOf(txn)} ${code}`),
      )
    const waiting: Promise<unknown>[] = []
    for (const older of olders) {
      waiting.push(lock(older, 60_000))
      await advance(0)
    }
    waiting.push(lock(late, 4500))
    await advance(0)
    for (let i = 0; i < 6; i++) {
      for (let step = 0; step < 4; step++) await advance(250)
      await olders[i]?.rollback()
      await advance(0)
    }
    await Promise.all(waiting)
    expect(order).toEqual(['0 none', '1 none', '2 none', '3 none', '4 none', 'late lock_wait_timeout', '5 none'])
    // As long as the lock it met may live.
    const requests = acquire.mock.calls.filter(([{ startTs }]) => startTs === olders[5]?.startTs)
    expect(requests[0]).toMatchObject([{ waitTimeout: 60_000, untilExpired: true }])
    expect(requests.length).toBeLessThanOrEqual(2)
    await coordinator.idle()
    expect(store.locks?.count).toBe(0)
  })
})

describe('a request for a key that is locked', () => {
  /** Counts what is read of the engine. */
  class Counter {
    reads = 0
    readonly tapped = new TappedEngine()
    readonly open = async (directory: string): Promise<Engine> => {
      const engine = await this.tapped.open(directory)
      return { ...engine, ...this.#reader(engine), snapshot: () => this.#snapshot(engine) }
    }
    #snapshot(engine: Engine): ReturnType<Engine['snapshot']> {
      const snapshot = engine.snapshot()
      return { ...this.#reader(snapshot), close: () => snapshot.close() }
    }
    #reader(reader: EngineReader): EngineReader {
      const count = <A extends unknown[], T>(call: (...args: A) => T) => {
        return (...args: A): T => {
          this.reads++
          return call(...args)
        }
      }
      return { get: count(reader.get), getMany: count(reader.getMany), iterator: count(reader.iterator) }
    }
  }

  test('lines up without reading anything', async () => {
    const counter = new Counter()
    const store = await stores.open({ openEngine: counter.open, now: () => START_MS })
    await write(store, 5, 6, [put('hot', 'value'), put('free')])
    await store.acquirePessimisticLock(acquireOf(10, -1))
    expect(counter.reads).toBeGreaterThan(0) // The lock's taker did read.
    counter.reads = 0
    const waiting = Array.from({ length: 100 }, (_, i) =>
      watch(store.acquirePessimisticLock(acquireOf(20 + i, 60_000))),
    )
    const several = watch(
      store.acquirePessimisticLock({ ...acquireOf(500, 60_000), keys: [utf8('free'), HOT, utf8('other')] }),
    )
    await counter.tapped.quiet()
    expect([...waiting, several].some(({ isSettled }) => isSettled())).toBe(false)
    expect(counter.reads).toBe(0)

    await release(store, 10)
    expect(text((await waiting[0]?.promise)?.results[0]?.value ?? utf8(''))).toBe('value')
    await counter.tapped.quiet()
    const perTurn = counter.reads // Of the one whose turn it was.
    expect(waiting.filter(({ isSettled }) => isSettled())).toHaveLength(1)
    await release(store, 20)
    await waiting[1]?.promise
    for (let startTs = 21; startTs < 120; startTs++) {
      await waiting[startTs - 20]?.promise
      await release(store, startTs)
    }
    expect(counter.reads).toBeLessThanOrEqual(100 * (perTurn + 5))
    expect((await several.promise).results).toHaveLength(3)
  })
})
