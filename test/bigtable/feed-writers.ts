import { connect } from '../../src/client/index.js'
import { Refused } from '../anomalies/http-transaction.js'
import { PercolatorClient } from '../anomalies/percolator-client.js'
import type { Random } from '../anomalies/random.js'
import { ask, mustBeAway, PATIENCE_MS, pause } from './ask.js'
import type { Cluster } from './cluster.js'

/** Their number bounds the rows of a scan. */
const NAMES = 500
const DATA = 12
/** Below it a range is removed now and then. */
export const REMOVED = 'removed/'
const LONG = 'long '.repeat(100)

interface Op {
  readonly op: 'put' | 'delete'
  readonly key: string
  readonly value?: string
  readonly ttl_ms?: number
}

export interface Written {
  readonly name: string
  readonly keys: readonly string[]
}

/** Transactions of several keys at all servers. Each puts its name, and the names of its keys, below `txn/`. */
export class FeedWriters {
  /** commit_ts as answered, by name. */
  readonly committed = new Map<string, number>()
  readonly refused = new Set<string>()
  /** Commits that each server has answered. */
  readonly at: number[]
  removals = 0
  #count = 0
  readonly #cluster: Cluster
  readonly #random: Random
  readonly #pauseMs: number

  constructor(cluster: Cluster, random: Random, pauseMs: number) {
    this.#cluster = cluster
    this.#random = random
    this.#pauseMs = pauseMs
    this.at = cluster.urls.map(() => 0)
  }

  /** @param isOver asked before each transaction. */
  async run(isOver: () => boolean): Promise<void> {
    const random = this.#random.fork()
    /** Those that wait for a server which stands still. */
    const late = new Set<Promise<void>>()
    while (!isOver()) {
      const write = this.#write(random).finally(() => late.delete(write))
      late.add(write)
      await Promise.race([write, pause(PATIENCE_MS)])
      await pause(random.below(2 * this.#pauseMs))
    }
    await Promise.all(late)
  }

  async #write(random: Random): Promise<void> {
    const server = random.below(this.at.length)
    const url = this.#cluster.urls[server] as string
    const name = `${this.#count++}`
    const form = random.pick(['one-shot', 'one-shot', 'interactive', 'library', 'raw'] as const)
    const ops = this.#ops(name, random)
    try {
      if (random.chance(0.03)) await this.#remove(url)
      else if (form === 'library') await inLibrary(url, ops)
      else if (form === 'raw') this.committed.set(name, await primaryAlone(url, ops, random))
      else {
        const base = form === 'one-shot' ? undefined : await ask<{ txn: string }>(`${url}/v1/txn/begin`, {})
        if (base !== undefined) await ask(`${url}/v1/txn/${base.txn}/ops`, { ops })
        const last = base === undefined ? `${url}/v1/txn` : `${url}/v1/txn/${base.txn}/commit`
        const { commit_ts } = await ask<{ commit_ts: number }>(last, base === undefined ? { ops } : {})
        this.committed.set(name, commit_ts)
        this.at[server] = (this.at[server] ?? 0) + 1
      }
    } catch (error) {
      if (form === 'library') return // The library tells of servers that are away in ways of its own.
      if (!(error instanceof Refused && error.status < 500)) mustBeAway(error)
      else if (form === 'one-shot') this.refused.add(name)
    }
  }

  async #remove(url: string): Promise<void> {
    // Without a deadline, so that none is on its way when the writers are done.
    const { signal } = new AbortController()
    await ask(`${url}/v1/percolator/delete_range`, { start: REMOVED, end: `${REMOVED.slice(0, -1)}0` }, { signal })
    this.removals++
  }

  #ops(name: string, random: Random): Op[] {
    const all = Array.from({ length: DATA }, (_, i) => [`data/${i}`, `${REMOVED}${i}`]).flat()
    const ops = random
      .shuffled(all)
      .slice(0, 1 + random.below(4))
      .map((key): Op => {
        if (random.chance(0.2)) return { op: 'delete', key }
        const value = random.chance(0.2) ? `${name} ${LONG}` : name
        return { op: 'put', key, value, ...(random.chance(0.3) && { ttl_ms: 1 + random.below(4000) }) }
      })
    const own = `txn/${Number(name) % NAMES}`
    const keys = [...ops.map(({ key }) => key), own]
    return random.shuffled([...ops, { op: 'put', key: own, value: JSON.stringify({ name, keys } satisfies Written) }])
  }
}

/** As a client that coordinates its transactions itself. */
async function inLibrary(url: string, ops: readonly Op[]): Promise<void> {
  const db = connect(url, { lockWaitMs: 1000, retryMs: 1000, connectTimeoutMs: 1000 })
  try {
    await db.transaction(
      async (txn) => {
        for (const { op, key, value = '', ttl_ms } of ops)
          if (op === 'delete') await txn.delete(key)
          else await txn.put(key, value, ttl_ms === undefined ? {} : { ttl: ttl_ms })
      },
      { timeoutMs: PATIENCE_MS },
    )
  } finally {
    await db.close()
  }
}

/** As a client that dies once it has committed the primary: the other keys keep their locks until somebody meets them. */
async function primaryAlone(url: string, ops: readonly Op[], random: Random): Promise<number> {
  const client = new PercolatorClient(url)
  const mutations = ops.map(({ op, key, value }) => ({ op, key, ...(value !== undefined && { value }) }))
  const keys = ops.map(({ key }) => key)
  const [primary] = keys
  const start_ts = await client.tso()
  const size = random.chance(0.5) ? { txn_size: keys.length } : {}
  await client.resolving(() => client.call('prewrite', { mutations, primary, start_ts, lock_ttl: 3000, ...size }))
  const named = random.chance(0.5) ? { txn_keys: keys } : {}
  for (;;)
    try {
      const commit_ts = await client.tso()
      await client.call('commit', { keys: [primary], start_ts, commit_ts, ...named })
      return commit_ts
    } catch (error) {
      if (!(error instanceof Refused && error.code === 'commit_ts_expired')) throw error
    }
}
