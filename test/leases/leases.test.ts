import { describe, expect, test } from 'vitest'
import type { KvError } from '../../src/errors/kv-error.js'
import { codeOf, EngineFailure, TappedEngine, testStores, turn } from '../store/support.js'
import { Leasing, namesOf, TwoClocks } from './support.js'

const stores = testStores()

async function start(tapped?: TappedEngine): Promise<Leasing> {
  const clocks = new TwoClocks()
  const { now, monotonicNow } = clocks
  const store = await stores.open({ now, monotonicNow, ...(tapped && { openEngine: tapped.open, durability: 'sync' }) })
  return Leasing.open(store, clocks)
}

/** Writes of leases that the engine was given. */
function leaseWrites({ writes }: TappedEngine): number {
  return writes.filter(({ ops }) => ops.some(({ key }) => Buffer.from(key).includes('lease/'))).length
}

describe('the disk', () => {
  test('is asked for grants, releases and other TTLs, and never for renewals', async () => {
    const tapped = new TappedEngine()
    const leasing = await start(tapped)
    const { fence } = await leasing.put('a', 'x')
    expect(leaseWrites(tapped)).toBe(1)
    for (let i = 0; i < 100; i++) {
      leasing.pass(900)
      expect(await leasing.put('a', 'x', { fence })).toMatchObject({ fence })
    }
    expect(leaseWrites(tapped)).toBe(1)
    await leasing.put('a', 'x', { ttlMs: 2000 })
    expect(leaseWrites(tapped)).toBe(2)
    await leasing.put('a', 'x', { ttlMs: 2000 })
    await leasing.leases.remove('a', 'x', fence)
    expect(leaseWrites(tapped)).toBe(3)
    expect(tapped.writes.filter(({ sync }) => sync).length).toBeGreaterThanOrEqual(3)
  })

  test('has no record of a lease that has run out, soon after', async () => {
    const leasing = await start()
    for (const name of ['a', 'b', 'c']) await leasing.put(name, 'x')
    await leasing.put('kept', 'x', { ttlMs: 60_000 })
    leasing.pass(1000)
    await expect.poll(() => leasing.stored()).toEqual(['kept'])
    expect(namesOf(await leasing.leases.list())).toEqual(['kept'])
    expect(leasing.leases.summary()).toMatchObject({ held: 1, ends: { released: 0, ranOut: 3 } })
  })

  test('may be slow: leases live and end by time alone', async () => {
    const tapped = new TappedEngine()
    const leasing = await start(tapped)
    const { fence } = await leasing.put('a', 'x')
    let land = (): void => {}
    tapped.onWrite = (_, write) => new Promise((resolve, reject) => (land = () => void write().then(resolve, reject)))
    const granted = leasing.put('b', 'x')
    const stored = leasing.put('a', 'x', { ttlMs: 3000 })
    await turn()
    leasing.pass(999)
    await expect(leasing.leases.get('a')).resolves.toMatchObject({ fence, ttlMs: 1000 })
    expect(await codeOf(leasing.leases.get('b'))).toBe('not_found')
    leasing.pass(1)
    expect(await codeOf(leasing.leases.get('a'))).toBe('not_found')
    expect(await codeOf(leasing.leases.get('b'))).toBe('not_found')
    tapped.onWrite = (_, write) => write()
    land()
    expect(await granted).toMatchObject({ name: 'b' })
    // Nobody else was granted it meanwhile.
    expect(await stored).toMatchObject({ fence, ttlMs: 3000 })
    expect(await leasing.leases.get('a')).toMatchObject({ fence, ttlMs: 3000 })
  })

  test('has the release before the next grant begins', async () => {
    const tapped = new TappedEngine()
    const leasing = await start(tapped)
    const { fence } = await leasing.put('a', 'x')
    let land = (): void => {}
    tapped.onWrite = (_, write) => new Promise((resolve, reject) => (land = () => void write().then(resolve, reject)))
    const before = leaseWrites(tapped)
    const released = leasing.leases.remove('a', 'x', fence)
    const granted = leasing.put('a', 'y')
    await turn()
    expect(leaseWrites(tapped)).toBe(before + 1)
    expect(leasing.store.leases.lost([{ lease: 'a', fence }])).toEqual([{ index: 0, lease: 'a', fence: 0 }])
    tapped.onWrite = (_, write) => write()
    land()
    await released
    expect((await granted).fence).toBeGreaterThan(fence)
  })
})

test('a commit that waited for others is refused if its lease has ended meanwhile', async () => {
  const leasing = await start()
  const fence = await leasing.fence('a', 'x')
  let committing: Promise<string> | undefined
  await leasing.store.exclusive({ written: ['k'], read: [], isAlone: false }, async () => {
    committing = codeOf(leasing.commit('a', fence, 'k'))
    await turn()
    await leasing.leases.remove('a', 'x', fence)
  })
  expect(await committing).toBe('precondition_failed')
})

