import { afterEach, describe, expect, test, vi } from 'vitest'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import { Database } from '../../src/database/database.js'
import { ExpiredLocks } from '../../src/gc/expired-locks.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { PrewriteRequest } from '../../src/percolator/api.js'
import type { CompleteStore } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import {
  memoryStores,
  prewriteOf,
  put,
  read,
  TappedEngine,
  TestClock,
  testStores,
  text,
  turn,
  utf8,
  watch,
} from '../store/support.js'

const stores = testStores()
const memory = memoryStores()
const running: ExpiredLocks[] = []

afterEach(async () => {
  vi.useRealTimers()
  for (const one of running.splice(0)) await one.close()
})

const TTL_MS = 1000
/** A dead lock is gone so long after the end of its TTL. */
const GONE_MS = 5000

const fail = (...failure: unknown[]): never => {
  throw new Error('background work failed', { cause: failure })
}

/** A store, and time that passes for it alone. */
class World {
  constructor(
    readonly store: CompleteStore,
    readonly clock: TestClock,
    readonly engine = new TappedEngine(),
  ) {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
  }

  static async onDisk(directory?: string): Promise<World> {
    const clock = new TestClock()
    const engine = new TappedEngine()
    const options = { now: clock.now, monotonicNow: clock.now, openEngine: engine.open }
    const store = await stores.open(directory === undefined ? options : { ...options, directory })
    return new World(store, clock, engine)
  }
  static async inMemory(): Promise<World> {
    const clock = new TestClock()
    return new World(await memory.open({ now: clock.now, monotonicNow: clock.now }), clock)
  }

  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= 100) {
      this.clock.ms += 100
      vi.advanceTimersByTime(100)
      for (let i = 0; i < 20; i++) await this.engine.quiet()
    }
  }

  /** Time passes until then, but no more than `ms`. */
  async passUntil(isTrue: () => boolean, ms = TTL_MS + GONE_MS): Promise<void> {
    for (let left = ms; left > 0 && !isTrue(); left -= 100) await this.pass(100)
    expect(isTrue()).toBe(true)
  }

  /** For a call that needs time to pass. */
  async during<T>(call: Promise<T>): Promise<T> {
    const watched = watch(call)
    watched.promise.catch(() => {})
    while (!watched.isSettled()) await this.pass(100)
    return watched.promise
  }

  /** Prewrites, and says no more. The first key is the primary. */
  async prewrite(keys: readonly string[], rest: Partial<PrewriteRequest> = {}): Promise<Timestamp> {
    const startTs = await this.store.tso(1)
    const mutations = keys.map((key) => put(key))
    await this.store.prewrite(prewriteOf(startTs, mutations, { lockTtl: TTL_MS, ...rest }))
    return startTs
  }

  async lock(keys: readonly string[], lockTtl: number, startTs: Timestamp, primary = keys[0]): Promise<void> {
    const request = { keys: keys.map(utf8), primary: utf8(primary ?? ''), startTs, forUpdateTs: startTs, lockTtl }
    await this.store.acquirePessimisticLock({ ...request, waitTimeout: -1 })
  }

  async commit(startTs: Timestamp, ...keys: string[]): Promise<void> {
    await this.store.commit({ keys: keys.map(utf8), startTs, commitTs: await this.store.tso(1) })
  }

  get isUnlocked(): boolean {
    return this.store.locks?.count === 0
  }

  database(): Promise<Database> {
    return Database.open(this.store, { limits: DEFAULT_LIMITS, onError: fail })
  }
  /** What ends locks, alone. */
  enders(): LockResolver {
    const { store } = this
    const resolver = new LockResolver(store)
    running.push(new ExpiredLocks({ store, locks: store.locks, resolver, onError: fail }))
    return resolver
  }
}

