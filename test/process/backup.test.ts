import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { appendFile, readFile, rename, truncate, writeFile } from 'node:fs/promises'
import { createServer, request, type Server } from 'node:http'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { backup as backupCommand } from '../../src/commands/backup.js'
import type { Command } from '../../src/commands/command.js'
import { dump } from '../../src/commands/dump.js'
import { load } from '../../src/commands/load.js'
import { restore as restoreCommand } from '../../src/commands/restore.js'
import { CLI, ENV, killAll, runCli, type ServerProcess, startProcess, withTempDir } from './server-process.js'

afterAll(killAll)

const BLOCKS = 12

/** In the year 2100. */
const FAR_TS = Date.UTC(2100) * 2048

/** Short values, long ones, bytes that are no text, some that expire one day: a dozen blocks. */
async function fill({ url }: ServerProcess): Promise<void> {
  const ops = Array.from({ length: BLOCKS * 4 }, (_, i) => ({
    op: 'put',
    key: i % 5 === 0 ? { base64: Buffer.of(255, i).toString('base64') } : `key ${i}`,
    value: i % 7 === 0 ? { base64: Buffer.alloc(65_000, 200 + i).toString('base64') } : `${i}`.repeat(30_000),
    ...(i % 6 === 0 && { expire_ts: FAR_TS + i }),
  }))
  await send(`${url}/v1/txn`, 'POST', { ops })
}

function send(url: string, method: string, body: object): Promise<Record<string, unknown>> {
  return json(url, { method, body: JSON.stringify(body), headers: { 'content-type': 'application/json' } })
}

async function json(url: string, init: RequestInit = {}): Promise<Record<string, unknown>> {
  const response = await fetch(url, init)
  expect(response.status).toBe(200)
  return (await response.json()) as Record<string, unknown>
}

async function scan({ url }: ServerProcess, fields = /,"commit_ts":\d+/g): Promise<string> {
  const response = await fetch(`${url}/v1/kv`, { headers: { accept: 'application/x-ndjson' } })
  return (await response.text()).replace(fields, '')
}

const NOTHING = /(?!)/g

/** Runs a command that must succeed. */
async function perkv(server: ServerProcess, ...args: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await runCli([...args, '--server', server.url])
  expect(stderr).not.toMatch(/\bat .*\.js:\d+/)
  expect([code, stderr]).toEqual([0, stderr])
  return { stdout, stderr }
}

/** What a command says that fails, without the process around it. */
async function failure(command: Command, ...args: readonly string[]): Promise<string> {
  try {
    await command.run([...args, '--quiet'], {})
  } catch (error) {
    return `${(error as Error).name}: ${(error as Error).message}`
  }
  return 'none'
}

/** Runs a command that must fail, in one line. */
async function refused(code: number, args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const finished = await runCli(args, env)
  expect(finished.stderr.trimEnd().split('\n')).toHaveLength(1)
  expect(finished.code).toBe(code)
  return finished.stderr
}

