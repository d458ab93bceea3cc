import { expect, test } from 'vitest'
import type { Store } from '../../src/store/store.js'
import { commit, putNow } from '../observers/support.js'
import { del, prewriteOf, put, testStores, utf8 } from '../store/support.js'
import { openChanges, Reader, shortAll } from './support.js'

const stores = testStores()

test('a live stream has whole transactions, within its filter', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  const all = new Reader(changes)
  const some = new Reader(changes, { prefixes: [utf8('a/')], keys: [utf8('k')] })
  expect((await all.next())?.type).toBe('resolved')
  expect((await some.next())?.type).toBe('resolved')
  await commit(store, [put('a/1', '1'), put('b', '2'), put('k', '3')])
  await commit(store, [del('b')])
  await commit(store, [del('k')])
  expect([await all.short(), await all.short(), await all.short()]).toEqual([
    'put a/1=1,put b=2,put k=3',
    'delete b',
    'delete k',
  ])
  expect([await some.short(), await some.short()]).toEqual(['put a/1=1,put k=3', 'delete k'])
  await all.end()
  await some.end()
  expect(changes.status).toMatchObject({ live: 0, behind: 0 })
})

test('a stream from before reads the log', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  const since = await store.tso(1)
  await commit(store, [put('a', '1')])
  const middle = await commit(store, [put('a', '2')])
  await commit(store, [put('b', 'x'.repeat(300)), del('a')])
  await commit(store, [put('c')])
  expect(await shortAll(changes, { sinceTs: since, keys: [utf8('a')] })).toEqual(['put a=1', 'put a=2', 'delete a'])
  expect(await shortAll(changes, { sinceTs: since, keys: [utf8('a')], oldValues: true })).toEqual([
    'put a=1 (none)',
    'put a=2 (1)',
    'delete a (2)',
  ])
  expect(await shortAll(changes, { sinceTs: middle, keysOnly: true })).toEqual(['delete a,put b', 'put c'])
})

test('a snapshot, then what follows', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  await putNow(store, 'a', 'b', 'c')
  const reader = new Reader(changes, { snapshot: true, start: utf8('b') })
  expect([await reader.short(), await reader.short(), await reader.short()]).toEqual([
    'pair b=value of b',
    'pair c=value of c',
    'snapshot_end',
  ])
  await putNow(store, 'a', 'd')
  expect(await reader.short()).toBe('put d=value of d')
  await reader.end()
})

test('a snapshot that is asked for while a collection ends old locks waits for their end', async () => {
  const store = await stores.open()
  await putNow(store, 'b')
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('a')]))
  await store.upkeep.raiseSafePoint(await store.tso(1))
  const changes = openChanges(store)
  const reader = new Reader(changes, { snapshot: true })
  const first = reader.short()
  await expect.poll(() => changes.status.behind).toBe(1)
  await store.rollback({ keys: [utf8('a')], startTs })
  expect([await first, await reader.short()]).toEqual(['pair b=value of b', 'snapshot_end'])
  await reader.end()
})

test('pages', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  const since = await store.tso(1)
  for (const key of ['a', 'b', 'c']) await putNow(store, key)
  const first = await changes.page({ sinceTs: since, limit: 2 })
  expect(first.txns.length).toBe(2)
  expect(first.nextTs).toBe(first.txns[1]?.commitTs)
  const second = await changes.page({ sinceTs: first.nextTs })
  expect(second.txns.length).toBe(1)
  expect(second.nextTs).toBe(second.resolvedTs)
  const waiting = changes.page({ sinceTs: second.nextTs, waitMs: 20_000 })
  await putNow(store, 'd')
  expect((await waiting).txns.length).toBe(1)
  const future = (await store.tso(1)) + 1e9
  expect(await changes.page({ sinceTs: future })).toMatchObject({ txns: [], nextTs: future })
  expect(await changes.page({})).toMatchObject({ txns: [] })
})

test('locks hold a stream back', async () => {
  const store: Store = await stores.open()
  const changes = openChanges(store)
  const reader = new Reader(changes)
  await reader.next()
  const startTs = await store.tso(1)
  await store.prewrite({ mutations: [put('a', 'x'.repeat(300))], primary: utf8('a'), startTs, lockTtl: 60_000 })
  await putNow(store, 'b')
  await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
  expect(await reader.short()).toBe('put b=value of b')
  expect(await reader.short()).toBe(`put a=${'x'.repeat(300)}`)
  await reader.end()
})

test('streams are woken in slices, whether they share a selection or not', async () => {
  const store = await stores.open()
  const changes = openChanges(store)
  const streams = Array.from({ length: 300 }, (_, i) => changes.stream({ keys: [utf8('k'), utf8(`own/${i % 200}`)] }))
  for (const stream of streams) await stream.next()
  const turns: number[] = []
  let turn = 0
  let isOver = false
  const count = (): void => {
    turn++
    if (!isOver) setImmediate(count)
  }
  count()
  const told = streams.map((stream) => stream.next().then(() => turns.push(turn)))
  await commit(store, [put('k')])
  await Promise.all(told)
  isOver = true
  const inOneTurn = new Map<number, number>()
  for (const each of turns) inOneTurn.set(each, (inOneTurn.get(each) ?? 0) + 1)
  expect(Math.max(...inOneTurn.values())).toBeLessThan(100)
  await Promise.all(streams.map((stream) => stream.return()))
})
