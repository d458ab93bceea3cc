import fc from 'fast-check'
import { expect, test } from 'vitest'
import { LockResolver } from '../../../../src/coordinator/lock-resolver.js'
import type { Database } from '../../../../src/database/database.js'
import { isKvError } from '../../../../src/errors/kv-error.js'
import { decodeCells } from '../../../../src/store/table/layout/layout.js'
import { FeedRow } from '../../../../src/store/table/log/feed-row.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import { timestampFromMs } from '../../../../src/timestamp.js'
import { Random } from '../../../anomalies/random.js'
import { text, utf8 } from '../../support.js'
import { type Fate, MemoryTable } from '../memory-table.js'
import { inLeaps, severalDatabases } from '../several-databases.js'
import { changeLogOn } from './change-log-on.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 5)
const KEYS = ['a', 'b', 'c', 'd']
const FATES: readonly Fate[] = ['not done', 'done, answer lost', 'late']
const REFUSALS = [
  'write_conflict',
  'deadlock',
  'key_locked',
  'lock_wait_timeout',
  'overloaded',
  'storage_unavailable',
] as const
/** As `severalDatabases` registers observers. */
const SPAN = timestampFromMs(20)

async function versionsIn(table: MemoryTable, since: number): Promise<string[]> {
  const range = { start: Buffer.of(0, 1), end: undefined }
  const rows = await table.rows({ ranges: [range], columns: [{ family: 'w' }] })
  const versions = rows.flatMap(({ key, cells }) => decodeCells(cells).writes.map((write) => ({ key, ...write })))
  return versions
    .filter(({ commitTs }) => commitTs > since)
    .sort((a, b) => a.commitTs - b.commitTs || Buffer.compare(a.key, b.key))
    .map(({ key, type, commitTs }) => `${type} ${text(key)} ${commitTs}`)
}

async function histories(seed: number, faults: number): Promise<number> {
  const random = new Random(seed)
  let awayUntilMs = 0
  const fate = (): Fate =>
    random.chance(performance.now() < awayUntilMs ? 1 : faults) ? (FATES[random.below(FATES.length)] as Fate) : 'done'
  const table = new MemoryTable(fate, () => random.below(4))
  return inLeaps(table, async () => {
    const databases = await severalDatabases(table, 3)
    const [{ store }] = databases as [Database]
    const feed = new FeedRow(table, SPAN)
    const source = {
      get last() {
        return store.now()
      },
      next: async () => store.tso(1),
    }
    const resolver = new LockResolver(store)
    const reader = new LogReader({ table, source, end: (decision) => resolver.endNow(decision) })
    const log = changeLogOn(table, { source, feed, reader })
    await log.begin()
    const since = log.start
    const client = async (): Promise<void> => {
      for (let i = 0; i < 8; i++) {
        const keys = KEYS.filter(() => random.chance(0.5))
        const ops = keys.map((key) => ({ op: 'put' as const, key: utf8(key), value: utf8(`${i}`) }))
        const database = databases[random.below(databases.length)] as Database
        try {
          if (ops.length > 0) await database.transact({ checks: [], ops, maxRetries: 20, lockWaitMs: 20_000 })
        } catch (error) {
          if (!REFUSALS.some((code) => isKvError(error, code))) throw error
        }
        if (random.chance(faults)) awayUntilMs = performance.now() + 15_000 // Longer than anybody waits.
        while (random.chance(0.5)) table.late.splice(random.below(table.late.length + 1), 1)[0]?.()
      }
    }
    await Promise.all([client(), client(), client()])
    awayUntilMs = 0
    table.catchUp()
    await store.batchGet({ keys: KEYS.map(utf8), ts: await store.tso(1) }).catch(() => {})
    await (databases[0] as Database).batchGet({ keys: KEYS.map(utf8), lockWaitMs: 20_000 })
    const newest = await store.tso(1)
    await expect.poll(() => log.resolve(), { timeout: 200_000, interval: 1000 }).toBeGreaterThan(newest)
    const found: string[] = []
    for await (const { changes } of log.read({ since, upTo: newest, keysOnly: true }))
      found.push(...changes.map(({ type, key, commitTs }) => `${type} ${text(key)} ${commitTs}`))
    const versions = await versionsIn(table, since)
    expect(found).toEqual(versions)
    for (const database of databases) await database.close()
    return versions.length
  })
}

test('what several servers have committed, whatever answers are lost, is what their logs tell', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  let versions = 0
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(0, 0.05), async (seed, faults) => {
      versions += await histories(seed, faults)
    }),
    { numRuns: RUNS },
  )
  expect(versions).toBeGreaterThan(RUNS)
})
