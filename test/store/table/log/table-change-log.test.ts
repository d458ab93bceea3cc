import { expect, test, vi } from 'vitest'
import type { Database } from '../../../../src/database/database.js'
import type { PrewriteMutation } from '../../../../src/percolator/api.js'
import type { ChangePage } from '../../../../src/store/change-log.js'
import type { Store } from '../../../../src/store/store.js'
import { FeedRow } from '../../../../src/store/table/log/feed-row.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import { type Timestamp, timestampFromMs } from '../../../../src/timestamp.js'
import { asText, type ReadChange } from '../../suite/change-readings.js'
import { put, text, utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'
import { inLeaps, severalDatabases } from '../several-databases.js'
import { changeLogOn } from './change-log-on.js'

/** Runs `body` on one server, once there is a feed. @param body gets the timestamp at which it begins. */
function onFeed(body: (store: Store, since: Timestamp) => Promise<void>): Promise<void> {
  const table = new MemoryTable()
  return inLeaps(table, async () => {
    const [database] = (await severalDatabases(table, 1)) as [Database]
    await database.store.log.begin()
    await body(database.store, await database.store.tso(1))
    await database.close()
  })
}

/** Commits the keys named last; the others keep their locks. */
async function commit(
  store: Store,
  mutations: readonly PrewriteMutation[],
  keys: readonly string[] = mutations.map(({ key }) => text(key)),
): Promise<Timestamp> {
  const startTs = await store.tso(1)
  const primary = mutations[0]?.key ?? utf8('')
  const txnKeys = mutations.map(({ key }) => key)
  await store.prewrite({ mutations, primary, startTs, lockTtl: 3000, txnSize: mutations.length })
  const commitTs = await store.tso(1)
  await store.commit({ keys: keys.map(utf8), startTs, commitTs, primary, txnKeys })
  return commitTs
}

async function pagesUpTo(store: Store, since: Timestamp, ts: Timestamp): Promise<ChangePage[]> {
  await expect.poll(() => store.log.resolve(), { interval: 100, timeout: 60_000 }).toBeGreaterThanOrEqual(ts)
  const pages: ChangePage[] = []
  for await (const page of store.log.read({ since, upTo: ts })) pages.push(page)
  expect(pages.at(-1)?.upTo).toBe(ts)
  return pages
}

async function changesUpTo(store: Store, since: Timestamp, ts: Timestamp): Promise<ReadChange[]> {
  return (await pagesUpTo(store, since, ts)).flatMap(({ changes }) => changes.map(asText))
}

test('pages of long values are bounded in bytes, and have all of them', async () => {
  await onFeed(async (store, since) => {
    const keys = Array.from({ length: 300 }, (_, i) => `k${String(i).padStart(3, '0')}`)
    const value = (key: string): string => key.repeat(5000)
    const ts = await commit(
      store,
      keys.map((key, i) => put(key, i < 200 ? value(key) : key)),
    )
    const pages = await pagesUpTo(store, since, ts)
    const sizes = pages.map(({ changes }) =>
      changes.reduce((sum, change) => sum + (change.type === 'put' ? (change.value?.length ?? 0) : 0), 0),
    )
    expect(Math.max(...sizes)).toBeLessThanOrEqual(2 ** 20 + 33 * value('k000').length)
    const found = pages.flatMap(({ changes }) => changes.map(asText))
    expect(found.map((change) => change.value)).toEqual(keys.map((key, i) => (i < 200 ? value(key) : key)))
    const bare: string[] = []
    for await (const { changes } of store.log.read({ since, upTo: ts, keysOnly: true }))
      for (const change of changes) bare.push(`${text(change.key)} ${'value' in change}`)
    expect(bare).toEqual(keys.map((key) => `${key} false`))
  })
})

test('a version that had expired when it was committed expires behind all commits of its timestamp', async () => {
  await onFeed(async (store, since) => {
    const expireTs = await store.tso(1)
    const ts = await commit(store, [{ ...put('a', '1'), expireTs }, put('b', '2')])
    expect((await changesUpTo(store, since, ts)).map(({ type, key, commitTs }) => [type, key, commitTs])).toEqual([
      ['put', 'a', ts],
      ['put', 'b', ts],
      ['expire', 'a', ts],
    ])
  })
})

test('readers are told of the keys that a commit names anywhere, and of all if these are fewer than txn_size', async () => {
  await onFeed(async (store, since) => {
    const named = [
      { keys: ['a', 'b'], txnKeys: ['a'] },
      { keys: ['a'], txnKeys: ['b'] },
      { keys: ['a'], txnKeys: ['b'], txnSize: 2 },
      { keys: ['a'], txnKeys: ['a'], txnSize: 2 },
      { keys: ['a', 'b'], txnSize: 2 },
      { keys: ['a'] },
    ]
    const expected: string[] = []
    let commitTs = 0
    for (const { keys, txnKeys, txnSize } of named) {
      const startTs = await store.tso(1)
      const primary = utf8('a')
      await store.prewrite({ mutations: [put('a', '1'), put('b', '1')], primary, startTs, lockTtl: 3000, txnSize })
      commitTs = await store.tso(1)
      await store.commit({ keys: keys.map(utf8), txnKeys: txnKeys?.map(utf8), startTs, commitTs })
      await store.resolveLock({ txns: [{ startTs, commitTs }] })
      expected.push(`a ${commitTs}`, `b ${commitTs}`)
    }
    const found = await changesUpTo(store, since, commitTs)
    expect(found.map(({ key, commitTs }) => `${key} ${commitTs}`)).toEqual(expected)
  })
})

test('a commit tells nothing of another transaction with its start_ts, whatever keys it names', async () => {
  await onFeed(async (store, since) => {
    let from = since
    for (const isNamed of [true, false]) {
      const startTs = await store.tso(1)
      for (const key of ['a', 'b', 'c'])
        await store.prewrite({ mutations: [put(key, '1')], primary: utf8(key), startTs, lockTtl: 600_000 })
      const before = await store.tso(1)
      await store.commit({ keys: [utf8('b')], startTs, commitTs: before })
      const commitTs = await store.tso(1)
      const txnKeys = isNamed ? { txnKeys: ['b', 'c'].map(utf8) } : {}
      await store.commit({ keys: [utf8('a')], ...txnKeys, startTs, commitTs })
      const found = await changesUpTo(store, from, commitTs)
      expect(found.map(({ key, commitTs }) => [key, commitTs])).toEqual([
        ['b', before],
        ['a', commitTs],
      ])
      await store.rollback({ keys: [utf8('c')], startTs })
      from = commitTs
    }
  })
})

test('resolve_lock without keys commits the primary first, and readers are told of all keys', {
  tags: ['long'],
}, async () => {
  await onFeed(async (store, since) => {
    const startTs = await store.tso(1)
    const keys = Array.from({ length: 300 }, (_, i) => `k${String(i).padStart(3, '0')}`)
    const mutations = keys.map((key) => put(key, 'v'))
    await store.prewrite({ mutations, primary: utf8('k299'), startTs, lockTtl: 3000, txnSize: keys.length })
    const refused = { txns: [{ startTs, commitTs: startTs + 1 }] }
    await expect.poll(() => store.log.resolve(), { interval: 100, timeout: 60_000 }).toBeGreaterThan(startTs)
    await expect(store.resolveLock(refused)).rejects.toMatchObject({ code: 'commit_ts_expired' })
    expect((await store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })).locks).toHaveLength(keys.length)
    const commitTs = await store.tso(1)
    await store.resolveLock({ txns: [{ startTs, commitTs }] })
    expect((await changesUpTo(store, since, commitTs)).map(({ key }) => key)).toEqual(keys)
  })
})

