import { expect } from 'vitest'
import { connect } from '../../src/client/index.js'
import type { Random } from '../anomalies/random.js'
import { report } from '../anomalies/settings.js'
import type { Cluster } from './cluster.js'
import type { HistoryOptions } from './cluster-history.js'

const HOLDERS = 6
const TTL_MS = 1500

interface Answer {
  readonly status: number
  readonly body: { readonly [name: string]: unknown }
}

/** Holders at three servers write their fence into a log, and attach a key to their lease. */
class Holders {
  readonly fences: number[] = []
  readonly counts = { grants: 0, commits: 0, own: 0, lost: 0, waits: 0, left: 0 }
  #writes = 0

  constructor(
    readonly cluster: Cluster,
    readonly random: Random,
    readonly txns: number,
  ) {}

  /** undefined: the server is killed, stopped or starts, or its answer got lost. */
  async ask(method: string, path: string, body?: unknown, ms = 8000): Promise<Answer | undefined> {
    try {
      const response = await fetch(`${this.cluster.url}${path}`, {
        method,
        signal: AbortSignal.timeout(ms),
        ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
      })
      const answer = { status: response.status, body: (await response.json()) as Answer['body'] }
      if (answer.status >= 500 && answer.status !== 503) throw new Error(`${method} ${path}: ${JSON.stringify(answer)}`)
      return answer
    } catch (error) {
      if (error instanceof Error && error.message.startsWith(method)) throw error
      return undefined
    }
  }

  get isDone(): boolean {
    return this.counts.commits >= this.txns
  }

  async hold(holder: string): Promise<void> {
    while (!this.isDone) {
      const granted = await this.ask('PUT', '/v1/leases/leader', { holder, ttl_ms: TTL_MS, wait_ms: 4000 })
      if (granted?.status !== 200) {
        this.counts.waits++
        continue
      }
      const fence = granted.body['fence'] as number
      this.fences.push(fence)
      this.counts.grants++
      await this.findsNothing(fence)
      for (let n = 2 + this.random.below(10); n > 0 && !this.isDone; n--) {
        if (this.random.chance(0.3)) void this.ask('PUT', '/v1/leases/leader', { holder, ttl_ms: TTL_MS, fence })
        if (!(await this.write(fence))) break
      }
      if (this.random.chance(0.5)) await this.ask('DELETE', `/v1/leases/leader?holder=${holder}&fence=${fence}`)
    }
  }

  /** @returns false: the lease is lost. */
  async write(fence: number): Promise<boolean> {
    if (this.random.chance(0.3)) return this.writeItself(fence)
    const ops = [
      { op: 'put', key: `log/${this.#writes++}`, value: String(fence) },
      { op: 'put', key: 'up/leader', value: 'up', lease: 'leader' },
    ]
    const done = await this.ask('POST', '/v1/txn', { checks: [{ lease: 'leader', fence }], ops })
    if (done?.status === 200) this.counts.commits++
    if (done?.status !== 412) return true
    this.counts.lost++
    return false
  }

  /** As a client that coordinates its transactions itself. */
  async writeItself(fence: number): Promise<boolean> {
    const db = connect(this.cluster.url, { lockWaitMs: 1000 })
    const leases = [{ name: 'leader', fence }]
    try {
      await db.transaction((txn) => txn.put(`log/${this.#writes++}`, String(fence)), { leases, timeoutMs: 8000 })
      this.counts.commits++
      this.counts.own++
      return true
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'precondition_failed') return true
      this.counts.lost++
      return false
    } finally {
      await db.close()
    }
  }

  async findsNothing(fence: number): Promise<void> {
    const found = await this.ask('POST', '/v1/txn', { checks: [], ops: [{ op: 'get', key: 'up/leader' }] })
    const [up] = (found?.status === 200 ? found.body['results'] : []) as { lease_fence?: number }[]
    if ((up?.lease_fence ?? fence) < fence) this.counts.left++
  }

  /** Each commit as [fence, commit_ts]: those whose answers got lost too. */
  async log(): Promise<readonly (readonly [number, number])[]> {
    const answer = await this.ask('GET', '/v1/kv?prefix=log/&limit=10000', undefined, 60_000)
    const pairs = answer?.body['pairs'] as { value: string; commit_ts: number }[]
    return pairs.map(({ value, commit_ts }) => [Number(value), commit_ts])
  }
}

/** Holders at a cluster whose servers are killed and stopped, who must never commit after the next grant. Ends it. */
export async function clusterLeases(
  cluster: Cluster,
  { seed, txns, kills, random, disturb = async () => {} }: HistoryOptions,
): Promise<void> {
  const servers = cluster.urls.length
  const holders = new Holders(cluster, random.fork(), txns)
  const chaos = async (): Promise<void> => {
    for (let i = 0; i < kills || !holders.isDone; i++) {
      const leader = (await cluster.leader()) ?? 0
      const killed = i % 2 === 0 ? leader : (leader + 1) % servers
      await Promise.all([
        cluster.pause((killed + 1 + random.below(servers - 1)) % servers, 1500 + random.below(2500)),
        i < kills ? cluster.restart(killed) : undefined,
      ])
    }
  }
  try {
    await Promise.all([
      chaos(),
      disturb(() => holders.isDone),
      ...Array.from({ length: HOLDERS }, (_, n) => holders.hold(`h${n}`)),
    ])
    await cluster.isUp()
    const log = await holders.log()
    report({ test: 'cluster-leases', seed, kills: cluster.kills, pauses: cluster.pauses, ...holders.counts })
    const late = log.filter(([fence, commitTs]) => holders.fences.some((later) => later > fence && later < commitTs))
    expect(late, 'commits after a later fence').toEqual([])
    expect(log.filter(([fence, commitTs]) => commitTs < fence)).toEqual([])
    expect(log.length).toBeGreaterThanOrEqual(holders.counts.commits)
    expect(holders.counts.left, 'keys of an earlier grant').toBe(0)
    expect(new Set(holders.fences).size).toBeGreaterThan(HOLDERS)
    expect(cluster.kills).toBeGreaterThan(0)
    expect(holders.counts.own).toBeGreaterThan(0)
    // Nobody asks for the lease any more, and no server that granted it need be there.
    const keys = async () => (await holders.ask('GET', '/v1/kv?prefix=up/'))?.body['pairs']
    await expect.poll(keys, { timeout: 60_000, interval: 500 }).toEqual([])
    const leases = async () => (await holders.ask('GET', '/v1/leases'))?.body['leases']
    await expect.poll(leases, { timeout: 60_000, interval: 500 }).toEqual([])
  } finally {
    await cluster.end()
  }
}
