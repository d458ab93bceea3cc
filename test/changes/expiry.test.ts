import { describe, expect, test } from 'vitest'
import type { Changes } from '../../src/changes/changes.js'
import type { FeedEvent, FeedTxn, KeyState, StreamRequest } from '../../src/changes/rules/changes-api.js'
import type { PrewriteMutation } from '../../src/percolator/api.js'
import type { CompleteStore } from '../../src/store/store.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../src/timestamp.js'
import { commit, putNow } from '../observers/support.js'
import { EngineFailure, put, TappedEngine, TestClock, testStores, text, utf8, write } from '../store/support.js'
import { allOf, openChanges, shortAll, shortOf } from './support.js'

const stores = testStores()

interface World {
  readonly clock: TestClock
  readonly store: CompleteStore
  readonly changes: Changes
  readonly inMs: (ms: number) => Timestamp
  readonly expiring: (key: string, ms: number, value?: string) => PrewriteMutation
}

function worldOf(store: CompleteStore, clock: TestClock, limits: Parameters<typeof openChanges>[1] = {}): World {
  const inMs = (ms: number): Timestamp => clock.ts() + ms * LOGICAL_PER_MS
  return {
    clock,
    store,
    changes: openChanges(store, limits),
    inMs,
    expiring: (key, ms, value = `value of ${key}`) => ({ ...put(key, value), expireTs: inMs(ms) }),
  }
}

/** The transactions of a stream, one by one. */
class Follower {
  readonly #batches: AsyncGenerator<readonly FeedEvent[], void>
  #txns: FeedTxn[] = []

  constructor(changes: Changes, request: StreamRequest = {}) {
    this.#batches = changes.stream({ heartbeatMs: 100, ...request })
  }

  /** Fulfilled once the stream is live. */
  async begin(): Promise<this> {
    await this.#batches.next()
    return this
  }

  async next(): Promise<FeedTxn> {
    while (this.#txns.length === 0) {
      const { value, done } = await this.#batches.next()
      if (done) throw new Error('the stream has ended')
      for (const event of value) if (event.type === 'txn') this.#txns.push(event)
    }
    return this.#txns.shift() as FeedTxn
  }

  async short(): Promise<string> {
    return shortOf({ type: 'txn', ...(await this.next()) })
  }

  async end(): Promise<void> {
    await this.#batches.return()
  }
}

