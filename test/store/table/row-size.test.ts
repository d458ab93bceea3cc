import { expect, test } from 'vitest'
import { RECORD, REVISION_COLUMN } from '../../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import { bytesOf, hasSize, sizeOf } from '../../../src/store/table/layout/row-size.js'
import { encodeSafePoint } from '../../../src/store/table/rows/safe-point-record.js'
import type { TableStore } from '../../../src/store/table/table-store.js'
import type { Timestamp } from '../../../src/timestamp.js'
import { Random } from '../../anomalies/random.js'
import { codeOf, del, prewriteOf, put, read, utf8 } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { openTableStore } from './open-table-store.js'
import { inLeaps } from './several-databases.js'

const KIB = 1024
const ROW_BYTES_MAX = 100 * KIB
const VALUE = 'x'.repeat(10 * KIB)
const K = utf8('k')

async function opened(fate: () => Fate = () => 'done') {
  const table = new MemoryTable(fate)
  return { table, store: await openTableStore(table, {}, undefined, ROW_BYTES_MAX) }
}

async function commit(store: TableStore, mutation: ReturnType<typeof put>): Promise<Timestamp> {
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [mutation]))
  const commitTs = await store.tso(1)
  await store.commit({ keys: [mutation.key], startTs, commitTs })
  return commitTs
}

/** @returns how many Puts the row took. */
async function fill(store: TableStore, value = VALUE): Promise<number> {
  for (let count = 0; count < 1000; count++) {
    const code = await codeOf(commit(store, put('k', value)))
    if (code === 'overloaded') return count
    expect(code).toBe('none')
  }
  throw new Error('the row takes any number of Puts')
}

async function counted(table: MemoryTable): Promise<number> {
  const [row] = await table.rows({ keys: [K], columns: [REVISION_COLUMN] })
  const revision = row?.cells[0]?.value
  expect(hasSize(revision)).toBe(row !== undefined)
  return bytesOf(sizeOf(revision))
}

async function held(table: MemoryTable): Promise<number> {
  const [row] = await table.rows({ keys: [K], columns: [{ family: 'w' }, { family: 'r' }, { family: 'd' }] })
  return (row?.cells ?? []).reduce((sum, { qualifier, value }) => sum + qualifier.length + value.length, 0)
}

test('a row takes no Puts once its versions are too many bytes, until they are collected, again and again', async () => {
  const { table, store } = await opened()
  for (let round = 0; round < 2; round++) {
    const count = await fill(store)
    expect(count).toBe(10)
    const all = await store.tso(1)
    expect(await held(table)).toBeGreaterThan(ROW_BYTES_MAX)
    // Others go on, and so does a Delete.
    await commit(store, put('other', VALUE))
    expect(await read(store, 'k', all)).toBe(VALUE)
    await commit(store, del('k'))
    expect(await codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('other'), put('k')])))).toBe('overloaded')
    expect((await store.scanLock({ maxTs: await store.tso(1), limit: 10 })).locks).toEqual([])
    await store.upkeep.collect(all)
    expect(await codeOf(commit(store, put('k', VALUE)))).toBe('none')
    await store.upkeep.collect(await store.tso(1))
    expect(await counted(table)).toBe(0)
  }
})

test('a refused Put collects the row, as far as the safe point lets it, and is done', async () => {
  const { table, store } = await opened()
  for (let i = 0; i < 5; i++) await commit(store, put('k', VALUE))
  const half = await store.tso(1)
  expect(await fill(store)).toBe(5)
  // No walk has come to the row yet.
  const value = encodeSafePoint({ safePoint: half, cleared: half, secondMs: undefined })
  table.put(rowKeyOfSystem('safe-point'), [{ family: 'o', qualifier: RECORD, value }])
  expect(await codeOf(commit(store, put('k', VALUE)))).toBe('overloaded')
  await store.start()
  expect(await fill(store)).toBeGreaterThanOrEqual(4)
  expect(await held(table)).toBeGreaterThan(ROW_BYTES_MAX * 0.9)
  expect(await held(table)).toBeLessThan(ROW_BYTES_MAX + 4 * VALUE.length)
  await store.close()
})

test('a size costs no change, and a prewrite that is repeated counts once', async () => {
  const { table, store } = await opened()
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('k', VALUE)]))
  const once = await counted(table)
  expect(once).toBeGreaterThan(VALUE.length)
  for (let i = 0; i < 20; i++) await store.prewrite(prewriteOf(startTs, [put('k', VALUE)]))
  expect(await counted(table)).toBe(once)
  await store.commit({ keys: [K], startTs, commitTs: await store.tso(1) })
  const before = table.calls.change
  await commit(store, put('k', VALUE))
  expect(table.calls.change).toBe(before + 2)
})

test('values that were rolled back do not count, and the next one does', async () => {
  const { table, store } = await opened()
  for (let count = 0; count < 50; count++) {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('k', VALUE)]))
    expect(await counted(table)).toBeGreaterThan(VALUE.length)
    await store.rollback({ keys: [K], startTs })
    expect(await counted(table)).toBeLessThan(VALUE.length)
  }
  expect(await fill(store)).toBe(10)
  expect(await counted(table)).toBeGreaterThanOrEqual(ROW_BYTES_MAX)
})

test('a count never leaves out more than a version, and a collection sets it right', { tags: ['long'] }, async () => {
  for (const seed of [1, 2, 3]) {
    const random = new Random(seed)
    const fates: readonly Fate[] = ['done', 'done', 'done', 'not done', 'done, answer lost', 'late']
    let isFaulty = true
    const { table, store } = await opened(() => (isFaulty ? (fates[random.below(fates.length)] as Fate) : 'done'))
    await inLeaps(table, async () => {
      let [most, refused] = [0, 0]
      for (let step = 0; step < 150; step++) {
        const startTs = await store.tso(1)
        const value = 'v'.repeat(random.below(10) === 0 ? 10 * KIB : random.below(5 * KIB))
        const mutation = random.below(8) === 0 ? del('k') : put('k', value)
        const code = await codeOf(store.prewrite(prewriteOf(startTs, [mutation])))
        if (code === 'none' && random.below(4) === 0) await store.rollback({ keys: [K], startTs })
        else if (code === 'none') await store.commit({ keys: [K], startTs, commitTs: await store.tso(1) })
        if (random.below(10) === 0) table.catchUp()
        if (code === 'overloaded') refused++
        if (code === 'overloaded' || random.below(20) === 0) await store.upkeep.collect(await store.tso(1))
        const bytes = await held(table)
        most = Math.max(most, bytes)
        expect(bytes - (await counted(table))).toBeLessThan(11 * KIB)
      }
      isFaulty = false
      table.catchUp()
      expect(most).toBeLessThan(ROW_BYTES_MAX + 11 * KIB)
      expect(refused).toBeLessThan(10)
      await commit(store, put('k'))
      await store.upkeep.collect(await store.tso(1))
      expect(await counted(table)).toBe(0)
    })
  }
})
