import type { PercolatorApi, PrewriteMutation } from '../../src/percolator/api.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { Random } from '../anomalies/random.js'
import type { ClientWorld } from './client-world.js'

/** Keys that raw clients alone write, and that ranges are removed of. */
export const REMOVED = 'r'
const KEYS = Array.from({ length: 5 }, (_, i) => `${REMOVED}${i}`)
/** More than one batch of a delete_range takes. */
const BULK = Array.from({ length: 260 }, (_, i) => `${REMOVED}2-${String(i).padStart(3, '0')}`)
/** Above all keys that are removed. */
const END = 's'
/** Where no removal comes after a commit_ts of several servers that was taken too early. */
const EARLY = KEYS.map((key) => `${END}${key}`)
const LONG_VALUE_BYTES = 300

/** Whether only raw clients write the key. */
export function isRaw(key: string): boolean {
  return key.startsWith(REMOVED) || key.startsWith(END)
}

export interface RawHost {
  readonly world: ClientWorld
  readonly api: PercolatorApi
  readonly random: Random
  beginFeed(): Promise<void>
  sleep(ms: number): Promise<void>
  think(): Promise<void>
}

/**
 * A client of Percolator's calls without a coordinator: its commits are not `linearizable`, its commit_ts may be older than its prewrite,
 * and it may leave its locks to others. It is told of nothing that could hold others back.
 */
export class RawClient {
  readonly #host: RawHost
  #writes = 0

  constructor(host: RawHost) {
    this.#host = host
  }

  async write(): Promise<void> {
    const { api, random, think, sleep, world } = this.#host
    const { isShared } = world.ledger
    if (isShared) await this.#host.beginFeed() // Nobody refuses what is early before.
    const startTs = await api.tso(1)
    // Too early: it has to be taken after the prewrite.
    const early = random.chance(0.5) ? await api.tso(1) : undefined
    if (random.chance(0.5)) await think()
    if (random.chance(0.2)) await sleep(3000 * random.next())
    const kind = random.pick(['two_pc', 'async', 'one_pc'] as const)
    const isBulk = world.faults.profile.feed.isBulky && random.chance(0.1)
    const some = isShared && early !== undefined ? EARLY : KEYS
    const keys = isBulk ? BULK : random.shuffled(some).slice(0, 1 + random.below(3))
    const [primary] = keys as [string]
    const mutations = keys.map((key): PrewriteMutation => this.#mutationOf(key, startTs))
    const others = keys.slice(1).map(bytes)
    const answer = await api.prewrite({
      mutations,
      primary: bytes(primary),
      startTs,
      lockTtl: random.pick([1, 300, 3000]),
      ...(kind === 'one_pc' || isBulk ? { tryOnePc: true } : {}),
      ...(kind === 'async' ? { useAsyncCommit: true, secondaries: others } : {}),
      ...(random.chance(0.3) ? { linearizable: true } : {}),
      ...(isShared && random.chance(0.5) ? { txnSize: keys.length } : {}),
    })
    if (answer.onePcCommitTs !== undefined) return
    if (random.chance(0.5)) await think()
    if (random.chance(0.15)) return // Its locks stay.
    const calculated = answer.minCommitTs ?? 0
    await this.#commit(keys, startTs, calculated > 0 ? calculated : (early ?? (await api.tso(1))))
  }

  #mutationOf(key: string, startTs: Timestamp): PrewriteMutation {
    const { random } = this.#host
    if (random.chance(0.2)) return { op: 'delete', key: bytes(key) }
    const value = `raw.${startTs}.${this.#writes++}`
    return {
      op: 'put',
      key: bytes(key),
      value: bytes(random.chance(0.2) ? value.padEnd(LONG_VALUE_BYTES, '.') : value),
    }
  }

  async #commit(keys: readonly string[], startTs: Timestamp, commitTs: Timestamp): Promise<void> {
    const { api, random, think } = this.#host
    const [primary, ...others] = keys as [string, ...string[]]
    const request = { startTs, commitTs, primary: bytes(primary) }
    if (random.chance(0.4)) {
      await api.commit({ ...request, keys: keys.map(bytes) })
      return
    }
    await api.commit({ ...request, keys: [bytes(primary)] })
    if (random.chance(0.3)) return // Others find out.
    await think()
    if (others.length > 0) await api.commit({ ...request, keys: others.map(bytes) })
  }

  async remove(): Promise<void> {
    const { api, random } = this.#host
    const [start, end] = random.chance(0.5)
      ? [REMOVED, END]
      : random
          .shuffled([...KEYS, END])
          .slice(0, 2)
          .sort()
    await api.deleteRange({ start: bytes(start as string), end: bytes(end as string) })
  }
}

const bytes = (text: string): Buffer => Buffer.from(text)
