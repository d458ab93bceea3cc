import { afterEach, describe, expect, test, vi } from 'vitest'
import type { Database } from '../../src/database/database.js'
import type { isKvError } from '../../src/errors/kv-error.js'
import { sleep } from '../../src/event-loop/sleep.js'
import type { LeaseRequest } from '../../src/leases/rules/leases-api.js'
import { ATTACHED_MAX } from '../../src/limits.js'
import { rowKeyOfSystem } from '../../src/store/table/layout/row-keys.js'
import type { Timestamp } from '../../src/timestamp.js'
import { failureOf } from '../coordinator/support.js'
import { utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
import { inLeaps, severalDatabases } from '../store/table/several-databases.js'
import { attachedRows } from './attaching.js'

let opened: readonly Database[] = []
afterEach(async () => {
  for (const database of opened) await database.close()
})

/** Servers on one table. Time passes only in `sleep`. */
async function servers<T>(count: number, body: (databases: readonly Database[], table: MemoryTable) => Promise<T>) {
  const table = new MemoryTable()
  return inLeaps(table, async () => {
    const databases = await severalDatabases(table, count)
    opened = databases
    return body(databases, table)
  })
}

const put = ({ leases }: Database, name: string, holder: string, rest: Partial<LeaseRequest> = {}) =>
  leases.put(name, { holder, ttlMs: 1000, ...rest })

function write(
  database: Database,
  lease: string,
  fence: Timestamp,
  { key = 'k', attached = false }: { key?: string; attached?: boolean } = {},
) {
  const op = { op: 'put' as const, key: utf8(key), value: utf8('1'), ...(attached ? { lease } : {}) }
  const commitEffects = { leases: [{ lease, fence, index: 0 }] }
  return database.transact({ checks: [], ops: [op], commitEffects, maxRetries: 0, lockWaitMs: 0 })
}

const isThere = async (database: Database, key: string) =>
  (await database.get({ key: utf8(key) }, () => ({ lockWaitMs: 1000 }))).found

async function refused(work: Promise<unknown>, code: Parameters<typeof isKvError>[1], fields: object = {}) {
  const error = await failureOf(work)
  expect(error).toMatchObject({ code, fields })
}

/** As if the process had died. */
async function die(database: Database): Promise<void> {
  await database.leases.close()
}

describe('a lease of several servers', () => {
  test('is listed in pages, and a page begins to read where the one before ended', () =>
    servers(2, async ([one, two], table) => {
      if (one === undefined || two === undefined) return
      for (const name of ['b/1', 'b/2', 'b/3']) await put(one, name, 'x')
      const page = await two.leases.page({ prefix: 'b/', limit: 2 })
      expect(page).toMatchObject({ items: [{ name: 'b/1' }, { name: 'b/2' }], next: 'b/2' })
      const walks: unknown[] = []
      const walk = table.walk.bind(table)
      table.walk = (request) => {
        walks.push(request)
        return walk(request)
      }
      const last = await two.leases.page({ prefix: 'b/', after: 'b/2', limit: 2 })
      table.walk = walk
      expect(last).toMatchObject({ items: [{ name: 'b/3' }], next: undefined })
      const start = rowKeyOfSystem('lease/b/2\0')
      expect(walks).toContainEqual(expect.objectContaining({ range: expect.objectContaining({ start }) }))
    }))

  test('is the same at each of them', () =>
    servers(2, async ([one, two]) => {
      if (one === undefined || two === undefined) return
      const granted = await put(one, 'a', 'x')
      expect(await two.leases.get('a')).toEqual(granted)
      expect(await two.leases.list()).toEqual([granted])
      expect(await two.leases.list('b')).toEqual([])
      expect(await two.leases.list('é')).toEqual([])
      await refused(put(two, 'a', 'y'), 'lease_held', { lease: 'a', holder: 'x' })
      await refused(put(two, 'a', 'x', { fence: 1 }), 'precondition_failed', { lease: 'a', fence: granted.fence })
      await refused(two.leases.remove('a', 'y'), 'precondition_failed', { lease: 'a', holder: 'x' })
      await write(two, 'a', granted.fence)
      const renewed = await put(two, 'a', 'x', { fence: granted.fence, ttlMs: 2000 })
      expect(renewed).toMatchObject({ fence: granted.fence, ttlMs: 2000 })
      expect(await one.leases.get('a')).toEqual(renewed)
      expect(await one.leases.remove('a', 'x', granted.fence)).toEqual({ deleting: false })
      await refused(two.leases.get('a'), 'not_found')
      await refused(write(two, 'a', granted.fence), 'precondition_failed', { lease: 'a', fence: 0, index: 0 })
      const next = await put(two, 'a', 'y')
      expect(next.fence).toBeGreaterThan(granted.fence)
      await refused(write(one, 'a', granted.fence), 'precondition_failed', { lease: 'a', fence: next.fence })
      expect(two.leases.summary()).toMatchObject({ held: 1, grants: 1, renewals: 1 })
    }))

  test('runs out by the timestamps of all', () =>
    servers(2, async ([one, two]) => {
      if (one === undefined || two === undefined) return
      const { fence } = await put(one, 'a', 'x')
      await sleep(990)
      await write(two, 'a', fence)
      await sleep(20)
      await refused(write(two, 'a', fence), 'precondition_failed', { fence: 0 })
      await refused(one.leases.get('a'), 'not_found')
      expect((await put(two, 'a', 'x')).fence).toBeGreaterThan(fence)
    }))
})

describe('those that wait', () => {
  test('are told of a release at another server within a second, in the order in which they came to theirs', () =>
    servers(2, async ([one, two]) => {
      if (one === undefined || two === undefined) return
      await put(one, 'a', 'x', { ttlMs: 60_000 })
      const order: string[] = []
      const waits = ['y', 'z'].map((holder) =>
        put(two, 'a', holder, { waitMs: 60_000, ttlMs: 60_000 }).then(() => order.push(holder)),
      )
      await sleep(10_000)
      expect(two.leases.summary().waiting).toBe(2)
      const beganMs = Date.now()
      await one.leases.remove('a', 'x')
      await waits[0]
      expect(Date.now() - beganMs).toBeLessThanOrEqual(1100)
      await two.leases.remove('a', 'y')
      await waits[1]
      expect(order).toEqual(['y', 'z'])
    }))

  test('a grant for a client that has hung up meanwhile is given back', () =>
    servers(1, async ([one], table) => {
      if (one === undefined) return
      await put(one, 'a', 'x', { ttlMs: 60_000 })
      const abort = new AbortController()
      const gone = put(one, 'a', 'y', { waitMs: 60_000, signal: abort.signal })
      gone.catch(() => {})
      await sleep(100)
      const before = table.calls.change
      await one.leases.remove('a', 'x')
      while (table.calls.change < before + 3) await new Promise(setImmediate) // The grant is on its way.
      abort.abort(new Error('hung up'))
      await expect(gone).rejects.toThrow('hung up')
      await expect.poll(() => one.store.system.list('lease/').then(({ size }) => size)).toBe(0)
    }))
})

describe('keys that are attached', () => {
  test('are deleted by any server when the lease ends, and its rows with them', () =>
    servers(3, async ([one, two, three]) => {
      if (one === undefined || two === undefined || three === undefined) return
      const { fence } = await put(one, 'a', 'x')
      await write(two, 'a', fence, { key: 'up', attached: true })
      await write(two, 'a', fence, { key: 'kept' })
      expect(await isThere(three, 'up')).toBe(true)
      await die(one)
      await die(two)
      await sleep(1001)
      three.leases.look()
      await sleep(100)
      expect([await isThere(three, 'up'), await isThere(three, 'kept')]).toEqual([false, true])
      expect((await three.store.system.list('lease/')).size).toBe(0)
      expect((await attachedRows(three.store)).size).toBe(0)
    }))

  test('a server that has died half way leaves the rest to others', () =>
    servers(2, async ([one, two]) => {
      if (one === undefined || two === undefined) return
      const { fence } = await put(one, 'a', 'x', { ttlMs: 60_000 })
      await write(one, 'a', fence, { key: 'up', attached: true })
      // A lock on the key: the release marks the lease, and goes no further.
      const locking = await two.coordinator.begin({ mode: 'pessimistic', isolation: 'snapshot', lockWaitMs: 0 })
      await locking.getForUpdate(utf8('up'))
      expect(await one.leases.remove('a', 'x', fence)).toEqual({ deleting: true })
      await die(one)
      await refused(two.leases.get('a'), 'not_found')
      await refused(write(two, 'a', fence), 'precondition_failed', { fence: 0 })
      await refused(put(two, 'a', 'y'), 'lease_held', { lease: 'a', holder: 'x' })
      expect(await isThere(two, 'up')).toBe(true)
      await locking.rollback()
      expect((await put(two, 'a', 'y')).fence).toBeGreaterThan(fence)
      expect(await isThere(two, 'up')).toBe(false)
    }))

  test('are no more than the limit says, with those of other servers', { tags: ['long'] }, () =>
    servers(2, async ([one, two]) => {
      if (one === undefined || two === undefined) return
      const { fence } = await put(one, 'a', 'x', { ttlMs: 60_000 })
      const commitEffects = { leases: [{ lease: 'a', fence, index: 0 }] }
      for (let n = 0; n < ATTACHED_MAX; n += 1000) {
        const keys = Array.from({ length: 1000 }, (_, i) => utf8(`key-${n + i}`))
        const ops = keys.map((key) => ({ op: 'put' as const, key, value: utf8('1'), lease: 'a' }))
        await one.transact({ checks: [], ops, commitEffects, maxRetries: 0, lockWaitMs: 0 })
      }
      await refused(write(two, 'a', fence, { key: 'more', attached: true }), 'invalid_argument', { field: 'lease' })
      expect(await isThere(two, 'more')).toBe(false)
      // One that is deleted, or is attached no longer, makes room.
      await one.transact({ checks: [], ops: [{ op: 'delete', key: utf8('key-7') }], maxRetries: 0, lockWaitMs: 0 })
      await write(one, 'a', fence, { key: 'key-8' })
      await sleep(1000)
      await write(two, 'a', fence, { key: 'more', attached: true })
      await write(two, 'a', fence, { key: 'last', attached: true })
      await sleep(1000)
      await refused(write(two, 'a', fence, { key: 'one more', attached: true }), 'invalid_argument', { field: 'lease' })
    }),
  )
})

describe('what it costs', () => {
  test('in calls on the table', () =>
    servers(2, async ([one, two], table) => {
      if (one === undefined || two === undefined) return
      await sleep(100) // What each server does at its start.
      /** Reads and changes of records of leases: what servers look at now and then is left out. */
      const calls = { read: 0, change: 0 }
      const isOfLease = (key: Buffer) => key.toString('latin1').includes('lease/')
      const { rows, change } = table
      vi.spyOn(table, 'rows').mockImplementation((request) => {
        if (request.keys?.some(isOfLease) || request.ranges?.some(({ start }) => isOfLease(start))) calls.read++
        return rows.call(table, request)
      })
      vi.spyOn(table, 'change').mockImplementation((key, expected, writes) => {
        if (isOfLease(key)) calls.change++
        return change.call(table, key, expected, writes)
      })
      const costOf = async (work: () => Promise<unknown>) => {
        const before = { ...calls }
        await work()
        return [calls.read - before.read, calls.change - before.change]
      }
      expect(await costOf(() => put(one, 'a', 'x'))).toEqual([1, 2])
      expect(await costOf(() => put(one, 'a', 'x'))).toEqual([0, 1])
      expect(await costOf(() => put(two, 'a', 'x'))).toEqual([1, 1])
      expect(await costOf(() => put(one, 'a', 'x'))).toEqual([1, 2]) // A guess that was wrong.
      const { fence } = await put(one, 'a', 'x')
      expect(await costOf(() => write(one, 'a', fence))).toEqual([1, 0])
      expect(await costOf(() => one.leases.remove('a', 'x'))).toEqual([1, 1])
      await put(one, 'a', 'x')
      await sleep(1001)
      expect(await costOf(() => put(two, 'a', 'y'))).toEqual([1, 1])
    }))
})
