import { expect, test } from 'vitest'
import { collectGarbage } from '../../src/gc/collect-garbage.js'
import { codeOf, memoryStores, prewriteOf, put, read, utf8, write } from '../store/support.js'

const stores = memoryStores()

test('older locks are resolved first: rolled forward, or back, living ones too', async () => {
  const store = await stores.open()
  await store.prewrite(prewriteOf(5, [put('primary', '1'), put('secondary', '1')]))
  await store.commit({ keys: [utf8('primary')], startTs: 5, commitTs: 6 })
  await store.prewrite(prewriteOf(7, [put('alive', '1')], { lockTtl: 2 ** 40 }))
  await store.prewrite(prewriteOf(30, [put('younger', '1')], { lockTtl: 2 ** 40 }))
  expect(await collectGarbage(store, 20)).toEqual({ safePoint: 20, versionsRemoved: 1 }) // The rollback of `alive`.
  expect(await read(store, 'secondary', 20)).toBe('1')
  expect((await store.scanLock({ maxTs: 100 })).locks.map(({ startTs }) => startTs)).toEqual([30])
  expect(await codeOf(store.commit({ keys: [utf8('alive')], startTs: 7, commitTs: 40 }))).toBe('ts_below_safe_point')
})

test('locks whose primaries are no primaries are rolled back: nobody could say what became of them', async () => {
  const store = await stores.open()
  for (const [key, primary] of [
    ['a', 'b'],
    ['b', 'a'],
  ] as const)
    await store.prewrite({ ...prewriteOf(5, [put(key)]), primary: utf8(primary) })
  await store.prewrite({ ...prewriteOf(6, [put('c')]), primary: utf8('d') })
  expect(await collectGarbage(store, 20)).toMatchObject({ safePoint: 20 })
  expect(store.locks.count).toBe(0)
})

test('a safe point below the present one changes nothing', async () => {
  const store = await stores.open()
  await write(store, 5, 6, [put('a', 'old')])
  await write(store, 10, 11, [put('a', 'new')])
  await collectGarbage(store, 8)
  await store.prewrite(prewriteOf(8, [put('b')]))
  expect(await collectGarbage(store, 7)).toEqual({ safePoint: 8, versionsRemoved: 0 })
  expect(await read(store, 'a', 8)).toBe('old')
})

test('a transaction that started at the safe point is left whole', async () => {
  const store = await stores.open()
  const both = ['a', 'b'].map((key) => put(key, 'new'))
  await store.prewrite({ ...prewriteOf(20, [both[1] ?? put('b')]), primary: utf8('a') })
  await collectGarbage(store, 20)
  await store.prewrite({ ...prewriteOf(20, [both[0] ?? put('a')]), primary: utf8('a') })
  for (const key of ['a', 'b']) await store.commit({ keys: [utf8(key)], startTs: 20, commitTs: 25 })
  expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['new', 'new'])

  await store.rollback({ keys: [utf8('c')], startTs: 40 })
  await collectGarbage(store, 40)
  expect(await codeOf(store.prewrite(prewriteOf(40, [put('c')])))).toBe('write_conflict')
})

test('no transaction from below the safe point locks anything while its locks are looked for', async () => {
  const store = await stores.open()
  // Prewrites race with the collection; whichever wins, the transaction's two keys agree afterwards.
  for (let startTs = 10; startTs < 60; startTs++) {
    const [a, b] = [`${startTs}/a`, `${startTs}/b`]
    await store.prewrite({ ...prewriteOf(startTs, [put(b)]), primary: utf8(a) })
    const late = store.prewrite({ ...prewriteOf(startTs, [put(a)]), primary: utf8(a) }).then(
      () => store.commit({ keys: [utf8(a)], startTs, commitTs: startTs + 1000 }),
      () => undefined,
    )
    await Promise.all([late.catch(() => undefined), collectGarbage(store, startTs + 1)])
    await store.commit({ keys: [utf8(b)], startTs, commitTs: startTs + 1000 }).catch(() => undefined)
    expect([startTs, await read(store, a)]).toEqual([startTs, await read(store, b)])
  }
})
