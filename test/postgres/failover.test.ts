import { afterAll, afterEach, expect, test } from 'vitest'
import type { Table } from '../../src/store/table/layout/table.js'
import { parsePostgresAddress } from '../../src/store/table/postgres/postgres-address.js'
import { openTable } from '../../src/store/table/postgres/postgres-table.js'
import { makeTable } from '../../src/store/table/postgres/table-admin.js'
import { killAll, runCli, type ServerProcess, startProcess } from '../process/server-process.js'
import { CuttingProxy } from './cutting-proxy.js'
import { PostgresServer } from './server.mjs'

const started: PostgresServer[] = []
const proxies: CuttingProxy[] = []
afterEach(async () => {
  killAll()
  for (const proxy of proxies.splice(0)) proxy.close()
  await Promise.all(started.splice(0).map((server) => server.end()))
})

/** Where servers connect to, whichever PostgreSQL is the primary. */
async function serve(): Promise<{ primary: PostgresServer; proxy: CuttingProxy; address: string }> {
  const primary = keep(await PostgresServer.start(['wal_keep_size = 256MB']))
  const proxy = await CuttingProxy.start(primary.port)
  proxies.push(proxy)
  return { primary, proxy, address: primary.url().replace(`:${primary.port}/`, `:${proxy.port}/`) }
}

function keep(server: PostgresServer): PostgresServer {
  started.push(server)
  return server
}

async function standbyOf(primary: PostgresServer): Promise<PostgresServer> {
  const standby = keep(await primary.standby())
  await standby.start()
  return standby
}

async function caughtUp(standby: PostgresServer, primary: PostgresServer): Promise<void> {
  const [{ lsn }] = await primary.query('select pg_current_wal_lsn() as lsn')
  const isThere = `select pg_last_wal_replay_lsn() >= '${lsn}' as yes`
  await expect.poll(async () => (await standby.query(isThere))[0].yes).toBe(true)
}

interface Opened {
  readonly losses: readonly string[]
  /** Replaces the value of a row by the next number. */
  write(): Promise<unknown>
}

const open: Table[] = []
afterAll(() => Promise.all(open.map((table) => table.close())))

async function openCounter(address: string): Promise<Opened> {
  const losses: string[] = []
  const parsed = parsePostgresAddress(address)
  await makeTable(parsed)
  const table = await openTable(parsed, { onLoss: ({ why }) => losses.push(why) })
  open.push(table)
  const column = { family: 'v', qualifier: Buffer.from('r') } as const
  const key = Buffer.from('k')
  let last: Buffer | undefined
  let count = 0
  return {
    losses,
    async write() {
      const value = Buffer.from(`${++count}`)
      try {
        const changed = await table.change(key, { ...column, value: last }, [{ ...column, value }])
        if (changed === 'done') last = value
        return changed
      } catch (error) {
        return (error as Error).message
      }
    },
  }
}

test('a replica that has all goes on being served, and one that lacks the last commit is not', async () => {
  const { primary, proxy, address } = await serve()
  const counter = await openCounter(address)
  expect(await counter.write()).toBe('done')
  const second = await standbyOf(primary)
  expect(await counter.write()).toBe('done')
  await caughtUp(second, primary)
  await primary.stop('SIGKILL')
  await second.promote()
  proxy.target = second.port
  await expect.poll(() => counter.write()).toBe('done')
  expect(counter.losses).toEqual([])

  const third = await standbyOf(second)
  await caughtUp(third, second)
  await third.stop()
  expect(await counter.write()).toBe('done')
  await second.stop('SIGKILL')
  await third.start()
  await third.promote()
  proxy.target = third.port
  const why = 'timeline 2 to 3: commits that were answered are lost'
  await expect.poll(() => counter.write()).toBe(`PostgreSQL: ${why}`)
  expect(counter.losses).toEqual([why])
})

