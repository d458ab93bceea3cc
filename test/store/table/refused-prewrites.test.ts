import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import type { Store } from '../../../src/store/store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { codeOf, prewriteOf, put, read, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { databasesOn } from './several-databases.js'
import { WatchedTable } from './watched-table.js'

const KEYS = ['a', 'b']

type Act = (other: Store, startTs: Timestamp, blockingTs: Timestamp) => Promise<unknown>

/**
 * The prewrite of a transaction that locks `a`, loses the race for `b` to another transaction, and takes back its lock on `a`.
 * @param acts what happens elsewhere when it has lost the race, and when it knows that it is refused.
 */
async function refused(acts: { readonly lost?: Act; readonly refused?: Act }) {
  const table = new MemoryTable()
  const own = new WatchedTable(table)
  const [{ store }, { store: other }] = (await databasesOn([own, table])) as [Database, Database]
  const [blockingTs, startTs] = [await store.tso(1), await store.tso(1)]
  let changesOfA = 0
  own.onChange = async (key) => {
    if (key.equals(utf8('a')) && ++changesOfA === 2) await acts.refused?.(other, startTs, blockingTs)
    if (!key.equals(utf8('b'))) return
    await other.prewrite(prewriteOf(blockingTs, [put('b')]))
    own.onRows = async () => {
      own.onRows = async () => {}
      await acts.lost?.(other, startTs, blockingTs)
    }
  }
  const code = await codeOf(store.prewrite(prewriteOf(startTs, [put('a'), put('b')])))
  return { other, startTs, code }
}

test('a refused prewrite leaves the lock that another transaction has put in place of its own', async () => {
  let laterTs = 0
  const { other, code } = await refused({
    lost: async (other, startTs) => {
      await other.rollback({ keys: [utf8('a')], startTs })
      laterTs = await other.tso(1)
      await other.prewrite(prewriteOf(laterTs, [put('a', 'later')]))
    },
  })
  expect(code).toBe('storage_unavailable')
  await other.commit({ keys: [utf8('a')], startTs: laterTs, commitTs: await other.tso(1) })
  expect(await read(other, 'a', await other.tso(1))).toBe('later')
})

test('a refused prewrite leaves the lock that a copy of it has found, and counts on', async () => {
  const { other, startTs, code } = await refused({
    refused: async (other, startTs, blockingTs) => {
      await other.rollback({ keys: [utf8('b')], startTs: blockingTs })
      await other.prewrite(prewriteOf(startTs, [put('a'), put('b')]))
    },
  })
  expect(code).toBe('storage_unavailable')
  await other.commit({ keys: KEYS.map(utf8), startTs, commitTs: await other.tso(1) })
  for (const key of KEYS) expect(await read(other, key, await other.tso(1))).toBe(`value of ${key}`)
})
