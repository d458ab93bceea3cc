import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { HttpTransaction, post, Refused } from '../anomalies/http-transaction.js'
import { Random } from '../anomalies/random.js'
import { fills, report } from '../anomalies/settings.js'
import { killAll, runCli, type ServerProcess, startProcess } from './server-process.js'
import { noSmallDisk, withSmallDisk } from './small-disk.js'

afterAll(killAll)

const DISK_MIB = 96
const LONG = 200_000

/** The outcome of a call: its JSON or text, or the code that it was refused with. */
async function outcomeOf<T>(call: () => Promise<T>): Promise<T | string> {
  try {
    return await call()
  } catch (error) {
    if (error instanceof Refused) return error.code
    throw error
  }
}

/** Writes what it can, and keeps account of what it was told. */
class Writers {
  /** By key; of a pair under its first. */
  readonly acknowledged = new Map<string, string>()
  readonly refused = new Map<string, string>()
  #number = 0
  url = ''

  async #attempt(keys: readonly string[], value: string, send: () => Promise<unknown>): Promise<boolean> {
    const outcome = await outcomeOf(send)
    const isRefused = outcome === 'storage_unavailable'
    if (!isRefused && typeof outcome === 'string') throw new Error(`${keys}: ${outcome}`)
    for (const key of keys) (isRefused ? this.refused : this.acknowledged).set(key, value)
    return !isRefused
  }

  /** @returns whether it was acknowledged. */
  write(random: Random): Promise<boolean> {
    const n = ++this.#number
    const value = `${n}.${'x'.repeat(random.pick([10, 1000, LONG]))}`
    const keys = [`${n}/a`, `${n}/b`]
    const ops = keys.map((key) => ({ op: 'put', key, value }))
    switch (n % 4) {
      case 0:
        return this.#attempt([`${n}`], value, () => put(this.url, `${n}`, value))
      case 1:
        return this.#attempt(keys, value, () => post(`${this.url}/v1/txn`, { ops }))
      case 2:
        return this.#attempt(keys, value, async () => {
          const txn = await HttpTransaction.begin(this.url, { mode: 'pessimistic', isolation: 'snapshot' })
          for (const key of keys) await txn.put(key, value)
          await txn.commit()
          return {}
        })
      default:
        return this.#attempt(keys, value, async () => {
          const call = (name: string, body: object) => post<{ ts: number }>(`${this.url}/v1/percolator/${name}`, body)
          const start_ts = (await call('tso', {})).ts
          await call('prewrite', { mutations: ops, primary: keys[0], start_ts, lock_ttl: 1 })
          await call('commit', { keys, start_ts, commit_ts: (await call('tso', {})).ts, primary: keys[0] })
          return {}
        })
    }
  }

  /** Until nothing goes any more. */
  async untilFull(random: Random): Promise<void> {
    const one = async (): Promise<void> => {
      for (let refused = 0; refused < 3; ) if (!(await this.write(random))) refused++
    }
    await Promise.all([one(), one(), one(), one()])
  }

  async expectAcknowledged(): Promise<void> {
    for (const [key, value] of this.acknowledged) expect([key, await get(this.url, key)]).toEqual([key, value])
  }

  /** Of each that was refused: what a reader is told, which may be that nobody knows. */
  async readRefused(): Promise<Map<string, string>> {
    const told = new Map<string, string>()
    for (const key of this.refused.keys()) told.set(key, await get(this.url, key))
    return told
  }
}

async function put(url: string, key: string, value: string): Promise<object> {
  const answer = await fetch(`${url}/v1/kv/${key}`, { method: 'PUT', body: value })
  const body = (await answer.json()) as Record<string, unknown>
  if (!answer.ok) throw new Refused(answer.status, String(body['code']), body)
  return body
}

async function get(url: string, key: string, query = ''): Promise<string> {
  const answer = await fetch(`${url}/v1/kv/${key}${query}`)
  const text = await answer.text()
  return answer.ok ? text : (JSON.parse(text) as { code: string }).code
}

async function statusOf(url: string): Promise<{ livez: number; readyz: number; detail?: string; writable: boolean }> {
  const ready = await fetch(`${url}/readyz`)
  const { detail } = (await ready.json()) as { detail?: string }
  const { writable } = (await (await fetch(`${url}/v1/status`)).json()) as { writable: boolean }
  return { livez: (await fetch(`${url}/livez`)).status, readyz: ready.status, writable, ...(detail && { detail }) }
}