test('a replica whose log ends between the last change and its commit has lost it', async () => {
  const { primary, proxy, address } = await serve()
  const counter = await openCounter(address)
  expect(await counter.write()).toBe('done')
  const replica = keep(await primary.standby())
  expect(await counter.write()).toBe('done')
  const [{ xid }] = await primary.query('select max(xmin::text::bigint)::text as xid from perkv')
  // It follows the primary up to the commit, and becomes one itself.
  replica.configure([
    `recovery_target_xid = '${xid}'`,
    'recovery_target_inclusive = off',
    "recovery_target_action = 'promote'",
  ])
  await replica.start()
  await expect.poll(async () => (await replica.query('select pg_is_in_recovery() as yes'))[0].yes).toBe(false)
  await primary.stop()
  expect(await replica.query('select * from perkv')).toHaveLength(1)
  proxy.target = replica.port
  await expect.poll(() => counter.write()).toBe('PostgreSQL: timeline 1 to 2: commits that were answered are lost')
})

test('an older copy of the files is found, and a restart or a crash loses nothing', async () => {
  const { primary, proxy, address } = await serve()
  const counter = await openCounter(address)
  for (const signal of ['SIGINT', 'SIGKILL'] as const) {
    expect(await counter.write()).toBe('done')
    await primary.stop(signal)
    await primary.start()
    await expect.poll(() => counter.write()).toBe('done')
  }
  await primary.stop()
  const copy = keep(await primary.copy())
  await primary.start()
  await expect.poll(() => counter.write()).toBe('done')
  expect(counter.losses).toEqual([])
  await primary.stop()
  await copy.start()
  proxy.target = copy.port
  const why = 'an older copy of the data: commits that were answered are lost'
  await expect.poll(() => counter.write()).toBe(`PostgreSQL: ${why}`)
})

test('servers end after a failover that lost commits, and serve again once that is accepted, with later timestamps', async () => {
  const { primary, proxy, address } = await serve()
  expect(await runCli(['store', 'init', address])).toMatchObject({ code: 0 })
  const start = (): Promise<ServerProcess> => startProcess('-', ['--store', address, '--log-level', 'fatal'])
  const servers = await Promise.all([start(), start()])
  const put = (server: ServerProcess, key: string): Promise<number> =>
    fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body: '1' }).then(({ status }) => status)
  const timestamp = async (server: ServerProcess): Promise<number> => {
    const body = JSON.stringify({ count: 1 })
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(`${server.url}/v1/percolator/tso`, { method: 'POST', headers, body })
    return ((await answer.json()) as { ts: number }).ts
  }
  const replica = await standbyOf(primary)
  for (const server of servers) expect(await put(server, 'kept')).toBe(200)
  await caughtUp(replica, primary)
  await replica.stop()
  for (const server of servers) expect(await put(server, 'lost')).toBe(200)
  const before = await timestamp(servers[0] as ServerProcess)
  await primary.stop('SIGKILL')
  await replica.start()
  await replica.promote()
  proxy.target = replica.port
  const ends = servers.map((server) => server.ended)
  expect(await Promise.all(ends)).toEqual([
    { code: 1, signal: null },
    { code: 1, signal: null },
  ])

  const told = `perkv: ${address}: timeline 1 to 2: commits that were answered are lost: see what is missing, then run perkv store accept '${address}'\n`
  const refused = await runCli(['serve', '--port', '0', '--store', address])
  expect(refused).toEqual({ code: 1, stdout: '', stderr: told })
  const accepted = await runCli(['store', 'accept', address])
  expect(accepted).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining('timeline 1 to 2') })
  expect(await runCli(['store', 'accept', address])).toMatchObject({
    stdout: expect.stringContaining('no server had found a loss'),
  })
  const after = await start()
  expect(await timestamp(after)).toBeGreaterThan(before)
  expect((await fetch(`${after.url}/v1/kv/kept`)).status).toBe(200)
  expect((await fetch(`${after.url}/v1/kv/lost`)).status).toBe(404)
  expect(await put(after, 'lost')).toBe(200)
  expect(await runCli(['store', 'check', address])).toMatchObject({ code: 0 })
})
