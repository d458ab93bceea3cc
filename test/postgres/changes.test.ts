import { randomBytes } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { rowKeyOfSystem } from '../../src/store/table/layout/row-keys.js'
import type { ColumnRange, ColumnWrite, Expected, Family, Table } from '../../src/store/table/layout/table.js'
import { parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { ask } from '../../src/store/table/postgres/postgres-package.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { Sessions } from '../../src/store/table/postgres/sessions.js'
import { Random } from '../anomalies/random.js'
import { CuttingProxy } from './cutting-proxy.js'
import { openOwnTable, ownAddress } from './own-table.js'

const ALL: readonly ColumnRange[] = (['d', 'l', 'o', 'r', 'v', 'w'] as const).map((family) => ({ family }))
const SHORT = ALL.filter(({ family }) => family !== 'd')
const bytes = (text: string): Buffer => Buffer.from(text, 'latin1')
const cell = (family: Family, qualifier: string, value: string | undefined): ColumnWrite & Expected => ({
  family,
  qualifier: bytes(qualifier),
  value: value === undefined ? undefined : bytes(value),
})

const opened: Table[] = []
afterAll(() => Promise.all(opened.map((each) => each.close())))

/** As of several servers. */
async function openTables(count: number): Promise<readonly Table[]> {
  const address = ownAddress()
  const tables = [await openOwnTable({}, address)]
  while (tables.length < count) tables.push(await openTable(address))
  opened.push(...tables)
  return tables
}

async function textsOf(table: Table, key: string, columns = ALL): Promise<readonly string[]> {
  const [row] = await table.rows({ keys: [bytes(key)], columns })
  return (row?.cells ?? []).map(({ family, qualifier, value }) => `${family}:${qualifier}=${value}`)
}

test('changes that arrive together share statements, and each has an outcome of its own', async () => {
  const [table] = (await openTables(1)) as [Table]
  const keys = Array.from({ length: 60 }, (_, i) => `k${i}`)
  for (const key of keys.filter((_, i) => i % 3 === 0))
    await table.change(bytes(key), cell('v', 'r', undefined), [cell('v', 'r', '0')])
  const before = { ...table.calls }
  const outcomes = await Promise.all(
    keys.map((key) => table.change(bytes(key), cell('v', 'r', undefined), [cell('v', 'r', '1'), cell('w', 'a', key)])),
  )
  expect(outcomes).toEqual(keys.map((_, i) => (i % 3 === 0 ? 'refused' : 'done')))
  expect(table.calls.change - before.change).toBe(1)
  // Not of long values, which are read alone.
  const rows = await Promise.all(keys.map((key) => textsOf(table, key, SHORT)))
  expect(rows).toEqual(keys.map((key, i) => (i % 3 === 0 ? ['v:r=0'] : ['v:r=1', `w:a=${key}`])))
  expect(table.calls.read - before.read).toBe(1)
})

test('a change that PostgreSQL refuses fails alone', async () => {
  const [table] = (await openTables(1)) as [Table]
  // Longer than a row of the index, and random, so that it does not become shorter.
  const keys = [...Array.from({ length: 9 }, (_, i) => bytes(`k${i}`)), randomBytes(3000)]
  const outcomes = await Promise.allSettled(
    keys.map((key) => table.change(key, cell('v', 'r', undefined), [cell('v', 'r', '1')])),
  )
  expect(outcomes.slice(0, 9)).toEqual(Array.from({ length: 9 }, () => ({ status: 'fulfilled', value: 'done' })))
  expect(outcomes[9]).toMatchObject({ status: 'rejected', reason: { code: 'storage_unavailable' } })
})

test('changes of one row that arrive together come one after the other', async () => {
  const [table] = (await openTables(1)) as [Table]
  const change = (was: string | undefined, next: string) =>
    table.change(bytes('k'), cell('v', 'r', was), [cell('v', 'r', next)])
  expect(await Promise.all([change(undefined, '1'), change('1', '2'), change('1', '3'), change('2', '4')])).toEqual([
    'done',
    'done',
    'refused',
    'done',
  ])
  expect(await textsOf(table, 'k')).toEqual(['v:r=4'])
})

test('of changes of the same rows by several servers each counts once, and none is torn', async () => {
  const tables = await openTables(3)
  const keys = ['a', 'b', 'c', 'd']
  const random = new Random(7)
  const counts = new Map(keys.map((key) => [key, 0]))
  const server = async (table: Table, name: number): Promise<void> => {
    for (let i = 0; i < 25; i++)
      await Promise.all(
        keys.map(async (key) => {
          const [row] = await table.rows({ keys: [bytes(key)], columns: [{ family: 'v' }] })
          const value = row?.cells[0]?.value.toString('latin1')
          const next = `${Number((value ?? '0/').split('/')[0]) + 1}/${name}-${i}`
          // Some remove what is there besides, and write it again.
          const clears = random.below(3) === 0 ? ([{ family: 'w' }, { family: 'd' }] as const) : []
          const writes = [...clears, cell('v', 'r', next), cell('w', `w${random.below(3)}`, next), cell('d', 'd', next)]
          const changed = await table.change(bytes(key), cell('v', 'r', value), writes)
          if (changed === 'done') counts.set(key, (counts.get(key) ?? 0) + 1)
          expect(changed).not.toBe('unknown')
        }),
      )
  }
  await Promise.all(tables.map(server))
  for (const key of keys) {
    const texts = await textsOf(tables[0] as Table, key)
    const revision = texts.find((text) => text.startsWith('v:r='))?.slice(4) ?? ''
    expect(revision.split('/')[0]).toBe(String(counts.get(key)))
    // The last change wrote both.
    expect(texts).toContain(`d:d=${revision}`)
    expect(texts.filter((text) => text.startsWith('w:')).some((text) => text.endsWith(`=${revision}`))).toBe(true)
  }
})

test('a removal takes all that others have added, and a condition on an absent cell holds until the commit', async () => {
  const tables = await openTables(2)
  const [one, other] = tables as [Table, Table]
  for (let i = 0; i < 40; i++) {
    const key = bytes(`k${i}`)
    await one.change(key, cell('o', 'o', undefined), [cell('o', 'o', 'hint')])
    // Both depend on the hint, and leave it: so whichever is first, nothing but what came after the removal is left.
    const [removed, added, absent] = await Promise.all([
      one.change(key, cell('o', 'o', 'hint'), 'remove'),
      other.change(key, cell('o', 'o', 'hint'), [cell('o', 'c', 'claim'), cell('d', 'x', '1')]),
      other.change(key, cell('v', 'r', undefined), [cell('w', 'a', '1')]),
    ])
    expect([removed, absent]).toEqual(['done', 'done'])
    const texts = await textsOf(one, `k${i}`)
    expect(texts.filter((text) => !text.startsWith('w:'))).toEqual([])
    expect(['done', 'refused']).toContain(added)
  }
})

test('an answer that is lost leaves a change unknown, and guards count each exactly once', async () => {
  const address = ownAddress()
  opened.push(await openOwnTable({}, address))
  const port = Number(new URL(address.connection).port)
  const proxy = await CuttingProxy.start(port)
  const random = new Random(3)
  const table = await openTable(parsePostgresAddress(address.place.replace(`:${port}/`, `:${proxy.port}/`)))
  const seen = { done: 0, refused: 0, unknown: 0 }
  const read = async (): Promise<string | undefined> => {
    const [row] = await table.rows({ keys: [bytes('counter')], columns: [{ family: 'v' }] })
    return row?.cells[0]?.value.toString('latin1')
  }
  try {
    let value: string | undefined
    let count = 0
    for (let i = 0; i < 60; i++) {
      const next = `${i}`
      proxy.isCut = () => random.below(8) === 0
      const changed = await table.change(bytes('counter'), cell('v', 'r', value), [
        cell('v', 'r', next),
        cell('w', next, ''),
      ])
      proxy.isCut = () => false
      seen[changed]++
      const found = await read()
      if (changed !== 'unknown') expect(found).toBe(changed === 'done' ? next : value)
      if (found === next) count++
      expect([value, next]).toContain(found)
      value = found
    }
    expect(seen.done).toBeGreaterThan(10)
    expect(seen.unknown).toBeGreaterThan(0)
    const [row] = await table.rows({ keys: [bytes('counter')], columns: [{ family: 'w' }] })
    expect(row?.cells).toHaveLength(count)
    expect(table.inFlight).toEqual({ calls: 0, bytes: 0 })
  } finally {
    proxy.close()
    await table.close()
  }
})

test('a row of long ranges that overlap is read at one moment', async () => {
  const [table, other] = (await openTables(2)) as [Table, Table]
  const keys = Array.from({ length: 300 }, (_, i) => `k${1000 + i}`)
  await Promise.all(keys.map((key) => table.change(bytes(key), cell('v', 'r', undefined), [cell('v', 'r', '0')])))
  // The last row is in the first step of one range, and in a later step of the other.
  const ranges = [
    { start: bytes('k1000'), end: bytes('l') },
    { start: bytes('k1299'), end: bytes('l') },
  ]
  let isOver = false
  const writing = (async () => {
    for (let i = 0; !isOver; i++) {
      const writes = [cell('v', 'r', `${i + 1}`), cell('w', `${i}`, undefined), cell('w', `${i + 1}`, '')]
      expect(await other.change(bytes('k1299'), cell('v', 'r', `${i}`), writes)).toBe('done')
    }
  })()
  for (let i = 0; i < 40; i++) {
    const rows = await table.rows({ ranges, columns: ALL })
    expect(rows).toHaveLength(300)
    const texts = rows.at(-1)?.cells.map(({ family, qualifier, value }) => `${family}:${qualifier}=${value}`) ?? []
    const revision = texts[0]?.slice(4)
    expect(texts).toEqual([`v:r=${revision}`, ...(revision === '0' ? [] : [`w:${revision}=`])])
  }
  isOver = true
  await writing
})

test("the oracle's row waits neither for changes of users that stand still nor for a dead connection", async () => {
  const address = ownAddress()
  const direct = await openOwnTable({}, address)
  opened.push(direct)
  const port = Number(new URL(address.connection).port)
  const proxy = await CuttingProxy.start(port)
  const table = await openTable(parsePostgresAddress(address.place.replace(`:${port}/`, `:${proxy.port}/`)))
  const oracle = rowKeyOfSystem('oracle')
  // Far below the seconds after which a statement, or its connection, is given up.
  const swap = (was: string | undefined, next: string, withinMs = 3500) =>
    table.change(oracle, cell('o', 'o', was), [cell('o', 'o', next)], withinMs)
  const users = ['a', 'b', 'c', 'd', 'e', 'f']
  const user = (key: string, was: string | undefined, next: string) =>
    table.change(bytes(key), cell('v', 'r', was), [cell('v', 'r', next)])
  const locker = await Sessions.open(address, { sessionsMax: 1 })
  try {
    await Promise.all(users.map((key) => user(key, undefined, '1')))
    const stuck: Promise<unknown>[] = []
    await locker.with(async (client) => {
      await ask(client, { text: 'begin' })
      await ask(client, { text: `select * from ${address.table} for update` })
      for (const key of users) {
        stuck.push(user(key, '1', '2'))
        await expect.poll(() => table.inFlight.calls).toBe(Math.min(stuck.length, 4))
      }
      expect(await swap(undefined, '1')).toBe('done')
      await ask(client, { text: 'rollback' })
    })
    await Promise.all(stuck)

    proxy.silence()
    expect(await swap('1', '2', 100)).toBe('unknown')
    // At most five connections have died. The first change would be at an end, and its row free, after six seconds.
    let value: string | undefined = '1'
    for (let tries = 0; value === '1' && tries < 8; tries++) {
      await swap('1', '3', 700)
      const [row] = await direct.rows({ keys: [oracle], columns: ALL })
      value = row?.cells[0]?.value.toString()
    }
    expect(value).toBe('3')
  } finally {
    await locker.close()
    proxy.close()
    await table.close()
  }
})
