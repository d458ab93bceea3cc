import type { Database } from '../../src/database/database.js'
import { isKvError, type KvError } from '../../src/errors/kv-error.js'
import { sleep } from '../../src/event-loop/sleep.js'
import type { Store } from '../../src/store/store.js'
import type { TableStore } from '../../src/store/table/table-store.js'
import { physicalMs, type Timestamp } from '../../src/timestamp.js'
import { Random } from '../anomalies/random.js'
import { text, utf8 } from '../store/support.js'
import { type Fate, MemoryTable } from '../store/table/memory-table.js'
import { inLeaps, severalDatabases } from '../store/table/several-databases.js'

const SERVERS = 3
const HOLDERS = 5
const NAMES = ['a', 'b']
const FATES: readonly Fate[] = ['not done', 'done, answer lost', 'late']
const REFUSALS = [
  'precondition_failed',
  'lease_held',
  'write_conflict',
  'key_locked',
  'txn_lock_not_found',
  'txn_not_found',
  'overloaded',
  'storage_unavailable',
] as const

export interface Plan {
  readonly seed: number
  /** Share of changes whose answer is lost, and which are perhaps done, not done, or done later. */
  readonly faults: number
  readonly attaches: boolean
  /** Puts a defect into a server. */
  readonly tamper?: (store: Store) => void
}

interface Grant {
  readonly name: string
  readonly holder: string
  readonly fence: Timestamp
  readonly ttlMs: number
  /** When the request was sent that was answered with it last, for a grant or a renewal. */
  sentMs: number
  /** The holder has begun to give it up, or its term was shortened. */
  isGivenUp: boolean
}

export interface Sharing {
  readonly violations: string[]
  readonly grants: number
  readonly commits: number
  /** Commits that were refused because the lease was lost. */
  readonly lost: number
  readonly attached: number
}

/** Holders at several servers on one table, whose calls take long at times, and get lost. */
export function shareLeases(plan: Plan): Promise<Sharing> {
  const random = new Random(plan.seed)
  const fate = (): Fate => (random.chance(plan.faults) ? random.pick(FATES) : 'done')
  // A call that takes long is what a server that stands still looks like from outside.
  const delayMs = (): number => (random.chance(0.04) ? 50 + random.below(500) : 1 + random.below(4))
  const table = new MemoryTable(fate, () => 1, delayMs)
  return inLeaps(table, () => new SharedWorld(table, random, plan).run())
}

class SharedWorld {
  readonly #table: MemoryTable
  readonly #random: Random
  readonly #plan: Plan
  readonly #violations: string[] = []
  readonly #grants = new Map<Timestamp, Grant>()
  #databases: readonly Database[] = []
  #writes = 0
  #lost = 0

  constructor(table: MemoryTable, random: Random, plan: Plan) {
    this.#table = table
    this.#random = random
    this.#plan = plan
  }

