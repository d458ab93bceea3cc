import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyBytesMaxOf } from '../../src/store/table/layout/row-keys.js'
import { POSTGRES } from '../../src/store/table/postgres/postgres.js'
import { parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { makeTable, requireSoundTable } from '../../src/store/table/postgres/table-admin.js'
import { ownAddress } from './own-table.js'
import { PostgresServer } from './server.mjs'

/** For settings of a whole server. */
let server: PostgresServer
beforeAll(async () => {
  server = await PostgresServer.start()
})
afterAll(() => server.end())

test('an address names a table, and is printed without what may be secret', () => {
  const parse = (text: string): object => parsePostgresAddress(text)
  expect(parse('postgres://me:s3cret@db:5433/app?sslmode=require&table=kv.rows&password=x')).toEqual({
    connection: 'postgres://me:s3cret@db:5433/app?sslmode=require&password=x',
    table: '"kv"."rows"',
    place: 'postgres://me@db:5433/app?sslmode=require&table=kv.rows',
  })
  expect(parse('postgresql:///app?host=/run/postgresql')).toEqual({
    connection: 'postgresql:///app?host=%2Frun%2Fpostgresql',
    table: '"perkv"',
    place: 'postgresql:///app?host=/run/postgresql',
  })
  const wrong = [
    'postgres://u:s3cret@h:x/d',
    'postgres://u:s3cret@h/d?table=a"b',
    'postgres://u:s3cret@h/d?table=a.b.c',
    'postgres://u:s3cret@h/d?table=a&table=b',
  ]
  for (const text of wrong) {
    expect(() => parse(text)).toThrow('the address of PostgreSQL is wrong')
    expect(() => parse(text)).not.toThrow('s3cret')
  }
})

test('a table is made once, also by many servers at the same moment', async () => {
  const address = ownAddress()
  await expect(requireSoundTable(address)).rejects.toThrow(`${address.place}: there is no such table: perkv store init`)
  const made = await Promise.all(Array.from({ length: 5 }, () => makeTable(address)))
  expect(made.filter(Boolean)).toHaveLength(1)
  await requireSoundTable(address)
  expect(await makeTable(address)).toBe(false)
})

test('the longest keys fit into the index, and values of megabytes into the table', async () => {
  const address = ownAddress()
  await makeTable(address)
  const table = await openTable(address)
  // Bytes that do not compress.
  const key = Buffer.from(Array.from({ length: POSTGRES.rowKeyBytesMax }, (_, i) => (i * i * 7919 + i * 31) >> 3))
  const value = Buffer.alloc(16 << 20, 'long value')
  const column = { family: 'd', qualifier: Buffer.alloc(8, 0xff) } as const
  expect(await table.change(key, { ...column, value: undefined }, [{ ...column, value }])).toBe('done')
  const [row] = await table.rows({ keys: [key], columns: [{ family: 'd' }] })
  expect(row?.cells[0]?.value.equals(value)).toBe(true)
  expect(keyBytesMaxOf(POSTGRES)).toBe(2600)
  await table.close()
})

test('what is not a table of PerKV, or would be empty after a crash, is refused in one line', async () => {
  const cases: readonly (readonly [string, string])[] = [
    ['create table foreign_one (id int primary key)', 'is not a table of PerKV: it has (id integer, PRIMARY KEY (id))'],
    [
      'create table foreign_two (key bytea, family "char", qualifier bytea, value bytea, primary key (key, qualifier, family))',
      'is not a table of PerKV',
    ],
    [
      'create unlogged table foreign_three (key bytea, family "char", qualifier bytea, value bytea, primary key (key, family, qualifier))',
      'is unlogged or temporary',
    ],
    ['create view foreign_four as select 1 as key', 'is not a table of PerKV'],
  ]
  for (const [statement, why] of cases) {
    await server.query(statement)
    const name = /foreign_\w+/.exec(statement)?.[0]
    const address = parsePostgresAddress(server.url(name))
    for (const look of [requireSoundTable, makeTable])
      await expect(look(address)).rejects.toThrow(`${address.place}: "${name}" ${why}`)
  }
})

test('a database that may lose commits, or takes no writes, is refused, and torn pages are warned of', async () => {
  const address = parsePostgresAddress(server.url())
  await makeTable(address)
  const warnings: string[] = []
  const look = (options = ''): Promise<void> =>
    requireSoundTable(parsePostgresAddress(`${server.url()}${options}`), (message) => warnings.push(message))
  await look()
  await expect(look('?options=-c%20synchronous_commit%3Doff')).rejects.toThrow('synchronous_commit is off')
  await expect(look('?options=-c%20default_transaction_read_only%3Don')).rejects.toThrow('the session is read-only')
  await expect(look('?user=nobody_of_that_name')).rejects.toThrow('role "nobody_of_that_name" does not exist')
  await server.query('create role guest login')
  await expect(look('?user=guest')).rejects.toThrow('the user may not select, insert, update and delete in "perkv"')
  expect(warnings).toEqual([])
  server.configure(['full_page_writes = off'])
  await server.stop()
  await server.start()
  await look()
  expect(warnings).toEqual([expect.stringContaining('full_page_writes is off')])
  server.configure(['fsync = off'])
  await server.stop()
  await server.start()
  await expect(look()).rejects.toThrow(`${address.place}: fsync is off`)
})
