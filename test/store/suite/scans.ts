import { beforeEach, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { del, failureOf, prewriteOf, put, read, text, utf8, write } from '../support.js'
import { keyNumber, LONG } from './contents.js'
import type { Contract } from './contract.js'

/** Ranges, directions, limits and histories of any length. */
export function scanCases({ open, test }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open()
  })
  const keysOf = async (request: {
    start?: string
    end?: string
    limit?: number
    ts?: number
    reverse?: boolean
    keyOnly?: boolean
  }) =>
    (
      await store.scan({
        ...request,
        limit: request.limit ?? 100_000,
        ts: request.ts ?? 1000,
        start: request.start === undefined ? undefined : utf8(request.start),
        end: request.end === undefined ? undefined : utf8(request.end),
      })
    ).pairs.map(({ key }) => text(key))
  /** Both directions must agree, whole or cut off. */
  const both = async (request: Parameters<typeof keysOf>[0]): Promise<string[]> => {
    const forward = await keysOf(request)
    const backward = await keysOf({ ...request, reverse: true })
    if (request.limit === undefined) expect(backward).toEqual([...forward].reverse())
    return forward
  }

  test('the range is half open both ways; the limit cuts off the far end', async () => {
    await write(
      store,
      5,
      6,
      ['a', 'aa', 'b', 'c', 'd'].map((key) => put(key)),
    )
    expect(await both({})).toEqual(['a', 'aa', 'b', 'c', 'd'])
    expect(await both({ start: 'aa', end: 'c' })).toEqual(['aa', 'b'])
    expect(await both({ start: 'c' })).toEqual(['c', 'd'])
    expect(await both({ end: 'b' })).toEqual(['a', 'aa'])
    expect(await both({ start: 'c', end: 'a' })).toEqual([])
    expect(await both({ start: 'b', end: 'b' })).toEqual([])
    expect(await keysOf({ limit: 2 })).toEqual(['a', 'aa'])
    expect(await keysOf({ limit: 2, reverse: true })).toEqual(['d', 'c'])
    expect(await keysOf({ limit: 1, end: 'c', reverse: true })).toEqual(['b'])
  })

  test('pairs carry commit_ts, and values unless key_only', async () => {
    await write(store, 5, 6, [put('a', '1'), put('b', LONG)])
    expect((await store.scan({ limit: 10, ts: 10 })).pairs).toEqual([
      { key: utf8('a'), value: utf8('1'), commitTs: 6 },
      { key: utf8('b'), value: utf8(LONG), commitTs: 6 },
    ])
    expect((await store.scan({ limit: 10, ts: 10, keyOnly: true })).pairs).toEqual([
      { key: utf8('a'), commitTs: 6 },
      { key: utf8('b'), commitTs: 6 },
    ])
  })

  test('each version at its time', async () => {
    for (let i = 1; i <= 5; i++) await write(store, i * 10, i * 10 + 1, [put(`k${i}`), put('shared', String(i))])
    await write(store, 60, 61, [del('k1'), del('shared')])
    expect(await both({ ts: 10 })).toEqual([])
    expect(await both({ ts: 31 })).toEqual(['k1', 'k2', 'k3', 'shared'])
    expect(await both({ ts: 60 })).toEqual(['k1', 'k2', 'k3', 'k4', 'k5', 'shared'])
    expect(await both({ ts: 61 })).toEqual(['k2', 'k3', 'k4', 'k5'])
  })

  test('keys with a thousand versions, between keys with one', { tags: ['long'] }, async () => {
    await write(
      store,
      1,
      2,
      ['a', 'm', 'n', 'z'].map((key) => put(key, 'once')),
    )
    for (let i = 1; i <= 1000; i++)
      await write(store, i * 10, i * 10 + 1, [put('b', String(i)), put('c', String(i)), i % 2 ? put('d') : del('d')])
    expect(await both({ ts: 100_000 })).toEqual(['a', 'b', 'c', 'm', 'n', 'z'])
    expect(await both({ ts: 9991 })).toEqual(['a', 'b', 'c', 'd', 'm', 'n', 'z'])
    expect(await both({ ts: 5 })).toEqual(['a', 'm', 'n', 'z'])
    expect(await both({ ts: 11, start: 'b', end: 'd' })).toEqual(['b', 'c'])
    for (const limit of [1, 2, 3, 4]) {
      expect(await keysOf({ ts: 100_000, limit })).toEqual(['a', 'b', 'c', 'm'].slice(0, limit))
      expect(await keysOf({ ts: 100_000, limit, reverse: true })).toEqual(['z', 'n', 'm', 'c'].slice(0, limit))
    }
    for (const i of [1, 7, 400, 1000]) {
      for (const reverse of [false, true]) {
        const { pairs } = await store.scan({ start: utf8('b'), end: utf8('d'), ts: i * 10 + 5, limit: 10, reverse })
        expect(pairs.map(({ value }) => text(value ?? utf8('')))).toEqual([String(i), String(i)])
      }
      expect(await read(store, 'c', i * 10 + 5)).toBe(String(i))
    }
  })

  test('ten thousand keys', { tags: ['long'] }, async () => {
    const keys = Array.from({ length: 10_000 }, (_, i) => keyNumber(i))
    await write(
      store,
      5,
      6,
      keys.map((key) => put(key)),
    )
    expect(await both({})).toEqual(keys)
    expect(await keysOf({ limit: 5000 })).toEqual(keys.slice(0, 5000))
    expect(await keysOf({ limit: 5000, reverse: true })).toEqual(keys.slice(5000).reverse())
  })

  test('keys and values of many bytes', async () => {
    const keys = Array.from({ length: 40 }, (_, i) => `${'k'.repeat(4000)}${keyNumber(i)}`)
    await write(
      store,
      5,
      6,
      keys.map((key) => put(key, 'v'.repeat(255))),
    )
    expect(await both({})).toEqual(keys)
  })

  test('lots of deletes', { tags: ['long'] }, async () => {
    const keys = Array.from({ length: 3000 }, (_, i) => keyNumber(i))
    await write(
      store,
      5,
      6,
      keys.map((key) => put(key)),
    )
    const deleted = keys.filter((_, i) => i % 1000 !== 500)
    await write(
      store,
      10,
      11,
      deleted.map((key) => del(key)),
    )
    expect(await both({ ts: 20 })).toEqual([keyNumber(500), keyNumber(1500), keyNumber(2500)])
    expect(await keysOf({ ts: 20, limit: 1, reverse: true })).toEqual([keyNumber(2500)])
    expect(await both({ ts: 7 })).toEqual(keys)
  })

  test('locks count towards the limit, and only those within it are met', async () => {
    await write(
      store,
      5,
      6,
      ['a', 'b', 'd', 'f'].map((key) => put(key)),
    )
    // They live on: where a slow machine leaves it the time, the store ends dead ones that it has met.
    await store.prewrite(prewriteOf(10, [put('c'), put('d'), put('e')], { lockTtl: 2 ** 42 }))
    const locksOf = async (limit: number, reverse: boolean): Promise<string[]> => {
      const failure = await failureOf(store.scan({ limit, ts: 20, reverse }))
      expect(failure.code).toBe('key_locked')
      return (failure.fields as { locks: { key: Uint8Array }[] }).locks.map(({ key }) => text(key))
    }
    expect(await keysOf({ ts: 20, limit: 2 })).toEqual(['a', 'b'])
    expect(await locksOf(3, false)).toEqual(['c'])
    expect(await locksOf(4, false)).toEqual(['c', 'd'])
    expect(await locksOf(100, false)).toEqual(['c', 'd', 'e'])
    expect(await keysOf({ ts: 20, limit: 1, reverse: true })).toEqual(['f'])
    expect(await locksOf(2, true)).toEqual(['e'])
    expect(await locksOf(3, true)).toEqual(['d', 'e'])
    expect(await keysOf({ ts: 20, end: 'c' })).toEqual(['a', 'b'])
    expect(await keysOf({ ts: 9 })).toEqual(['a', 'b', 'd', 'f'])
  })

  test('bytes_max ends it with the pair that reaches them, and says whether there may be more', async () => {
    await write(
      store,
      5,
      6,
      ['a', 'b', 'c'].map((key) => put(key, '1234')),
    )
    const cut = async (bytesMax: number, reverse = false) => {
      const { pairs, isCut = false } = await store.scan({ limit: 10, ts: 10, bytesMax, reverse })
      return [...pairs.map(({ key }) => text(key)), isCut]
    }
    expect(await cut(1)).toEqual(['a', true])
    expect(await cut(6)).toEqual(['a', 'b', true])
    expect(await cut(6, true)).toEqual(['c', 'b', true])
    expect(await cut(16)).toEqual(['a', 'b', 'c', false])
  })
}
