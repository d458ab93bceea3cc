import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { Random } from '../../anomalies/random.js'
import { codeOf, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const a = utf8('a')
const b = utf8('b')
const ROUNDS = 20

test('of two servers that check both of two keys and write one each, one commits', { tags: ['long'] }, async () => {
  const random = new Random(1)
  const table = new MemoryTable(
    () => 'done',
    () => 1,
    () => 1 + random.below(4),
  )
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [first, second] = databases as [Database, Database]
    const isFree = [a, b].map((key) => ({ key, value: utf8('free') }))
    const patience = { maxRetries: 10, lockWaitMs: 10_000 }
    const put = (key: Uint8Array, value: string) => ({ op: 'put' as const, key, value: utf8(value) })
    const take = (database: Database, key: Uint8Array): Promise<string> =>
      codeOf(database.transact({ checks: isFree, ops: [put(key, 'taken')], ...patience }))
    for (let round = 0; round < ROUNDS; round++) {
      await first.transact({ checks: [], ops: [put(a, 'free'), put(b, 'free')], ...patience })
      const codes = await Promise.all([take(first, a), take(second, b)])
      expect(codes.sort()).toEqual(['none', 'precondition_failed'])
    }
    for (const database of databases) await database.close()
  })
})