describe('perkv backup and restore', () => {
  test('a file, a file begun before, and a pipe; then kill -9 in the middle of a restore', () =>
    withTempDir(async (directory) => {
      const server = await startProcess(join(directory, 'from'))
      await fill(server)
      const all = await scan(server, NOTHING)
      const file = join(directory, 'a.backup')
      const { stderr } = await perkv(server, 'backup', file)
      expect(stderr).toMatch(/^perkv backup: 48 keys, [\d.]+ MB in [\d.]+ s \(.*\), ts \d+\n$/)
      const whole = await readFile(file)
      const ts = /ts (\d+)/.exec(stderr)?.[1] ?? ''

      // What an interrupted run leaves: the next one asks for the rest of the same snapshot, though there is a newer one.
      await fetch(`${server.url}/v1/kv/later`, { method: 'PUT', body: 'v' })
      await rename(file, `${file}.part`)
      await truncate(`${file}.part`, Math.floor(whole.length / 2))
      await appendFile(`${file}.part`, 'torn')
      expect((await perkv(server, 'backup', file)).stderr).toMatch(/going on after \d\d keys of ts/)
      expect((await readFile(file)).equals(whole)).toBe(true)
      expect(existsSync(`${file}.part`)).toBe(false)
      // Of another snapshot: begun again.
      await writeFile(`${file}.part`, whole.subarray(0, 1_000_000))
      expect(await failure(backupCommand, '--server', server.url, '--ts', String(Number(ts) - 1), file)).toBe('none')
      expect((await readFile(file)).subarray(0, 200).equals(whole.subarray(0, 200))).toBe(false)
      await writeFile(file, whole)

      const data = join(directory, 'to')
      let to = await startProcess(data)
      expect(await failure(restoreCommand, '--server', server.url, file)).toMatch(
        /412 precondition_failed: .*not empty/,
      )
      const damaged = join(directory, 'damaged')
      await writeFile(damaged, whole.subarray(0, -1))
      expect(await refused(1, ['restore', '--server', to.url, damaged])).toMatch(/damaged: the backup is cut off after/)
      expect(await json(`${to.url}/v1/status`)).not.toHaveProperty('restoring')

      // Half of it, by a client that then falls silent; the kill comes once some of it is stored.
      const half = request(`${to.url}/v1/admin/restore`, { method: 'POST' })
      half.on('error', () => {})
      half.write(whole.subarray(0, Math.floor(whole.length / 2)))
      while ((((await json(`${to.url}/v1/status`))['restoring'] ?? { pairs: 0 }) as { pairs: number }).pairs === 0);
      await to.stop('SIGKILL')
      to = await startProcess(data)
      expect((await fetch(`${to.url}/readyz`)).status).toBe(503)
      expect((await json(`${to.url}/v1/status`))['restoring']).toMatchObject({ ts: Number(ts) })
      expect(await failure(restoreCommand, '--server', to.url, file)).toBe('none')
      expect(await scan(to, NOTHING)).toBe(all)
      await to.stop('SIGTERM')
      to = await startProcess(data)
      expect(await scan(to, NOTHING)).toBe(all)
      expect((await fetch(`${to.url}/v1/kv/later`, { method: 'PUT', body: 'v' })).status).toBe(200)

      // From stdout to stdin.
      const third = await startProcess(join(directory, 'third'))
      const from = spawn(process.execPath, [CLI, 'backup', '-', '--server', server.url, '--ts', ts], { env: ENV })
      const into = spawn(process.execPath, [CLI, 'restore', '-', '--server', third.url], { env: ENV })
      from.stdout.pipe(into.stdin)
      expect(await Promise.all([codeOf(from), codeOf(into)])).toEqual([0, 0])
      expect(await scan(third, NOTHING)).toBe(all)
      for (const one of [server, to, third]) await one.stop('SIGKILL')
    }))

  test('a connection that breaks again and again', () =>
    withTempDir(async (directory) => {
      const server = await startProcess(join(directory, 'from'))
      await fill(server)
      const all = await scan(server, NOTHING)
      const to = await startProcess(join(directory, 'to'))
      let breaks = 0
      // Cuts the first answers after a while, and the first bodies.
      const through = (target: string): Promise<Server> =>
        listening((incoming, outgoing) => {
          let left = breaks++ < 4 ? 900_000 : Number.POSITIVE_INFINITY
          const forwarded = request(`${target}${incoming.url}`, { method: incoming.method, headers: incoming.headers })
          const cut = (length: number): void => {
            left -= length
            if (left <= 0) incoming.socket.destroy()
          }
          forwarded.on('error', () => incoming.socket.destroy())
          outgoing.on('close', () => outgoing.writableEnded || forwarded.destroy())
          incoming.on('data', ({ length }) => cut(length)).pipe(forwarded)
          forwarded.on('response', (answer) => {
            outgoing.writeHead(answer.statusCode ?? 0, answer.headers)
            answer.on('data', ({ length }) => cut(length)).pipe(outgoing)
          })
        })
      const file = join(directory, 'a.backup')
      const slow = await through(server.url)
      expect(await failure(backupCommand, '--server', urlOf(slow), file)).toBe('none')
      expect(breaks).toBeGreaterThan(4)
      breaks = 1
      const slowTo = await through(to.url)
      expect(await failure(restoreCommand, '--server', urlOf(slowTo), file)).toBe('none')
      expect(breaks).toBeGreaterThan(4)
      expect(await scan(to, NOTHING)).toBe(all)
      for (const proxy of [slow, slowTo]) proxy.close()
      for (const one of [server, to]) await one.stop('SIGKILL')
    }))
})

