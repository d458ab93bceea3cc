import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { CommitOptions } from '../../src/coordinator/committer.js'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import type { Transaction, TransactionOptions } from '../../src/coordinator/transaction.js'
import { Undetermined } from '../../src/coordinator/undetermined.js'
import type { MergedPair } from '../../src/coordinator/write-buffer.js'
import { isKvError } from '../../src/errors/kv-error.js'
import { openLevelDbStore } from '../../src/store/leveldb/leveldb-store.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { Random } from '../anomalies/random.js'
import { report } from '../anomalies/settings.js'
import { makeDirectory, START_MS, TappedEngine, text, utf8, WriteGate } from '../store/support.js'
import { type FaultRates, FaultyApi, seededFates, Turns } from './faulty-api.js'

/**
 * Random transactions of several coordinators on the same few keys, over networks that lose, repeat and hold back what
 * they carry, with clients that are cut off or die at any call. A seed decides everything: which request arrives next,
 * when LevelDB's writes are done, what time it is. The long form, for example:
 *
 *   PERKV_TEST_RUNS=5000 PERKV_TEST_SEED=1 PERKV_TEST_REPORT=1 npx vitest run test/coordinator/committer-properties.test.ts
 */
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 60)
const FIRST_SEED = Number(process.env['PERKV_TEST_SEED'] ?? 1)

const KEYS = 4
const LONG = 'x'.repeat(300)
/** Longer than any TTL. */
const MINUTE_MS = 60_000

/** What may end an operation or a commit. Anything else is a defect. */
const LOST_RACES: ReadonlySet<string> = new Set([
  'write_conflict',
  'key_locked',
  'lock_wait_timeout',
  'deadlock',
  'already_exists',
  'connection_failed',
  'txn_lock_not_found',
  'pessimistic_lock_not_found',
  'pessimistic_lock_rolled_back',
])
class Aborted extends Error {
  readonly code = 'aborted'
}

function expectLostRace(error: unknown): void {
  if (error instanceof Aborted) return
  if (error instanceof Error && 'code' in error && LOST_RACES.has(String(error.code))) return
  throw error
}

/** `latest`: under a lock, at its newest version. */
interface Read {
  readonly source: 'snapshot' | 'latest'
  readonly key: string
  readonly value: string | undefined
}
type Word = 'failed' | 'undetermined' | { readonly commitTs: Timestamp }

interface Logged {
  readonly client: Client
  readonly txn: Transaction
  readonly options: TransactionOptions
  readonly writes: Map<string, string | undefined>
  readonly inserts: Set<string>
  readonly reads: Read[]
  /** What its client was told of its end, one after the other. */
  readonly words: Word[]
}

/** What stands at each moment, by what was committed. */
class Model {
  readonly versions = new Map<string, { readonly commitTs: Timestamp; readonly startTs: Timestamp; value?: string }[]>()

  write(key: string, startTs: Timestamp, commitTs: Timestamp, value: string | undefined): void {
    const versions = this.versions.get(key) ?? []
    versions.push({ commitTs, startTs, ...(value === undefined ? {} : { value }) })
    this.versions.set(
      key,
      versions.sort((a, b) => a.commitTs - b.commitTs),
    )
  }

  /** @param except start_ts of a transaction that is passed over. */
  at(key: string, ts: Timestamp, except?: Timestamp): string | undefined {
    const isMeant = (version: { commitTs: Timestamp; startTs: Timestamp }): boolean =>
      version.commitTs <= ts && version.startTs !== except
    return this.versions.get(key)?.findLast(isMeant)?.value
  }
}

// ---- One history

class History {
  readonly turns = new Turns()
  readonly logs: Logged[] = []
  readonly prefix: string
  /** Operations on single keys are on so many of them. */
  readonly hotKeys: number
  /** The highest timestamp that anybody was told of. */
  known: Timestamp = 0

  constructor(
    readonly store: Store,
    readonly tapped: TappedEngine,
    readonly gate: WriteGate,
    readonly seed: number,
    readonly random: Random,
  ) {
    this.hotKeys = random.pick([1, 2, KEYS])
    this.prefix = `${String(seed).padStart(8, '0')}/`
  }

