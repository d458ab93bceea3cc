import { describe, expect, test } from 'vitest'
import type { Db } from '../../src/client/db.js'
import { isUncertain } from '../../src/coordinator/uncertain.js'
import { failureOf } from '../coordinator/support.js'
import { BACKENDS, testDbs } from './backends.js'

const TIMED = { lockWaitMs: 60_000, timeoutMs: 30 }
const CALLS: Readonly<Record<string, (db: Db) => Promise<unknown>>> = {
  batchGet: (db) => db.batchGet(['b'], TIMED),
  scan: async (db) => {
    for await (const _ of db.scan({ prefix: 'b', ...TIMED }));
  },
  'scan of a snapshot': async (db) => {
    for await (const _ of (await db.snapshot(undefined, TIMED)).scan({ prefix: 'b' }));
  },
  'get of a snapshot': async (db) => (await db.snapshot(undefined, TIMED)).get('b'),
  'count of a snapshot': async (db) => (await db.snapshot(undefined, TIMED)).count({ prefix: 'b' }),
  begin: async (db) => (await db.begin(TIMED)).get('b'),
  count: (db) => db.count({ prefix: 'b', ...TIMED }),
  countAsOf: (db) => db.countAsOf({ prefix: 'b', ...TIMED }),
  put: (db) => db.put('b', 'late', TIMED),
  delete: (db) => db.delete('b', TIMED),
  transaction: (db) =>
    db.transaction(async (txn) => {
      await txn.get('b')
      await txn.put('b', 'late')
    }, TIMED),
  'pessimistic transaction': (db) => db.transaction((txn) => txn.put('b', 'late'), { ...TIMED, mode: 'pessimistic' }),
}

describe.each(BACKENDS)('timeoutMs, $backend', ({ openDb }) => {
  const start = testDbs(openDb)

  test.each(Object.keys(CALLS))('%s: gives up, and nothing was written', async (name) => {
    const { db, store } = await start()
    await db.put('b', 'before')
    const key = new TextEncoder().encode('b')
    const startTs = await store.tso(1)
    await store.prewrite({ mutations: [{ op: 'put', key, value: key }], primary: key, startTs, lockTtl: 60_000 })
    const failure = await failureOf((CALLS[name] as (db: Db) => Promise<unknown>)(db))
    expect(failure).toMatchObject({ name: 'KvError', code: 'deadline_exceeded' })
    expect(isUncertain(failure)).toBe(false)
    await store.rollback({ keys: [key], startTs })
    expect(await db.get('b', { timeoutMs: 60_000 })).toBe('before')
    expect(await db.transaction((txn) => txn.get('b'), { timeoutMs: 60_000 })).toBe('before')
  })

  test('a transaction of begin is refused its commit when its time is over, and needs no more time when it is committed', {
    tags: ['long'],
  }, async () => {
    const { db } = await start()
    const late = await db.begin({ timeoutMs: 2000 })
    await late.put('b', 'late')
    await new Promise((resolve) => setTimeout(resolve, 2050))
    expect(await failureOf(late.get('c'))).toMatchObject({ code: 'deadline_exceeded' })
    expect(await failureOf(late.commit())).toMatchObject({ code: 'deadline_exceeded' })
    const soon = await db.begin({ timeoutMs: 60_000 })
    await soon.put('b', 'soon')
    await soon.commit()
    expect(await db.get('b')).toBe('soon')
  })

  test('a value that no server would take is refused', async () => {
    const { db } = await start()
    for (const timeoutMs of [0, 1.5, 600_001, Number.POSITIVE_INFINITY])
      expect(await failureOf(db.get('b', { timeoutMs }))).toBeInstanceOf(TypeError)
  })
})
