import { expect, test } from 'vitest'
import { isPositionKey } from '../../../../src/changes/rules/codec/position-row.js'
import type { Database } from '../../../../src/database/database.js'
import { keyOfRow } from '../../../../src/store/table/layout/row-keys.js'
import type { Timestamp } from '../../../../src/timestamp.js'
import { utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'
import { databasesOn, inLeaps } from '../several-databases.js'
import { WatchedTable } from '../watched-table.js'

const REGISTRATION = { range: { prefix: utf8('doc/') } }

function move(database: Database, key: string, from: Timestamp): Promise<unknown> {
  return database.transact({
    ...{ checks: [], ops: [{ op: 'put', key: utf8(key), value: utf8('done') }], maxRetries: 0, lockWaitMs: 5000 },
    commitEffects: { positions: [{ consumer: 'copy', from, ts: from + 1 }] },
  })
}

test.each<[string, (at: Database, position: Timestamp) => Promise<unknown>]>([
  ['reset', ({ changes }, position) => changes.consumers.reset('copy', position)],
  [
    'removed and registered again',
    async ({ changes }, sinceTs) => {
      await changes.consumers.remove('copy')
      await changes.consumers.put('copy', { ...REGISTRATION, sinceTs })
    },
  ],
])('a transaction that is still about to acknowledge once its consumer was %s is refused', async (_, begin) => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const watched = new WatchedTable(table)
    const databases = await databasesOn([watched, table])
    const [one, two] = databases as [Database, Database]
    const { position } = (await one.changes.consumers.put('copy', REGISTRATION)).state
    for (const { store } of databases) await expect.poll(() => store.log.resolve()).toBeGreaterThan(position)
    let isHeld = false
    let release = (): void => {}
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    watched.onChange = (key) => {
      if (!isPositionKey(keyOfRow(key))) return undefined
      isHeld = true
      return released
    }
    const late = move(one, 'late', position)
    late.catch(() => {})
    await expect.poll(() => isHeld).toBe(true)
    await begin(two, position)
    await move(two, 'next', position)
    release()
    await expect(late).rejects.toMatchObject({ code: 'write_conflict', fields: { reason: 'acknowledged' } })
    const { pairs } = await two.batchGet({ keys: [utf8('late'), utf8('next')], lockWaitMs: 5000 })
    expect(pairs.map(({ key }) => key.toString())).toEqual(['next'])
    expect((await one.changes.consumers.get('copy')).position).toBe(position + 1)
    for (const database of databases) await database.close()
  })
})
