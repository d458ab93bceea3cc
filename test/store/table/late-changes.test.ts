import { expect, test } from 'vitest'
import type { SystemName } from '../../../src/store/system-records.js'
import { RECORD, REVISION } from '../../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import { replaceRecord } from '../../../src/store/table/layout/server-record.js'
import { prewriteOf, put, read, utf8 } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'

const NAME: SystemName = 'observer/words/backfill'

/** A store whose next change of `lateKey` is done late: not before it was repeated, and `catchUp`. */
async function opened() {
  const late = { key: undefined as Buffer | undefined }
  const table = new MemoryTable((key): Fate => {
    if (late.key === undefined || !key.equals(late.key)) return 'done'
    late.key = undefined
    return 'late'
  })
  return { table, store: await openTableStore(table), late }
}

test('a late prewrite of a committed transaction does not bring back what a delete_range has removed', async () => {
  const { table, store, late } = await opened()
  const startTs = await store.tso(1)
  late.key = utf8('in range')
  await store.prewrite(prewriteOf(startTs, [put('another'), put('in range')]))
  expect(table.late).toHaveLength(1)
  const commitTs = await store.tso(1)
  for (const key of ['another', 'in range']) await store.commit({ keys: [utf8(key)], startTs, commitTs })
  await store.deleteRange({ start: utf8('in'), end: utf8('io') })
  table.catchUp()
  expect((await store.scanLock({ maxTs: await store.tso(1), limit: 10 })).locks).toEqual([])
  expect(await read(store, 'in range', await store.tso(1))).toBeUndefined()
})

test('a late copy of a delete_range does not delete what was put after it', async () => {
  const { table, store, late } = await opened()
  const commit = async (value: string): Promise<void> => {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('k', value)]))
    await store.commit({ keys: [utf8('k')], startTs, commitTs: await store.tso(1) })
  }
  await commit('first')
  late.key = utf8('k')
  await store.deleteRange({ start: utf8('k'), end: utf8('l') })
  expect(table.late).toHaveLength(1)
  await commit('second')
  table.catchUp()
  expect(await read(store, 'k', await store.tso(1))).toBe('second')
})

test('a late removal of a record does not remove a later record', async () => {
  const { table, store, late } = await opened()
  await store.system.write([{ name: NAME, value: utf8('first') }])
  late.key = rowKeyOfSystem(NAME)
  await store.system.write([{ name: NAME, value: undefined }])
  expect(table.late).toHaveLength(1)
  await store.system.write([{ name: NAME, value: utf8('second') }])
  table.catchUp()
  expect(await store.system.get(NAME)).toEqual(utf8('second'))
})

test('a late copy of a record does not replace a later record', async () => {
  const { table, store, late } = await opened()
  late.key = rowKeyOfSystem(NAME)
  await store.system.write([{ name: NAME, value: utf8('first') }])
  expect(table.late).toHaveLength(1)
  expect(await store.system.replace(NAME, utf8('first'), utf8('second'))).toBe(true)
  table.catchUp()
  expect(await store.system.get(NAME)).toEqual(utf8('second'))
})

test('a late copy of the first write of a pin or an observer does not bring back one that was removed', async () => {
  const { table, store, late } = await opened()
  const { system } = store
  for (const name of ['pin/p', 'observer/o', 'observer/o/backfill'] as const) {
    late.key = rowKeyOfSystem(name)
    expect(await system.replace(name, undefined, utf8('first'))).toBe(true)
    expect(await system.replace(name, undefined, utf8('second'))).toBe(false)
    expect(await system.replace(name, utf8('first'), undefined)).toBe(true)
    table.catchUp()
    expect(await system.get(name)).toBeUndefined()
    expect(await system.list(name)).toEqual(new Map())
    expect(await system.many([name])).toEqual([undefined])
    // Made anew, and removed once more, while a copy of either write is on its way.
    late.key = rowKeyOfSystem(name)
    expect(await system.replace(name, undefined, utf8('third'))).toBe(true)
    expect(await system.get(name)).toEqual(utf8('third'))
    await system.write([{ name, value: undefined }])
    late.key = rowKeyOfSystem(name)
    await system.write([{ name, value: utf8('fourth') }])
    await system.write([{ name, value: undefined }])
    await system.write([{ name, value: undefined }])
    expect(table.late).toHaveLength(2)
    table.catchUp()
    expect(await system.get(name)).toBeUndefined()
  }
})

test('a collection removes what a removed record has left after an hour, and no record', async () => {
  const { table, store } = await opened()
  const [gone, young, back] = ['pin/gone', 'pin/young', 'pin/back'] as const
  const [like, odd] = ['pin/like', 'pin/odd'] as const
  const anHourAgo = Date.now() - 3_601_000
  const now = Date.now.bind(Date)
  Date.now = () => anHourAgo
  try {
    for (const name of [gone, back]) await store.system.write([{ name, value: utf8('first') }])
    for (const name of [gone, back]) await store.system.write([{ name, value: undefined }])
  } finally {
    Date.now = now
  }
  await store.system.write([{ name: young, value: utf8('first') }])
  await store.system.write([{ name: young, value: undefined }])
  await store.system.write([{ name: back, value: utf8('second') }])
  // Begins as a tombstone does.
  await replaceRecord(table, rowKeyOfSystem(like), undefined, Buffer.alloc(16, 0xc1))
  // No server writes such a row. The revision is very old.
  table.put(rowKeyOfSystem(odd), [
    { family: 'o', qualifier: RECORD, value: Buffer.from('record') },
    { family: 'v', qualifier: REVISION, value: Buffer.alloc(16) },
  ])
  await store.upkeep.collect(await store.tso(1))
  const keys = [gone, young, back, like, odd].map((name) => rowKeyOfSystem(name))
  const rows = await table.rows({ keys, columns: [{ family: 'o' }, { family: 'v' }] })
  expect(rows.map(({ key, cells }) => [key.toString('latin1', 2), cells.map(({ family }) => family).join('')])).toEqual(
    [
      [back, 'o'],
      [like, 'o'],
      [odd, 'ov'],
      [young, 'ov'],
    ],
  )
  expect([...(await store.system.list('pin/')).keys()]).toEqual([back, like, odd])
})
