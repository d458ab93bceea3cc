import { afterEach, describe, expect, test } from 'vitest'
import { Database } from '../../src/database/database.js'
import { type isKvError, KvError } from '../../src/errors/kv-error.js'
import { sleep } from '../../src/event-loop/sleep.js'
import type { LeaseRequest } from '../../src/leases/rules/leases-api.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Op } from '../../src/txn/op.js'
import { failureOf, testStores, turn, utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
import { inLeaps, severalDatabases } from '../store/table/several-databases.js'
import { attachedRows } from './attaching.js'
import { TwoClocks } from './support.js'

const stores = testStores()

/** A server. Time passes only in `pass`. */
interface Home {
  readonly database: Database
  readonly pass: (ms: number) => Promise<unknown>
}
type Within = (body: (home: Home) => Promise<void>) => Promise<void>

let opened: Database | undefined
afterEach(() => opened?.close())

const inMemory: Within = async (body) => {
  const clocks = new TwoClocks()
  const { now, monotonicNow } = clocks
  const store = await stores.open({ now, monotonicNow })
  const database = await Database.open(store, { limits: DEFAULT_LIMITS, onError: () => {} })
  opened = database
  const pass = async (ms: number): Promise<void> => {
    clocks.pass(ms)
    database.leases.look()
    await turn()
  }
  await body({ database, pass })
}

const inRecords: Within = (body) => {
  const table = new MemoryTable()
  return inLeaps(table, async () => {
    const [database] = await severalDatabases(table, 1)
    opened = database
    if (database !== undefined) await body({ database, pass: sleep })
  })
}

const put = ({ database }: Home, holder: string, rest: Partial<LeaseRequest> = {}) =>
  database.leases.put('a', { holder, ttlMs: 1000, ...rest })

/** One transaction under the lease. */
function run({ database }: Home, fence: Timestamp, ops: readonly Op[], checks: readonly object[] = []) {
  const commitEffects = { leases: [{ lease: 'a', fence, index: 0 }] }
  const asked = checks.map((check) => ({ key: utf8('k'), ...check, index: 1 }))
  return database.transact({ checks: asked, ops, commitEffects, maxRetries: 0, lockWaitMs: 0 })
}

const plain: Op = { op: 'put', key: utf8('k'), value: utf8('1') }
const attached: Op = { op: 'put', key: utf8('up'), value: utf8('1'), lease: 'a' }

const isThere = async ({ database }: Home, key: string) =>
  (await database.get({ key: utf8(key) }, () => ({ lockWaitMs: 1000 }))).found

async function refused(work: Promise<unknown>, code: Parameters<typeof isKvError>[1], fields: object = {}) {
  expect(await failureOf(work)).toMatchObject({ code, fields })
}

async function waiting({ database }: Home, count: number): Promise<void> {
  while (database.leases.summary().waiting !== count) await turn()
}

describe.each([
  ['in memory', inMemory],
  ['in records', inRecords],
] as const)('terms %s', (_, within) => {
  test('a lease is that of one holder until it is released or runs out', () =>
    within(async (home) => {
      const { leases } = home.database
      await refused(leases.get('a'), 'not_found')
      await refused(put(home, 'x', { fence: 1 }), 'precondition_failed', { lease: 'a', fence: 0 })
      const first = await put(home, 'x')
      expect(await leases.get('a')).toEqual(first)
      expect(await leases.list()).toEqual([first])
      expect(await leases.list('b')).toEqual([])
      await refused(put(home, 'y'), 'lease_held', { lease: 'a', holder: 'x' })
      await refused(put(home, 'y', { fence: 1, waitMs: 60_000 }), 'precondition_failed', { fence: first.fence })
      await refused(put(home, 'y', { fence: first.fence, waitMs: 60_000 }), 'lease_held', { holder: 'x' })
      await refused(leases.remove('a', 'y'), 'precondition_failed', { lease: 'a', holder: 'x' })
      await refused(leases.remove('a', 'x', first.fence - 1), 'precondition_failed', { fence: first.fence })
      await home.pass(900)
      expect(await put(home, 'x', { fence: first.fence, ttlMs: 2000 })).toMatchObject({ fence: first.fence })
      await home.pass(1900)
      expect(await put(home, 'x')).toMatchObject({ fence: first.fence, ttlMs: 1000 })
      expect(await leases.remove('a', 'x', first.fence)).toEqual({ deleting: false })
      expect(await leases.remove('a', 'x', first.fence)).toEqual({ deleting: false })
      const second = await put(home, 'y')
      expect(second.fence).toBeGreaterThan(first.fence)
      await home.pass(1100)
      await refused(leases.get('a'), 'not_found')
      expect((await put(home, 'y')).fence).toBeGreaterThan(second.fence)
      const counts = { grants: 3, renewals: 2, ends: { released: 1, ranOut: 1 } }
      expect(leases.summary()).toMatchObject({ held: 1, waiting: 0, ending: 0, ...counts })
    }))

  test('transactions are held to it, also those that write nothing', () =>
    within(async (home) => {
      const { fence } = await put(home, 'x')
      await run(home, fence, [plain])
      await run(home, fence, [{ op: 'get', key: utf8('k') }])
      const lost = { lease: 'a', fence, index: 0 }
      await refused(run(home, fence - 1, [plain]), 'precondition_failed', lost)
      await refused(run(home, fence - 1, [{ op: 'get', key: utf8('k') }]), 'precondition_failed', lost)
      await refused(run(home, fence - 1, [attached]), 'precondition_failed', lost)
      const failedChecks = [
        { index: 0, lease: 'a', fence },
        { index: 1, exists: true },
      ]
      await refused(run(home, fence - 1, [plain], [{ exists: false }]), 'precondition_failed', { failedChecks })
      await home.pass(1100)
      await refused(run(home, fence, [plain]), 'precondition_failed', { fence: 0 })
    }))

  test('its keys end with it, however it ends', () =>
    within(async (home) => {
      for (const end of [() => home.database.leases.remove('a', 'x'), () => home.pass(1100)]) {
        const { fence } = await put(home, 'x')
        await run(home, fence, [plain, attached])
        expect(await isThere(home, 'up')).toBe(true)
        await end()
        expect((await put(home, 'x')).fence).toBeGreaterThan(fence)
        expect([await isThere(home, 'up'), await isThere(home, 'k')]).toEqual([false, true])
        expect((await attachedRows(home.database.store)).size).toBe(0)
        await home.database.leases.remove('a', 'x')
      }
    }))

  test('those that wait get it in the order of their arrival', () =>
    within(async (home) => {
      await put(home, 'x', { ttlMs: 60_000 })
      const order: string[] = []
      const all = Array.from({ length: 20 }, async (_, i) => {
        const { holder } = await put(home, `h${i}`, { waitMs: 60_000 })
        order.push(holder)
        await home.database.leases.remove('a', holder)
      })
      await waiting(home, 20)
      await home.database.leases.remove('a', 'x')
      await Promise.all(all)
      expect(order).toEqual(Array.from({ length: 20 }, (_, i) => `h${i}`))
    }))

  test('those that wait leave when they hang up, or when their time is over', () =>
    within(async (home) => {
      await put(home, 'x', { ttlMs: 60_000 })
      const abort = new AbortController()
      const gone = failureOf(put(home, 'y', { waitMs: 60_000, signal: abort.signal }))
      const over = refused(put(home, 'z', { waitMs: 5000 }), 'lease_held', { holder: 'x' })
      await waiting(home, 2)
      await home.pass(4900)
      expect(home.database.leases.summary().waiting).toBe(2)
      await home.pass(200)
      await over
      abort.abort(new KvError('overloaded', 'hung up', {}))
      expect(await gone).toMatchObject({ message: 'hung up' })
      expect(home.database.leases.summary().waiting).toBe(0)
    }))

  test('those that wait are refused by a server that closes, and others are served on', () =>
    within(async (home) => {
      const { fence } = await put(home, 'x', { ttlMs: 60_000 })
      const refusal = refused(put(home, 'y', { waitMs: 60_000 }), 'overloaded')
      await waiting(home, 1)
      await home.database.leases.close()
      await refusal
      await refused(put(home, 'y', { waitMs: 1 }), 'overloaded')
      await refused(put(home, 'y'), 'lease_held', { holder: 'x' })
      expect(await put(home, 'x')).toMatchObject({ fence })
      await home.database.leases.remove('a', 'x')
    }))

  test('renewals are served while as many wait as may', { tags: ['long'] }, () =>
    within(async (home) => {
      const { fence } = await put(home, 'x', { ttlMs: 60_000 })
      const all = Array.from({ length: 10_000 }, (_, i) => failureOf(put(home, `h${i}`, { waitMs: 50 })))
      await waiting(home, 10_000)
      await refused(put(home, 'y', { waitMs: 1 }), 'overloaded')
      expect(await put(home, 'x', { ttlMs: 59_000 })).toMatchObject({ fence })
      await home.pass(100)
      for (const { code } of await Promise.all(all)) expect(code).toBe('lease_held')
    }),
  )
})