test('keys that are still locked are told with their transaction, and expire', async () => {
  await onFeed(async (store, since) => {
    const expireTs = (await store.tso(1)) + timestampFromMs(1000)
    const kept = await commit(store, [{ ...put('b', '0'), expireTs }])
    const mutations = [put('a', '1'), { ...put('b', '1'), expireTs: expireTs + 1 }, { ...put('c', '1'), expireTs }]
    const ts = await commit(store, mutations, ['a'])
    expect((await store.scanLock({ maxTs: Number.MAX_SAFE_INTEGER })).locks).toHaveLength(2)
    expect(
      (await changesUpTo(store, since, expireTs + 1)).map(({ type, key, commitTs }) => [type, key, commitTs]),
    ).toEqual([
      ['put', 'b', kept],
      ['put', 'a', ts],
      ['put', 'b', ts],
      ['put', 'c', ts],
      ['expire', 'c', expireTs],
      ['expire', 'b', expireTs + 1],
    ])
  })
})

class RisingReader extends LogReader {
  #polls = 0

  override get resolved(): Timestamp {
    return this.#polls < 4 ? 5 : 10
  }
  override async poll(): Promise<Timestamp> {
    this.#polls++
    return this.resolved
  }
}

test('a timestamp that another server has resolved is waited for, and one of the future not for ever', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  try {
    const table = new MemoryTable()
    const source = { last: 20, next: async () => 20 }
    const reader = new RisingReader({ table, source, end: async () => 0 })
    const log = changeLogOn(table, { source, reader, feed: new FeedRow(table, 1) })
    const told = log.resolve(10)
    await vi.advanceTimersByTimeAsync(1000)
    expect(await told).toBe(10)
    const future = log.resolve(11)
    await vi.advanceTimersByTimeAsync(2000)
    expect(await future).toBe(10)
  } finally {
    vi.useRealTimers()
  }
})
