import { appendFile, readFile, rename, truncate } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { printTableAddress } from '../../src/store/table/bigtable/table-address.js'
import { post } from '../anomalies/http-transaction.js'
import { Random } from '../anomalies/random.js'
import {
  type Finished,
  killAll,
  runCli,
  type ServerProcess,
  startProcess,
  withTempDir,
} from '../process/server-process.js'
import { Cluster } from './cluster.js'
import { ownAddress } from './own-table.js'

afterAll(killAll)

const host = (): string => process.env['BIGTABLE_EMULATOR_HOST'] as string
/** In the year 2100. */
const FAR_TS = Date.UTC(2100) * 2048
const ACCOUNTS = ['account/a', 'account/b', 'account/c', 'account/d']
const EACH = 1000
const WRITERS = 4
/** Of one test: each starts several processes one after the other. */
const LONGEST_MS = 180_000

interface Status {
  readonly writable: boolean
  readonly safe_point: number
  readonly restoring?: { readonly id: string; readonly ts: number; readonly pairs: number }
}

/** Short values, long ones, bytes that are no text, keys of zeros, some that expire one day: a dozen blocks. */
async function fill(url: string): Promise<void> {
  const ops = Array.from({ length: 60 }, (_, i) => ({
    op: 'put',
    key: i % 5 === 0 ? { base64: Buffer.of(i % 2 === 0 ? 255 : 0, i).toString('base64') } : `key ${i}`,
    value:
      i % 7 === 0
        ? { base64: Buffer.alloc(65_000, 200 + i).toString('base64') }
        : `${i}`.repeat(i % 3 === 0 ? 3 : 30_000),
    ...(i % 6 === 0 && { expire_ts: FAR_TS + i }),
  }))
  await post(`${url}/v1/txn`, { ops })
  await post(`${url}/v1/txn`, {
    ops: [
      { op: 'put', key: 'key 1', value: 'again' },
      { op: 'delete', key: 'key 2' },
    ],
  })
}

/** Every pair with its commit_ts and expire_ts, as lines. */
async function scan(url: string, query = ''): Promise<string> {
  const response = await fetch(`${url}/v1/kv${query}`, { headers: { accept: 'application/x-ndjson' } })
  expect(response.status).toBe(200)
  return response.text()
}

async function statusOf(url: string): Promise<Status> {
  return (await (await fetch(`${url}/v1/status`)).json()) as Status
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((next) => setTimeout(next, 20))
}

/** Runs a command that must succeed. */
async function perkv(url: string, ...args: readonly string[]): Promise<Finished> {
  const finished = await runCli([...args, '--server', url])
  expect([finished.code, finished.stderr]).toEqual([0, finished.stderr])
  return finished
}

test(
  'a backup of one server on LevelDB fills a table while all its servers are shut out, and comes back the same',
  () =>
    withTempDir(async (directory) => {
      const single = await startProcess(join(directory, 'single'))
      await fill(single.url)
      const all = await scan(single.url)
      const file = join(directory, 'a.backup')
      await perkv(single.url, 'backup', file)
      const cluster = await Cluster.start(host(), 2, new Random(1))
      try {
        const [one, other] = cluster.urls as [string, string]
        const before = Number((await post(`${other}/v1/percolator/tso`))['ts'])
        const statuses = new Set<number>()
        let isDone = false
        const poking = (async () => {
          while (!isDone)
            for (const path of ['/v1/kv/key%201', '/v1/kv?limit=3', `/v1/kv/key%201?ts=${before}`]) {
              const answer = await fetch(`${other}${path}`)
              statuses.add(answer.status)
              // Nothing of it before it is whole.
              if (answer.status === 200 && path.includes('limit'))
                expect([0, 3]).toContain(((await answer.json()) as { pairs: unknown[] }).pairs.length)
            }
        })()
        await perkv(one, 'restore', file)
        isDone = true
        await poking
        expect(statuses).toContain(503)
        for (const status of statuses) expect([200, 404, 410, 503]).toContain(status)
        await until(async () => (await statusOf(other)).restoring === undefined)
        for (const url of [one, other]) expect(await scan(url)).toBe(all)
        expect((await fetch(`${other}/v1/kv/key%201?ts=${before}`)).status).toBe(410)
        const again = await runCli(['restore', file, '--server', other])
        expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('precondition_failed')])
        expect(await scan(other)).toBe(all)
        expect((await fetch(`${other}/v1/kv/later`, { method: 'PUT', body: 'v' })).status).toBe(200)
        expect((await fetch(`${other}/v1/kv/later`, { method: 'DELETE' })).status).toBeLessThan(300)

        const back = join(directory, 'b.backup')
        await perkv(other, 'backup', back)
        const second = await startProcess(join(directory, 'second'))
        await perkv(second.url, 'restore', back)
        expect(await scan(second.url)).toBe(all)
        await second.stop('SIGKILL')
      } finally {
        await cluster.end()
        await single.stop('SIGKILL')
      }
    }),
  LONGEST_MS,
)

