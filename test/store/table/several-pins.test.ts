import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { PINS_MAX } from '../../../src/limits.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { codeOf, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const MINUTE = 60_000
const SECOND = 1000

/** Two servers on one table, in time that leaps. */
function withTwo(body: (a: Database, b: Database, table: MemoryTable) => Promise<void>): Promise<void> {
  const table = new MemoryTable()
  return inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [a, b] = databases as [Database, Database]
    await body(a, b, table)
    for (const database of databases) await database.close()
  })
}
const pinsOf = async (server: Database) => (await server.listPins({ limit: PINS_MAX })).items
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

test('a pin of one server is seen, renewed and removed through another', { tags: ['long'] }, () =>
  withTwo(async (a, b) => {
    const first = await a.createPin({ ttlMs: MINUTE })
    const second = await b.createPin({ ttlMs: MINUTE, ts: first.ts })
    const both = [first, second].sort((one, other) => one.ts - other.ts)
    for (const server of [a, b])
      expect((await pinsOf(server)).map(({ pin }) => pin).sort()).toEqual(both.map(({ pin }) => pin).sort())
    const renewed = await b.renewPin(first.pin, 10 * MINUTE)
    expect(renewed).toMatchObject({ pin: first.pin, ts: first.ts })
    expect(renewed.expiresAtMs).toBeGreaterThan(first.expiresAtMs + 8 * MINUTE)
    await sleep(5 * MINUTE)
    expect((await pinsOf(a)).map(({ pin }) => pin)).toEqual([first.pin])
    expect(await codeOf(a.renewPin(second.pin, MINUTE))).toBe('not_found') // It has expired.
    await a.renewPin(first.pin, 2 * MINUTE) // A shorter time counts too.
    await b.removePin(first.pin)
    for (const server of [a, b]) {
      expect(await pinsOf(server)).toEqual([])
      expect(await codeOf(server.renewPin(first.pin, MINUTE))).toBe('not_found')
      expect(await codeOf(server.removePin(first.pin))).toBe('not_found')
    }
    for (const wild of ['', 'x', '../oracle', 'x'.repeat(5000), 'ä'.repeat(16)])
      expect(await codeOf(a.removePin(wild))).toBe('not_found')
  }),
)

test('renewals and removals of one pin at once: it ends as one of them says', () =>
  withTwo(async (a, b) => {
    for (let i = 0; i < 20; i++) {
      const { pin } = await a.createPin({ ttlMs: MINUTE })
      const [, , removed] = await Promise.all([
        codeOf(a.renewPin(pin, 2 * MINUTE)),
        codeOf(b.renewPin(pin, 3 * MINUTE)),
        codeOf(b.removePin(pin)),
      ])
      expect(removed).toBe('none')
      expect(await pinsOf(a)).toEqual([])
    }
  }))

test(
  'there are a bounded number of pins, of all servers together, and those that have expired make room',
  { tags: ['long'] },
  () =>
    withTwo(async (a, b) => {
      await Promise.all(Array.from({ length: PINS_MAX / 2 }, () => a.createPin({ ttlMs: MINUTE })))
      for (let i = 0; i < PINS_MAX / 2; i += 100)
        await Promise.all(Array.from({ length: 100 }, () => b.createPin({ ttlMs: MINUTE })))
      expect(await codeOf(a.createPin({ ttlMs: MINUTE }))).toBe('overloaded')
      expect(await codeOf(b.createPin({ ttlMs: MINUTE }))).toBe('overloaded')
      await sleep(10 * MINUTE)
      await b.createPin({ ttlMs: MINUTE })
      expect(await pinsOf(a)).toHaveLength(1)
    }),
)

test(
  'what a server reads holds the others: an open transaction, a pinned read, and all that it may read yet',
  { tags: ['long'] },
  () =>
    withTwo(async (a, b) => {
      await a.transact({
        checks: [],
        ops: [{ op: 'put', key: utf8('k'), value: utf8('v') }],
        maxRetries: 1,
        lockWaitMs: 0,
      })
      const { txn, startTs } = await a.transactions.begin({
        mode: 'optimistic',
        isolation: 'snapshot',
        ttlMs: 10 * MINUTE,
      })
      await sleep(30 * SECOND)
      expect(await b.registry.oldest()).toBe(startTs)
      expect(await a.registry.oldest()).toBeGreaterThan(startTs)
      const { ts, release } = await a.hold()
      await a.transactions.rollback(txn)
      await sleep(30 * SECOND)
      expect(await b.registry.oldest()).toBe(ts)
      release()
      // A server that has nothing to do goes on with time: it can't read anything from before its last beat.
      await sleep(5 * MINUTE)
      const oldest = await b.registry.oldest()
      expect(oldest).toBeGreaterThan(b.store.time.ago(20 * SECOND))
      expect((await a.hold()).ts).toBeGreaterThanOrEqual(oldest)
      await a.close()
      expect(await b.registry.oldest()).toBe(TIMESTAMP_MAX)
    }),
)

test('a snapshot of a given timestamp is held only where no collection has announced to pass it', () =>
  withTwo(async (a, b) => {
    const { ts } = await a.createPin({ ttlMs: MINUTE })
    await sleep(10 * SECOND)
    await b.registry.announce(ts + 5)
    expect(await codeOf(a.createPin({ ts, ttlMs: MINUTE }))).toBe('ts_below_safe_point')
    expect(await codeOf(a.hold(ts + 4))).toBe('ts_below_safe_point')
    const { release } = await a.hold(ts + 5)
    expect(await b.registry.oldest()).toBe(ts + 5) // At once, and not with the next beat.
    release()
    expect(await codeOf(a.createPin({ ttlMs: MINUTE }))).toBe('none')
  }))
