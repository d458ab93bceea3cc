import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { isKvError } from '../../../src/errors/kv-error.js'
import type { Finding } from '../../../src/store/table/check/check-row.js'
import { Random } from '../../anomalies/random.js'
import { text, utf8 } from '../support.js'
import { MemoryBroadcast } from './memory-broadcast.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { checked, PlantedRows } from './planted-rows.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 30)
const SERVERS = 3
const ACCOUNTS = ['a', 'b', 'c', 'd']
const EACH = 100
/** May be met by whoever gives up before it is decided. */
const REFUSALS = [
  'write_conflict',
  'deadlock',
  'key_locked',
  'txn_lock_not_found',
  'lock_wait_timeout',
  'overloaded',
  'storage_unavailable',
] as const

const FATES: readonly Fate[] = ['not done', 'done, answer lost', 'late']

interface Sums {
  readonly totals: number[]
  committed: number
}

/** Of `perkv bigtable check`, while servers write. */
async function problemsIn(table: MemoryTable): Promise<readonly Finding[]> {
  return (await checked(new PlantedRows(table))).findings.filter(({ isProblem }) => isProblem)
}

function transfers(seed: number, faults: number, isTogether: boolean): Promise<Sums> {
  const random = new Random(seed)
  const fate = (): Fate => (random.chance(faults) ? (FATES[random.below(FATES.length)] as Fate) : 'done')
  const table = new MemoryTable(fate, () => random.below(4), undefined, { isTogether })
  if (random.chance(0.5)) table.broadcast = new MemoryBroadcast(4, () => random.chance(0.8))
  return inLeaps(table, () => transfersOn(table, random))
}

async function transfersOn(table: MemoryTable, random: Random): Promise<Sums> {
  const chance = (of: number): boolean => random.chance(of)
  const databases = await severalDatabases(table, SERVERS)
  const any = (): Database => databases[random.below(SERVERS)] as Database
  const timed = { maxRetries: 50, lockWaitMs: 20_000 }
  const puts = ACCOUNTS.map((name) => ({ op: 'put' as const, key: utf8(name), value: utf8(String(EACH)) }))
  await any().transact({ checks: [], ops: puts, ...timed })
  const sums: Sums = { totals: [], committed: 0 }
  const audit = async (): Promise<void> => {
    const { pairs } = await any().batchGet({ keys: ACCOUNTS.map(utf8), lockWaitMs: 20_000 })
    sums.totals.push(pairs.reduce((sum, { value }) => sum + Number(text(value ?? utf8(''))), 0))
  }
  const refusable = async (work: () => Promise<unknown>): Promise<boolean> => {
    try {
      await work()
      return true
    } catch (error) {
      if (REFUSALS.some((code) => isKvError(error, code))) return false
      throw error
    }
  }
  const client = async (): Promise<void> => {
    for (let i = 0; i < 6; i++) {
      const [from, to] = [random.below(ACCOUNTS.length), random.below(ACCOUNTS.length - 1)]
      const pair = [ACCOUNTS[from], ACCOUNTS[(from + 1 + to) % ACCOUNTS.length]] as [string, string]
      const by = 1 + random.below(5)
      const ops = [
        { op: 'increment' as const, key: utf8(pair[0]), by: -by },
        { op: 'increment' as const, key: utf8(pair[1]), by },
      ]
      const isDone = await refusable(async () => {
        const database = any()
        if (chance(0.6)) return database.transact({ checks: [], ops, ...timed })
        const mode = chance(0.5) ? 'optimistic' : 'pessimistic'
        const { transactions } = database
        const { txn } = await transactions.begin({ mode, isolation: 'snapshot', ttlMs: 20_000 })
        await transactions.run(txn, ops)
        return transactions.commit(txn, undefined)
      })
      if (isDone) sums.committed++
      while (chance(0.5)) table.late.splice(random.below(table.late.length + 1), 1)[0]?.()
      if (chance(0.3)) await refusable(audit)
      if (chance(0.1)) expect(await problemsIn(table)).toEqual([])
    }
  }
  await Promise.all([client(), client(), client(), client()])
  for (const land of table.late.splice(0)) land()
  await audit()
  expect(await problemsIn(table)).toEqual([])
  for (const database of databases) await database.close()
  return sums
}

test('transfers of several servers on one table keep the sum of all accounts, whatever answers get lost', async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(0, 0.05, 0.15), fc.boolean(), async (...given) => {
      const { totals, committed } = await transfers(...given)
      expect(new Set(totals)).toEqual(new Set([ACCOUNTS.length * EACH]))
      expect(committed).toBeGreaterThan(0)
    }),
    { numRuns: RUNS },
  )
}, 300_000)