test(
  'kill -9 in the middle of a restore: the others refuse, and any of them goes on with it',
  { tags: ['long'], timeout: LONGEST_MS },
  () =>
    withTempDir(async (directory) => {
      const single = await startProcess(join(directory, 'single'))
      await fill(single.url)
      const all = await scan(single.url)
      const file = join(directory, 'a.backup')
      await perkv(single.url, 'backup', file)
      const whole = await readFile(file)
      const address = printTableAddress(ownAddress())
      const env = { BIGTABLE_EMULATOR_HOST: host() }
      expect(await runCli(['bigtable', 'init', address], env)).toMatchObject({ code: 0 })
      const start = (): Promise<ServerProcess> =>
        startProcess('-', ['--store', address, '--log-level', 'error'], undefined, env)
      const [one, other] = await Promise.all([start(), start()])
      const half = request(`${one.url}/v1/admin/restore`, { method: 'POST' })
      half.on('error', () => {})
      half.write(whole.subarray(0, Math.floor(whole.length / 2)))
      await until(async () => ((await statusOf(other.url)).restoring?.pairs ?? 0) > 0)
      await one.stop('SIGKILL')
      const late = await start()
      for (const { url } of [other, late]) {
        expect((await fetch(`${url}/readyz`)).status).toBe(503)
        expect((await fetch(`${url}/v1/kv/key%201`)).status).toBe(503)
        expect((await fetch(`${url}/v1/kv/mine`, { method: 'PUT', body: 'v' })).status).toBe(503)
        expect(await statusOf(url)).toMatchObject({ writable: false, restoring: { pairs: expect.any(Number) } })
      }
      await perkv(late.url, 'restore', file)
      await until(async () => (await statusOf(other.url)).restoring === undefined)
      for (const { url } of [other, late]) expect(await scan(url)).toBe(all)
      for (const server of [single, other, late]) await server.stop('SIGKILL')
    }),
)

test(
  'a backup that one server was making is gone on with at another, while both write',
  { tags: ['long'], timeout: LONGEST_MS },
  () =>
    withTempDir(async (directory) => {
      const cluster = await Cluster.start(host(), 2, new Random(2))
      const single = await startProcess(join(directory, 'single'))
      try {
        const [one, other] = cluster.urls as [string, string]
        await fill(one)
        await post(`${one}/v1/txn`, { ops: ACCOUNTS.map((key) => ({ op: 'put', key, value: `${EACH}` })) })
        let isDone = false
        let moved = 0
        const writer = async (seed: number): Promise<void> => {
          const random = new Random(seed)
          while (!isDone) {
            const [from, to] = [random.below(ACCOUNTS.length), random.below(ACCOUNTS.length - 1)]
            const pair = [ACCOUNTS[from], ACCOUNTS[(from + 1 + to) % ACCOUNTS.length]]
            const ops = pair.map((key, i) => ({ op: 'increment', key, by: i === 0 ? -1 : 1 }))
            const answer = await fetch(`${random.pick([one, other])}/v1/txn`, {
              method: 'POST',
              body: JSON.stringify({ ops }),
              headers: { 'content-type': 'application/json' },
            })
            if (answer.status === 200) moved++
          }
        }
        const writers = Array.from({ length: WRITERS }, (_, i) => writer(i))
        const file = join(directory, 'a.backup')
        const { stderr } = await perkv(one, 'backup', file)
        const ts = /ts (\d+)/.exec(stderr)?.[1] ?? ''
        const whole = await readFile(file)
        const before = moved
        await until(async () => moved > before + 20)
        // What an interrupted run leaves.
        await rename(file, `${file}.part`)
        await truncate(`${file}.part`, Math.floor(whole.length / 2))
        await appendFile(`${file}.part`, 'torn')
        expect((await perkv(other, 'backup', file)).stderr).toMatch(/going on after \d+ keys of ts/)
        expect((await readFile(file)).equals(whole)).toBe(true)
        isDone = true
        await Promise.all(writers)
        expect(moved).toBeGreaterThan(before)
        await perkv(single.url, 'restore', file)
        const restored = await scan(single.url)
        expect(restored).toBe(await scan(other, `?ts=${ts}`))
        const values = await Promise.all(
          ACCOUNTS.map(async (key) => (await fetch(`${single.url}/v1/kv/${encodeURIComponent(key)}`)).text()),
        )
        expect(values.reduce((sum, value) => sum + Number(value), 0)).toBe(ACCOUNTS.length * EACH)
      } finally {
        await cluster.end()
        await single.stop('SIGKILL')
      }
    }),
)