describe('a feed', () => {
  const begin = async (limits: Parameters<typeof openChanges>[1] = {}): Promise<World> => {
    const clock = new TestClock()
    return worldOf(await stores.open({ now: clock.now }), clock, limits)
  }

  test('tells an idle stream of an expiry when its time comes, in its own transaction', async () => {
    const { clock, store, changes, inMs, expiring } = await begin()
    const follower = await new Follower(changes).begin()
    const [b, a] = [inMs(50), inMs(60)]
    await commit(store, [expiring('b', 50), expiring('c', 50), expiring('a', 60), put('d')])
    expect((await follower.next()).changes.map(({ expireTs }) => expireTs)).toEqual([a, b, b, undefined])
    clock.ms += 55
    const expire = (key: string, expireTs: Timestamp) => ({ key: utf8(key), op: 'expire', expireTs })
    expect(await follower.next()).toMatchObject({
      ...{ commitTs: b, startTs: b },
      changes: [expire('b', b), expire('c', b)],
    })
    clock.ms += 10
    expect(await follower.next()).toMatchObject({ commitTs: a, changes: [expire('a', a)] })
    expect(await store.scan({ ts: await store.tso(1), limit: 9 })).toMatchObject({ pairs: [{ key: utf8('d') }] })
    await follower.end()
  })

  test('tells of no expiry of a version that was replaced', async () => {
    const { clock, store, changes, expiring } = await begin()
    const follower = await new Follower(changes).begin()
    await commit(store, [expiring('a', 50), expiring('b', 50), expiring('c', 50), expiring('d', 50)])
    await commit(store, [put('a', 'new'), { op: 'delete', key: utf8('b') }, expiring('c', 5000)])
    clock.ms += 60
    await putNow(store, 'last')
    const seen: string[] = []
    while (!seen.some((txn) => txn.includes('last'))) seen.push(await follower.short())
    expect(seen.slice(2)).toEqual(['expire d', 'put last=value of last'])
    await follower.end()
  })

  test('replays what has expired to a stream that was away, in the order of all changes', async () => {
    const { clock, store, changes, expiring } = await begin()
    await commit(store, [expiring('a', 20), expiring('b', 40)])
    clock.ms += 30
    await putNow(store, 'c')
    clock.ms += 30
    await putNow(store, 'd')
    const all = await shortAll(changes, { sinceTs: 0, keysOnly: true })
    expect(all).toEqual(['put a,put b', 'expire a', 'put c', 'expire b', 'put d'])
    expect(await shortAll(changes, { sinceTs: 0, keysOnly: true, keys: [utf8('b'), utf8('c')] })).toEqual([
      'put b',
      'put c',
      'expire b',
    ])
    expect((await changes.page({ sinceTs: 0, limit: 2 })).txns.map((txn) => shortOf({ type: 'txn', ...txn }))).toEqual([
      'put a=value of a,put b=value of b',
      'expire a',
    ])
  })

  test('has the version that expired as the old one, also where nobody ever saw it', async () => {
    const { clock, store, changes, inMs, expiring } = await begin()
    await putNow(store, 'a', 'b')
    await commit(store, [expiring('a', 50, 'short life'), { ...put('b', 'never seen'), expireTs: inMs(-50) }])
    clock.ms += 60
    const live = await new Follower(changes, { sinceTs: store.log.start, oldValues: true }).begin()
    await store.tso(1)
    const all = await shortAll(changes, { sinceTs: store.log.start, oldValues: true })
    expect(all.slice(1)).toEqual([
      'put a=short life (value of a),put b=never seen (value of b)',
      'expire b (never seen)',
      'expire a (short life)',
    ])
    await live.end()
  })

  test('has the expiry of a pair of a snapshot, and no pair that has expired', async () => {
    const { clock, store, changes, inMs, expiring } = await begin()
    const at = inMs(500)
    await commit(store, [expiring('a', 50), expiring('b', 500), put('c')])
    clock.ms += 60
    const events = await allOf(changes, { snapshot: true })
    expect(events.filter(({ type }) => type === 'pair')).toMatchObject([
      { key: utf8('b'), expireTs: at },
      { key: utf8('c') },
    ])
  })

  test('more keys that expire together than memory may keep: each stream reads them, in parts', {
    tags: ['long'],
  }, async () => {
    const { clock, store, changes, expiring } = await begin({ feedBytesMax: 4096, pageBytesMax: 4096 })
    const keys = Array.from({ length: 3000 }, (_, i) => `k${String(i).padStart(4, '0')}`)
    const followers = [
      await new Follower(changes).begin(),
      await new Follower(changes, { prefixes: [utf8('k000')] }).begin(),
    ] as const
    for (let from = 0; from < keys.length; from += 500)
      await commit(
        store,
        keys.slice(from, from + 500).map((key) => expiring(key, 50)),
      )
    clock.ms += 60
    for (const [i, follower] of followers.entries()) {
      const expired: string[] = []
      const parts: (number | undefined)[] = []
      for (let isLast = false; !isLast; ) {
        const txn = await follower.next()
        if (txn.changes[0]?.op !== 'expire') continue
        expired.push(...txn.changes.map(({ key }) => text(key)))
        parts.push(txn.part)
        isLast = txn.isLast ?? true
      }
      expect(expired).toEqual(i === 0 ? keys : keys.slice(0, 10))
      if (i === 0) expect(parts).toEqual(parts.map((_, part) => part))
      await follower.end()
    }
  })
})

test('a put that fails and lands expires for a live stream too', async () => {
  const clock = new TestClock()
  const tapped = new TappedEngine()
  const { store, changes, expiring } = worldOf(await stores.open({ now: clock.now, openEngine: tapped.open }), clock)
  const follower = await new Follower(changes).begin()
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_, land) => land()
    await land()
    throw new EngineFailure('no answer')
  }
  await commit(store, [expiring('a', 50)]).catch(() => {})
  await expect.poll(() => commit(store, [put('b')]).catch(() => 0)).toBeGreaterThan(0)
  clock.ms += 60
  const seen: string[] = []
  while (!seen.includes('expire a')) seen.push(await follower.short())
  expect(seen).toContain('put a=value of a')
  await follower.end()
})