describe.each([true, false])('after a write that failed, although it is on disk: %j', (lands) => {
  async function startFailing(): Promise<{ leasing: Leasing; fail: () => void }> {
    const tapped = new TappedEngine()
    const leasing = await start(tapped)
    const fail = (): void => {
      tapped.onWrite = async (_, land) => {
        tapped.onWrite = (_, land) => land()
        if (lands) await land()
        throw new EngineFailure('no answer')
      }
    }
    return { leasing, fail }
  }
  /** Until the database is open again. */
  const settled = <T>(call: () => Promise<T>) => expect.poll(() => call().catch((error: KvError) => error.code))

  test('of a grant the lease is free', async () => {
    const { leasing, fail } = await startFailing()
    fail()
    expect(await codeOf(leasing.put('a', 'x'))).toBe('storage_unavailable')
    await settled(() => leasing.put('a', 'y')).toMatchObject({ holder: 'y' })
    expect(await codeOf(leasing.put('a', 'x'))).toBe('lease_held')
    await leasing.restart()
    expect(await leasing.leases.list()).toMatchObject([{ name: 'a', holder: 'y' }])
  })

  test('of a grant nothing stays on disk', async () => {
    const { leasing, fail } = await startFailing()
    fail()
    expect(await codeOf(leasing.put('a', 'x'))).toBe('storage_unavailable')
    await settled(async () => {
      leasing.pass(1000)
      return leasing.stored()
    }).toEqual([])
    await expect.poll(() => leasing.leases.summary().held).toBe(0)
    expect(leasing.errors).toEqual([])
  })

  test('of a release the lease is free', async () => {
    const { leasing, fail } = await startFailing()
    const { fence } = await leasing.put('a', 'x', { ttlMs: 60_000 })
    fail()
    expect(await codeOf(leasing.leases.remove('a', 'x', fence))).toBe('storage_unavailable')
    expect(await codeOf(leasing.leases.get('a'))).toBe('not_found')
    await settled(() => leasing.leases.remove('a', 'x', fence).then(() => 'released')).toBe('released')
    expect(await leasing.stored()).toEqual([])
    expect((await leasing.put('a', 'y')).fence).toBeGreaterThan(fence)
  })

  test('of another TTL the holder keeps the lease, and a restart finds the TTL that was answered', async () => {
    const { leasing, fail } = await startFailing()
    const { fence } = await leasing.put('a', 'x', { ttlMs: 60_000 })
    fail()
    expect(await codeOf(leasing.put('a', 'x', { ttlMs: 100 }))).toBe('storage_unavailable')
    leasing.pass(59_999)
    expect(await leasing.leases.get('a')).toMatchObject({ fence, ttlMs: 60_000 })
    await settled(() => leasing.put('a', 'x', { ttlMs: 60_000 })).toMatchObject({ fence, ttlMs: 60_000 })
    await leasing.restart()
    leasing.pass(59_999)
    expect(await leasing.leases.get('a')).toMatchObject({ fence, ttlMs: 60_000 })
  })

  test('of data leases are renewed all the same', async () => {
    const { leasing, fail } = await startFailing()
    const { fence } = await leasing.put('a', 'x')
    fail()
    expect(await codeOf(leasing.commit('a', fence))).toBe('storage_unavailable')
    for (let i = 0; i < 5; i++) {
      leasing.pass(900)
      expect(await leasing.put('a', 'x')).toMatchObject({ fence })
    }
    await settled(() => leasing.commit('a', fence).then(() => 'done')).toBe('done')
  })
})

describe('a restart', () => {
  test('renews what it finds, with its TTL', async () => {
    const leasing = await start()
    const { fence } = await leasing.put('long', 'x', { ttlMs: 10_000 })
    await leasing.put('short', 'x', { ttlMs: 100 })
    await leasing.put('released', 'x')
    await leasing.leases.remove('released', 'x')
    leasing.pass(99)
    await leasing.restart()
    expect(namesOf(await leasing.leases.list())).toEqual(['long', 'short'])
    expect(await codeOf(leasing.put('short', 'y'))).toBe('lease_held')
    await leasing.commit('long', fence)
    leasing.pass(9999)
    expect(await leasing.put('long', 'x', { fence, ttlMs: 10_000 })).toMatchObject({ fence })
    // A TTL and two seconds.
    expect(await codeOf(leasing.leases.get('short'))).toBe('not_found')
  })

  test('ends leases that nobody renews no later than a TTL and two seconds', async () => {
    const leasing = await start()
    await leasing.put('a', 'x')
    await leasing.restart()
    leasing.pass(2999)
    expect(await codeOf(leasing.put('a', 'y'))).toBe('lease_held')
    leasing.pass(1)
    expect(await leasing.put('a', 'y')).toMatchObject({ holder: 'y' })
  })

  test('finds more leases than may be granted, and grants no more', async () => {
    const leasing = await start()
    for (const name of ['a', 'b', 'c']) await leasing.put(name, 'x')
    const fewer = new Leasing(leasing.store, leasing.clocks, { leasesMax: 2 })
    await leasing.leases.close()
    await fewer.restart()
    expect(namesOf(await fewer.leases.list())).toEqual(['a', 'b', 'c'])
    await fewer.put('a', 'x')
    expect(await codeOf(fewer.put('d', 'x'))).toBe('overloaded')
  })
})

