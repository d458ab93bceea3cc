import { afterEach, expect, test, vi } from 'vitest'
import { NEWEST_FORMAT } from '../../src/store/table/format/format-row.js'
import type { Table } from '../../src/store/table/layout/table.js'
import type { PostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { Sessions } from '../../src/store/table/postgres/sessions.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { utf8 } from '../store/support.js'
import { type JoinedServer, JoinedServers } from '../store/table/joined-servers.js'
import { ownAddress } from './own-table.js'

const SERVING = { place: 'postgres', newest: NEWEST_FORMAT }
const KEYS = ['a', 'b'].map(utf8)
const ROW = { key: Buffer.from('k'), expected: { family: 'v', qualifier: Buffer.from('r') } } as const
const COLUMNS = [{ family: 'v' }] as const

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})

async function opened(address: PostgresAddress): Promise<Table> {
  const table = await openTable(address)
  closing.push(() => table.close())
  return table
}

/** Programs with connections of their own. */
async function started(count: number): Promise<JoinedServer[]> {
  const address = ownAddress()
  await makeTable(address)
  const servers: JoinedServer[] = []
  const joined = new JoinedServers(await opened(address))
  for (let i = 0; i < count; i++)
    servers.push(await joined.start(`${i}`, SERVING, 4000, { table: await openTable(address) }))
  closing.push(async () => {
    for (const { database } of servers) await database.close()
  })
  return servers
}

function put({ database }: JoinedServer, value: string, keys: readonly Uint8Array[] = KEYS): Promise<unknown> {
  return database.transact({
    ...{ checks: [], maxRetries: 100, lockWaitMs: 10_000 },
    ops: keys.map((key) => ({ op: 'put' as const, key, value: utf8(value) })),
  })
}

async function terminate(address: PostgresAddress): Promise<void> {
  const sessions = await Sessions.open(address, { sessionsMax: 1 })
  const text = `select pg_terminate_backend(pid) from pg_stat_activity
    where state = 'idle in transaction' and query like '%${address.table}%'`
  await sessions.ask({ text })
  await sessions.close()
}

test('what is read at a timestamp stays so, while other servers commit in one phase', async () => {
  const [reader, ...writers] = await started(3)
  if (reader === undefined) throw new Error('no server')
  await put(reader, '0')
  let isOver = false
  const writing = writers.map(async (writer, i) => {
    for (let n = 0; !isOver; n++) await put(writer, `${i} ${n}`)
  })
  const { store } = reader
  for (let i = 0; i < 150; i++) {
    const ts = await store.tso(1)
    // Each is a statement of its own, so that one may come before a commit and the other after it.
    const [a, b] = await Promise.all(KEYS.map((key) => store.get({ key, ts })))
    const again = await store.batchGet({ keys: KEYS, ts })
    expect(a).toMatchObject({ found: true })
    expect(a).toEqual(b)
    expect(again.pairs.map(({ commitTs }) => commitTs)).toEqual([a, b].map((one) => one?.found && one.commitTs))
  }
  isOver = true
  await Promise.all(writing)
  // Of two writers of the same keys one may be left behind.
  const commits = writers.map((writer) => writer.store.figures.meters.commits)
  const count = (of: 'onePhase' | 'twoPhase'): number => commits.reduce((sum, each) => sum + each[of], 0)
  expect(count('onePhase')).toBeGreaterThan(10)
  expect(count('twoPhase')).toBeLessThan(count('onePhase'))
})

test('new keys are found by scans at a timestamp, or come later', async () => {
  const [reader, writer] = await started(2)
  if (reader === undefined || writer === undefined) throw new Error('no server')
  let [isOver, count] = [false, 0]
  const writing = (async () => {
    for (; !isOver; count++) await put(writer, 'x', [utf8(`new ${count}`), utf8(`other ${count}`)])
  })()
  await vi.waitFor(() => expect(count).toBeGreaterThan(0))
  const { store } = reader
  for (let i = 0; i < 60; i++) {
    const ts = await store.tso(1)
    const range = { start: utf8('new '), end: utf8('new~'), limit: 1000, ts }
    const first = await store.scan(range)
    expect((await store.scan(range)).pairs.map(({ commitTs }) => commitTs)).toEqual(
      first.pairs.map(({ commitTs }) => commitTs),
    )
    const others = await store.scan({ ...range, start: utf8('other '), end: utf8('other~') })
    expect(others.pairs).toHaveLength(first.pairs.length)
  }
  isOver = true
  await writing
})

test('a connection that is lost before the commit leaves nothing, and nobody waits for it', async () => {
  const address = ownAddress()
  await makeTable(address)
  const [one, two] = [await opened(address), await opened(address)]
  const was = Buffer.from('1')
  const next = { ...ROW.expected, value: Buffer.from('2') }
  await one.change(ROW.key, { ...ROW.expected, value: undefined }, [{ ...ROW.expected, value: was }])
  const rows = [{ key: ROW.key, expected: { ...ROW.expected, value: was } }]
  let reading: Promise<unknown> | undefined
  const changed = one.changeTogether?.(rows, async () => {
    reading = two.rows({ keys: [ROW.key], columns: COLUMNS, settled: true })
    await terminate(address)
    return [[next]]
  })
  expect(['refused', 'unknown']).toContain(await changed)
  expect(await reading).toMatchObject([{ cells: [{ value: was }] }])
  await vi.waitFor(async () => expect(await one.changeTogether?.(rows, async () => [[next]])).toBe('done'))
  expect(await two.rows({ keys: [ROW.key], columns: COLUMNS, settled: true })).toMatchObject([
    { cells: [{ value: next.value }] },
  ])
})

test('a change that takes no commit_ts in time is given up, and its rows are free', async () => {
  const address = ownAddress()
  await makeTable(address)
  const table = await opened(address)
  const was = Buffer.from('1')
  await table.change(ROW.key, { ...ROW.expected, value: undefined }, [{ ...ROW.expected, value: was }])
  const rows = [{ key: ROW.key, expected: { ...ROW.expected, value: was } }]
  expect(await table.changeTogether?.(rows, () => new Promise(() => {}))).toBe('refused')
  expect(await table.changeTogether?.(rows, async () => [[{ ...ROW.expected, value: was }]])).toBe('done')
})