  async run(): Promise<Sharing> {
    this.#databases = await severalDatabases(this.#table, SERVERS)
    for (const { store } of this.#databases) this.#plan.tamper?.(store)
    await Promise.all(Array.from({ length: HOLDERS }, (_, n) => this.#hold(`h${n}`)))
    for (const land of this.#table.late.splice(0)) land()
    const commits = await this.#judge()
    const attached = await this.#endAll()
    for (const database of this.#databases) await database.close()
    return { violations: this.#violations, grants: this.#grants.size, commits, lost: this.#lost, attached }
  }

  get #any(): Database {
    return this.#random.pick(this.#databases)
  }

  /** undefined: it was refused. */
  async #refusable<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work()
    } catch (error) {
      if (!REFUSALS.some((code) => isKvError(error, code))) throw error
      const { code, fields } = error as KvError
      if (code === 'precondition_failed' && 'failedChecks' in fields) this.#lost++
      return undefined
    } finally {
      const { late } = this.#table
      while (this.#random.chance(0.3)) late.splice(this.#random.below(late.length + 1), 1)[0]?.()
    }
  }

  async #hold(holder: string): Promise<void> {
    const random = this.#random.fork()
    for (let i = 0; i < 4; i++) {
      const name = random.pick(NAMES)
      const ttlMs = random.pick([100, 200, 600, 2000])
      const grant = await this.#put(name, holder, ttlMs, undefined, random.pick([0, 300, 3000]))
      if (grant === undefined) continue
      if (this.#plan.attaches) await this.#refusable(() => this.#findsNothing(grant))
      for (let n = random.below(5); n > 0; n--) {
        if (random.chance(0.3)) await sleep(random.below(300))
        if (random.chance(0.3)) await this.#put(name, holder, ttlMs, grant.fence, 0)
        await this.#commit(random, grant)
        if (this.#plan.attaches && random.chance(0.3)) void this.#refusable(() => this.#removeStale(grant.fence))
      }
      if (random.chance(0.5)) {
        grant.isGivenUp = true
        const released = this.#refusable(() => this.#any.leases.remove(name, holder, grant.fence))
        if (random.chance(0.5)) await this.#commit(random, grant)
        await released
        if (random.chance(0.5)) await this.#commit(random, grant) // It must not work any more.
      }
    }
  }

  async #put(
    name: string,
    holder: string,
    ttlMs: number,
    fence: Timestamp | undefined,
    waitMs: number,
  ): Promise<Grant | undefined> {
    const sentMs = Date.now()
    for (const own of this.#grants.values())
      if (own.name === name && own.holder === holder && own.ttlMs !== ttlMs) own.isGivenUp = true
    const state = await this.#refusable(() => this.#any.leases.put(name, { holder, ttlMs, fence, waitMs }))
    if (state === undefined) return undefined
    const before = this.#grants.get(state.fence)
    if (before !== undefined) {
      if (waitMs === 0) before.sentMs = Math.max(before.sentMs, sentMs)
      return before
    }
    // Another's term that was promised ends before this one begins.
    for (const other of this.#grants.values())
      if (other.name === name && !other.isGivenUp && other.fence < state.fence)
        if (other.sentMs + other.ttlMs > physicalMs(state.fence) + 1)
          this.#violations.push(`${name} ${other.fence} ended early: ${state.fence} was granted`)
    const grant = { name, holder, fence: state.fence, ttlMs, sentMs: waitMs === 0 ? sentMs : 0, isGivenUp: false }
    this.#grants.set(grant.fence, grant)
    return grant
  }

  #commit(random: Random, { name, fence }: Grant): Promise<unknown> {
    const n = this.#writes++
    const riders = { leases: [{ lease: name, fence, index: 0 }] }
    const log = { op: 'put' as const, key: utf8(`log/${n}`), value: utf8(`${name} ${fence}`) }
    const upKey = utf8(`up/${name}/${random.below(3)}`)
    const up = random.chance(0.7)
      ? { op: 'put' as const, key: upKey, value: utf8('up'), lease: name }
      : { op: 'delete' as const, key: upKey }
    const ops = this.#plan.attaches && random.chance(0.7) ? [log, up] : [log]
    const database = this.#any
    return this.#refusable(async () => {
      if (random.chance(0.6)) return database.transact({ checks: [], ops, riders, maxRetries: 3, lockWaitMs: 1000 })
      const { transactions } = database
      const mode = random.pick(['optimistic', 'pessimistic'] as const)
      const isolation = random.pick(['snapshot', 'serializable'] as const)
      const { txn } = await transactions.begin({ mode, isolation, ttlMs: 20_000 })
      await transactions.run(txn, ops)
      return transactions.commit(txn, undefined, riders)
    })
  }

  /** As a server does that counts the keys of a lease. */
  async #removeStale(fence: Timestamp): Promise<void> {
    await (this.#any.store as TableStore).attaching.removeStale(fence)
  }

  /** Whoever holds the lease finds nothing of its predecessors. */
  async #findsNothing({ name, fence }: Grant): Promise<void> {
    for (const { key, leaseFence = fence } of await this.#pairs(`up/${name}/`))
      if (leaseFence < fence)
        this.#violations.push(`${text(key)} is attached to ${leaseFence}, and ${fence} was granted`)
  }

  async #pairs(prefix: string) {
    const start = utf8(prefix)
    const end = utf8(`${prefix.slice(0, -1)}0`)
    const range = { start, end, reverse: false, keyOnly: false, limit: 10_000, bytesMax: 2 ** 30, lockWaitMs: 30_000 }
    return (await this.#any.scan(range)).pairs
  }

  /** Every commit under a fence is above it, and below every later one. @returns the number of commits. */
  async #judge(): Promise<number> {
    const pairs = await this.#pairs('log/')
    for (const { value, commitTs = 0 } of pairs) {
      const [name, under] = text(value ?? utf8('')).split(' ')
      const fence = Number(under)
      if (commitTs < fence) this.#violations.push(`a commit at ${commitTs} under ${fence}`)
      for (const later of this.#grants.values())
        if (later.name === name && later.fence > fence && later.fence < commitTs)
          this.#violations.push(`a commit at ${commitTs} under ${fence}, after ${later.fence} was granted`)
    }
    return pairs.length
  }

  /** Nothing is left of leases that are over. @returns the keys that were attached at last. */
  async #endAll(): Promise<number> {
    const attached = (await this.#pairs('up/')).length
    const { store } = this.#any
    const records = async (prefix: 'lease/' | 'attached/') => [...(await store.system.list(prefix)).keys()]
    for (let tries = 0; tries < 200; tries++) {
      await sleep(1000)
      for (const { leases } of this.#databases) leases.look()
      for (const land of this.#table.late.splice(0)) land()
      if ((await records('lease/')).length + (await records('attached/')).length === 0) break
    }
    const left = [...(await records('lease/')), ...(await records('attached/'))]
    if (left.length > 0) this.#violations.push(`left: ${left}`)
    for (const { key, leaseFence } of await this.#pairs('up/'))
      this.#violations.push(`${text(key)} is still attached to ${leaseFence}`)
    return attached
  }
}
