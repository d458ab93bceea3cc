import { beforeEach, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { del, prewriteOf, put, read, text, utf8, write } from '../support.js'
import { keyNumber, LONG, lockedKeys } from './contents.js'
import type { Contract } from './contract.js'

/** What people who debug are shown, and histories that are longer than a store reads at once. */
export function inspectionCases({ open, test }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open()
  })

  test('mvcc_get_by_key shows the lock, the records newest first and the long values', async () => {
    await write(store, 5, 6, [put('a', '1')])
    await write(store, 10, 11, [put('a', LONG)])
    await write(store, 20, 21, [del('a')])
    await store.rollback({ keys: [utf8('a')], startTs: 30 })
    await store.prewrite(prewriteOf(40, [put('a', LONG)]))
    expect(await store.mvccGetByKey({ key: utf8('a') })).toMatchObject({
      lock: { startTs: 40, key: utf8('a') },
      writes: [
        { type: 'rollback', startTs: 30, commitTs: 30 },
        { type: 'delete', startTs: 20, commitTs: 21 },
        { type: 'put', startTs: 10, commitTs: 11 },
        { type: 'put', startTs: 5, commitTs: 6, shortValue: utf8('1') },
      ],
      values: [
        { startTs: 40, value: utf8(LONG) },
        { startTs: 10, value: utf8(LONG) },
      ],
    })
    expect(await store.mvccGetByKey({ key: utf8('b') })).toEqual({ lock: null, writes: [], values: [] })
  })

  test('mvcc_get_by_key shows every one of many versions and long values', async () => {
    for (let i = 1; i <= 200; i++) await write(store, i * 10, i * 10 + 1, [put('a', i % 2 ? LONG : 'w'.repeat(255))])
    const { writes, values } = await store.mvccGetByKey({ key: utf8('a') })
    expect(writes).toHaveLength(200)
    expect(values).toHaveLength(100)
  })

  test('an old version under many newer ones is found', async () => {
    for (let i = 1; i <= 200; i++) await write(store, i * 10, i * 10 + 1, [put('a', `${i} ${'w'.repeat(240)}`)])
    for (const i of [1, 2, 100, 200]) expect((await read(store, 'a', i * 10 + 5))?.split(' ')[0]).toBe(String(i))
  })

  test('a prewrite far below many newer versions finds the one of its own transaction', async () => {
    await write(store, 5, 6, [put('a', 'mine')])
    for (let i = 1; i <= 200; i++) await write(store, i * 10, i * 10 + 1, [put('a', 'w'.repeat(250))])
    await store.prewrite(prewriteOf(5, [put('a', 'mine')]))
    expect(await lockedKeys(store)).toEqual([])
    expect(await store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 9 })).toEqual({ commitTs: 6 })
  })

  test('mvcc_get_by_start_ts finds the first key of a transaction, locked or written', async () => {
    await write(store, 5, 6, [put('c'), put('b')])
    await store.prewrite(prewriteOf(10, [put('e'), put('d')]))
    await store.rollback({ keys: [utf8('z')], startTs: 20 })
    const find = async (startTs: number, start?: string, end?: string): Promise<string | undefined> => {
      const bounds = {
        start: start === undefined ? undefined : utf8(start),
        end: end === undefined ? undefined : utf8(end),
      }
      const { key } = await store.mvccGetByStartTs({ startTs, ...bounds })
      return key && text(key)
    }
    expect(await find(5)).toBe('b')
    expect(await find(5, 'bb')).toBe('c')
    expect(await find(5, undefined, 'b')).toBeUndefined()
    expect(await find(10)).toBe('d')
    expect(await find(20)).toBe('z')
    expect(await find(99)).toBeUndefined()
    expect(await store.mvccGetByStartTs({ startTs: 99 })).toEqual({ lock: null, writes: [], values: [] })
    await store.commit({ keys: [utf8('e')], startTs: 10, commitTs: 11 })
    expect(await find(10)).toBe('d')
  })

  test('mvcc_get_by_start_ts finds a key behind thousands of others', { tags: ['long'] }, async () => {
    const mutations = Array.from({ length: 3000 }, (_, i) => put(keyNumber(i)))
    await write(store, 5, 6, mutations)
    await write(store, 10, 11, [put(keyNumber(2999))])
    expect((await store.mvccGetByStartTs({ startTs: 10 })).key).toEqual(utf8(keyNumber(2999)))
  })
}
