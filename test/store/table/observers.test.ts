import { describe, expect, test, vi } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { KvError } from '../../../src/errors/kv-error.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import type { Notification } from '../../../src/observers/rules/observers-api.js'
import type { CommitEffects } from '../../../src/percolator/commit-effects.js'
import { CLAIM } from '../../../src/store/table/layout/layout.js'
import type { Timestamp } from '../../../src/timestamp.js'
import type { Op } from '../../../src/txn/op.js'
import { Random } from '../../anomalies/random.js'
import { text, utf8 } from '../support.js'
import { MemoryBroadcast } from './memory-broadcast.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const SERVERS = 3
const KEYS = ['doc/1', 'doc/2', 'doc/3', 'doc/4']
const OBSERVER = 'words'
const WRITES = 60
const WORKERS = 5
/** Of each kind of history; before a release more. */
const SEEDS = process.env['PERKV_TEST_LONG'] ? 20 : 1
const seedsFrom = (first: number): number[] => Array.from({ length: SEEDS }, (_, i) => first + i)

interface Change {
  readonly key: string
  readonly commitTs: Timestamp
}

interface Run {
  readonly key: string
  /** Every change up to here was seen. */
  readonly seen: Timestamp
  readonly startTs: Timestamp
  readonly commitTs: Timestamp
}

const ranges = { range: { prefix: utf8('doc/') }, backoffMs: 20, backoffMaxMs: 50, maxAttempts: 0 }

async function transact(database: Database, ops: readonly Op[], commitEffects?: CommitEffects): Promise<Timestamp> {
  const { answer } = await database.transact({ checks: [], ops, commitEffects, maxRetries: 100, lockWaitMs: 60_000 })
  return answer.commitTs ?? 0
}

/** A server that stands still keeps others from its rows for long. They have changed nothing then. */
async function unlessContended(commit: Promise<Timestamp>): Promise<Timestamp | undefined> {
  try {
    return await commit
  } catch (error) {
    if (error instanceof KvError && error.code === 'overloaded') return undefined
    throw error
  }
}

/** Writers, notifiers and workers on several servers; workers are slow, die, fail, repeat themselves. */
class World {
  readonly changes: Change[] = []
  readonly runs: Run[] = []
  refused = 0
  #isOver = false

  constructor(
    readonly databases: readonly Database[],
    readonly random: Random,
  ) {}

  get any(): Database {
    return this.random.pick(this.databases)
  }

  async write(count: number): Promise<void> {
    for (let i = 0; i < count; i++) {
      const keys = KEYS.filter(() => this.random.below(3) === 0)
      if (keys.length === 0) continue
      await sleep(this.random.below(40))
      if (this.random.below(4) === 0) {
        for (const key of keys) {
          const notified = this.any.observers.notify(OBSERVER, [utf8(key)])
          const commitTs = await unlessContended(notified.then(({ ts }) => ts))
          if (commitTs !== undefined) this.changes.push({ key, commitTs })
        }
        continue
      }
      const ops = keys.map((key): Op => {
        const isDelete = this.random.below(5) === 0
        return isDelete ? { op: 'delete', key: utf8(key) } : { op: 'put', key: utf8(key), value: utf8(`${i}`) }
      })
      // In a transaction that only notifies, the first of its rows decides about the others.
      const isNotified = this.random.below(4) === 0
      const commitEffects = { notify: [{ observer: OBSERVER, keys: keys.map(utf8) }] }
      const commitTs = await unlessContended(
        isNotified ? transact(this.any, [], commitEffects) : transact(this.any, ops),
      )
      if (commitTs === undefined) continue
      for (const key of keys) this.changes.push({ key, commitTs })
    }
  }

  async work(worker: string): Promise<void> {
    while (!this.#isOver) {
      const order = { worker, limit: 1 + this.random.below(3), waitMs: 100, leaseMs: 200, values: true }
      const claimed = await this.any.observers.claim(OBSERVER, order)
      for (const one of claimed) await this.#run(one)
    }
  }