  key(n: number): string {
    return `${this.prefix}${n}`
  }
  get keys(): string[] {
    return Array.from({ length: KEYS }, (_, n) => this.key(n))
  }
  get range(): { readonly start: Buffer; readonly end: Buffer } {
    return { start: utf8(this.prefix), end: utf8(`${this.prefix}~`) }
  }

  play<T>(goal: Promise<T>, isOver?: () => boolean): Promise<T> {
    return this.turns.play({ random: this.random, tapped: this.tapped, gate: this.gate }, goal, isOver)
  }

  /** Ends everything that left locks, as `gc` does. */
  async resolveAll(): Promise<void> {
    for (let round = 0; ; round++) {
      const { locks } = await this.store.scanLock({ maxTs: TIMESTAMP_MAX, ...this.range })
      if (locks.length === 0) return
      expect(round, 'every lock can be resolved').toBeLessThan(5)
      await new LockResolver(this.store).resolve(locks, TIMESTAMP_MAX)
    }
  }

  /** Somebody who ends what others are in the middle of. */
  async sweep(): Promise<void> {
    const client = -1
    for (let left = this.random.chance(0.5) ? 8 : 0; left > 0; left--) {
      for (let pauses = this.random.below(6); pauses > 0; pauses--) await this.turns.wait(client)
      const { locks } = await this.store.scanLock({ maxTs: TIMESTAMP_MAX, ...this.range })
      await this.turns.wait(client)
      await new LockResolver(this.store).resolve(locks, TIMESTAMP_MAX)
    }
  }
}

// ---- Clients

class Client {
  readonly network: FaultyApi
  readonly coordinator: Coordinator
  readonly commitOptions: CommitOptions
  readonly #random: Random
  readonly #died: Promise<never>
  /** By the number of the call at which it happens. */
  readonly #mishaps = new Map<number, () => void>()

