import { expect, test } from 'vitest'
import type { Database } from '../../../../src/database/database.js'
import type { Store } from '../../../../src/store/store.js'
import { Decisions } from '../../../../src/store/table/log/decisions.js'
import { FeedRow } from '../../../../src/store/table/log/feed-row.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import type { TableChangeLog } from '../../../../src/store/table/log/table-change-log.js'
import { timestampFromMs } from '../../../../src/timestamp.js'
import { text, utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'
import { PausableTable } from '../pausable-table.js'
import { checked, PlantedRows } from '../planted-rows.js'
import { databasesOn, inLeaps, severalDatabases } from '../several-databases.js'
import { changeLogOn } from './change-log-on.js'

/** As `severalDatabases` registers observers. */
const SPAN = timestampFromMs(20)

function changeLogOf(store: Store, table: MemoryTable, feed: FeedRow): TableChangeLog {
  const source = {
    get last() {
      return store.now()
    },
    next: async () => store.tso(1),
  }
  const end = async (): Promise<number> => 0
  const reader = new LogReader({ table, source, end })
  return changeLogOn(table, { source, feed, reader })
}

test('commits of all servers stand in logs once there is a reader, with all keys, and in none before', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [one, two] = databases as [Database, Database]
    const put = (database: Database, ...keys: string[]): Promise<unknown> => {
      const ops = keys.map((key) => ({ op: 'put' as const, key: utf8(key), value: utf8('v') }))
      return database.transact({ checks: [], ops, maxRetries: 10, lockWaitMs: 1000 })
    }
    await put(one, 'before')
    const feed = new FeedRow(table, SPAN)
    const log = changeLogOf(one.store, table, feed)
    await log.begin()
    const since = log.start
    while ((await one.store.tso(1)) <= since);
    await put(one, 'a', 'b')
    await put(two, 'c')
    const startTs = await two.store.tso(1)
    for (const key of ['raw', 'other'])
      await two.store.prewrite({
        mutations: [{ op: 'put', key: utf8(key), value: utf8('v') }],
        ...{ primary: utf8('raw'), startTs, lockTtl: 3000 },
      })
    await two.store.commit({ keys: [utf8('raw')], startTs, commitTs: await two.store.tso(1) })
    const newest = await two.store.tso(1)
    await expect.poll(() => log.resolve()).toBeGreaterThan(newest)
    const found: string[] = []
    for await (const { changes } of log.read({ since, upTo: newest }))
      for (const change of changes)
        found.push(`${change.type} ${text(change.key)} ${change.type === 'put' ? text(change.value ?? utf8('')) : ''}`)
    expect(found).toEqual(['put a v', 'put b v', 'put c v', 'put other v', 'put raw v'])
    expect((await checked(new PlantedRows(table))).findings).toEqual([])
    for (const database of databases) await database.close()
  })
})

test('a commit whose answer never came has the outcome that its primary tells, once it is ended', async () => {
  for (const onRecord of [0, 11, 12]) {
    const settled: boolean[] = []
    const log = {
      decide: async () => (isCommitted: boolean) => void settled.push(isCommitted),
      prepare: () => undefined,
      hold: async () => () => {},
      close: async () => {},
    }
    const ended = [new Error('away'), onRecord]
    const decisions = new Decisions({
      ...{ log, feed: { since: 1, before: () => undefined }, expiries: { put: async () => {} }, look: async () => 0 },
      end: async () => {
        const next = ended.length > 1 ? ended.shift() : onRecord
        if (next instanceof Error) throw next
        return onRecord
      },
    })
    const commit = { startTs: 10, commitTs: 11, primary: utf8('k'), keys: [utf8('k')] }
    const write = (): Promise<never> => Promise.reject(new Error('no answer'))
    await inLeaps(new MemoryTable(), async () => {
      await expect(decisions.around(commit, write)).rejects.toThrow('no answer')
      await expect.poll(() => settled).toEqual([onRecord === 11])
    })
  }
})

test('a commit whose primary was removed before anybody knew its outcome is told, where its other keys have it', {
  tags: ['long'],
}, async () => {
  const shared = new MemoryTable()
  const dying = new PausableTable(shared)
  await inLeaps(shared, async () => {
    const [dead, living] = (await databasesOn([dying, shared])) as [Database, Database]
    const { store } = living
    await store.log.begin()
    const since = await store.tso(1)
    const ops = ['p', 'q'].map((key) => ({ op: 'put' as const, key: utf8(key), value: utf8('v') }))
    await dead.transact({ checks: [], ops, maxRetries: 0, lockWaitMs: 0 })
    dying.pause() // The outcome never reaches its log.
    await store.deleteRange({ start: utf8('p'), end: utf8('p\0') })
    const newest = await store.tso(1)
    await expect.poll(() => store.log.resolve(), { timeout: 200_000, interval: 1000 }).toBeGreaterThan(newest)
    const found: string[] = []
    for await (const { changes } of store.log.read({ since, upTo: newest }))
      found.push(...changes.map(({ type, key }) => `${type} ${text(key)}`))
    expect(found).toEqual(['put q', 'delete_range p'])
    await living.close()
  })
})

test('a commit that is refused may have landed as a copy, which the records of all its keys tell', async () => {
  for (const onRecord of [0, 11, 12]) {
    const settled: boolean[] = []
    const looked: string[] = []
    const decisions = new Decisions({
      log: {
        decide: async () => (isCommitted: boolean) => void settled.push(isCommitted),
        prepare: () => undefined,
        hold: async () => () => {},
        close: async () => {},
      },
      ...{ feed: { since: 1, before: () => undefined }, expiries: { put: async () => {} }, end: async () => 0 },
      look: async (keys) => {
        looked.push(...keys.map(text))
        return onRecord
      },
    })
    const commit = { startTs: 10, commitTs: 11, primary: utf8('p'), keys: [utf8('p'), utf8('q')] }
    await decisions.around(commit, async () => ({ isWhole: false }))
    expect(settled).toEqual([onRecord === 11])
    expect(new Set(looked)).toEqual(new Set(['p', 'q']))
  }
})

test('a removal that has begun is finished, and is logged as done only then', async () => {
  const told: string[] = []
  const log = {
    decide: async ({ commitTs }: { readonly commitTs: number }) => {
      told.push(`decided at ${commitTs}`)
      return (isCommitted: boolean) => void told.push(`settled: ${isCommitted}`)
    },
    prepare: () => undefined,
    hold: async () => () => {},
    close: async () => {},
  }
  let tries = 0
  const decisions = new Decisions({
    ...{ log, feed: { since: 1, before: () => undefined }, expiries: { put: async () => {} }, look: async () => 0 },
    end: async ({ commitTs }) => {
      told.push('removed')
      if (++tries < 3) throw new Error('away')
      return commitTs
    },
  })
  await inLeaps(new MemoryTable(), async () => {
    await expect(decisions.remove({ start: utf8('a'), end: utf8('b') }, () => 7)).rejects.toThrow('away')
    await expect.poll(() => told).toEqual(['decided at 7', 'removed', 'removed', 'removed', 'settled: true'])
  })
})