test('an expiry and a delete_range of one timestamp are two transactions', async () => {
  const clock = new TestClock()
  const { store, changes } = worldOf(await stores.open({ now: clock.now }), clock)
  const removal = (await store.tso(1)) + 2
  await write(store, 5, 6, [{ ...put('a'), expireTs: removal }, put('b')])
  let at: Timestamp = 0
  store.log.listen({
    onCommitted: (changes) => {
      for (const change of changes) if (change.type === 'delete_range') at = change.commitTs
    },
    reloaded: () => {},
  })
  while ((await store.tso(1)) < removal - 1);
  await store.deleteRange({ start: utf8('b'), end: utf8('c') })
  expect(at).toBe(removal)
  expect((await shortAll(changes, { sinceTs: 6 })).slice(-2)).toEqual(['delete_range b..c', 'expire a'])
})

describe('a watch', () => {
  async function watched() {
    const clock = new TestClock()
    const world = worldOf(await stores.open({ now: clock.now }), clock)
    const watch = (key = 'a') => world.changes.watch({ key: utf8(key) })
    const stateOf = async (watching: AsyncGenerator<KeyState, void>): Promise<KeyState> => {
      const { value, done } = await watching.next()
      if (done) throw new Error('the watch has ended')
      return value
    }
    return { ...world, watch, stateOf }
  }

  test('shows when the version expires, and its absence then', async () => {
    const { clock, store, inMs, expiring, watch, stateOf } = await watched()
    const at = inMs(50)
    const commitTs = await commit(store, [expiring('a', 50)])
    const watching = [watch(), watch()]
    for (const each of watching) expect(await stateOf(each)).toMatchObject({ found: true, commitTs, expireTs: at })
    clock.ms += 50
    for (const each of watching) expect(await stateOf(each)).toEqual({ found: false, commitTs: at })
    expect(await stateOf(watch())).toEqual({ found: false, commitTs: at })
    const again = await commit(store, [put('a')])
    for (const each of watching) expect(await stateOf(each)).toMatchObject({ found: true, commitTs: again })
    for (const each of watching) await each.return()
  })

  test('goes by the version that stands', { tags: ['long'] }, async () => {
    const { clock, store, inMs, expiring, watch, stateOf } = await watched()
    await commit(store, [expiring('a', 50)])
    const watching = watch()
    await stateOf(watching)
    const at = inMs(500)
    const longer = await commit(store, [expiring('a', 500)])
    expect(await stateOf(watching)).toMatchObject({ commitTs: longer, expireTs: at })
    clock.ms += 60
    const state = stateOf(watching)
    const marker = watch('b')
    await stateOf(marker)
    clock.ms += 450
    expect(await state).toEqual({ found: false, commitTs: at })
    await commit(store, [put('a', 'for good')])
    expect(await stateOf(watching)).not.toHaveProperty('expireTs')
    await watching.return()
    await marker.return()
  })

  test('many keys, each at its time', async () => {
    const { clock, store, inMs, expiring, watch, stateOf } = await watched()
    const keys = Array.from({ length: 200 }, (_, i) => `k${i}`)
    const times = new Map(keys.map((key, i) => [key, 10 + ((i * 7) % 200)]))
    const at = new Map(keys.map((key) => [key, inMs(times.get(key) ?? 0)]))
    await commit(
      store,
      keys.map((key) => expiring(key, times.get(key) ?? 0)),
    )
    const watching = keys.map(watch)
    await Promise.all(watching.map(stateOf))
    const states = watching.map(stateOf)
    clock.ms += 100
    const early = keys.flatMap((key, i) => ((times.get(key) ?? 0) <= 100 ? [[key, states[i]] as const] : []))
    for (const [key, state] of early) expect(await state).toEqual({ found: false, commitTs: at.get(key) })
    clock.ms += 200
    for (const [i, key] of keys.entries()) expect(await states[i]).toEqual({ found: false, commitTs: at.get(key) })
    for (const each of watching) await each.return()
  })
})