  async #run(claim: Notification): Promise<void> {
    const { random } = this
    const fate = random.below(10)
    if (fate === 0) return // It dies.
    if (fate === 1) {
      await this.any.observers.release(OBSERVER, [{ ...claim, error: 'it has failed' }])
      return
    }
    if (fate === 2) await sleep(400) // Longer than its lease.
    if (fate < 6) await this.#ackInTransaction(claim)
    else await this.#ackAtOnce(claim)
  }

  async #ackAtOnce({ key, fence }: Notification): Promise<void> {
    const acks = [{ observer: OBSERVER, key, fence }]
    const ops: Op[] = [{ op: 'increment', key: utf8(`runs/${text(key)}`), by: 1 }]
    if (this.random.below(3) === 0) ops.push({ op: 'put', key, value: utf8('its own') })
    for (let copies = 1 + this.random.below(2); copies > 0; copies--) {
      const commitTs = await this.#refusable(() => transact(this.any, ops, { acks }))
      if (commitTs !== undefined) this.runs.push({ key: text(key), seen: fence, startTs: fence, commitTs })
    }
  }

  async #ackInTransaction({ key, fence }: Notification): Promise<void> {
    const { transactions } = this.any
    const options = { mode: this.random.pick(['optimistic', 'pessimistic'] as const), isolation: 'snapshot' } as const
    const { txn, startTs } = await transactions.begin({ ...options, ttlMs: 60_000 })
    const counter = utf8(`runs/${text(key)}`)
    const commitEffects: CommitEffects = { acks: [{ observer: OBSERVER, key, fence }] }
    const commitTs = await this.#refusable(async () => {
      await transactions.run(txn, [{ op: 'increment', key: counter, by: 1 }])
      if (this.random.below(3) === 0) await transactions.run(txn, [{ op: 'put', key, value: utf8('its own') }])
      const { answer } = await transactions.commit(txn, undefined, commitEffects)
      return answer.commitTs
    })
    if (commitTs === undefined) await transactions.rollback(txn).catch(() => {})
    else this.runs.push({ key: text(key), seen: startTs, startTs, commitTs })
  }

  async #refusable(run: () => Promise<Timestamp>): Promise<Timestamp | undefined> {
    try {
      return await run()
    } catch (error) {
      if (!(error instanceof KvError)) throw error
      this.refused++
      expect([
        'write_conflict',
        'key_locked',
        'lock_wait_timeout',
        'pessimistic_lock_not_found',
        'txn_lock_not_found',
        'ts_below_safe_point',
        'txn_not_found',
        'overloaded',
      ]).toContain(error.code)
      return undefined
    }
  }

  /** Until a claim on each server finds nothing, and none is claimed or delayed. */
  async rest(): Promise<void> {
    for (;;) {
      const states = await Promise.all(this.databases.map(({ observers }) => observers.get(OBSERVER)))
      if (states.every(({ pending }) => pending === 0)) break
      await sleep(50)
    }
    this.#isOver = true
  }

  /** Each change is covered by one run, and each run covers a change that no earlier one has. */
  async check(): Promise<void> {
    for (const key of KEYS) {
      const runs = this.runs.filter((run) => run.key === key).sort((a, b) => a.commitTs - b.commitTs)
      const changes = this.changes.filter((change) => change.key === key)
      let covered = 0
      let last = 0
      for (const run of runs) {
        const own = changes.filter(({ commitTs }) => commitTs > covered && commitTs <= run.seen)
        expect(own.length, `a run of ${key} at ${run.commitTs} covers nothing of its own`).toBeGreaterThan(0)
        expect(run.startTs, 'a run began before the one before it had committed').toBeGreaterThanOrEqual(last)
        covered = run.seen
        last = run.commitTs
      }
      expect(changes.filter(({ commitTs }) => commitTs > covered)).toEqual([])
      const counted = await this.any.get({ key: utf8(`runs/${key}`) }, () => ({ lockWaitMs: 10_000 }))
      expect(counted.found ? text(counted.value) : '0').toBe(`${runs.length}`)
    }
  }
}

async function history(seed: number, fates?: (random: Random) => Fate, pausesMs = 0): Promise<World> {
  const random = new Random(seed)
  let isFaulty = false
  const table = new MemoryTable(
    () => (isFaulty && fates !== undefined ? fates(random) : 'done'),
    () => 1 + random.below(2),
    () => (isFaulty && pausesMs > 0 && random.below(200) === 0 ? pausesMs : 1 + random.below(4)),
  )
  if (random.chance(0.5)) table.broadcast = new MemoryBroadcast(4, () => random.chance(0.8))
  return inLeaps(table, async () => {
    const databases = await severalDatabases(table, SERVERS)
    await databases[0]?.observers.put(OBSERVER, ranges)
    isFaulty = true
    const late = setInterval(() => {
      for (const apply of table.late.splice(0)) apply()
    }, 50)
    const world = new World(databases, random)
    const working = Promise.all(Array.from({ length: WORKERS }, (_, n) => world.work(`w${n}`)))
    const rest = async (): Promise<void> => {
      await Promise.all([world.write(WRITES), world.write(WRITES)])
      isFaulty = false
      await world.rest()
    }
    await Promise.race([rest(), working]) // A worker ends early only by an error.
    await working
    await world.check()
    clearInterval(late)
    for (const database of databases) await database.close()
    return world
  })
}

