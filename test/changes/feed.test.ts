import { expect, test, vi } from 'vitest'
import type { Changes } from '../../src/changes/changes.js'
import { Feed } from '../../src/changes/feed.js'
import type { FeedEvent } from '../../src/changes/rules/changes-api.js'
import type { ChangeLog } from '../../src/store/change-log.js'
import type { Timestamp } from '../../src/timestamp.js'
import { commit, putNow } from '../observers/support.js'
import {
  codeOf,
  EngineFailure,
  failureOf,
  memoryStores,
  prewriteOf,
  put,
  TappedEngine,
  TestClock,
  testStores,
  utf8,
} from '../store/support.js'
import { allOf, openChanges, Reader, shortAll } from './support.js'

const stores = testStores()
const memory = memoryStores()

function fail(error: unknown): void {
  throw error
}

test('status, holders and a watch take no resolved_ts: commits in the past stay legal', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  const watching = changes.watch({ key: utf8('other') })
  expect((await watching.next()).value).toMatchObject({ found: false })
  expect(changes.status).toMatchObject({ resolvedTs: 0, live: 0, behind: 0 })
  expect([...changes.holders()]).toEqual([])
  await store.prewrite(prewriteOf(5, [put('a')]))
  await store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 6 })
  await watching.return()
})

test('heartbeats of an idle stream carry a resolved_ts that rises', async () => {
  const reader = new Reader(openChanges(await memory.open()), { heartbeatMs: 100 })
  const told: number[] = []
  while (told.length < 3) {
    const event = await reader.next()
    if (event?.type === 'resolved') told.push(event.resolvedTs)
  }
  expect(new Set(told).size).toBe(3)
  expect([...told].sort((a, b) => a - b)).toEqual(told)
  await reader.end()
})

test('a lock that holds the feed back is named after two seconds, with a reader and without', async () => {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now, monotonicNow: clock.now })
  const changes = openChanges(store)
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('living')], { lockTtl: 60_000 }))
  await store.prewrite(prewriteOf(await store.tso(1), [{ op: 'lock', key: utf8('no value') }], { lockTtl: 60_000 }))
  clock.ms += 1999
  expect(changes.status).toMatchObject({ resolvedTs: 0, heldBackBy: [], lagMs: 0 })
  clock.ms += 1
  expect(changes.status.heldBackBy).toMatchObject([{ key: utf8('living'), startTs, expiresInMs: 58_001 }])
  expect(changes.status).toMatchObject({ resolvedTs: 0, lagMs: 0 })
  const reader = new Reader(changes, { heartbeatMs: 100 })
  await reader.next()
  await putNow(store, 'b')
  expect(changes.status).toMatchObject({ resolvedTs: startTs - 1, heldBackBy: [{ startTs }] })
  expect(changes.status.lagMs).toBeGreaterThanOrEqual(2000)
  await store.rollback({ keys: [utf8('living')], startTs })
  expect(await reader.short()).toBe('put b=value of b')
  expect(changes.status).toMatchObject({ heldBackBy: [], lagMs: 0 })
  await reader.end()
})

test('what a lock holds back longer than the memory for it reaches comes from the log', async () => {
  const store = await stores.open()
  const reader = new Reader(openChanges(store, { feedBytesMax: 1024 }))
  await reader.next()
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('z')], { lockTtl: 60_000 }))
  const keys = Array.from({ length: 50 }, (_, i) => `k${i}`)
  for (const key of keys) await putNow(store, key)
  await store.commit({ keys: [utf8('z')], startTs, commitTs: await store.tso(1) })
  for (const key of [...keys, 'z']) expect(await reader.short()).toBe(`put ${key}=value of ${key}`)
  await reader.end()
})

test('a stream that rests loses its queue and nothing else', { tags: ['long'] }, async () => {
  const store = await memory.open()
  const changes = openChanges(store)
  const events = changes.stream({})
  await events.next()
  const COUNT = 2500
  for (let i = 0; i < COUNT; i++) await putNow(store, 'k')
  await changes.page({}) // It takes resolved_ts above all of them.
  expect(changes.status).toMatchObject({ live: 0, behind: 1 })
  let seen = 0
  for await (const batch of events) {
    for (const event of batch) if (event.type === 'txn') seen++
    if (seen >= COUNT) break
  }
  expect(seen).toBe(COUNT)
})

