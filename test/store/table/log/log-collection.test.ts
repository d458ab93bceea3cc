import { expect, test } from 'vitest'
import { ExpiryRows } from '../../../../src/store/table/log/expiry-rows.js'
import { FeedRow } from '../../../../src/store/table/log/feed-row.js'
import { LogCollection } from '../../../../src/store/table/log/log-collection.js'
import { utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'

function world() {
  const table = new MemoryTable()
  const expiries = new ExpiryRows(table)
  const done: string[] = []
  const reader = {
    trim: async (ts: number) => void done.push(`trimmed up to ${ts}`),
    sweep: async () => void done.push('swept'),
  }
  const collection = new LogCollection({
    ...{ feed: new FeedRow(table, 10), reader, expiries, safePoint: { cleared: 20 } },
    log: { resolve: async () => 30 },
  })
  return { table, expiries, done, collection }
}

test('where nobody reads changes a collection goes as far as it is asked to, and removes nothing of logs', async () => {
  const { collection, done } = world()
  expect(await collection.passed(50)).toBe(50)
  await collection.collect()
  expect(done).toEqual([])
})

test('a collection stays at or below resolved_ts, and removes what only readers below the safe point need', async () => {
  const { table, expiries, collection, done } = world()
  await new FeedRow(table, 10).begin(async () => 1)
  await expiries.put([10, 20, 21].map((ts) => ({ ts, key: utf8('k') })))
  expect(await collection.passed(25)).toBe(25)
  expect(await collection.passed(50)).toBe(30)
  await collection.collect()
  expect(done).toEqual(['trimmed up to 20', 'swept'])
  const left: number[] = []
  for await (const page of expiries.pages(0, 100)) left.push(...page.map(({ ts }) => ts))
  expect(left).toEqual([21])
})