describe('those that wait', () => {
  test('get the lease in the order of arrival, however many there are', async () => {
    const leasing = await start()
    await leasing.put('a', 'x')
    const order: string[] = []
    const all = Array.from({ length: 200 }, async (_, i) => {
      const { holder } = await leasing.put('a', `h${i}`, { waitMs: 60_000 })
      order.push(holder)
      await leasing.leases.remove('a', holder)
    })
    await leasing.waiting(200)
    leasing.pass(1000)
    await Promise.all(all)
    expect(order).toEqual(Array.from({ length: 200 }, (_, i) => `h${i}`))
    await expect.poll(() => leasing.stored()).toEqual([])
  })

  test('are told who holds the lease when their time is over, all of them', async () => {
    const leasing = await start()
    await leasing.put('a', 'x', { ttlMs: 60_000 })
    const all = Array.from({ length: 5000 }, (_, i) => codeOf(leasing.put('a', `h${i}`, { waitMs: 500 })))
    await leasing.waiting(5000)
    leasing.pass(500)
    expect(new Set(await Promise.all(all))).toEqual(new Set(['lease_held']))
    expect(leasing.leases.summary().waiting).toBe(0)
  })

  test('cost as much each, however many wait', async () => {
    const leasing = await start()
    await leasing.put('a', 'x', { ttlMs: 60_000 })
    const readings = async (count: number): Promise<number> => {
      const before = leasing.clocks.readings
      for (let i = 0; i < count; i++) void codeOf(leasing.put('a', `h${i}`, { waitMs: 500 }))
      return leasing.clocks.readings - before
    }
    const first = await readings(1000)
    await readings(3000)
    expect(await readings(1000)).toBeLessThan(2 * first)
    leasing.pass(500)
    await leasing.waiting(0)
  })

  test('under one name are answered in several turns of the event loop, and others meanwhile', async () => {
    const leasing = await start()
    const first = await leasing.fence('a', 'x')
    let answered = 0
    const all = Array.from({ length: 3000 }, async () => {
      const { fence } = await leasing.put('a', 'y', { waitMs: 60_000 })
      answered++
      return fence
    })
    await leasing.waiting(3000)
    await leasing.leases.remove('a', 'x', first)
    let most = 0
    for (let before = 0; answered < 3000; before = answered) {
      await turn()
      most = Math.max(most, answered - before)
    }
    expect(most).toBeLessThan(1000)
    expect(new Set(await Promise.all(all)).size).toBe(1)
    expect(leasing.leases.summary()).toMatchObject({ held: 1, waiting: 0, grants: 2 })
  })

  test('under one name are not lost when the lease changes before all of them are answered', async () => {
    const leasing = await start()
    await leasing.put('a', 'x')
    const all = Array.from({ length: 1000 }, () => leasing.put('a', 'y', { waitMs: 60_000 }))
    await leasing.waiting(1000)
    leasing.pass(1000)
    const { fence } = (await all[0]) ?? expect.fail()
    await leasing.leases.remove('a', 'y', fence)
    const fences = (await Promise.all(all)).map((state) => state.fence)
    expect(fences[0]).toBe(fence)
    expect(fences.toSorted((a, b) => a - b)).toEqual(fences)
    expect(leasing.leases.summary()).toMatchObject({ held: 1, waiting: 0 })
  })

  test('get it from those whose records are being removed', async () => {
    const leasing = await start()
    const first = await leasing.fence('a', 'x')
    leasing.clocks.pass(1000)
    leasing.leases.look() // Begins to remove the record.
    const [y, z] = await Promise.all([leasing.put('a', 'y'), codeOf(leasing.put('a', 'z'))])
    expect(y.fence).toBeGreaterThan(first)
    expect(z).toBe('lease_held')
    await leasing.restart()
    expect(await leasing.leases.list()).toMatchObject([{ holder: 'y', fence: y.fence }])
  })
})

test('leases that run out together are all removed', { tags: ['long'] }, async () => {
  const leasing = await start()
  await Promise.all(Array.from({ length: 2500 }, (_, i) => leasing.put(`l${i}`, 'x')))
  leasing.pass(1000)
  await expect.poll(() => leasing.stored(), { timeout: 30_000 }).toEqual([])
  expect(leasing.leases.summary()).toMatchObject({ held: 0, ends: { ranOut: 2500 } })
  await leasing.put('l0', 'y')
})

test('without leases nothing is timed, and every fence is lost', async () => {
  const leasing = await start()
  expect(leasing.store.leases.lost([{ lease: 'a', fence: 1 }])).toEqual([{ index: 0, lease: 'a', fence: 0 }])
  expect(await codeOf(leasing.commit('a', 1))).toBe('precondition_failed')
  await leasing.leases.remove('a', 'x')
  expect(leasing.leases.summary()).toEqual({
    ...{ held: 0, waiting: 0, ending: 0, grants: 0, renewals: 0 },
    ends: { released: 0, ranOut: 0 },
  })
})
