import { beforeEach, describe, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { codeOf, prewriteOf, put, read, text, utf8 } from '../support.js'
import { keyNumber, LONG, lockedKeys } from './contents.js'
import type { Contract } from './contract.js'

/** Finding locks, and ending the transactions that hold them. */
export function lockCases({ open, test, needing }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open()
  })

  describe('scan_lock', () => {
    test('by start_ts, range and limit, in key order', async () => {
      await store.prewrite(prewriteOf(10, [put('b'), put('d')]))
      await store.prewrite(prewriteOf(20, [put('a'), put('c')]))
      const scan = async (request: { maxTs: number; start?: Uint8Array; end?: Uint8Array; limit?: number }) =>
        (await store.scanLock(request)).locks.map(({ key }) => text(key))
      expect(await scan({ maxTs: 100 })).toEqual(['a', 'b', 'c', 'd'])
      expect(await scan({ maxTs: 10 })).toEqual(['b', 'd'])
      expect(await scan({ maxTs: 9 })).toEqual([])
      expect(await scan({ maxTs: 100, start: utf8('b'), end: utf8('d') })).toEqual(['b', 'c'])
      expect(await scan({ maxTs: 100, limit: 3 })).toEqual(['a', 'b', 'c'])
      expect(await scan({ maxTs: TIMESTAMP_MAX, limit: 1 })).toEqual(['a'])
    })
  })

  describe('resolve_lock', () => {
    const lockThree = () => store.prewrite(prewriteOf(10, [put('a'), put('b', LONG), put('c')]))

    test('without keys: every lock of each transaction', async () => {
      await lockThree()
      await store.prewrite(prewriteOf(20, [put('x'), put('y')]))
      await store.prewrite(prewriteOf(30, [put('z')]))
      const txns = [
        { startTs: 10, commitTs: 15 },
        { startTs: 20, commitTs: 0 },
        { startTs: 25, commitTs: 26 },
      ]
      expect(await store.resolveLock({ txns })).toEqual({ resolved: 5 })
      expect(await store.resolveLock({ txns })).toEqual({ resolved: 0 })
      expect(await read(store, 'b', 15)).toBe(LONG)
      expect(await read(store, 'x', 29)).toBeUndefined()
      expect(await lockedKeys(store)).toEqual(['z'])
    })

    test('with keys: those alone', async () => {
      await lockThree()
      const roll = (keys: string[], commitTs: number) =>
        store.resolveLock({ txns: [{ startTs: 10, commitTs }], keys: keys.map(utf8) })
      expect(await roll(['a', 'b'], 15)).toEqual({ resolved: 2 })
      expect(await codeOf(read(store, 'c', 20))).toBe('key_locked')
      expect(await roll(['c', 'b'], 15)).toEqual({ resolved: 1 })
      expect(await read(store, 'c', 20)).toBe('value of c')
    })

    test('a thousand locks of one transaction', async () => {
      await store.prewrite(
        prewriteOf(
          10,
          Array.from({ length: 1000 }, (_, i) => put(keyNumber(i))),
        ),
      )
      expect(await store.resolveLock({ txns: [{ startTs: 10, commitTs: 0 }] })).toEqual({ resolved: 1000 })
      expect(await lockedKeys(store)).toEqual([])
    })
  })

  needing('lockCount')('locks are counted', async () => {
    expect(store.locks?.count).toBe(0)
    await store.prewrite(prewriteOf(10, [put('a'), put('b')]))
    const lock = { keys: [utf8('c')], primary: utf8('c'), startTs: 20, forUpdateTs: 20, lockTtl: 3000 }
    await store.acquirePessimisticLock(lock)
    expect(store.locks?.count).toBe(3)
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 15 })
    await store.rollback({ keys: [utf8('b')], startTs: 10 })
    await store.pessimisticRollback(lock)
    expect(store.locks?.count).toBe(0)
  })

  needing('lockCount')('pessimistic locks are bounded: they cost a client no write', async () => {
    const bounded = await open({ locksMax: 2 })
    const acquire = (key: string) =>
      bounded.acquirePessimisticLock({
        keys: [utf8(key)],
        primary: utf8(key),
        startTs: 10,
        forUpdateTs: 10,
        lockTtl: 9,
      })
    await acquire('a')
    await acquire('b')
    expect(await codeOf(acquire('c'))).toBe('overloaded')
    await bounded.prewrite(prewriteOf(20, [put('d')]))
  })
}
