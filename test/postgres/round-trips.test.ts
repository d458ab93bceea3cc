import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Database } from '../../src/database/database.js'
import { NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import type { Table } from '../../src/store/table/layout/table.js'
import { utf8 } from '../store/support.js'
import { JoinedServers } from '../store/table/joined-servers.js'
import { openOwnTable } from './own-table.js'

/** What a server does by itself adds calls now and then, and removes none. */
const TRIES = 8

let table: Table
let database: Database
beforeAll(async () => {
  table = await openOwnTable()
  const server = await new JoinedServers(table).start('one', { place: 'postgres', newest: NEWEST_FORMAT }, 4000)
  database = server.database
})
afterAll(async () => {
  await database.close()
})

let count = 0
const fresh = (): string => `key ${count++}`

const put = (...keys: string[]) =>
  database.transact({
    ...{ checks: [], maxRetries: 0, lockWaitMs: 0 },
    ops: keys.map((key) => ({ op: 'put' as const, key: utf8(key), value: utf8('1') })),
  })
const get = (key: string) => database.get({ key: utf8(key) }, () => ({ lockWaitMs: 0 }))

/** The least of some tries. What goes on after the answer counts too. */
async function statementsOf(run: () => unknown, changes: number): Promise<{ read: number; change: number }> {
  const least = { read: Number.POSITIVE_INFINITY, change: Number.POSITIVE_INFINITY }
  for (let i = 0; i < TRIES; i++) {
    const before = { ...table.calls }
    await run()
    await vi.waitFor(() => expect(table.calls.change - before.change).toBeGreaterThanOrEqual(changes))
    await vi.waitFor(() => expect(table.inFlight.calls).toBe(0))
    least.read = Math.min(least.read, table.calls.read - before.read)
    least.change = Math.min(least.change, table.calls.change - before.change)
  }
  return least
}

// docs/postgres.md has these numbers. Each timestamp is a read: the leader of the oracle looks whether it still leads.
test('a get is one statement', async () => {
  await put('a')
  expect(await statementsOf(() => get('a'), 0)).toEqual({ read: 1, change: 0 })
  expect(await statementsOf(() => get(fresh()), 0)).toEqual({ read: 1, change: 0 })
})

// A commit in one phase is two: the rows are locked, and when the commit_ts is known they are written.
test('a PUT is one timestamp and one commit of a known key; another key is read and made first', async () => {
  await put('a')
  expect(await statementsOf(() => put('a'), 2)).toEqual({ read: 1, change: 2 })
  expect(await statementsOf(() => put(fresh()), 3)).toEqual({ read: 2, change: 3 })
})

test('a transaction of two puts is no more', async () => {
  await put('a', 'b')
  expect(await statementsOf(() => put('a', 'b'), 2)).toEqual({ read: 1, change: 2 })
  expect(await statementsOf(() => put(fresh(), fresh()), 3)).toEqual({ read: 2, change: 3 })
})

test('an interactive transfer is two reads more', async () => {
  await put('a', 'b')
  const transfer = async (): Promise<void> => {
    const { txn } = await database.transactions.begin({ mode: 'optimistic', isolation: 'snapshot', ttlMs: 60_000 })
    for (const key of ['a', 'b'].map(utf8)) await database.transactions.run(txn, [{ op: 'get', key }])
    for (const key of ['a', 'b'].map(utf8)) await database.transactions.run(txn, [{ op: 'put', key, value: utf8('2') }])
    await database.transactions.commit(txn, undefined)
  }
  expect(await statementsOf(transfer, 2)).toEqual({ read: 4, change: 2 })
})