test('a stream holds collection back at its position, for a bounded time; then it is refused', {
  tags: ['long'],
}, async () => {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now, monotonicNow: clock.now })
  const changes = openChanges(store, { holdMsMax: 60_000 })
  const since = await store.tso(1)
  await putNow(store, 'a')
  const events = changes.stream({ sinceTs: since })
  await events.next()
  const [holder] = [...changes.holders()]
  expect(holder?.by).toBe('feed')
  expect(holder?.ts).toBeGreaterThanOrEqual(since)
  clock.ms += 60_001
  expect([...changes.holders()]).toEqual([])
  for (let i = 0; i < 1500; i++) await putNow(store, 'a')
  await changes.page({})
  const safePoint = await store.tso(1)
  await store.upkeep.collect(safePoint)
  const rest = async (): Promise<void> => {
    while (!(await events.next()).done);
  }
  expect(await failureOf(rest())).toMatchObject({ code: 'ts_below_safe_point', fields: { safePoint } })
  expect(await codeOf(allOf(changes, { sinceTs: since }))).toBe('ts_below_safe_point')
  expect(await shortAll(changes, { sinceTs: safePoint })).toEqual([])
  expect(changes.status).toMatchObject({ live: 0, behind: 0 })
})

test('a long transaction comes in parts, live and from the log, and in a page', async () => {
  const store = await stores.open()
  const changes = openChanges(store, { pageBytesMax: 1000, answerBytesMax: 4000 })
  const since = await store.tso(1)
  const live = new Reader(changes)
  await live.next()
  const keys = Array.from({ length: 40 }, (_, i) => `k${String(i).padStart(2, '0')}`)
  await commit(
    store,
    keys.map((key) => put(key, 'x'.repeat(100))),
  )
  await putNow(store, 'z')
  const whole = async (read: () => Promise<Awaited<ReturnType<Reader['next']>>>): Promise<void> => {
    const seen: string[] = []
    for (let part = 0; ; part++) {
      let event = await read()
      while (event?.type === 'resolved') event = await read()
      if (event?.type !== 'txn') throw new Error(`${event?.type} within a transaction`)
      expect(event.part).toBe(part)
      seen.push(...event.changes.map(({ key }) => key.toString()))
      expect(event.isLast).toBe(seen.length === keys.length)
      if (event.isLast) break
    }
    expect(seen).toEqual(keys.map((key) => utf8(key).toString()))
  }
  await whole(() => live.next())
  expect(await live.short()).toBe('put z=value of z')
  await live.end()
  const late = new Reader(changes, { sinceTs: since })
  await whole(() => late.next())
  expect(await late.short()).toBe('put z=value of z')
  await late.end()
  const { rest, ...begin } = await changes.page({ sinceTs: since, limit: 1 })
  const txns = [...begin.txns]
  await whole(async () => {
    for (let next = await rest?.next(); next?.done === false; next = await rest?.next()) txns.push(next.value)
    const txn = txns.shift()
    return txn && { type: 'txn', ...txn }
  })
  const { commitTs: nextTs } = begin.txns[0] ?? {}
  expect(await changes.page({ sinceTs: nextTs })).toMatchObject({ txns: [{ changes: [{ key: utf8('z') }] }] })
})

test('a thousand streams of their own keys, and one change for all of them', async () => {
  const store = await memory.open()
  const changes = openChanges(store)
  const readers = Array.from({ length: 1000 }, (_, i) => new Reader(changes, { keys: [utf8('all'), utf8(`own ${i}`)] }))
  await Promise.all(readers.map((reader) => reader.next()))
  expect(changes.status).toMatchObject({ live: 1000, behind: 0 })
  await putNow(store, 'own 7', 'own 700')
  await putNow(store, 'all')
  const first = await Promise.all(readers.map((reader) => reader.short()))
  expect(first.filter((short) => short === 'put all=value of all')).toHaveLength(998)
  expect([first[7], first[700]]).toEqual(['put own 7=value of own 7', 'put own 700=value of own 700'])
  await Promise.all(readers.map((reader) => reader.end()))
  expect(changes.status).toMatchObject({ live: 0, behind: 0 })
})