  constructor(
    readonly history: History,
    readonly index: number,
    rates: FaultRates,
  ) {
    const random = history.random.fork()
    this.#random = random
    this.network = new FaultyApi(history.store)
    this.network.gate = () => history.turns.wait(index)
    this.network.copyDelay = () => random.pick([1, 3, 10, 30, Number.POSITIVE_INFINITY])
    const fates = seededFates(random, rates)
    this.network.fateOf = () => {
      this.#mishaps.get(this.network.calls.length)?.()
      return fates()
    }
    let die: (reason: Error) => void = () => {}
    this.#died = new Promise((_, reject) => {
      die = reject
    })
    this.#died.catch(() => {})
    const at = 1 + random.below(60)
    if (random.chance(0.2)) this.#mishaps.set(at, () => this.network.cutOff())
    else if (random.chance(0.15))
      this.#mishaps.set(at, () => {
        this.network.kill()
        this.isDead = true
        die(new Aborted('died'))
      })
    const hasCopies = (rates.late ?? 0) + (rates.echo ?? 0) > 0
    this.commitOptions = {
      ...COMMIT_OPTIONS_DEFAULT,
      batchBytes: random.pick([1, 1, 30, 16 * 1024]),
      asyncCommitKeysMax: random.pick([0, 256]),
      triesMax: random.pick([1, 3, 3]),
      isInProcess: !hasCopies && random.chance(0.3),
      heartbeatMaxMs: random.pick([10_000, MINUTE_MS]),
    }
    this.coordinator = new Coordinator(
      random.chance(0.5) ? this.network.api : this.network.abortable(),
      this.commitOptions,
    )
  }

  isDead = false
  /** Cut off for good, and nothing is asked of it again. */
  #isLost = false
  get isGone(): boolean {
    return this.isDead || this.#isLost
  }

  async run(): Promise<void> {
    try {
      for (let left = 1 + this.#random.below(3); left > 0 && this.network.isUp; left--)
        await Promise.race([this.#runOne(), this.#died])
    } catch (error) {
      if (!(error instanceof Aborted && error.message === 'died')) throw error
    }
    this.#isLost = !this.network.isUp && this.#random.chance(0.5)
  }

  async #runOne(): Promise<void> {
    const { history } = this
    const random = this.#random
    const controller = new AbortController()
    const options: TransactionOptions = {
      mode: random.pick(['optimistic', 'pessimistic']),
      isolation: random.pick(['snapshot', 'serializable']),
      lockWaitMs: random.pick([0, 0, 20, 2500]),
      signal: random.chance(0.2) ? controller.signal : undefined,
    }
    if (options.signal !== undefined)
      this.#mishaps.set(this.network.calls.length + 1 + random.below(20), () => controller.abort(new Aborted('enough')))
    const known = history.known
    const txn = await this.coordinator.begin(options).catch(expectLostRace)
    if (txn === undefined) return
    expect(txn.startTs).toBeGreaterThan(known)
    history.known = Math.max(history.known, txn.startTs)
    const log: Logged = { client: this, txn, options, writes: new Map(), inserts: new Set(), reads: [], words: [] }
    history.logs.push(log)
    for (let left = 1 + random.below(7); left > 0; left--) {
      const isOver = await this.#operate(log).then(
        () => false,
        (error: unknown) => {
          expectLostRace(error)
          return random.chance(0.5)
        },
      )
      if (isOver) break
    }
    if (random.chance(0.08)) return // Forgotten.
    if (random.chance(0.12)) return this.rollback(log)
    await this.commit(log)
    for (let left = random.below(3); left > 0; left--) {
      if (log.words.at(-1) !== 'failed') await (random.chance(0.7) ? this.commit(log) : this.rollback(log))
      if (!this.network.isUp && random.chance(0.3)) this.network.heal()
    }
  }

  async #operate(log: Logged): Promise<void> {
    const { history } = this
    const random = this.#random
    const { txn, writes, reads } = log
    const name = history.key(random.below(history.hotKeys))
    const key = utf8(name)
    const see = (source: Read['source'], key: string, found: { readonly value?: Uint8Array } | undefined): void => {
      const value = found?.value === undefined ? undefined : text(found.value)
      if (writes.has(key)) expect(value).toBe(writes.get(key))
      else reads.push({ source, key, value })
    }
    const seeAll = (keys: readonly string[], pairs: readonly MergedPair[]): void => {
      const found = new Map(pairs.map((pair) => [text(pair.key), pair]))
      for (const each of keys) see('snapshot', each, found.get(each))
    }
    const latest = log.options.mode === 'pessimistic' ? 'latest' : 'snapshot'
    const value = `${txn.startTs} ${writes.size} ${name}${random.chance(0.2) ? LONG : ''}`
    switch (
      random.pick(['get', 'both', 'batch', 'scan', 'for_update', 'add', 'add', 'put', 'put', 'delete', 'insert'])
    ) {
      case 'get':
        return see('snapshot', name, await txn.get(key))
      case 'both': {
        const [a, b] = random.shuffled(history.keys) as [string, string]
        const found = await Promise.allSettled([txn.get(utf8(a)), txn.get(utf8(b))])
        ;[a, b].forEach((key, i) => {
          const each = found[i]
          if (each?.status === 'fulfilled') see('snapshot', key, each.value)
          else expectLostRace(each?.reason)
        })
        return
      }
      case 'batch':
        return seeAll(history.keys, await txn.batchGet(history.keys.map(utf8)))
      case 'scan': {
        const reverse = random.chance(0.5)
        const limit = 1 + random.below(KEYS + 1)
        const { pairs } = await txn.scan({ ...history.range, limit, reverse, keyOnly: false })
        const last = pairs.length < limit ? undefined : text(pairs.at(-1)?.key ?? key)
        const isSeen = (each: string): boolean => last === undefined || (reverse ? each >= last : each <= last)
        return seeAll(history.keys.filter(isSeen), pairs)
      }
      case 'for_update':
        return see(latest, name, await txn.getForUpdate(key))
      case 'add':
        see(latest, name, await txn.getForUpdate(key))
        await txn.put(key, utf8(value))
        writes.set(name, value)
        return
      case 'put':
        await txn.put(key, utf8(value))
        writes.set(name, value)
        return
      case 'delete':
        await txn.delete(key)
        writes.set(name, undefined)
        return
      case 'insert': {
        const isOwn = writes.has(name)
        await txn.insert(key, utf8(value))
        if (!isOwn) {
          reads.push({ source: latest, key: name, value: undefined })
          log.inserts.add(name)
        }
        writes.set(name, value)
      }
    }
  }

  async commit(log: Logged): Promise<void> {
    const { history } = this
    const { known } = history
    const isFirst = log.txn.state === 'open'
    await this.#end(log, async () => {
      const commitTs = await log.txn.commit()
      expect(commitTs).toBe(log.txn.commitTs)
      // Linearizable: above every timestamp that was handed out before.
      if (isFirst && commitTs !== log.txn.startTs) expect(commitTs).toBeGreaterThan(known)
      history.known = Math.max(history.known, commitTs)
      return { commitTs }
    })
  }

  async rollback(log: Logged): Promise<void> {
    await this.#end(log, async () => {
      try {
        await log.txn.rollback()
        return 'failed'
      } catch (error) {
        if (isKvError(error, 'already_committed')) return { commitTs: error.fields.commitTs }
        throw error
      }
    })
  }

  async #end(log: Logged, end: () => Promise<Word>): Promise<void> {
    const { lost } = this.network
    const wasUp = this.network.isUp
    try {
      log.words.push(await end())
    } catch (error) {
      if (error instanceof Undetermined) {
        // Only after as many losses as it tries to ask.
        const isCutOff = !wasUp || !this.network.isUp
        if (!isCutOff) expect(this.network.lost - lost).toBeGreaterThanOrEqual(this.commitOptions.triesMax)
        log.words.push('undetermined')
      } else {
        if (!isKvError(error, 'txn_not_found') || log.words.length === 0) expectLostRace(error)
        log.words.push('failed')
      }
    }
  }
}

