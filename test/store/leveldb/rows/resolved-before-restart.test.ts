import { expect, test } from 'vitest'
import { codeOf, makeDirectory, prewriteOf, put, testStores, utf8, write } from '../../support.js'

const stores = testStores()

test('nothing commits at or below what resolved_ts was before a restart, and it does not fall', async () => {
  const directory = await makeDirectory()
  const before = await stores.open({ directory })
  await before.log.begin()
  const [startTs, tooEarly] = [await before.tso(1), await before.tso(1)]
  const resolved = before.log.resolve()
  expect(resolved).toBeGreaterThanOrEqual(tooEarly)
  await before.close()

  const store = await stores.open({ directory })
  await store.prewrite(prewriteOf(startTs, [put('k')]))
  expect(store.log.resolve()).toBeGreaterThanOrEqual(resolved)
  expect(await codeOf(store.commit({ keys: [utf8('k')], startTs, commitTs: tooEarly }))).toBe('commit_ts_expired')
  await store.commit({ keys: [utf8('k')], startTs, commitTs: await store.tso(1) })
  await store.close()
})

test('timestamps of before the last start are legal while nobody reads a feed', async () => {
  const directory = await makeDirectory()
  const before = await stores.open({ directory })
  await before.tso(1)
  await before.close()
  const store = await stores.open({ directory })
  await write(store, 10, 20, [put('k', 'v')])
  expect(await store.get({ key: utf8('k'), ts: 20 })).toMatchObject({ found: true })
})
