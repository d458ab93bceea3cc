import { beforeEach, describe, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { codeOf, del, failureOf, prewriteOf, put, read, utf8, write } from '../support.js'
import { keyNumber, LONG, lockedKeys, longValuesOf, versionsOf } from './contents.js'
import type { Contract } from './contract.js'

/** The safe point, garbage collection, and delete_range. */
export function collectionCases(contract: Contract): void {
  const { open, test, needing } = contract
  let store: Store
  beforeEach(async () => {
    store = await open()
  })

  test('collect keeps what readers at the safe point see, and nothing below', async () => {
    await write(store, 5, 6, [put('a', LONG), put('gone', LONG), put('b', '1')])
    await write(store, 10, 11, [put('a', LONG), del('gone')])
    await store.rollback({ keys: [utf8('a')], startTs: 15 })
    await write(store, 30, 31, [put('a', 'new')])
    expect(await store.upkeep.collect(20)).toBe(4) // a at 6 and its rollback, and both of `gone`.
    expect(await versionsOf(store, 'a')).toEqual([31, 11])
    expect(await longValuesOf(store, 'a')).toEqual([10])
    expect(await store.mvccGetByKey({ key: utf8('gone') })).toEqual({ lock: null, writes: [], values: [] })
    expect(await read(store, 'a', 20)).toBe(LONG)
    expect(await read(store, 'b', 20)).toBe('1')
    expect(await read(store, 'a')).toBe('new')
  })

  test('below the safe point nothing is read, prewritten or committed', async () => {
    await store.prewrite(prewriteOf(15, [put('c')]))
    await store.upkeep.collect(20)
    expect(store.safePoint).toBe(20)
    expect(await codeOf(read(store, 'a', 19))).toBe('ts_below_safe_point')
    expect(await codeOf(store.batchGet({ keys: [utf8('a')], ts: 19 }))).toBe('ts_below_safe_point')
    expect(await codeOf(store.scan({ limit: 1, ts: 19 }))).toBe('ts_below_safe_point')
    expect(await codeOf(store.prewrite(prewriteOf(19, [put('a')])))).toBe('ts_below_safe_point')
    expect(await codeOf(store.commit({ keys: [utf8('c')], startTs: 15, commitTs: 25 }))).toBe('ts_below_safe_point')
    expect(await failureOf(store.get({ key: utf8('a'), ts: 19 }))).toMatchObject({ fields: { safePoint: 20 } })
    expect(await read(store, 'a', 20)).toBeUndefined()
    await store.prewrite(prewriteOf(20, [put('a')]))
  })

  needing('places')('the safe point stays over a restart', async () => {
    const place = await contract.place()
    const first = await open({ place })
    await first.upkeep.collect(20)
    await first.close()
    const again = await open({ place })
    expect(again.safePoint).toBe(20)
    expect(await codeOf(read(again, 'a', 19))).toBe('ts_below_safe_point')
  })

  const ORDERS: readonly (readonly [name: string, collect: (each: Store) => Promise<unknown>])[] = [
    ['one after another', async (each) => [await each.upkeep.collect(50), await each.upkeep.collect(20)]],
    ['at once', (each) => Promise.all([each.upkeep.collect(50), each.upkeep.collect(20)])],
  ]
  for (const [name, collect] of ORDERS)
    test(`a lower safe point, ${name}, never lowers it`, async () => {
      await write(store, 5, 6, [put('a', 'old')])
      await write(store, 40, 41, [put('a', 'new')])
      await collect(store)
      expect(store.safePoint).toBe(50)
      // The version at 6 is gone: a read at 30 would wrongly say that the key was absent.
      expect(await codeOf(read(store, 'a', 30))).toBe('ts_below_safe_point')
      expect(await store.upkeep.raiseSafePoint(40)).toBe(50)
    })

  for (const [name, collect] of ORDERS)
    needing('places')(`a lower safe point, ${name}, never lowers it over a restart`, async () => {
      const place = await contract.place()
      const first = await open({ place })
      await collect(first)
      await first.close()
      expect((await open({ place })).safePoint).toBe(50)
    })

  test('collect over thousands of keys and versions', { tags: ['long'] }, async () => {
    const keys = Array.from({ length: 2000 }, (_, i) => `a/key/of/the/usual/length/${keyNumber(i)}`)
    for (const startTs of [5, 15, 25])
      await write(
        store,
        startTs,
        startTs + 1,
        keys.map((key) => put(key, 'x'.repeat(300))),
      )
    for (let i = 0; i < 300; i++) await write(store, 30 + 2 * i, 31 + 2 * i, [put('hot', LONG)])
    expect(await store.upkeep.collect(1000)).toBe(2 * 2000 + 299)
    expect(await versionsOf(store, 'hot')).toHaveLength(1)
    expect(await longValuesOf(store, 'hot')).toHaveLength(1)
    expect((await store.scan({ ts: 1000, limit: 10_000 })).pairs).toHaveLength(2001)
    expect(await store.upkeep.collect(1000)).toBe(0)
  })

  test('a history longer than a step goes in parts, its delete last', { tags: ['long'] }, async () => {
    const allVersionsOf = async (keys: string[]) => Promise.all(keys.map((key) => versionsOf(store, key)))
    const value = 'x'.repeat(300)
    for (let i = 0; i < 1300; i++)
      await write(store, 10 + 2 * i, 11 + 2 * i, [put('deleted', value), put('kept', value), put('later', value)])
    await write(store, 4000, 4001, [del('deleted')])
    await write(store, 6000, 6001, [put('later', 'new')])
    await write(store, 5, 6, [put('a', '1'), put('z', '1')])
    await write(store, 7, 8, [put('a', '2'), put('z', '2')])
    expect(await store.upkeep.collect(5000)).toBe(2 + 1301 + 1299 + 1299)
    expect(await allVersionsOf(['a', 'deleted', 'kept', 'z'])).toEqual([[8], [], [expect.any(Number)], [8]])
    expect(await versionsOf(store, 'later')).toEqual([6001, expect.any(Number)])
    expect(await read(store, 'kept', 5000)).toBe(value)
    expect(await read(store, 'later', 5000)).toBe(value)
  })

  test('a collection that is ended goes on from the start the next time', { tags: ['long'] }, async () => {
    const keys = Array.from({ length: 1000 }, (_, i) => keyNumber(i))
    for (const startTs of [5, 15])
      await write(
        store,
        startTs,
        startTs + 1,
        keys.map((key) => put(key)),
      )
    const abort = new AbortController()
    const pace = { pause: async () => abort.abort(), signal: abort.signal }
    const first = await store.upkeep.collect(20, pace)
    expect(first).toBeGreaterThan(0)
    expect(first).toBeLessThan(1000)
    expect(await store.upkeep.collect(20)).toBe(1000 - first)
  })

  test('delete_range removes every version, value and lock in it, and nothing else', async () => {
    for (const startTs of [5, 15])
      await write(
        store,
        startTs,
        startTs + 1,
        ['a', 'b', 'bb', 'c'].map((key) => put(key, LONG)),
      )
    await store.prewrite(prewriteOf(20, [put('b', LONG), put('bx'), put('c')]))
    await store.deleteRange({ start: utf8('b'), end: utf8('c') })
    const nothing = { lock: null, writes: [], values: [] }
    for (const key of ['b', 'bb', 'bx']) expect(await store.mvccGetByKey({ key: utf8(key) })).toEqual(nothing)
    expect(await versionsOf(store, 'a')).toEqual([16, 6])
    expect(await versionsOf(store, 'c')).toEqual([20, 16, 6]) // With the Rollback record of the transaction, whose primary is gone.
    expect(await lockedKeys(store)).toEqual([])
    expect(await read(store, 'b', 100)).toBeUndefined()
  })

  test('delete_range of thousands of keys, some with many long values', { tags: ['long'] }, async () => {
    const keys = Array.from({ length: 2000 }, (_, i) => keyNumber(i))
    await write(
      store,
      5,
      6,
      keys.map((key) => put(key, 'x'.repeat(300))),
    )
    for (let i = 0; i < 100; i++) await write(store, 10 + 2 * i, 11 + 2 * i, [put('key0', LONG)])
    await store.deleteRange({ start: utf8('key'), end: utf8('key~') })
    expect((await store.scan({ ts: 1000, limit: 10_000 })).pairs).toEqual([])
    expect(await store.mvccGetByKey({ key: utf8('key0') })).toEqual({ lock: null, writes: [], values: [] })
    expect(await store.mvccGetByKey({ key: utf8(keyNumber(1999)) })).toEqual({ lock: null, writes: [], values: [] })
  })

  const dropping = { start: utf8('drop'), end: utf8('drop~') }
  /** The end of the transaction with these keys: of its locks and what it has written outside of the range. */
  const endOf = async (...keys: readonly string[]) => ({
    locks: await lockedKeys(store),
    values: await Promise.all(keys.map((key) => read(store, key, TIMESTAMP_MAX))),
  })
  const both = [put('drop'), put('keep', 'new'), put('kept', 'new')]
  const written = { locks: [], values: ['new', 'new'] }
  const rolledBack = { locks: [], values: [undefined, undefined] }

  describe('delete_range first ends the transactions of its keys, on all of theirs:', () => {
    for (const primary of ['drop', 'keep'])
      test(`one that has committed its primary ${primary}`, async () => {
        await store.prewrite(prewriteOf(10, both, { primary: utf8(primary), lockTtl: 60_000 }))
        await store.commit({ keys: [utf8(primary)], startTs: 10, commitTs: 20 })
        await store.deleteRange(dropping)
        expect(await endOf('keep', 'kept')).toEqual(written)
        expect(await store.mvccGetByKey({ key: utf8('drop') })).toEqual({ lock: null, writes: [], values: [] })
      })

    for (const primary of ['drop', 'keep'])
      test(`one that has not, and lives; its primary is ${primary}`, async () => {
        const request = prewriteOf(10, both, { primary: utf8(primary), lockTtl: 60_000 })
        await store.prewrite(request)
        await store.deleteRange(dropping)
        expect(await endOf('keep', 'kept')).toEqual(rolledBack)
        expect(await codeOf(store.commit({ keys: [utf8(primary)], startTs: 10, commitTs: 20 }))).toBe(
          'txn_lock_not_found',
        )
        expect(await codeOf(store.prewrite(request))).toBe('write_conflict')
      })

    test('one that was rolled back at its primary in the range', async () => {
      await store.prewrite(prewriteOf(10, both, { lockTtl: 60_000 }))
      await store.rollback({ keys: [utf8('drop')], startTs: 10 })
      await store.deleteRange(dropping)
      expect(await endOf('keep', 'kept')).toEqual(rolledBack)
    })

    for (const primary of ['drop', 'keep'])
      test(`one with pessimistic locks; its primary is ${primary}`, async () => {
        const locking = { startTs: 10, forUpdateTs: 10, lockTtl: 60_000 }
        for (const key of ['drop', 'keep'])
          await store.acquirePessimisticLock({ keys: [utf8(key)], primary: utf8(primary), ...locking })
        await store.deleteRange(dropping)
        expect(await lockedKeys(store)).toEqual([])
        const late = prewriteOf(10, [put('keep', 'new')], { forUpdateTs: 10, pessimisticActions: ['do'] })
        expect(await codeOf(store.prewrite({ ...late, primary: utf8(primary) }))).toBe('pessimistic_lock_not_found')
      })

    needing('asyncCommit')('one that async commit has committed', async () => {
      const secondaries = [utf8('drop'), utf8('kept')]
      const primary = utf8('keep')
      const request = prewriteOf(10, both, { primary, secondaries, useAsyncCommit: true, lockTtl: 60_000 })
      expect(await store.prewrite(request)).toEqual({ minCommitTs: expect.any(Number) })
      await store.deleteRange(dropping)
      expect(await endOf('keep', 'kept')).toEqual(written)
    })

    needing('asyncCommit')('one that has finished its commit in the range alone', async () => {
      const secondaries = [utf8('drop'), utf8('kept')]
      const primary = utf8('keep')
      const request = prewriteOf(10, both, { primary, secondaries, useAsyncCommit: true, lockTtl: 60_000 })
      const { minCommitTs = 0 } = await store.prewrite(request)
      await store.commit({ keys: [utf8('drop')], startTs: 10, commitTs: minCommitTs })
      await store.deleteRange(dropping)
      expect(await endOf('keep', 'kept')).toEqual(written)
    })

    test('no others', async () => {
      await store.prewrite(prewriteOf(10, [put('drop~'), put('keep')], { lockTtl: 60_000 }))
      await store.deleteRange(dropping)
      expect(await lockedKeys(store)).toEqual(['drop~', 'keep'])
    })
  })

  test('what commits while delete_range runs stays outside of the range', async () => {
    const acknowledged: string[] = []
    const client = async (i: number): Promise<void> => {
      for (let round = 0; round < 5; round++) {
        const [drop, keep] = [`drop/${i}/${round}`, `keep/${i}/${round}`]
        const primary = utf8(round % 2 === 0 ? drop : keep)
        const secondary = utf8(round % 2 === 0 ? keep : drop)
        const isAsync = round % 2 === 1 && store.traits.asyncCommit
        const startTs = await store.tso(1)
        const kind = isAsync ? { useAsyncCommit: true, secondaries: [secondary] } : {}
        try {
          await store.prewrite(
            prewriteOf(startTs, [put(drop), put(keep, 'new')], { primary, lockTtl: 60_000, ...kind }),
          )
          if (!isAsync) await store.commit({ keys: [primary], startTs, commitTs: await store.tso(1) })
          acknowledged.push(keep)
        } catch (error) {
          expect(error).toMatchObject({
            code: expect.stringMatching(/^(txn_lock_not_found|write_conflict|key_locked)$/),
          })
        }
      }
    }
    let isOver = false
    const deleting = async (): Promise<void> => {
      while (!isOver) await store.deleteRange(dropping)
    }
    const clients = Promise.all(Array.from({ length: 8 }, (_, i) => client(i))).finally(() => {
      isOver = true
    })
    await Promise.all([clients, deleting()])
    await store.deleteRange(dropping)
    expect(acknowledged.length).toBeGreaterThan(0)
    const values = await Promise.all(acknowledged.map((key) => read(store, key, TIMESTAMP_MAX)))
    expect(values).toEqual(acknowledged.map(() => 'new'))
  })
}