// ---- The judge

const counts = {
  histories: 0,
  txns: 0,
  committed: 0,
  failed: 0,
  undetermined: 0,
  calls: 0,
  onePc: 0,
  async: 0,
  twoPc: 0,
}
const faults: Record<string, number> = {}

async function judge(history: History): Promise<void> {
  const { store, logs } = history
  /** What stands in the store, by start_ts. */
  const stored = new Map<Timestamp, { commitTs: Timestamp; data: Map<string, string | undefined> }>()
  for (const key of history.keys) {
    const { lock, writes, values } = await store.mvccGetByKey({ key: utf8(key) })
    expect(lock).toBeNull()
    for (const { type, startTs, commitTs, shortValue } of writes) {
      if (type === 'rollback') continue
      const found = stored.get(startTs) ?? { commitTs, data: new Map() }
      stored.set(startTs, found)
      expect(commitTs, `${startTs} stands at one timestamp`).toBe(found.commitTs)
      const long = values.find((each) => each.startTs === startTs)?.value
      if (type !== 'lock') found.data.set(key, type === 'put' ? text(shortValue ?? long ?? utf8('?')) : undefined)
    }
    for (const { startTs } of values) expect(stored.get(startTs)?.data.get(key)?.endsWith(LONG)).toBe(true)
  }

  const model = new Model()
  for (const [startTs, { commitTs, data }] of stored) {
    const log = logs.find(({ txn }) => txn.startTs === startTs)
    expect(commitTs).toBeGreaterThan(startTs)
    expect(data, `${startTs} is there as a whole`).toEqual(log?.writes)
    for (const [key, value] of data) model.write(key, startTs, commitTs, value)
  }

  for (const { txn, words, reads, writes, options, inserts } of logs) {
    const { startTs } = txn
    const isReadOnly = writes.size === 0 && options.isolation === 'snapshot'
    const commitTs = stored.get(startTs)?.commitTs
    // What was said is what came of it.
    for (const word of words) {
      if (word === 'failed') expect(commitTs, `${startTs} failed`).toBeUndefined()
      else if (word !== 'undetermined' && word.commitTs !== startTs) expect(commitTs).toBe(word.commitTs)
      else if (word !== 'undetermined') expect(isReadOnly || writes.size === 0).toBe(true)
    }
    for (const { source, key, value } of reads) {
      const read = { startTs, commitTs, source, key }
      // A snapshot, whatever became of the reader.
      if (source === 'snapshot') expect({ ...read, value }).toEqual({ ...read, value: model.at(key, startTs) })
      if (commitTs === undefined) continue
      // Serializable, or locked: as if all of it happened at the commit.
      if (source === 'latest' || options.isolation === 'serializable')
        expect({ ...read, value }).toEqual({ ...read, value: model.at(key, commitTs, startTs) })
    }
    if (commitTs === undefined) continue
    for (const key of inserts) expect(model.at(key, commitTs, startTs)).toBeUndefined()
    if (options.mode === 'pessimistic') continue
    // The first committer wins.
    for (const key of writes.keys())
      for (const other of model.versions.get(key) ?? [])
        if (other.startTs !== startTs)
          expect(other.commitTs > startTs && other.commitTs < commitTs, `${startTs} and ${other.startTs}`).toBe(false)
  }
}