/** Tries until the answer is as wanted: only the test's own time ends it. */
async function until<T>(body: () => Promise<T>, isWanted: (answer: T) => boolean): Promise<T> {
  for (;;) {
    const answer = await body()
    if (isWanted(answer)) return answer
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const skipped = noSmallDisk === undefined ? '' : ` (skipped: ${noSmallDisk})`

test.skipIf(noSmallDisk !== undefined)(`a full disk refuses writes and nothing else, and loses nothing${skipped}`, () =>
  withSmallDisk(DISK_MIB, async (disk) => {
    const random = new Random(1)
    const data = join(disk.path, 'db')
    const writers = new Writers()
    let server: ServerProcess = await startProcess(data)
    const start = async (): Promise<void> => {
      server = await startProcess(data)
      writers.url = server.url
    }
    writers.url = server.url
    for (let i = 0; i < 20; i++) expect(await writers.write(random)).toBe(true)
    const count = async (ts?: number): Promise<unknown> =>
      outcomeOf(async () => {
        const at = ts === undefined ? '' : `&ts=${ts}`
        const answer = await fetch(`${writers.url}/v1/kv?count_only=true&end=0&start=.${at}`)
        return ((await answer.json()) as { count?: number; code?: string }).count
      })

    for (let round = 0; round < fills; round++) {
      const { url } = server
      await put(url, '.first', 'before')
      const open = await HttpTransaction.begin(url, { mode: 'optimistic', isolation: 'snapshot', ttlMs: 60_000 })
      expect(await open.get('.first')).toBe('before')
      await open.put('.open', String(round))
      await put(url, '.first', 'after')
      const once = { 'idempotency-key': `once${round}`, 'content-type': 'application/json' }
      const increment = async (): Promise<[number, string]> => {
        const body = JSON.stringify({ ops: [{ op: 'increment', key: '.counter', by: 1 }] })
        const answer = await fetch(`${server.url}/v1/txn`, { method: 'POST', headers: once, body })
        return [answer.status, await answer.text()]
      }
      const incremented = await increment()
      expect(incremented[0]).toBe(200)
      const [counted, countedThen] = [await count(), await count(open.startTs)]

      await disk.fill(round === 0 ? 2_000_000 : random.below(8_000_000))
      await writers.untilFull(random)
      const status = await until(
        () => statusOf(url),
        ({ readyz }) => readyz === 503,
      )
      expect(status).toMatchObject({ livez: 200, readyz: 503, writable: false })
      expect(status.detail).toMatch(/No space left on device/)
      const told = await writers.readRefused()
      await writers.expectAcknowledged()
      expect([await open.get('.first'), await get(url, '.first')]).toEqual(['before', 'after'])
      expect(await get(url, '.first', `?ts=${open.startTs}`)).toBe('before')
      expect(await increment()).toEqual(incremented) // Replayed, not done again.
      expect(await outcomeOf(() => open.commit())).toBe('storage_unavailable')
      // Timestamps last for the window that is saved; reads that need none of their own go on beyond it.
      const tso = () => outcomeOf(() => post(`${url}/v1/percolator/tso`))
      expect(await until(tso, (answer) => typeof answer === 'string')).toBe('storage_unavailable')
      expect(await count()).toBe(counted)
      expect(await count(open.startTs)).toBe(countedThen)
      expect((await statusOf(url)).livez).toBe(200)

      const dies = round % 2 === 1
      if (dies) {
        await server.stop('SIGKILL')
        const refused = await runCli(['serve', '--port', '0', '--data', data])
        // What the dead process held open is room, and may be enough.
        if (refused.code !== null && refused.stderr !== '') {
          expect(refused.code).toBe(1)
          expect(refused.stderr).toMatch(/^perkv: the data directory .* No space left on device\n$/)
        }
        await disk.free()
        await start()
      } else {
        await disk.free()
        await until(
          () => outcomeOf(() => put(url, '.again', String(round))),
          (answer) => typeof answer !== 'string',
        )
        expect(await statusOf(url)).toEqual({ livez: 200, readyz: 200, writable: true })
        // Repeated, its commit says which: done, or rolled back for good.
        const isCommitted = typeof (await outcomeOf(() => open.commit())) === 'number'
        expect((await get(url, '.open')) === String(round)).toBe(isCommitted)
        await server.stop('SIGKILL')
        await start()
      }
      await writers.expectAcknowledged()
      expect(await increment()).toEqual(incremented)
      const now = await writers.readRefused()
      for (const [key, answer] of told) if (answer !== 'storage_unavailable') expect(now.get(key)).toBe(answer)
      for (const [key, answer] of now) {
        const [number, which] = key.split('/')
        expect(['not_found', writers.refused.get(key)]).toContain(answer)
        if (which === 'a') expect([key, now.get(`${number}/b`)]).toEqual([key, answer])
      }
      expect(await writers.write(random)).toBe(true)
      // Room for the next round.
      if (round + 1 < fills && round % 4 === 3) await emptied(writers)
    }
    report({ test: 'full-disk', fills, acknowledged: writers.acknowledged.size, refused: writers.refused.size })
    expect(Math.min(writers.acknowledged.size, writers.refused.size)).toBeGreaterThan(0)
    await server.stop('SIGTERM')
  }),
)

/** Deletes all that was written, and has it collected. */
async function emptied({ url, acknowledged, refused }: Writers): Promise<void> {
  await post(`${url}/v1/percolator/delete_range`, { start: '0', end: ':' })
  acknowledged.clear()
  refused.clear()
}
