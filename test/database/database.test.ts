import { describe, expect, test } from 'vitest'
import { Database } from '../../src/database/database.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { codeOf, failureOf, prewriteOf, put, TestClock, testStores, text, utf8, write } from '../store/support.js'

const stores = testStores()
const MINUTE = 60_000
const WHOLE = { start: undefined, end: undefined, reverse: false, keyOnly: false, lockWaitMs: 0 }

async function start() {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now })
  const database = await Database.open(store, {
    limits: DEFAULT_LIMITS,
    onError: (message, error) => {
      throw new Error(message, { cause: error })
    },
  })
  const write = (key: string, value: string) =>
    database.transact({
      checks: [],
      ops: [{ op: 'put', key: utf8(key), value: utf8(value) }],
      maxRetries: 0,
      lockWaitMs: 0,
    })
  return { clock, store, database, write }
}

/** Who holds back a collection of everything that was overwritten. */
async function holderOf(database: Database, clock: TestClock): Promise<string | undefined> {
  clock.ms += 1
  return (await database.collect({ safePoint: database.store.time.clock() })).heldBackBy
}

describe('a stream', () => {
  test('keeps its snapshot readable until it is released', async () => {
    const { clock, database, write } = await start()
    await write('a', '1')
    const { pages, release } = await database.stream({ ...WHOLE, limit: 10 })
    await write('a', '2')
    expect(await holderOf(database, clock)).toBe('pin')
    const values: string[] = []
    for await (const pairs of pages) for (const { value } of pairs) values.push(text(value ?? utf8('')))
    expect(values).toEqual(['1'])
    expect(await holderOf(database, clock)).toBe('pin') // The caller may still be sending the last page.
    release()
    expect(await holderOf(database, clock)).toBeUndefined()
  })

  test('that fails before its first page keeps nothing', async () => {
    const { clock, store, database } = await start()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('a')], { lockTtl: MINUTE }))
    expect(await codeOf(database.stream({ ...WHOLE, limit: 10 }))).toBe('key_locked')
    await store.rollback({ startTs, keys: [utf8('a')] })
    expect(await holderOf(database, clock)).toBeUndefined()
  })
})

test('a page, a count and a batch are of one snapshot that nothing holds afterwards', async () => {
  const { clock, database, write } = await start()
  for (const key of ['a', 'b', 'c']) await write(key, key)
  const { pairs, ts } = await database.scan({ ...WHOLE, limit: 2, bytesMax: 1000 })
  expect(pairs.map(({ key }) => text(key))).toEqual(['a', 'b'])
  await write('d', 'd')
  expect((await database.scan({ ...WHOLE, ts, after: utf8('b'), limit: 9, bytesMax: 1000 })).pairs).toHaveLength(1)
  expect([await database.count({ ...WHOLE, ts }), await database.count(WHOLE)]).toMatchObject([
    { count: 3, ts },
    { count: 4 },
  ])
  const keys = ['d', 'a', 'd', 'z'].map(utf8)
  expect((await database.batchGet({ keys, lockWaitMs: 0 })).pairs).toHaveLength(2)
  expect(await holderOf(database, clock)).toBeUndefined()
})

test('a read meets the lock of a dead transaction and resolves it', async () => {
  const { clock, store, database } = await start()
  await write(store, await store.tso(1), await store.tso(1), [put('a', 'old')])
  await store.prewrite(prewriteOf(await store.tso(1), [put('a', 'new')], { lockTtl: 10 }))
  clock.ms += 100
  const found = await database.get({ key: utf8('a'), ts: await store.tso(1) }, () => ({ lockWaitMs: 0 }))
  expect(found.found && text(found.value)).toBe('old')
})

describe('an interactive transaction', () => {
  const options = { mode: 'optimistic', isolation: 'snapshot', ttlMs: MINUTE } as const

  test('reads, writes under conditions, scans its own writes, and commits', async () => {
    const { database, write } = await start()
    await write('a', '1')
    const { transactions } = database
    const { txn, startTs } = await transactions.begin(options)
    const key = utf8('b')
    const absent = [{ key, exists: false }]
    await transactions.put(txn, { key, value: utf8('2'), checks: absent, lockWaitMs: 0 })
    const failure = await failureOf(transactions.delete(txn, { key, checks: absent, lockWaitMs: 0 }))
    expect(failure).toMatchObject({ code: 'precondition_failed', fields: { key, commitTs: 0 } })
    expect(await transactions.run(txn, [{ op: 'increment', key: utf8('a'), by: 4 }])).toEqual([{ value: utf8('5') }])
    const seen = await database.scan({ ...WHOLE, txn, limit: 10, bytesMax: 1000 })
    expect(seen.ts).toBe(startTs)
    expect(seen.pairs.map(({ value }) => text(value ?? utf8('')))).toEqual(['5', '2'])
    expect(await database.count(WHOLE)).toMatchObject({ count: 1 })
    const { commitTs } = (await transactions.commit(txn, undefined)).answer
    expect(commitTs).toBeGreaterThan(startTs)
    expect(await database.count(WHOLE)).toMatchObject({ count: 2 })
    expect(await codeOf(database.count({ ...WHOLE, txn }))).toBe('txn_not_found')
  })

  test('that is open when the database closes is rolled back, and the store is closed', async () => {
    const { database } = await start()
    const { transactions } = database
    const counted = (locks: number) => (database.store.traits.lockCount ? { locks } : {})
    const { txn } = await transactions.begin({ ...options, mode: 'pessimistic' })
    await transactions.put(txn, { key: utf8('a'), value: utf8('1'), lockWaitMs: 0 })
    expect(database.status()).toMatchObject({ ...counted(1), openTransactions: 1 })
    await database.close()
    expect(transactions.state(txn).state).toBe('rolled_back')
    expect(database.status()).toMatchObject({ ...counted(0), openTransactions: 0 })
    expect(await codeOf(database.count(WHOLE))).toBe('storage_unavailable')
  })
})
