import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import { Random } from '../anomalies/random.js'
import { MortalServer } from './mortal-server.js'
import { CLI, ENV, killAll, withTempDir } from './server-process.js'

const KILLS = Number(process.env['PERKV_TEST_KILLS'] ?? 2)
const LEASES = ['a', 'b', 'c']
const CLIENTS = 6

afterAll(killAll)

interface Answer {
  readonly status: number
  readonly body: Record<string, unknown>
}

/** A client that takes leases, attaches keys to them and releases them or not, while the server is killed. */
class Holder {
  grants = 0
  releases = 0
  isOver = false

  constructor(
    readonly server: MortalServer,
    readonly name: string,
    readonly random: Random,
  ) {}

  /** @returns undefined when there is no answer. */
  async #send(method: string, path: string, body?: object): Promise<Answer | undefined> {
    try {
      const headers = body === undefined ? {} : { 'content-type': 'application/json' }
      const answer = await fetch(`${this.server.url}${path}`, {
        method,
        headers,
        ...(body && { body: JSON.stringify(body) }),
      })
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
    } catch {
      await this.server.isUp()
      return undefined
    }
  }

  /** The fences to which the keys of the lease are attached; undefined: there is no answer. */
  async #fencesOf(lease: string): Promise<number[] | undefined> {
    const answer = await this.#send('GET', `/v1/kv?prefix=${lease}/`)
    const pairs =
      answer?.status === 200 ? (answer.body['pairs'] as { value: string; lease_fence: number }[]) : undefined
    for (const { value, lease_fence } of pairs ?? []) expect(value).toBe(`${lease_fence}`)
    return pairs?.map(({ lease_fence }) => lease_fence)
  }

  async run(): Promise<void> {
    for (let n = 0; !this.isOver; n++) {
      const lease = this.random.pick(LEASES)
      const holder = `${this.name}-${n}`
      const asked = { holder, ttl_ms: this.random.pick([100, 300, 1000]), wait_ms: 500 }
      const granted = await this.#send('PUT', `/v1/leases/${lease}`, asked)
      if (granted?.status !== 200) continue
      const fence = Number(granted.body['fence'])
      this.grants++
      for (const older of (await this.#fencesOf(lease)) ?? []) expect(older).toBeGreaterThanOrEqual(fence)
      await this.#work(lease, fence)
      if (this.random.chance(0.5)) continue
      const released = await this.#send('DELETE', `/v1/leases/${lease}?holder=${holder}&fence=${fence}`)
      if (released?.status !== 200) continue
      expect(released.body).toEqual({})
      this.releases++
      for (const left of (await this.#fencesOf(lease)) ?? []) expect(left).toBeGreaterThan(fence)
    }
  }

  async #work(lease: string, fence: number): Promise<void> {
    for (let left = this.random.below(5); left > 0; left--) {
      const keys = Array.from({ length: 1 + this.random.below(3) }, () => `${lease}/${this.random.below(10)}`)
      const ops = keys.map((key) => ({ op: 'put', key, value: `${fence}`, lease }))
      await this.#send('POST', '/v1/txn', { checks: [{ lease, fence }], ops })
      if (this.random.chance(0.3))
        await this.#send('POST', '/v1/txn', { ops: keys.map((key) => ({ op: 'touch', key, ttl_ms: 60_000 })) })
    }
  }

  async left(): Promise<number> {
    return (await Promise.all(LEASES.map((lease) => this.#fencesOf(lease)))).flatMap((fences) => fences ?? [0]).length
  }
}

test('kill -9 again and again: whoever is granted a lease finds nothing of those before, and in the end nothing is left', () =>
  withTempDir(async (directory) => {
    const data = join(directory, 'data')
    const server = await MortalServer.start(data)
    const random = new Random(Number(process.env['PERKV_TEST_SEED'] ?? 1))
    const holders = Array.from({ length: CLIENTS }, (_, i) => new Holder(server, `${i}`, new Random(100 + i)))
    const running = Promise.all(holders.map((holder) => holder.run()))
    const killing = async (): Promise<void> => {
      for (let kill = 0; kill < KILLS; kill++) {
        await sleep(200 + random.below(5000)) // Each restart gives every lease two seconds more.
        await server.restart()
      }
      await sleep(1000)
      for (const holder of holders) holder.isOver = true
    }
    await Promise.all([running, killing()])
    const sum = (of: (holder: Holder) => number): number => holders.reduce((all, holder) => all + of(holder), 0)
    expect(sum(({ grants }) => grants)).toBeGreaterThan(2 * LEASES.length)
    expect(sum(({ releases }) => releases)).toBeGreaterThan(0)
    const [holder] = holders
    await expect.poll(() => holder?.left()).toBe(0)
    await server.end()
    const check = spawn(process.execPath, [CLI, 'check', '--data', data], { env: ENV, stdio: 'ignore' })
    expect(await once(check, 'exit')).toEqual([0, null])
  }))
