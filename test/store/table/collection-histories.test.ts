import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { isKvError } from '../../../src/errors/kv-error.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { RECORD } from '../../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import { encodeSafePoint } from '../../../src/store/table/rows/safe-point-record.js'
import { type Timestamp, timestampFromMs } from '../../../src/timestamp.js'
import { Random } from '../../anomalies/random.js'
import { del, prewriteOf, put, text, utf8 } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { PausableTable } from './pausable-table.js'
import { databasesOn, inLeaps } from './several-databases.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 10)
const SEED = Number(process.env['PERKV_TEST_SEED'] ?? Number.NaN)
const SERVERS = 3
/** A second of the safe point's protocol: a copy is stale after 300 ms, and a safe point known to all after 600 ms. */
const SECOND_MS = 10
const LIFE_MS = 100
const PAUSE_MS_MAX = 5000
const ACCOUNTS = ['a', 'b', 'c']
const EACH = 100
const REGISTERS = ['u', 'v', 'w', 'x']
const KEYS = [...ACCOUNTS, ...REGISTERS].map(utf8)
const REFUSALS = [
  'write_conflict',
  'key_locked',
  'txn_lock_not_found',
  'txn_not_found',
  'commit_ts_expired',
  'already_committed',
  'lock_wait_timeout',
  'ts_below_safe_point',
  'overloaded',
  'storage_unavailable',
] as const
const FATES: readonly Fate[] = ['not done', 'done, answer lost', 'late']

interface Snapshot {
  readonly ts: Timestamp
  readonly pairs: readonly string[]
}

interface Write {
  readonly key: string
  /** Unique; `none`: a delete. */
  readonly value: string
  /** Of the transaction's snapshot, if it has read the register. */
  readonly replaced: string | undefined
  /** undefined: it may have been done, or not. */
  commitTs: Timestamp | undefined
}

class World {
  readonly wrong: string[] = []
  readonly counts = { committed: 0, snapshots: 0, again: 0, removed: 0, pauses: 0 }
  readonly #random: Random
  readonly #table: MemoryTable
  readonly #tables: readonly PausableTable[]
  readonly #snapshots: Snapshot[] = []
  /** Of registers. */
  readonly #writes: Write[] = []
  #databases: readonly Database[] = []
  #isOver = false

  constructor(seed: number, faults: number, isTogether: boolean) {
    this.#random = new Random(seed)
    const random = this.#random
    const fate = (): Fate => (random.chance(faults) ? random.pick(FATES) : 'done')
    this.#table = new MemoryTable(fate, () => random.below(4), undefined, { isTogether })
    this.#tables = Array.from({ length: SERVERS }, () => new PausableTable(this.#table))
  }