/** Transactions whose clients are gone, and whether their writes count. */
const LEFT: readonly {
  readonly name: string
  readonly leave: (world: World) => Promise<unknown>
  readonly isCommitted: boolean
}[] = [
  { name: 'prewritten', leave: (world) => world.prewrite(['p', 'a/k']), isCommitted: false },
  {
    name: 'prewritten without its primary',
    leave: (world) => world.prewrite(['a/k'], { primary: utf8('elsewhere') }),
    isCommitted: false,
  },
  {
    name: 'committed at the primary',
    leave: async (world) => world.commit(await world.prewrite(['p', 'a/k']), 'p'),
    isCommitted: true,
  },
  {
    name: 'async commit, all prewritten',
    leave: (world) => world.prewrite(['p', 'a/k'], { useAsyncCommit: true, secondaries: [utf8('a/k')] }),
    isCommitted: true,
  },
  {
    name: 'async commit, one key missing',
    leave: (world) => world.prewrite(['p', 'a/k'], { useAsyncCommit: true, secondaries: [utf8('a/k'), utf8('z')] }),
    isCommitted: false,
  },
  {
    name: 'pessimistic locks',
    leave: async (world) => world.lock(['p', 'a/k'], TTL_MS, await world.store.tso(1)),
    isCommitted: false,
  },
]

describe.each(LEFT)('a transaction that its client has left: $name', ({ leave, isCommitted }) => {
  test('is ended without a reader, and who waits for its keys is told', async () => {
    const world = await World.onDisk()
    const database = await world.during(world.database())
    await world.during(database.observers.put('all', { range: { prefix: utf8('a/') } }))
    const stop = new AbortController()
    const watching = database.changes.watch({ key: utf8('a/k'), signal: stop.signal })
    expect((await world.during(watching.next())).value).toMatchObject({ found: false })
    let told = ''
    void watching.next().then(({ value }) => {
      told = value?.found ? text(value.value) : 'nothing'
    })
    const since = await world.store.tso(1)
    await leave(world)
    await world.passUntil(() => world.isUnlocked)
    await world.passUntil(() => (database.observers.summary().pending > 0 && told !== '') || !isCommitted, 500)
    expect(await read(world.store, 'a/k')).toBe(isCommitted ? 'value of a/k' : undefined)
    expect(told).toBe(isCommitted ? 'value of a/k' : '')
    expect(database.observers.summary().pending).toBe(isCommitted ? 1 : 0)
    const { txns } = await world.during(database.changes.page({ sinceTs: since, prefixes: [utf8('a/')] }))
    expect(txns).toHaveLength(isCommitted ? 1 : 0)
    stop.abort()
    await world.during(database.close())
  })
})

test('a page that does not wait, and the moves of consumers, go on behind a dead lock', async () => {
  const world = await World.onDisk()
  const database = await world.during(world.database())
  const since = await world.store.tso(1)
  const { state } = await world.during(database.changes.consumers.put('idle', { range: { prefix: utf8('other/') } }))
  await world.prewrite(['a1'])
  await world.commit(await world.prewrite(['b1']), 'b1')
  expect((await world.during(database.changes.page({ sinceTs: since }))).txns).toEqual([])
  await world.passUntil(() => world.isUnlocked)
  expect((await world.during(database.changes.page({ sinceTs: since }))).txns).toHaveLength(1)
  await world.during(database.changes.consumers.moveOn())
  expect(database.changes.consumers.state('idle').position).toBeGreaterThan(state.position)
  await world.during(database.close())
})

test('locks that a restart finds are ended', async () => {
  const directory = await stores.directory()
  const before = await World.onDisk(directory)
  await before.commit(await before.prewrite(['p', 'a']), 'p')
  await before.store.close()
  vi.useRealTimers()
  const after = await World.onDisk(directory)
  expect(after.store.locks?.count).toBe(1)
  after.enders()
  await after.passUntil(() => after.isUnlocked)
  expect(await read(after.store, 'a')).toBe('value of a')
})

test('what lives is left alone, and asked with back-off; it is ended when it dies', async () => {
  const world = await World.inMemory()
  const asked = vi.spyOn(world.store, 'checkTxnStatus')
  world.enders()
  const living = await world.store.tso(1)
  await world.lock(['p'], 3_600_000, living)
  await world.lock(['a', 'b'], TTL_MS, living, 'p')
  await world.prewrite(['q'], { lockTtl: 3_600_000 })
  await world.pass(60_000)
  expect(world.store.locks?.count).toBe(4)
  expect(asked.mock.calls.length).toBeLessThan(25)
  await world.store.rollback({ keys: [utf8('p')], startTs: living })
  await world.passUntil(() => world.store.locks?.count === 1, GONE_MS)
})

