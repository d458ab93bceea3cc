import { afterEach, expect, test, vi } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { isKvError } from '../../../src/errors/kv-error.js'
import type { WaitForEntry } from '../../../src/errors/registry.js'
import type { AcquirePessimisticLockRequest } from '../../../src/percolator/api.js'
import type { Store } from '../../../src/store/store.js'
import type { ReportToLeader } from '../../../src/store/table/waits/report-to-leader.js'
import type { WaitReport } from '../../../src/store/table/waits/wait-report.js'
import { WaitReports } from '../../../src/store/table/waits/wait-reports.js'
import { codeOf, failureOf, prewriteOf, put, utf8, watch } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const WAIT_MS = 60_000

const acquire = (store: Store, startTs: number, key: string, rest: Partial<AcquirePessimisticLockRequest> = {}) =>
  store.acquirePessimisticLock({
    keys: [utf8(key)],
    primary: utf8(key),
    startTs,
    forUpdateTs: startTs,
    lockTtl: WAIT_MS,
    waitTimeout: WAIT_MS,
    ...rest,
  })

/** Server `i` runs a transaction that holds key `i`, and asks for the next one's. */
async function circleOf(count: number): Promise<void> {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, count)
    const keys = databases.map((_, i) => utf8(`k${i}`))
    const begun = await Promise.all(
      databases.map(async ({ transactions }) =>
        transactions.begin({ mode: 'pessimistic', isolation: 'snapshot', ttlMs: WAIT_MS }),
      ),
    )
    const write = (i: number, at: number) => {
      const { transactions } = databases[i] as Database
      const request = { key: keys[at] as Uint8Array, value: utf8(`${i}`), lockWaitMs: WAIT_MS }
      return transactions.put(begun[i]?.txn ?? '', request)
    }
    await Promise.all(keys.map((_, i) => write(i, i)))
    const outcomes = await Promise.all(
      keys.map(async (_, i) => {
        const { transactions } = databases[i] as Database
        const txn = begun[i]?.txn ?? ''
        try {
          await write(i, (i + 1) % count)
          await transactions.commit(txn, undefined)
          return 'committed'
        } catch (error) {
          if (!isKvError(error, 'deadlock')) throw error
          const { lockTs, lockKey, waitChain } = error.fields
          expect({ lockTs, lockKey }).toEqual({
            lockTs: begun[(i + 1) % count]?.startTs,
            lockKey: keys[(i + 1) % count],
          })
          expect(waitChain.map(({ txn: each }) => each)).toEqual(
            keys.map((_, step) => begun[(i + 1 + step) % count]?.startTs),
          )
          await transactions.rollback(txn)
          return 'deadlock'
        }
      }),
    )
    expect(outcomes.sort()).toEqual([...Array.from({ length: count - 1 }, () => 'committed'), 'deadlock'])
    for (const database of databases) await database.close()
  })
}

test.each([2, 3, 5])('a circle over %i servers: one is refused, the others commit', async (count) => {
  for (let i = 0; i < 5; i++) await circleOf(count)
})

const stores: Store[] = []
afterEach(async () => {
  vi.useRealTimers()
  for (const store of stores.splice(0)) await store.close()
})

/** One store, whose leader is the test. */
async function openWith(send: ReportToLeader): Promise<Store> {
  const store = await openTableStore(new MemoryTable(), {}, new WaitReports({ send }))
  stores.push(store)
  return store
}

test('a circle of locks that are not held any more refuses nobody', async () => {
  let said = 0
  const store = await openWith(async ({ waits }) =>
    waits.map(({ id, wait }) => {
      said++
      const gone = { txn: wait.waitForTxn, waitForTxn: wait.txn, key: utf8('free') }
      return { id, circle: [gone, wait] }
    }),
  )
  await acquire(store, 10, 'a')
  const waiting = watch(acquire(store, 20, 'a'))
  while (said === 0) await new Promise((next) => setImmediate(next))
  expect(await codeOf(acquire(store, 30, 'a', { waitTimeout: 50 }))).toBe('lock_wait_timeout')
  expect(waiting.isSettled()).toBe(false)
  await store.pessimisticRollback({ keys: [utf8('a')], startTs: 10, forUpdateTs: 10 })
  await waiting.promise
})

