import { afterAll, beforeAll, expect, test } from 'vitest'
import { runCli, type ServerProcess, startProcess } from '../process/server-process.js'
import { PostgresServer } from './server.mjs'

let postgres: PostgresServer
let address: string
const servers: ServerProcess[] = []

beforeAll(async () => {
  postgres = await PostgresServer.start()
  await postgres.query('create role app login; grant all on schema public to app')
  address = postgres.url().replace('perkv@', 'app:s3cret@')
})
afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop('SIGKILL')))
  await postgres.end()
})

async function start(): Promise<ServerProcess> {
  const server = await startProcess('-', ['--store', address, '--log-level', 'error', '--loop-delay-ms-max', '0'])
  servers.push(server)
  return server
}

const put = (server: ServerProcess, key: string, value: string): Promise<Response> =>
  fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body: value })
const get = async (server: ServerProcess, key: string): Promise<string> =>
  (await fetch(`${server.url}/v1/kv/${key}`)).text()
const codeOf = async (response: Response): Promise<unknown> => ((await response.json()) as { code?: unknown }).code

test('init makes the table once, servers share it, check finds it sound, and no password is printed', async () => {
  const place = address.replace(':s3cret', '')
  const missing = await runCli(['serve', '--port', '0', '--store', address])
  expect(missing).toMatchObject({ code: 1, stdout: '' })
  expect(missing.stderr).toContain(`${place}: there is no such table: perkv store init makes it`)
  expect(missing.stderr).not.toContain('s3cret')
  const first = await runCli(['store', 'init', address])
  expect(first).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining(`made the table of ${place}\n`) })
  const second = await runCli(['store', 'init', address])
  expect(second).toMatchObject({ code: 0, stdout: expect.stringContaining(`${place} is there already`) })
  const [one, other] = await Promise.all([start(), start()])
  expect((await put(one, 'hello', 'world')).status).toBe(200)
  expect(await get(other, 'hello')).toBe('world')
  expect(one.readyLine).toContain(`data in ${place}`)
  const status = (await (await fetch(`${other.url}/v1/status`)).json()) as { store: unknown; servers: unknown[] }
  expect(JSON.stringify(status)).not.toContain('s3cret')
  const check = await runCli(['store', 'check', address])
  expect(check).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/\nsound\n$/) })
  expect(first.stdout + second.stdout + check.stdout).not.toContain('s3cret')
  expect(await runCli(['store', 'upgrade', address])).toMatchObject({
    code: 0,
    stdout: `${place} has format 2 already, the newest of this PerKV\n`,
  })
  expect((await runCli(['store', 'move', address])).code).toBe(2)
})

test('requests wait for a PostgreSQL that takes no connection for a moment, and go on', async () => {
  const server = await start()
  await put(server, 'k', 'before')
  await postgres.query('alter role app connection limit 0')
  await postgres.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'")
  const answer = put(server, 'k', 'after')
  await postgres.query('alter role app connection limit -1')
  expect((await answer).status).toBe(200)
  expect(await get(server, 'k')).toBe('after')
})

test('a table that is gone, and a PostgreSQL that is, are 503 until they are back', async () => {
  const server = await start()
  await put(server, 'k', '1')
  await postgres.query('alter table perkv rename to elsewhere')
  const refused = await put(server, 'k', '2')
  expect(refused.status).toBe(503)
  expect(await codeOf(refused)).toBe('storage_unavailable')
  await postgres.query('alter table elsewhere rename to perkv')
  await expect.poll(async () => (await put(server, 'k', '3')).status).toBe(200)
  await postgres.stop()
  const away = await fetch(`${server.url}/v1/kv/k`)
  expect(away.status).toBe(503)
  expect(await codeOf(away)).toBe('storage_unavailable')
  await postgres.start()
  await expect.poll(() => get(server, 'k')).toBe('3')
  await expect.poll(async () => (await put(server, 'k', '4')).status).toBe(200)
})

test('no acknowledged commit is lost where PostgreSQL is killed, and none is done twice', async () => {
  const two = await Promise.all([start(), start()])
  let acknowledged = 0
  let undecided = 0
  let isOver = false
  const client = async (i: number): Promise<void> => {
    while (!isOver) {
      const response = await fetch(`${(two[i % 2] as ServerProcess).url}/v1/txn`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          ops: [
            { op: 'increment', key: 'count', by: 1 },
            { op: 'put', key: `of ${i}`, value: '' },
          ],
        }),
      })
      if (response.ok) acknowledged++
      else if (response.status >= 500) undecided++
      await response.arrayBuffer()
    }
  }
  const clients = Array.from({ length: 6 }, (_, i) => client(i))
  for (let kills = 1; kills <= 2; kills++) {
    const before = acknowledged
    await expect.poll(() => acknowledged).toBeGreaterThan(before + 10)
    await postgres.stop('SIGKILL')
    await postgres.start()
  }
  const before = acknowledged
  await expect.poll(() => acknowledged).toBeGreaterThan(before + 10)
  isOver = true
  await Promise.all(clients)
  const count = Number(await get(two[0], 'count'))
  expect(count).toBeGreaterThanOrEqual(acknowledged)
  expect(count).toBeLessThanOrEqual(acknowledged + undecided)
  const check = await runCli(['store', 'check', address])
  expect(check).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nsound\n$/) })
})

test('too many connections, and a table of others in place of its own, are 503 until they are gone', async () => {
  const server = await start()
  await put(server, 'k', 'before')
  await postgres.query('alter role app connection limit 0')
  await postgres.query("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'")
  const full = await put(server, 'k', 'full')
  expect([full.status, await codeOf(full)]).toEqual([503, 'storage_unavailable'])
  await postgres.query('alter role app connection limit -1')
  await expect.poll(async () => (await put(server, 'k', 'mended')).status).toBe(200)

  await postgres.query('alter table perkv rename to elsewhere; create table perkv (id int primary key)')
  await postgres.query('grant all on perkv to app')
  const foreign = await put(server, 'k', 'foreign')
  expect(foreign.status).toBe(503)
  expect(await foreign.json()).toMatchObject({ code: 'storage_unavailable', detail: expect.stringContaining('column') })
  const ready = await fetch(`${server.url}/readyz`)
  expect(ready.status).toBe(503)
  const other = await runCli(['serve', '--port', '0', '--store', address])
  expect(other).toMatchObject({ code: 1, stderr: expect.stringContaining('"perkv" is not a table of PerKV') })
  await postgres.query('drop table perkv; alter table elsewhere rename to perkv')
  await expect.poll(async () => (await put(server, 'k', 'back')).status).toBe(200)
  expect(await get(server, 'k')).toBe('back')
})