describe('observers of several servers', () => {
  test.each(seedsFrom(100))(
    'at most one committed run a change, and each change is covered: seed %i',
    { tags: ['long'], timeout: 120_000 },
    async (seed) => {
      const world = await history(seed)
      expect(world.runs.length).toBeGreaterThan(20)
    },
  )

  test.each(seedsFrom(200))(
    'the same where answers of the table are lost, or late: seed %i',
    { tags: ['long'], timeout: 120_000 },
    async (seed) => {
      const fates = (random: Random): Fate => {
        const at = random.below(100)
        return at < 2 ? 'not done' : at < 4 ? 'done, answer lost' : at < 5 ? 'late' : 'done'
      }
      const world = await history(seed, fates)
      expect(world.runs.length).toBeGreaterThan(20)
    },
  )

  test.each(seedsFrom(300))(
    'the same where servers stand still for longer than their locks and leases last: seed %i',
    { tags: ['long'], timeout: 120_000 },
    async (seed) => {
      const world = await history(seed, () => 'done', 5000)
      expect(world.runs.length).toBeGreaterThan(5)
    },
  )
})

describe('a claim without wait, after an acknowledgement was answered, finds what was written since the last claim', () => {
  interface Acked {
    readonly table: MemoryTable
    readonly database: Database
    /** Acknowledges the first change of a key that was changed again. */
    ack(): Promise<unknown>
    claimNow(): Promise<readonly string[]>
  }

  async function claimedAndChanged(body: (acked: Acked) => Promise<void>): Promise<void> {
    const table = new MemoryTable()
    await inLeaps(table, async () => {
      const [database] = (await severalDatabases(table, 1)) as [Database]
      await database.observers.put(OBSERVER, ranges)
      const key = utf8('doc/1')
      const put = (value: string): Promise<Timestamp> => transact(database, [{ op: 'put', key, value: utf8(value) }])
      await put('first')
      const [claimed] = await database.observers.claim(OBSERVER, { worker: 'w', limit: 1, waitMs: 1000 })
      await put('second')
      await body({
        ...{ table, database },
        ack: () => {
          const ops: Op[] = [{ op: 'increment', key: utf8('count'), by: 1 }]
          return transact(database, ops, { acks: [{ observer: OBSERVER, key, fence: claimed?.fence ?? 0 }] })
        },
        claimNow: async () =>
          (await database.observers.claim(OBSERVER, { worker: 'w', limit: 1 })).map(({ key }) => text(key)),
      })
      await database.close()
    })
  }

  test('though its row is still locked', () =>
    claimedAndChanged(async ({ table, ack, claimNow }) => {
      const { change } = table
      let free = (): void => {}
      const isFree = new Promise<void>((resolve) => {
        free = resolve
      })
      let changes = 0
      table.change = async (...given) => {
        // The first is its prewrite, the second the commit in the background.
        if (given[0].includes('\0ack/') && ++changes === 2) await isFree
        return change.apply(table, given)
      }
      await ack()
      const claiming = claimNow()
      await sleep(100) // By the leaping clock: until nothing goes on but what waits for that commit.
      free()
      expect(await claiming).toEqual(['doc/1'])
    }))

  test('though the old claim is removed while the new one is made', () =>
    claimedAndChanged(async ({ table, ack, claimNow }) => {
      const { change } = table
      let claiming = (): void => {}
      const isClaiming = new Promise<void>((resolve) => {
        claiming = resolve
      })
      let removed: ReturnType<typeof change> | undefined
      table.change = async (...given) => {
        const [key, , writes] = given
        const write = writes === 'remove' ? undefined : writes[0]
        if (!key.includes('notify/') || write?.qualifier?.equals(CLAIM) !== true) return change.apply(table, given)
        if (write.value === undefined) {
          removed = isClaiming.then(() => change.apply(table, given))
          return removed
        }
        claiming()
        await removed
        return change.apply(table, given)
      }
      await ack()
      await vi.waitFor(() => expect(removed).toBeDefined())
      expect(await claimNow()).toEqual(['doc/1'])
    }))
})

test('a deletion that no run has covered is handed out after a collection, and its record goes when nobody observes it any more', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const [one, two] = (await severalDatabases(table, 2)) as [Database, Database]
    await one.observers.put(OBSERVER, ranges)
    const key = utf8('doc/1')
    await transact(one, [{ op: 'put', key, value: utf8('v') }])
    await transact(two, [{ op: 'delete', key }])
    const records = async () => (await one.store.mvccGetByKey({ key })).writes.map(({ type }) => type)
    /** The last record of a row goes when all servers know that it may, which is with the second. */
    const collectTwice = async () => {
      await two.gc(await two.store.tso(1))
      await two.gc(await two.store.tso(1))
    }
    await collectTwice()
    expect(await records()).toEqual(['delete'])
    const [claimed] = await one.observers.claim(OBSERVER, { worker: 'w', limit: 1, waitMs: 1000 })
    expect(claimed?.key).toEqual(key)
    await one.observers.remove(OBSERVER)
    await collectTwice()
    expect(await records()).toEqual([])
    await Promise.all([one.close(), two.close()])
  })
})