test('a circle whose locks are all held refuses the wait, with its lock where it was', async () => {
  const store = await openWith(async ({ waits }) =>
    waits.map(({ id, wait }) => ({ id, circle: [{ txn: 10, waitForTxn: 20, key: utf8('b') }, wait] })),
  )
  await acquire(store, 10, 'a')
  await acquire(store, 20, 'b')
  expect(await failureOf(acquire(store, 20, 'a'))).toMatchObject({
    code: 'deadlock',
    fields: { lockTs: 10, lockKey: utf8('a'), waitChain: [{ txn: 10 }, { txn: 20 }] },
  })
  expect([...store.figures.meters.refusals.keys()]).toEqual(['deadlock\n'])
  const { locks } = await store.scanLock({ maxTs: 100 })
  expect(locks.map(({ startTs }) => startTs)).toEqual([10, 20])
})

test('a lock that this server removes wakes one who waits here, the lowest start_ts first', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }) // Nobody looks again by himself.
  const store = await openWith(async () => [])
  await acquire(store, 10, 'a')
  const got: number[] = []
  const all = []
  for (const startTs of [40, 20, 30])
    all.push(
      acquire(store, startTs, 'a').then(async () => {
        got.push(startTs)
        await store.pessimisticRollback({ keys: [utf8('a')], startTs, forUpdateTs: startTs })
      }),
    )
  while (store.figures.waiting < 3) await new Promise((next) => setImmediate(next))
  await store.pessimisticRollback({ keys: [utf8('a')], startTs: 10, forUpdateTs: 10 })
  await Promise.all(all)
  expect(got).toEqual([20, 30, 40])
})

test('a leader that is away, or answers nothing, changes nothing: the wait goes on', async () => {
  let asked = 0
  const store = await openWith(async () => {
    if (++asked > 1) return new Promise(() => {})
    throw new Error('no server leads')
  })
  await acquire(store, 10, 'a')
  expect(await codeOf(acquire(store, 20, 'a', { waitTimeout: 200 }))).toBe('lock_wait_timeout')
  const waiting = acquire(store, 20, 'a')
  await store.pessimisticRollback({ keys: [utf8('a')], startTs: 10, forUpdateTs: 10 })
  await waiting
  expect(asked).toBeGreaterThan(0)
})

test('tells whom it waits for, and when that changes; of prewritten locks nothing', async () => {
  const told: WaitReport[] = []
  const store = await openWith(async (report) => {
    told.push(report)
    return []
  })
  await acquire(store, 10, 'a')
  const waiting = acquire(store, 20, 'a')
  const waits = (): WaitForEntry[] => told.flatMap((report) => report.waits.map(({ wait }) => wait))
  while (waits().length < 1) await new Promise((next) => setImmediate(next))
  expect(store.lockWaits?.(10)).toEqual([{ txn: 20, waitForTxn: 10, key: utf8('a') }])
  // The holder writes: it waits for nothing any more.
  await store.prewrite(prewriteOf(10, [put('a')], { forUpdateTs: 10, pessimisticActions: ['do'] }))
  while (!told.some(({ ended }) => ended.length > 0)) await new Promise((next) => setImmediate(next))
  expect(store.lockWaits?.(10)).toEqual([])
  await store.rollback({ keys: [utf8('a')], startTs: 10 })
  await waiting
  await store.prewrite(prewriteOf(30, [put('b')]))
  expect(await codeOf(acquire(store, 20, 'b', { waitTimeout: 50 }))).toBe('lock_wait_timeout')
  expect(waits()).toEqual([{ txn: 20, waitForTxn: 10, key: utf8('a') }])
})