function count(clients: readonly Client[], logs: readonly Logged[]): void {
  counts.histories++
  counts.txns += logs.length
  for (const { words } of logs) for (const word of words) counts[typeof word === 'object' ? 'committed' : word]++
  for (const { network } of clients) {
    counts.calls += network.calls.length
    for (const { name, request } of network.calls) {
      if (name !== 'prewrite') continue
      const { tryOnePc, useAsyncCommit } = request as { tryOnePc?: boolean; useAsyncCommit?: boolean }
      counts[tryOnePc ? 'onePc' : useAsyncCommit ? 'async' : 'twoPc']++
    }
    for (const [fate, times] of Object.entries(network.fates)) faults[fate] = (faults[fate] ?? 0) + times
  }
}

// ---- The test

const CALM: FaultRates = {}
const PROFILES: readonly FaultRates[] = [
  CALM,
  { late: 0.1, echo: 0.2 },
  { echo: 0.5 },
  { echo: 0.8 },
  { lose_answer: 0.15, twice: 0.1 },
  { lose_request: 0.05, lose_answer: 0.05, twice: 0.05, late: 0.05, echo: 0.1 },
  { lose_request: 0.1, lose_answer: 0.1, late: 0.2 },
]

describe('what commit promises', () => {
  const tapped = new TappedEngine()
  let directory: string
  let store: Store
  let gate: WriteGate

  beforeAll(async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] })
    directory = await makeDirectory()
    const now = (): number => START_MS + Math.floor(performance.now())
    store = await openLevelDbStore({ directory, durability: 'async', now, openEngine: tapped.open })
    gate = new WriteGate(tapped)
    gate.open()
  })
  afterAll(async () => {
    vi.restoreAllMocks()
    vi.useRealTimers()
    gate.open()
    await store.close()
    await rm(directory, { recursive: true, force: true })
    report({ ...counts, faults })
  })

  async function run(seed: number): Promise<void> {
    const random = new Random(seed)
    const history = new History(store, tapped, gate, seed, random)
    vi.spyOn(Math, 'random').mockImplementation(() => random.next())
    const rates = random.pick(PROFILES)
    const clients = Array.from({ length: 2 + random.below(3) }, (_, i) => new Client(history, i, rates))
    const { logs } = history
    gate.shut()
    await history.play(Promise.all([history.sweep(), ...clients.map((client) => client.run())]))

    // Everybody who can come back does; what is late arrives, sooner or later than others clean up.
    for (const { network, isGone } of clients) {
      network.fateOf = () => 'arrive'
      if (!isGone) network.heal()
    }
    const asks = logs.filter(({ client, words }) => !client.isGone && words.at(-1) === 'undetermined')
    const ends: (() => Promise<unknown>)[] = [
      ...asks.map((log) => () => (random.chance(0.8) ? log.client.commit(log) : log.client.rollback(log))),
      ...clients.map(
        ({ network }) =>
          () =>
            network.deliverLate(),
      ),
      () => history.resolveAll(),
    ]
    for (const end of random.shuffled(ends)) await history.play(end())
    const settled = async (): Promise<void> => {
      for (const { coordinator, isDead } of clients) if (!isDead) await coordinator.idle()
      for (const { network } of clients) await network.deliverLate()
    }
    const isQuiet = (): boolean => history.turns.size === 0 && clients.every(({ network }) => network.running === 0)
    await history.play(settled(), isQuiet)
    await history.play(history.resolveAll())
    for (const { client, words } of logs)
      if (!client.isGone && words.length > 0) expect(words.at(-1), 'healed').not.toBe('undetermined')
    vi.advanceTimersByTime(2 * MINUTE_MS) // The last heartbeats.
    await history.play(judge(history))
    count(clients, logs)
    gate.open()
    await tapped.quiet()
  }

  test('property: it is true, and transactions are whole and isolated', {
    tags: ['long'],
    timeout: 30_000 + RUNS * 1000,
  }, async () => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + RUNS; seed++)
      await run(seed).catch((error: unknown) => {
        if (error instanceof Error) error.message = `seed ${seed}: ${error.message}`
        throw error
      })
    expect(counts.committed).toBeGreaterThan(0)
  })
})
