import { expect, test } from 'vitest'
import type { Table } from '../../../../src/store/table/layout/table.js'
import { FeedRow } from '../../../../src/store/table/log/feed-row.js'
import { MemoryTable } from '../memory-table.js'

/** In timestamps. */
const SPAN = 100

test('a read of the row that ends after a later one takes nothing back', async () => {
  const shared = new MemoryTable()
  let arrive = (): void => {}
  const arrival = new Promise<void>((resolve) => {
    arrive = resolve
  })
  const slow: Promise<void>[] = [arrival]
  const rows: Table['rows'] = async (request) => {
    const late = slow.pop()
    const found = await shared.rows(request)
    await late
    return found
  }
  const feed = new FeedRow(Object.assign(Object.create(shared) as Table, { rows }), SPAN)
  let looking: undefined | Promise<void>
  await new FeedRow(shared, SPAN).begin(async () => {
    looking ??= feed.before(200, 200) // The row has no timestamp yet.
    await expect.poll(() => shared.inFlight.calls).toBe(0)
    return 10
  })
  await feed.begin(() => 20)
  expect(feed.since).toBe(110)
  arrive()
  await looking
  expect(feed.since).toBe(110)
})
