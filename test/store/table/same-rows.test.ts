import { expect, test } from 'vitest'
import { Random } from '../../anomalies/random.js'
import { utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const SERVERS = 3
const CLIENTS = 6
const EACH = 20
const KEYS = ['a', 'b', 'c', 'd']

/** Of the table: reads and conditional changes per transaction of four keys, which takes eight changes where it is alone. */
async function costOf(seed: number, op: 'put' | 'increment'): Promise<{ reads: number; changes: number }> {
  const random = new Random(seed)
  const table = new MemoryTable(
    () => 'done',
    () => 1,
    () => 1 + random.below(4),
  )
  return inLeaps(table, async () => {
    const databases = await severalDatabases(table, SERVERS)
    const client = async (n: number): Promise<void> => {
      for (let i = 0; i < EACH; i++) {
        const keys = [...KEYS].sort(() => random.below(3) - 1)
        const ops = keys.map((key) =>
          op === 'put' ? { op, key: utf8(key), value: utf8('value') } : { op, key: utf8(key), by: 1 },
        )
        await databases[n % SERVERS]?.transact({ checks: [], ops, maxRetries: 100, lockWaitMs: 60_000 })
      }
    }
    const before = { ...table.calls }
    await Promise.all(Array.from({ length: CLIENTS }, (_, n) => client(n)))
    for (const database of databases) await database.close()
    const per = (kind: 'read' | 'change'): number => (table.calls[kind] - before[kind]) / (CLIENTS * EACH)
    return { reads: per('read'), changes: per('change') }
  })
}

test.each(['put', 'increment'] as const)(
  'servers that %s the same keys do not take them from each other again and again',
  async (op) => {
    for (let seed = 0; seed < 3; seed++) {
      const { reads, changes } = await costOf(seed, op)
      expect(changes).toBeLessThan(14)
      expect(reads).toBeLessThan(18)
    }
  },
)