  run(): Promise<void> {
    return inLeaps(this.#table, () => this.#run())
  }

  async #run(): Promise<void> {
    const value = encodeSafePoint({ safePoint: 0, cleared: 0, secondMs: SECOND_MS })
    this.#table.put(rowKeyOfSystem('safe-point'), [{ family: 'o', qualifier: RECORD, value }])
    this.#databases = await databasesOn(this.#tables)
    const ops = ACCOUNTS.map((name) => ({ op: 'put' as const, key: utf8(name), value: utf8(String(EACH)) }))
    await this.#any().transact({ checks: [], ops, maxRetries: 50, lockWaitMs: 20_000 })
    const clients = [this.#client(), this.#client(), this.#raw(), this.#raw(), this.#raw(), this.#raw(), this.#reader()]
    const chores = [this.#pauses(), ...this.#databases.map((database) => this.#collect(database))]
    await Promise.all(clients)
    this.#isOver = true
    for (const table of this.#tables) table.goOn()
    await Promise.all(chores)
    for (const land of this.#table.late.splice(0)) land()
    await this.#look()
    for (const snapshot of this.#snapshots) await this.#lookAgain(snapshot)
    for (const snapshot of this.#snapshots) this.#judge(snapshot)
    this.#judgeWrites()
    for (const database of this.#databases) await database.close()
  }

  #any(): Database {
    return this.#random.pick(this.#databases)
  }

  async #refusable<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work()
    } catch (error) {
      if (REFUSALS.some((code) => isKvError(error, code))) return undefined
      throw error
    }
  }

  /** Transactions of servers. */
  async #client(): Promise<void> {
    const random = this.#random
    for (let i = 0; i < 10; i++) {
      const from = random.below(ACCOUNTS.length)
      const to = (from + 1 + random.below(ACCOUNTS.length - 1)) % ACCOUNTS.length
      const by = 1 + random.below(5)
      const key = utf8(random.pick(REGISTERS))
      const value = utf8(`${random.below(1e9)}`.padEnd(random.chance(0.2) ? 5000 : 9))
      const ops = random.chance(0.5)
        ? [
            { op: 'increment' as const, key: utf8(ACCOUNTS[from] as string), by: -by },
            { op: 'increment' as const, key: utf8(ACCOUNTS[to] as string), by },
          ]
        : [random.chance(0.4) ? { op: 'delete' as const, key } : { op: 'put' as const, key, value }]
      const request = { checks: [], ops, maxRetries: 50, lockWaitMs: 20_000 }
      const [{ op }] = ops as [(typeof ops)[number]]
      const written = op === 'increment' ? undefined : this.#writing(text(key), op === 'put' ? text(value) : 'none')
      const done = await this.#refusable(() => this.#any().transact(request))
      if (done !== undefined) this.counts.committed++
      if (done !== undefined && written !== undefined) written.commitTs = done.answer.commitTs
      while (random.chance(0.3)) this.#table.late.splice(random.below(this.#table.late.length + 1), 1)[0]?.()
      await sleep(random.below(300))
    }
  }

  /**
   * Transactions of a client that reads a register and writes it, after a while. It sends the prewrite to two servers, one of which may
   * be stopped, and may leave the commit of the register to others.
   */
  async #raw(): Promise<void> {
    const random = this.#random
    for (let i = 0; i < 12; i++) {
      const [one, other] = [this.#any(), this.#any()]
      await this.#refusable(async () => {
        const startTs = await one.store.tso(1)
        const primary = random.chance(0.5) ? `p${startTs}` : `p${random.below(2)}`
        const key = random.pick(REGISTERS)
        const found = await one.get({ key: utf8(key), ts: startTs }, () => ({ lockWaitMs: 5000 }))
        if (random.chance(0.5)) await sleep(random.below(1500))
        const isDelete = random.chance(0.5)
        const written = this.#writing(
          key,
          isDelete ? 'none' : `${startTs}`,
          found.found ? text(found.value).trim() : 'none',
        )
        const mutation = isDelete ? del(key) : put(key, `${startTs}`)
        const rest = { primary: utf8(primary), lockTtl: 1000 + random.below(3000) }
        await one.store.prewrite(prewriteOf(startTs, [put(primary)], rest))
        const tries = [one, other].map(({ store }) => store.prewrite(prewriteOf(startTs, [mutation], rest)))
        for (const each of tries) each.catch(() => {})
        await Promise.any(tries).catch((error: AggregateError) => {
          throw error.errors[0]
        })
        const commitTs = await other.store.tso(1)
        const { store } = random.pick([one, other])
        await store.commit({ keys: [utf8(primary)], startTs, commitTs })
        this.counts.committed++
        written.commitTs = commitTs
        if (random.chance(0.5)) await this.#refusable(() => store.commit({ keys: [utf8(key)], startTs, commitTs }))
      })
      await sleep(random.below(200))
    }
  }

  async #reader(): Promise<void> {
    for (let i = 0; i < 30; i++) {
      await this.#refusable(() => this.#look())
      const [recent] = this.#random.shuffled(this.#snapshots.slice(-5))
      if (recent !== undefined) await this.#lookAgain(recent)
      await sleep(this.#random.below(150))
    }
  }

