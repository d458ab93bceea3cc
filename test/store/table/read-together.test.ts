import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { codeOf, prewriteOf, put, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { databasesOn } from './several-databases.js'

test('keys that are read together without a timestamp are of one, and so pass no lock of who has its commit_ts', async () => {
  const [{ store }] = (await databasesOn([new MemoryTable()])) as [Database]
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('a')]))
  const commitTs = await store.tso(1)
  const laterTs = await store.tso(1)
  await store.prewrite(prewriteOf(laterTs, [put('b')]))
  await store.commit({ keys: [utf8('b')], startTs: laterTs, commitTs: await store.tso(1) })
  const keys = ['a', 'b'].map(utf8)
  expect(await codeOf(store.batchGet({ keys }))).toBe('key_locked')
  await store.commit({ keys: [utf8('a')], startTs, commitTs })
  expect((await store.batchGet({ keys })).pairs.map(({ key }) => key)).toEqual(keys)
})
