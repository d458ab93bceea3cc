import { createHash } from 'node:crypto'
import { ConnectionError } from '../../src/client/http/connection-error.js'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import type { Transaction } from '../../src/coordinator/transaction.js'
import { isUncertain } from '../../src/coordinator/uncertain.js'
import { Undetermined } from '../../src/coordinator/undetermined.js'
import type { ScanOrder } from '../../src/coordinator/write-buffer.js'
import { isKvError, KvError } from '../../src/errors/kv-error.js'
import type { PercolatorApi } from '../../src/percolator/api.js'
import type { CommitEffects } from '../../src/percolator/commit-effects.js'
import { LOGICAL_PER_MS, TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { OneShot, OneShotAnswer } from '../../src/txn/one-shot.js'
import type { Op } from '../../src/txn/op.js'
import type { Random } from '../anomalies/random.js'
import type { ClientWorld } from './client-world.js'
import { Feeder } from './feeder.js'
import { LOG, type TxnHistory } from './history.js'
import { isLeaseLost, LeaseHolder } from './lease-holder.js'
import { isRaw, RawClient } from './raw-client.js'
import type { Owner } from './scheduler.js'
import { Worker, type WorkerHost } from './worker.js'

type Run = (client: Client) => Promise<void>

/** Whether an acknowledgement was refused. */
function isAck({ fields }: KvError<'write_conflict'>): boolean {
  return fields.reason === 'acknowledged' || fields.reason === 'superseded'
}

interface Scanner {
  scan(
    order: ScanOrder,
  ): Promise<{ readonly pairs: readonly { readonly key: Uint8Array; readonly value?: Uint8Array }[] }>
}

/** What clients do, and how often. */
const PROGRAMS: readonly (readonly [weight: number, name: string, run: Run])[] = [
  [50, 'transaction', (client) => client.transaction()],
  [16, 'one_shot', (client) => client.oneShot()],
  [12, 'latest_read', (client) => client.latestRead()],
  [6, 'latest_batch', (client) => client.latestBatch()],
  [8, 'time_travel', (client) => client.timeTravel()],
  [2, 'gc', (client) => client.collect()],
  [2, 'resolve_locks', (client) => client.resolveLocks()],
  [5, 'push_min_commit_ts', (client) => client.pushMinCommitTs()],
]
/** Where there are observers. */
const OBSERVING: typeof PROGRAMS = [
  ...PROGRAMS,
  [60, 'work', (client) => client.worker.work()],
  [20, 'work_late', (client) => client.worker.workLate()],
  [15, 'upkeep_of_observers', (client) => client.worker.upkeep()],
  [3, 'gc', (client) => client.collect()],
]

/** Where there are feeds. */
const FEEDING: typeof PROGRAMS = [
  [30, 'feed', (client) => client.feed()],
  [12, 'raw', (client) => client.raw.write()],
  [2, 'delete_range', (client) => client.raw.remove()],
  [2, 'gc', (client) => client.collect()],
]

/** Where servers share a store. */
const SHARING: typeof PROGRAMS = [[6, 'gc', (client) => client.collect()]]

/** Where there are leases. */
const HOLDING: typeof PROGRAMS = [[40, 'hold_lease', (client) => client.leaseHolder.hold()]]

/** Keys that hold numbers, for increments. */
const COUNTERS = ['n0', 'n1']
const LONG_VALUE_BYTES = 300
/** Now and then a transaction stays open over what happens to others, the server's restart included. */
const LONG_THINK_MS_MAX = 5000
/** Between two looks of a client that only reads the changes. */
const READ_MS_MAX = 3000
/** Longer than any client keeps one, however the clock is set meanwhile. */
const PIN_MS = 600_000

const bytes = (text: string): Buffer => Buffer.from(text)
const text = (value: Uint8Array): string => Buffer.from(value).toString()

/** One client: a process with a coordinator, which runs one program after another until it dies or the world ends. */
export class Client {
  readonly owner: Owner
  isDone = false
  readonly worker: Worker
  readonly raw: RawClient
  readonly leaseHolder: LeaseHolder
  readonly #feeders: readonly Feeder[]
  readonly #world: ClientWorld
  readonly #random: Random
  readonly #api: PercolatorApi
  readonly #coordinator: Coordinator
  readonly #keys: readonly string[]

  constructor(owner: Owner, world: ClientWorld) {
    this.owner = owner
    this.#world = world
    this.#random = world.faults.random
    this.#api = world.network.api(owner)
    const { batchBytes, asyncCommitKeysMax, keys } = world.faults.profile
    this.#coordinator = new Coordinator(this.#api, { ...COMMIT_OPTIONS_DEFAULT, batchBytes, asyncCommitKeysMax })
    this.worker = this.#newWorker()
    this.leaseHolder = this.#newLeaseHolder()
    const host = { world, owner, random: this.#random, sleep: (ms: number) => this.#sleep(ms) }
    const beginFeed = (): Promise<void> => world.network.call(owner, 'begin', true, ({ store }) => store.log.begin())
    this.raw = new RawClient({ ...host, api: this.#api, beginFeed, think: () => this.#think() })
    this.#feeders = [new Feeder('log', host), new Feeder('service', host)]
    this.#keys = Array.from({ length: keys }, (_, i) => `k${i}${'-'.repeat((i * 5) % 12)}`)
  }

  async run(): Promise<void> {
    while (!this.#world.isEnding()) {
      const name = await this.#runOne()
      this.#world.count(name)
      await this.#think()
    }
    await this.#coordinator.idle()
    this.isDone = true
  }

  /** Does nothing but to follow the changes, from the beginning. */
  async read(): Promise<void> {
    for (; !this.#world.isEnding(); await this.#sleep(READ_MS_MAX * this.#random.next() ** 2))
      await this.feed().catch((error: unknown) => this.#requireKnown(error))
    this.isDone = true
  }

  #newWorker(): Worker {
    const { network } = this.#world
    return new Worker({
      ...this.#host(),
      call: (label, isRepeatable, run) =>
        network.call(this.owner, label, isRepeatable, ({ observers }) => run(observers)),
      // A copy is refused: what it acknowledges is acknowledged already.
      oneShot: async (request) =>
        (await network.call(this.owner, 'one_shot', true, ({ oneShots }) => oneShots.run(request), request)).answer,
    })
  }

  #newLeaseHolder(): LeaseHolder {
    const { network, leases } = this.#world
    return new LeaseHolder({
      ...this.#host(),
      holder: this.owner.name,
      ledger: leases,
      call: (label, isRepeatable, run) => network.call(this.owner, label, isRepeatable, run),
    })
  }

  #host(): Omit<WorkerHost, 'call' | 'oneShot'> {
    return {
      world: this.#world,
      random: this.#random,
      coordinator: this.#coordinator,
      key: () => this.#key(),
      newValue: (txn) => this.#valueOf(txn),
      requireKnown: (error) => this.#requireKnown(error),
      read: (txn, key, value) => this.#read(txn, key, value),
      sleep: (ms) => this.#sleep(ms),
      think: () => this.#think(),
      commit: (txn, seen, commitEffects) => this.#commit(txn, seen, commitEffects),
    }
  }

  async #runOne(): Promise<string> {
    const { observes, feeds, holdsLeases } = this.#world.faults.profile
    const programs = [
      ...(observes ? OBSERVING : PROGRAMS),
      ...(feeds ? FEEDING : []),
      ...(this.#world.ledger.isShared ? SHARING : []),
      ...(holdsLeases ? HOLDING : []),
    ]
    let place = this.#random.below(programs.reduce((sum, [weight]) => sum + weight, 0))
    for (const [weight, name, run] of programs) {
      place -= weight
      if (place >= 0) continue
      try {
        await run(this)
      } catch (error) {
        this.#requireKnown(error)
        await this.#sleep(200 * this.#random.next()) // The server may be away.
      }
      return name
    }
    throw new Error('no program')
  }

  /** What a call may fail with; anything else is a defect. */
  #requireKnown(error: unknown): void {
    if (error instanceof KvError || error instanceof ConnectionError || error instanceof Undetermined) return
    const detail = error instanceof Error ? (error.stack ?? String(error)) : String(error)
    this.#world.violations.add('defect', `a client got ${detail}`)
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#world.scheduler.schedule(this.owner, ms, 'goes on', resolve))
  }

  #think(): Promise<void> {
    return this.#sleep(this.#random.chance(0.4) ? 0 : this.#world.faults.profile.thinkMsMax * this.#random.next())
  }

  #key(): string {
    return this.#random.pick(this.#keys)
  }

  #someKeys(): string[] {
    return this.#random.shuffled(this.#keys).slice(0, 1 + this.#random.below(4))
  }

  #valueOf(txn: TxnHistory): string {
    const value = `${txn.id}.${txn.writes.size}`
    return this.#random.chance(0.2) ? value.padEnd(LONG_VALUE_BYTES, '.') : value
  }

  /** Few at once, so that versions expire together with others, and within a run. */
  #ttlMs(): number | undefined {
    const random = this.#random
    if (!this.#world.faults.profile.expires || !random.chance(0.6)) return undefined
    return random.pick([1, 20, 100, 500, 2000, 10_000])
  }

  /** Above its start_ts, so that it sees its own write; some have expired when they are committed. */
  #expireTs({ startTs }: TxnHistory): Timestamp {
    const ttlMs = this.#ttlMs()
    if (ttlMs === undefined) return 0
    const step = this.#random.pick([1, 500]) * LOGICAL_PER_MS
    return Math.ceil((startTs + 1) / step) * step + ttlMs * LOGICAL_PER_MS
  }

  // ---- Transactions of this client's coordinator

  async transaction(): Promise<void> {
    const { history, ledger } = this.#world
    const random = this.#random
    const kind = random.chance(0.6) ? 'optimistic' : 'pessimistic'
    const isolation = random.chance(0.6) ? 'snapshot' : 'serializable'
    const lockWaitMs = random.pick([0, 20, 300, 5000])
    const { floor } = history
    const seen = history.begin(kind, isolation, ledger.timeline)
    const txn = await this.#coordinator.begin({ mode: kind, isolation, lockWaitMs })
    history.started(seen, txn.startTs, floor)
    try {
      for (let left = 1 + random.below(6); left > 0; left--) {
        await this.#statement(txn, seen)
        if (random.chance(0.3)) await this.#think()
        if (random.chance(0.08)) await this.#sleep(LONG_THINK_MS_MAX * random.next())
      }
      if (random.chance(0.05)) {
        history.ended(seen, 'aborted')
        return await txn.rollback()
      }
    } catch (error) {
      this.#requireKnown(error)
      history.ended(seen, 'aborted')
      return await txn.rollback()
    }
    await this.#commit(txn, seen)
  }

  async #commit(txn: Transaction, seen: TxnHistory, commitEffects?: CommitEffects): Promise<void> {
    const { history } = this.#world
    try {
      seen.outcome = 'unknown' // To those who come after, if this client dies.
      history.committed(seen, await txn.commit(undefined, commitEffects))
    } catch (error) {
      this.#requireKnown(error)
      if (error instanceof Undetermined) return this.#learn(txn, seen)
      history.ended(seen, this.#mayHideCopy(error, seen) ? 'unknown' : 'aborted')
    }
  }

  /**
   * Where the network copies a request unasked, one copy may commit before a collection that has the other refused; see
   * README.md.
   */
  #mayHideCopy(error: unknown, seen: TxnHistory): boolean {
    const isRefused =
      isKvError(error, 'ts_below_safe_point') ||
      (isKvError(error, 'write_conflict') && isAck(error)) ||
      isLeaseLost(error, seen)
    return isRefused && this.#world.faults.profile.chances.call_duplicated > 0
  }

  /** A commit whose outcome nobody knew is asked for again, and in the end given up. */
  async #learn(txn: Transaction, seen: TxnHistory): Promise<void> {
    const { history, count } = this.#world
    for (let left = 5; left > 0; left--) {
      await this.#sleep(2000 * this.#random.next())
      try {
        history.committed(seen, await txn.commit())
        return count('learned_committed')
      } catch (error) {
        this.#requireKnown(error)
        if (error instanceof Undetermined) continue
        history.ended(seen, 'aborted')
        return count('learned_aborted')
      }
    }
    history.ended(seen, 'unknown')
  }

  async #statement(txn: Transaction, seen: TxnHistory): Promise<void> {
    const random = this.#random
    const key = this.#key()
    const draw = random.below(105)
    if (draw >= 100) {
      seen.stamped = this.#valueOf(seen)
      txn.putStamped(bytes(LOG), bytes(seen.stamped), 'text')
      return
    }
    if (draw < 25) return this.#read(seen, key, (await txn.get(bytes(key)))?.value)
    if (draw < 32) {
      const keys = this.#someKeys()
      const found = new Map((await txn.batchGet(keys.map(bytes))).map((pair) => [text(pair.key), pair.value]))
      for (const each of keys) this.#read(seen, each, found.get(each))
      return
    }
    if (draw < 42) return this.#scan(txn, seen)
    if (draw < 50) {
      const isOwn = seen.writes.has(key)
      const value = (await txn.getForUpdate(bytes(key)))?.value
      if (isOwn) return this.#read(seen, key, value)
      seen.lockedReads.push({ key, value: value && text(value) })
      return
    }
    if (draw < 80) {
      const value = this.#valueOf(seen)
      await txn.put(bytes(key), bytes(value), { expireTs: this.#expireTs(seen) })
      seen.writes.set(key, value)
      return
    }
    if (draw < 88) {
      await txn.delete(bytes(key))
      seen.writes.set(key, undefined)
      return
    }
    if (draw < 94) {
      const value = this.#valueOf(seen)
      const isOwn = seen.writes.has(key)
      await txn.insert(bytes(key), bytes(value))
      if (!isOwn) seen.lockedReads.push({ key, value: undefined })
      seen.writes.set(key, value)
      return
    }
    const counter = random.pick(COUNTERS)
    const sum = Number(text((await txn.getForUpdate(bytes(counter)))?.value ?? bytes('0'))) + 1
    await txn.put(bytes(counter), bytes(String(sum)))
    seen.increments.set(counter, (seen.increments.get(counter) ?? 0) + 1)
  }

  #read(seen: TxnHistory, key: string, value: Uint8Array | undefined): void {
    const found = value && text(value)
    this.#world.scheduler.noteText(found ?? '-')
    if (!seen.writes.has(key)) seen.reads.push({ key, value: found })
    else if (seen.writes.get(key) !== found)
      this.#world.violations.add('own write', `${seen.name} read ${found} of ${key}, and wrote ${seen.writes.get(key)}`)
  }

  async #scan(txn: Scanner, seen: TxnHistory): Promise<void> {
    const random = this.#random
    const ofKeys = [this.#key(), random.chance(0.5) ? this.#key() : 'k~'].sort() as [string, string]
    const [start, end] = random.chance(0.2) ? ([LOG, `${LOG}~`] as const) : ofKeys
    const order = { limit: 1 + random.below(8), reverse: random.chance(0.3) }
    const own = new Map(seen.writes)
    const { pairs } = await txn.scan({ start: bytes(start), end: bytes(end), ...order, keyOnly: false })
    const found = pairs.map(({ key, value }) => ({ key: text(key), value: text(value ?? bytes('?')) }))
    for (const { value } of found) this.#world.scheduler.noteText(value)
    seen.ranges.push({ start, end, ...order, own, pairs: found })
  }

  // ---- Transactions that the server runs

  async oneShot(): Promise<void> {
    const { history, ledger, network } = this.#world
    const random = this.#random
    const isolation = random.chance(0.6) ? 'snapshot' : 'serializable'
    const seen = history.begin('one_shot', isolation, ledger.timeline)
    const isBlind = random.chance(0.3) // It only writes, which the server does in one turn.
    const { checks, ops } = this.#oneShotOf(seen, isBlind)
    const isOnce = !isBlind && random.chance(0.5)
    const key = bytes(`once ${seen.id}`)
    const request: OneShot = {
      checks,
      ops,
      maxRetries: random.below(3),
      lockWaitMs: random.pick([0, 50, 4000]),
      isolation,
      ...(isOnce
        ? { idempotency: { key, mayWrite: true, fingerprint: createHash('sha256').update(key).digest() } }
        : {}),
    }
    const { floor } = history
    seen.outcome = 'unknown'
    for (let left = isOnce ? 4 : 1; left > 0; left--) {
      try {
        const { answer } = await network.call(this.owner, 'one_shot', isOnce, ({ oneShots }) => oneShots.run(request))
        return this.#oneShotAnswered(seen, ops, answer, floor)
      } catch (error) {
        this.#requireKnown(error)
        // Of several copies another one may still succeed.
        if (!isOnce && !isUncertain(error)) return history.ended(seen, 'aborted')
        if (!isUncertain(error)) return history.ended(seen, 'unknown')
      }
      await this.#sleep(1000 * random.next())
    }
  }

  /** At least one put says whose the transaction is. */
  #oneShotOf(seen: TxnHistory, isBlind: boolean): Pick<OneShot, 'checks' | 'ops'> {
    const random = this.#random
    const ops: Op[] = []
    const checks: OneShot['checks'][number][] = []
    for (const key of this.#someKeys()) {
      const draw = isBlind ? 3 + random.below(7) : random.below(10)
      if (draw < 3) ops.push({ op: 'get', key: bytes(key) })
      else if (draw < 5 && ops.length > 0) {
        ops.push({ op: 'delete', key: bytes(key) })
        seen.writes.set(key, undefined)
      } else {
        const value = this.#valueOf(seen)
        const op = !isBlind && random.chance(0.15) ? 'insert' : 'put'
        const ttlMs = this.#ttlMs()
        const expiry = ttlMs === undefined ? undefined : { ttlMs }
        ops.push({ op, key: bytes(key), value: bytes(value), expiry })
        seen.writes.set(key, value)
      }
    }
    if (![...seen.writes.values()].some((value) => value !== undefined)) {
      const value = this.#valueOf(seen)
      ops.push({ op: 'put', key: bytes('one-shots'), value: bytes(value) })
      seen.writes.set('one-shots', value)
    }
    if (random.chance(0.15)) {
      seen.stamped = this.#valueOf(seen)
      ops.push({ op: 'put', key: bytes(LOG), value: bytes(seen.stamped), stamp: 'text' })
    }
    if (isBlind) return { checks, ops }
    if (random.chance(0.3)) {
      const counter = random.pick(COUNTERS)
      ops.push({ op: 'increment', key: bytes(counter), by: 1 })
      seen.increments.set(counter, 1)
    }
    if (random.chance(0.3))
      ops.push({
        op: 'scan',
        start: bytes('k'),
        end: bytes('k~'),
        limit: 5,
        reverse: random.chance(0.3),
        keyOnly: false,
      })
    if (random.chance(0.3)) {
      const key = this.#key()
      const commitTs = this.#world.history.floorsOf([key]).get(key) ?? 0
      checks.push({ key: bytes(key), commitTs })
      seen.checks.push({ key, commitTs })
    }
    return { checks, ops }
  }

  #oneShotAnswered(seen: TxnHistory, ops: readonly Op[], answer: OneShotAnswer, floor: Timestamp): void {
    const { history } = this.#world
    history.started(seen, answer.startTs, floor)
    const own = new Map<string, string | undefined>()
    answer.results.forEach((result, i) => {
      const op = ops[i] as Op
      if ((op.op === 'put' && op.stamp === undefined) || op.op === 'insert') own.set(text(op.key), text(op.value))
      if (op.op === 'delete') own.set(text(op.key), undefined)
      if (op.op === 'get' && 'found' in result && !own.has(text(op.key)))
        seen.reads.push({ key: text(op.key), value: result.value && text(result.value) })
      if (op.op === 'scan' && 'pairs' in result) {
        const pairs = result.pairs.map(({ key, value }) => ({ key: text(key), value: text(value ?? bytes('?')) }))
        seen.ranges.push({ start: 'k', end: 'k~', limit: op.limit, reverse: op.reverse, own: new Map(own), pairs })
      }
    })
    if (answer.commitTs !== undefined) history.committed(seen, answer.commitTs)
  }

  // ---- Reads without a transaction

  async latestRead(): Promise<void> {
    const { history, ledger, network } = this.#world
    const key = this.#key()
    const { timeline } = ledger
    const floors = history.floorsOf([key])
    const lockWaitMs = this.#random.pick([0, 100, 4000])
    const answer = await network.call(this.owner, 'get', true, ({ store, resolver }) => {
      return resolver.reading(
        () => store.get({ key: bytes(key) }),
        () => ({ lockWaitMs }),
      )
    })
    const found = answer.found ? [[key, { value: text(answer.value), commitTs: answer.commitTs }] as const] : []
    history.readLatest({ keys: [key], found: new Map(found), floors, timeline, moment: ledger.moment })
  }

  async latestBatch(): Promise<void> {
    const { history, ledger, network } = this.#world
    const keys = this.#someKeys()
    const { timeline } = ledger
    const floors = history.floorsOf(keys)
    const { pairs } = await network.call(this.owner, 'batch_get', true, ({ store, resolver }) =>
      resolver.resolving(1000, () => store.batchGet({ keys: keys.map(bytes) })),
    )
    const found = new Map(
      pairs.map(({ key, value, commitTs }) => [text(key), { value: text(value ?? bytes('?')), commitTs }]),
    )
    history.readLatest({ keys, found, floors, timeline, moment: ledger.moment })
  }

  /** Reads of a moment that somebody else has read already, and that others will. */
  async timeTravel(): Promise<void> {
    const { faults, history, ledger } = this.#world
    const random = this.#random
    if (faults.profile.collects === 'worker' && random.chance(0.5)) return this.#readPinned()
    const past = history.txns.filter(({ startTs, timeline }) => startTs > 0 && timeline === ledger.timeline).slice(-40)
    if (past.length === 0) return
    const ts = random.pick(past).startTs + random.pick([0, 0, 1, 500])
    const now = await this.#api.tso(1)
    const seen = history.begin('snapshot', 'snapshot', ledger.timeline)
    seen.startTs = Math.min(ts, now)
    await this.#readSnapshot(seen)
    history.ended(seen, 'aborted')
  }

  async #readSnapshot(seen: TxnHistory): Promise<void> {
    const random = this.#random
    const reader = this.#coordinator.snapshot(seen.startTs, { lockWaitMs: random.pick([0, 1000]) })
    for (let left = 1 + random.below(3); left > 0; left--) {
      const key = this.#key()
      if (random.chance(0.3)) await this.#scan(reader, seen)
      else this.#read(seen, key, (await reader.get(bytes(key)))?.value)
    }
  }

  /** Over restarts and collections, until this client lets go of it. */
  async #readPinned(): Promise<void> {
    const { history, ledger, network, violations, count } = this.#world
    const random = this.#random
    const now = await this.#api.tso(1)
    const wanted = { ts: now - random.pick([0, 0, 5, 500]) * LOGICAL_PER_MS, ttlMs: PIN_MS }
    const { pin, ts } = await network.call(this.owner, 'pin', false, ({ pins }) => pins.create(wanted))
    for (let left = 1 + random.below(3); left > 0; left--) {
      const seen = history.begin('snapshot', 'snapshot', ledger.timeline)
      seen.startTs = ts
      await this.#readSnapshot(seen).catch((error: unknown) => {
        this.#requireKnown(error)
        if (isKvError(error, 'ts_below_safe_point')) violations.add('pin', `${error.message}, where ${ts} is pinned`)
      })
      history.ended(seen, 'aborted')
      count('pinned')
      await this.#sleep(1500 * random.next())
    }
    await network.call(this.owner, 'unpin', false, ({ pins }) => pins.remove(pin))
  }

  // ---- The change feed

  feed(): Promise<void> {
    return this.#random.pick(this.#feeders).follow()
  }

  /** Nothing fails any more: every commit so far comes, whatever locks the dead have left. */
  async followToEnd(): Promise<void> {
    for (const feeder of this.#feeders.toReversed()) await feeder.followToEnd()
  }

  // ---- Upkeep

  async collect(): Promise<void> {
    const behindMs = this.#random.pick([0, 10, 500, 5000])
    const isByHand = this.#world.faults.profile.collects === 'by hand'
    const call = this.#world.network.call(this.owner, 'gc', true, ({ collect }) => collect(isByHand, behindMs))
    // Where servers share a store, it takes long.
    if (this.#world.ledger.isShared) call.catch((error: unknown) => this.#requireKnown(error))
    else await call
  }

  async resolveLocks(): Promise<void> {
    const { locks } = await this.#api.scanLock({ maxTs: TIMESTAMP_MAX })
    await this.#coordinator.resolver.resolve(locks, await this.#api.tso(1))
  }

  /** As a reader may that does not want to wait: what it meets has to commit above it, and it passes. */
  async pushMinCommitTs(): Promise<void> {
    const { history, ledger } = this.#world
    const { locks } = await this.#api.scanLock({ maxTs: TIMESTAMP_MAX })
    const ts = await this.#api.tso(1)
    for (const { primary, startTs } of locks)
      await this.#api.txnHeartBeat({ primary, startTs, adviseLockTtl: 1, minCommitTs: ts + 1 }).catch(() => {})
    const seen = history.begin('snapshot', 'snapshot', ledger.timeline)
    seen.startTs = ts
    const reader = this.#coordinator.snapshot(ts, { lockWaitMs: 0 })
    // Those of a delete_range are gone from every snapshot.
    for (const { key } of locks) if (!isRaw(text(key))) this.#read(seen, text(key), (await reader.get(key))?.value)
    history.ended(seen, 'aborted')
  }
}