test('a transaction that a thousand live streams have to read from the log: few read at once', {
  tags: ['long'],
}, async () => {
  const [STREAMS, COUNT] = [1000, 5]
  const store = await memory.open()
  let [reading, most] = [0, 0]
  const { log } = store
  const read = log.read.bind(log)
  log.read = async function* (request) {
    const pages = read(request)
    for (let isMore = true; isMore; ) {
      most = Math.max(most, ++reading)
      await new Promise(setImmediate)
      const { value, done } = await pages.next()
      reading--
      if (value !== undefined) yield value
      isMore = done !== true
    }
  }
  const changes = openChanges(store)
  const streams = Array.from({ length: STREAMS }, () => changes.stream({ heartbeatMs: 60_000 }))
  for (const stream of streams) await stream.next()
  const firsts = streams.map((stream) => stream.next())
  await commit(
    store,
    Array.from({ length: COUNT }, (_, i) => put(`k${i}`, Buffer.alloc(1024 * 1024))),
  )
  await Promise.all(
    streams.map(async (stream, i) => {
      const { value: batch } = await (firsts[i] as (typeof firsts)[0])
      const [event] = (batch ?? []) as readonly FeedEvent[]
      expect(event?.type === 'txn' && event.changes.length).toBe(COUNT)
      await stream.return()
    }),
  )
  expect(most).toBeLessThanOrEqual(17) // One of them is the feed.
})

test('streams that a transaction is too large for are woken in slices', async () => {
  const store = await memory.open()
  const limits = { feedBytesMax: 2 ** 20, pageBytesMax: 100 }
  const feed = new Feed({ store, log: store.log, limits, onError: fail })
  const user = { fail }
  feed.enter(user, store.log.resolve())
  await feed.refresh()
  let [inThisTurn, most, woken] = [0, 0, 0]
  const newTurn = (): void => {
    inThisTurn = 0
  }
  for (let i = 0; i < 300; i++)
    feed.join(
      {
        rank: 0,
        place: -1,
        cursor: 0,
        fallBehind: () => {},
        wake: () => {
          if (inThisTurn === 0) queueMicrotask(newTurn)
          most = Math.max(most, ++inThisTurn)
          woken++
        },
      },
      '',
      undefined,
    )
  await putNow(store, 'a', 'b')
  await expect.poll(() => woken).toBe(300)
  expect(most).toBe(64)
  feed.leave(user)
})

test('a change that landed with a write that failed is told of', async () => {
  const tapped = new TappedEngine()
  const store = await stores.open({ openEngine: tapped.open })
  const changes: Changes = openChanges(store)
  const reader = new Reader(changes)
  await reader.next()
  await putNow(store, 'a')
  expect(await reader.short()).toBe('put a=value of a')
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (__, go) => go()
    await land()
    throw new EngineFailure('the answer was lost')
  }
  expect(await codeOf(putNow(store, 'b'))).toBe('storage_unavailable')
  while ((await codeOf(putNow(store, 'c'))) !== 'none') await tapped.quiet()
  expect([await reader.short(), await reader.short()]).toEqual(['put b=value of b', 'put c=value of c'])
  await reader.end()
})

test('a log of several servers is always asked what it has resolved, without waiting for a tick', async () => {
  const store = await memory.open()
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  try {
    const asked: ((resolved: Timestamp) => void)[] = []
    const log: ChangeLog = {
      ...{ start: 0, prompt: undefined, begin: async () => {}, heldBackBy: () => [] },
      resolve: () => new Promise((answer) => void asked.push(answer)),
      async *read({ upTo }) {
        yield { changes: [], upTo }
      },
      async *withValues() {},
    }
    const feed = new Feed({ store, log, limits: { feedBytesMax: 0, pageBytesMax: 0 }, onError: fail })
    const user = { fail }
    feed.enter(user, 1)
    vi.advanceTimersByTime(100)
    for (let looks = 1; looks <= 3; looks++) {
      expect(asked).toHaveLength(looks)
      asked.at(-1)?.(1)
      for (let turns = 0; turns < 4; turns++) await new Promise((next) => setImmediate(next))
    }
    expect(asked).toHaveLength(4)
    feed.leave(user)
  } finally {
    vi.useRealTimers()
  }
})