describe('perkv dump and load', () => {
  test('dump | load is the same data; ranges; lines that cannot be loaded', () =>
    withTempDir(async (directory) => {
      const server = await startProcess(join(directory, 'from'))
      await fill(server)
      const { fence } = await send(`${server.url}/v1/leases/up`, 'PUT', { holder: 'h', ttl_ms: 600_000 })
      await send(`${server.url}/v1/txn`, 'POST', {
        checks: [{ lease: 'up', fence }],
        ops: [{ op: 'put', key: 'attached', value: 'v', lease: 'up' }],
      })
      const to = await startProcess(join(directory, 'to'))
      const from = spawn(process.execPath, [CLI, 'dump', '--quiet', '--server', server.url], { env: ENV })
      const into = spawn(process.execPath, [CLI, 'load', '-', '--batch', '5', '--server', to.url], { env: ENV })
      from.stdout.pipe(into.stdin)
      expect(await Promise.all([codeOf(from), codeOf(into)])).toEqual([0, 0])
      expect(await scan(to)).toBe(await scan(server, /,"(?:commit_ts|lease_fence)":\d+/g))
      expect((await scan(to)).match(/"expire_ts":\d+/g)).toHaveLength(8)

      const file = join(directory, 'some.ndjson')
      expect(await failure(dump, '--server', server.url, '--prefix', 'key 1', file)).toBe('none')
      const lines = (await readFile(file, 'utf8')).trimEnd().split('\n')
      expect(lines.map((line) => JSON.parse(line).key)).toEqual(
        ['1', '11', '12', '13', '14', '16', '17', '18', '19'].map((n) => `key ${n}`),
      )
      expect((await perkv(server, 'dump', '--start', 'key 8', '--end', 'key 9')).stdout).toMatch(
        /^{"key":"key 8",[^\n]*}\n$/,
      )

      const third = await startProcess(join(directory, 'third'))
      const line = (key: string, value: unknown): string => `${JSON.stringify({ key, value })}\n`
      // The later line of one key counts, in whatever order the batches come through.
      const rounds = Array.from({ length: 40 }, (_, i) => line('same', `round ${i}`) + line(`k${i}`, 'v'))
      await writeFile(file, `${rounds.join('')}\n{"key": "bad", "value": 5}\n${line('last', 'v')}`)
      const args = ['load', '--server', third.url, '--quiet', '--batch', '3', file]
      const stopped = await refused(1, args)
      expect(stopped).toMatch(/line 82: needs a value.*all up to line 78 is stored, go on with --skip-lines 78\n$/)
      expect(await fetch(`${third.url}/v1/kv/same`).then((r) => r.text())).toBe('round 38')
      await writeFile(file, (await readFile(file, 'utf8')).replace('5}', '"5"}'))
      expect(await failure(load, '--server', third.url, '--skip-lines', '78', file)).toBe('none')
      expect((await json(`${third.url}/v1/kv?count_only`))['count']).toBe(43)
      expect(await fetch(`${third.url}/v1/kv/same`).then((r) => r.text())).toBe('round 39')

      // What has expired since the dump hides what was there before it.
      await writeFile(file, '{"key": "same", "value": "v", "commit_ts": 4, "expire_ts": 5}\n')
      expect(await failure(load, '--server', third.url, file)).toBe('none')
      expect((await fetch(`${third.url}/v1/kv/same`)).status).toBe(404)

      for (const [text, problem] of [
        ['{"key": "k", "value": "v", "expire_ts": 0}', /line 2: has an expire_ts that is no timestamp/],
        ['{"key": "k", "value": "v", "expire_ts": "5"}', /line 2: has an expire_ts that is no timestamp/],
        ['{"key": "k", "value": "v", "expire_ts": 9007199254740993}', /line 2: has an expire_ts that is no timestamp/],
        ['{"key": "k"', /line 2: is not JSON/],
        ['[]', /line 2: is no JSON object/],
        ['{"value": "v"}', /line 2: needs a key/],
        ['{"key": "", "value": "v"}', /line 2: needs a key/],
        ['{"key": "k", "value": "v", "ttl": 5}', /line 2: has an unknown field "ttl"/],
        [`{"key": "${'k'.repeat(4097)}", "value": "v"}`, /line 2: the server answered 413 payload_too_large/],
        ['{"key": {"base64": "?"}, "value": "v"}', /line 2: the server answered 400 invalid_argument/],
      ] as const) {
        await writeFile(file, `${line('k', 'v')}${text}\n`)
        expect(await failure(load, '--server', third.url, file)).toMatch(problem)
      }
      await writeFile(file, Buffer.from([...Buffer.from('{"key": "'), 0xff, ...Buffer.from('", "value": "v"}')]))
      expect(await failure(load, '--server', third.url, file)).toMatch(/line 1: is not UTF-8/)
      for (const one of [server, to, third]) await one.stop('SIGKILL')
    }))

  test('backup, increments and dump are of the snapshot below a lock that lives, and do not wait for it', () =>
    withTempDir(async (directory) => {
      const server = await startProcess(join(directory, 'from'))
      const [full, increment, lines] = ['full', 'increment', 'lines'].map((name) => join(directory, name)) as [
        string,
        string,
        string,
      ]
      const put = (key: string) => fetch(`${server.url}/v1/kv/${key}`, { method: 'PUT', body: 'v' })
      await put('a')
      const call = (name: string, body: object) => send(`${server.url}/v1/percolator/${name}`, 'POST', body)
      const startTs = Number((await call('tso', {}))['ts'])
      const at = ['--server', server.url]
      expect(await failure(backupCommand, ...at, increment)).toBe('none')
      const mutations = [{ op: 'put', key: 'm', value: 'v' }]
      await call('prewrite', { mutations, primary: 'm', start_ts: startTs, lock_ttl: 600_000 })
      await put('z')
      expect(await failure(backupCommand, ...at, '--since', increment, lines)).toMatch(
        /a transaction that began before ts \d+, of the base, holds locks: see perkv locks/,
      )
      expect((await perkv(server, 'backup', full)).stderr).toMatch(new RegExp(`: 1 key, .*, ts ${startTs - 1}\n$`))
      expect((await perkv(server, 'dump', lines)).stderr).toMatch(new RegExp(`: 1 line, .*, ts ${startTs - 1}\n$`))
      expect(JSON.parse(await readFile(lines, 'utf8'))).toMatchObject({ key: 'a', value: 'v' })
      expect(await json(`${server.url}/v1/admin/pins`)).toEqual({ pins: [] })

      expect(await failure(backupCommand, ...at, '--since', full, increment)).toBe('none') // With nothing in it.
      await call('rollback', { keys: ['m'], start_ts: startTs })
      expect((await perkv(server, 'backup', '--since', full, increment)).stderr).toMatch(/: 1 change, /)
      await server.stop('SIGKILL')
    }))

  test('used wrongly, or without a server; the token goes along, and a 503 is waited for', () =>
    withTempDir(async (directory) => {
      const file = join(directory, 'f')
      await writeFile(file, '{"key": "k", "value": "v"}\n')
      expect(await refused(2, ['backup'])).toMatch(/FILE is missing/)
      const usage: [Command, string[], RegExp][] = [
        [restoreCommand, [file, '-'], /^UsageError: increments are read with their base from files/],
        [backupCommand, [file, 'other'], /^UsageError: one argument too many/],
        [backupCommand, ['--since', file, '--ts', '5', 'other'], /^UsageError: --ts does not go with --since/],
        [backupCommand, ['--since', file, 'other'], /^BackupError: .*this is no PerKV backup/],
        [load, [file, '--batch', '0'], /^UsageError: --batch must be an integer/],
        [dump, ['--prefix', 'a', '--start', 'b'], /^UsageError: --prefix does not go with --start/],
        [dump, ['--server', 'ftp://x'], /^UsageError: --server must be an http or https URL/],
        [dump, ['--token-file', '/nowhere'], /^UsageError: --token-file: ENOENT/],
        [dump, ['--token-file', file], /^UsageError: --token-file must hold one token and nothing else/],
        [restoreCommand, ['/nowhere'], /ENOENT/],
        [backupCommand, ['--server', 'http://127.0.0.1:1', join(directory, 'b')], /^Unreachable: .*ECONNREFUSED/],
      ]
      for (const [command, args, problem] of usage) expect(await failure(command, ...args)).toMatch(problem)
      expect(existsSync(join(directory, 'b.part'))).toBe(false)

      const seen: (string | undefined)[] = []
      const busy = await listening((incoming, outgoing) => {
        seen.push(incoming.headers.authorization)
        const isFirst = seen.length === 2 // After the question whether it is there.
        incoming.resume().on('end', () => {
          outgoing.writeHead(isFirst ? 503 : 200, isFirst ? { 'retry-after': '0' } : {})
          outgoing.end(isFirst ? '{"code": "overloaded", "detail": "not now"}' : '{}')
        })
      })
      await load.run(['--quiet', '--server', urlOf(busy), file], {
        PERKV_TOKEN: 'secret',
        PERKV_TOKEN_FILE: file, // The server's, where both run in one container.
      })
      expect(seen).toEqual(Array(3).fill('Bearer secret'))
      busy.close()
    }))
})

async function codeOf(child: ChildProcess): Promise<number | null> {
  const [code] = await once(child, 'close')
  return code as number | null
}

async function listening(handle: Parameters<typeof createServer>[1]): Promise<Server> {
  const server = createServer(handle as never)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return server
}

function urlOf(server: Server): string {
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('no port')
  return `http://127.0.0.1:${address.port}`
}