test('a lock that cannot be ended keeps no other one from its end', async () => {
  const world = await World.inMemory()
  const asked = vi.spyOn(world.store, 'checkTxnStatus')
  world.enders()
  // Its primary is locked by the same transaction, and names another primary.
  const stuck = await world.prewrite(['m'], { primary: utf8('n'), lockTtl: 3_600_000 })
  const request = prewriteOf(stuck, [put('a')], { primary: utf8('m'), lockTtl: TTL_MS })
  await world.store.prewrite(request)
  await world.prewrite(['b'])
  await world.passUntil(() => world.store.locks?.count === 2)
  asked.mockClear()
  await world.pass(60_000)
  expect(asked.mock.calls.length).toBeLessThan(25)
})

test('the second that a client has after its TTL begins with the end of that', async () => {
  const world = await World.inMemory()
  world.enders()
  await world.pass(700) // The looks are at other times than the end of the TTL.
  await world.prewrite(['a'])
  const beganMs = world.clock.ms
  await world.pass(TTL_MS + 900)
  expect(world.isUnlocked).toBe(false)
  await world.passUntil(() => world.isUnlocked)
  expect(world.clock.ms - beganMs).toBeLessThanOrEqual(TTL_MS + 1000 + 600)
})

test('a start_ts of the distant past leaves a client its time', async () => {
  const world = await World.inMemory()
  world.enders()
  await world.pass(1000)
  await world.store.prewrite(prewriteOf(5, [put('a')]))
  await world.pass(3000)
  await world.store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 6 })
  expect(await read(world.store, 'a')).toBe('value of a')
  await world.store.prewrite(prewriteOf(7, [put('a')]))
  await world.passUntil(() => world.isUnlocked, GONE_MS)
})

describe('a storm', () => {
  test('over keys that nobody wrote before: none of them is looked up on the disk', async () => {
    const world = await World.onDisk()
    world.enders()
    // The first and the last share a slot of the recent writes.
    await world.during(world.prewrite(['k353', ...Array.from({ length: 100 }, (_, i) => `k${i}`), 'k1011']))
    let steps = 0
    world.engine.onNext = () => steps++
    await world.passUntil(() => world.isUnlocked)
    expect(steps).toBe(0)
  })

  test('of one transaction: a question per step, and few steps', async () => {
    const world = await World.inMemory()
    const [asked, resolved] = [vi.spyOn(world.store, 'checkTxnStatus'), vi.spyOn(world.store, 'resolveLock')]
    world.enders()
    const keys = Array.from({ length: 2100 }, (_, i) => `k${i}`)
    await world.prewrite(keys)
    await world.passUntil(() => world.isUnlocked)
    expect(asked).toHaveBeenCalledTimes(3)
    expect(Math.max(...resolved.mock.calls.map(([{ keys }]) => keys?.length ?? 0))).toBeLessThanOrEqual(1024)
  })

  test('of more locks: some steps run at a time, so that they share an fsync', async () => {
    const world = await World.inMemory()
    const held: (() => void)[] = []
    let begun = 0
    const { resolveLock } = world.store
    vi.spyOn(world.store, 'resolveLock').mockImplementation(async (request) => {
      begun++
      await new Promise<void>((resolve) => held.push(resolve))
      return resolveLock(request)
    })
    world.enders()
    await world.prewrite(Array.from({ length: 6000 }, (_, i) => `k${i}`))
    await world.passUntil(() => begun === 4)
    await world.pass(1000)
    expect(begun).toBe(4)
    while (!world.isUnlocked) {
      for (const release of held.splice(0)) release()
      await world.pass(100)
    }
  })

  test('of many transactions: some at a time', async () => {
    const world = await World.inMemory()
    let [now, most] = [0, 0]
    const { checkTxnStatus } = world.store
    vi.spyOn(world.store, 'checkTxnStatus').mockImplementation(async (request) => {
      most = Math.max(most, ++now)
      await turn()
      return checkTxnStatus(request).finally(() => now--)
    })
    const resolved = vi.spyOn(world.store, 'resolveLock')
    world.enders()
    for (let i = 0; i < 500; i++) await world.prewrite([`k${i}`])
    await world.passUntil(() => world.isUnlocked)
    expect([most > 1, most <= 256]).toEqual([true, true])
    expect(resolved).not.toHaveBeenCalled() // The lock of a primary goes with the decision.
  })
})