  async #look(): Promise<void> {
    const ts = await this.#any().store.tso(1)
    const { pairs } = await this.#any().batchGet({ keys: KEYS, ts, lockWaitMs: 20_000 })
    const amountIn = (name: string) => Number(text(pairs.find(({ key }) => text(key) === name)?.value ?? utf8('0')))
    const sum = ACCOUNTS.reduce((total, name) => total + amountIn(name), 0)
    if (sum !== ACCOUNTS.length * EACH) this.wrong.push(`the sum is ${sum} at ${ts}`)
    this.counts.snapshots++
    this.#snapshots.push({ ts, pairs: printed(pairs) })
  }

  async #lookAgain({ ts, pairs }: Snapshot): Promise<void> {
    await this.#refusable(async () => {
      const database = this.#any()
      const read = this.#random.chance(0.5)
        ? (await database.batchGet({ keys: KEYS, ts, lockWaitMs: 20_000 })).pairs
        : (await database.scan({ ts, limit: 100, reverse: false, keyOnly: false, bytesMax: 1e6, lockWaitMs: 20_000 }))
            .pairs
      const again = printed(read.filter(({ key }) => KEYS.some((own) => own.equals(key))))
      if (String(again) !== String(pairs)) this.wrong.push(`the snapshot at ${ts} was ${pairs} and is ${again}`)
      this.counts.again++
    })
  }

  #writing(key: string, value: string, replaced?: string): Write {
    const write: Write = { key, value: value.trim(), replaced, commitTs: undefined }
    this.#writes.push(write)
    return write
  }

  #judge({ ts, pairs }: Snapshot): void {
    for (const name of REGISTERS) {
      const value = pairs.find((pair) => pair.startsWith(`${name}=`))?.slice(2) ?? 'none'
      const allowed = this.#valuesAt(name, ts)
      if (!allowed.has(value)) this.wrong.push(`${name} is ${value} at ${ts}, and not ${[...allowed]}`)
    }
  }

  /** A transaction that has read what it replaces has read the write before its own. */
  #judgeWrites(): void {
    for (const { key, value, replaced, commitTs } of this.#writes) {
      if (commitTs === undefined || replaced === undefined) continue
      const allowed = this.#valuesAt(key, commitTs - 1)
      if (!allowed.has(replaced)) this.wrong.push(`${value} replaced ${replaced} in ${key}, and not ${[...allowed]}`)
    }
  }

  /** The newest acknowledged write at or below `ts`, and those without an answer, which may be newer. */
  #valuesAt(name: string, ts: Timestamp): Set<string> {
    const writes = this.#writes.filter(({ key }) => key === name)
    const done = writes.filter(({ commitTs }) => commitTs !== undefined && commitTs <= ts)
    const newest = done.reduce((newestTs, { commitTs = 0 }) => Math.max(newestTs, commitTs), 0)
    const allowed = writes.filter(({ commitTs }) => commitTs === undefined || commitTs === newest)
    return new Set([...allowed.map(({ value }) => value), ...(newest === 0 ? ['none'] : [])])
  }

  async #collect(database: Database): Promise<void> {
    const { store } = database
    while (!this.#isOver) {
      await sleep(100 + this.#random.below(500))
      const ago = this.#random.chance(0.5) ? LIFE_MS : 0
      const collected = await this.#refusable(async () => database.gc((await store.tso(1)) - timestampFromMs(ago)))
      this.counts.removed += collected?.versionsRemoved ?? 0
    }
  }

  async #pauses(): Promise<void> {
    while (!this.#isOver) {
      await sleep(this.#random.below(500))
      const table = this.#random.pick(this.#tables)
      table.pause()
      this.counts.pauses++
      const endMs = performance.now() + this.#random.below(PAUSE_MS_MAX)
      while (!this.#isOver && performance.now() < endMs) await sleep(50)
      table.goOn()
    }
  }
}

function printed(pairs: readonly { readonly key: Uint8Array; readonly value?: Uint8Array | undefined }[]): string[] {
  return pairs.map(({ key, value }) => `${text(key)}=${text(value ?? utf8('')).trim()}`).sort()
}

test('servers that stop and go on while others collect lose no write and change no snapshot', async () => {
  const totals = { committed: 0, snapshots: 0, again: 0, removed: 0, pauses: 0 }
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(0, 0.05), fc.boolean(), async (...given) => {
      const world = new World(...given)
      await world.run()
      for (const [name, count] of Object.entries(world.counts)) totals[name as keyof typeof totals] += count
      expect(world.wrong).toEqual([])
    }),
    { numRuns: RUNS, endOnFailure: true, ...(Number.isNaN(SEED) ? {} : { seed: SEED }) },
  )
  if (process.env['PERKV_TEST_REPORT']) console.log(JSON.stringify(totals))
  for (const count of Object.values(totals)) expect(count).toBeGreaterThan(RUNS)
}, 600_000)
