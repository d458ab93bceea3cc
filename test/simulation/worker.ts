import type { Coordinator } from '../../src/coordinator/coordinator.js'
import { Transaction, type TransactionOptions } from '../../src/coordinator/transaction.js'
import { isUncertain } from '../../src/coordinator/uncertain.js'
import { isKvError } from '../../src/errors/kv-error.js'
import type { Observers } from '../../src/observers/observers.js'
import type { ClaimName, Notification } from '../../src/observers/rules/observers-api.js'
import type { CommitEffects } from '../../src/percolator/commit-effects.js'
import { keyRangeOf } from '../../src/percolator/given-range.js'
import { contains } from '../../src/percolator/range-index.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import type { OneShot, OneShotAnswer } from '../../src/txn/one-shot.js'
import type { Op } from '../../src/txn/op.js'
import type { Random } from '../anomalies/random.js'
import type { ClientWorld } from './client-world.js'
import type { TxnHistory } from './history.js'

/** The client whose program a worker is. */
export interface WorkerHost {
  readonly world: ClientWorld
  readonly random: Random
  readonly coordinator: Coordinator
  key(): string
  newValue(txn: TxnHistory): string
  requireKnown(error: unknown): void
  /** Writes down what a transaction has read. */
  read(txn: TxnHistory, key: string, value: Uint8Array | undefined): void
  sleep(ms: number): Promise<void>
  think(): Promise<void>
  call<A>(label: string, isRepeatable: boolean, run: (observers: Observers) => Promise<A>): Promise<A>
  oneShot(request: OneShot): Promise<OneShotAnswer>
  /** Commits, and writes down what became of it. */
  commit(txn: Transaction, seen: TxnHistory, commitEffects: CommitEffects): Promise<void>
}

/** The first one's runs write into the range of the second, whose runs write into that of the first. */
const OBSERVERS = [
  { name: 'keys', range: { prefix: Buffer.from('k') } },
  { name: 'derived', range: { start: Buffer.from('d'), end: Buffer.from('k1~') } },
] as const
const DERIVED = 'd-'

const bytes = (text: string): Buffer => Buffer.from(text)
const text = (value: Uint8Array): string => Buffer.from(value).toString()

/** A worker of observers: claims cells, runs, acknowledges; or fails, forgets, is too late. */
export class Worker {
  readonly #host: WorkerHost

  constructor(host: WorkerHost) {
    this.#host = host
  }

  async work(): Promise<void> {
    const { random, world } = this.#host
    const { name } = random.pick(OBSERVERS)
    const { floor } = world.history
    const claimed = await this.#claim(name)
    if (claimed.length === 0) return
    for (const { key, fence } of claimed) world.history.claims.push({ observer: name, key: text(key), fence })
    this.#readValues(claimed, floor)
    const batches = random.chance(0.4) ? [claimed] : claimed.map((each) => [each])
    for (const batch of batches) {
      if (random.chance(0.3)) await this.#host.think()
      await this.#take(name, batch, floor)
    }
  }

  async #claim(name: string): Promise<Notification[]> {
    const { random, world, call } = this.#host
    const { leaseMsMax } = world.faults.profile.observers
    const request = {
      worker: 'simulated',
      limit: 1 + random.below(3),
      waitMs: random.pick([0, 0, 200, 3000]),
      leaseMs: 100 + random.below(leaseMsMax),
      values: random.chance(0.4),
    }
    try {
      return await call('claim', true, (observers) => observers.claim(name, request))
    } catch (error) {
      if (!isKvError(error, 'not_found')) throw error
      await this.register(name)
      return []
    }
  }

  async register(name: string): Promise<void> {
    const { random, world, call } = this.#host
    const { range } = OBSERVERS.find((each) => each.name === name) as (typeof OBSERVERS)[number]
    const { maxAttempts, backoffMs, backoffMaxMs, maxDepth } = world.faults.profile.observers
    const registration = { range, maxAttempts, backoffMs, backoffMaxMs, maxDepth, backfill: random.chance(0.3) }
    await call('register', true, (observers) => observers.put(name, registration))
  }

  /** What a claim shows is what its fence sees. */
  #readValues(claimed: readonly Notification[], floor: Timestamp): void {
    const { history, ledger } = this.#host.world
    for (const { key, fence, found, value } of claimed) {
      if (found === undefined) continue
      const seen = history.begin('snapshot', 'snapshot', ledger.timeline)
      seen.startTs = fence
      seen.reads.push({ key: text(key), value: value && text(value) })
      history.ended(seen, 'aborted')
      if (fence <= floor)
        this.#host.world.violations.add('real time', `a claim has the fence ${fence}, where ${floor} was known`)
    }
  }

  async #take(name: string, batch: readonly ClaimName[], floor: Timestamp): Promise<void> {
    const { random, call } = this.#host
    const claims = batch.map(({ key, fence }) => ({ key, fence }))
    if (random.chance(0.1)) await call('extend', true, (observers) => observers.extend(name, claims))
    const dice = random.below(100)
    if (dice < 8) return // Its lease runs out.
    if (dice < 14) {
      await call('release', true, (observers) => observers.release(name, claims))
      return
    }
    if (dice < 25) {
      const retryAfterMs = random.chance(0.3) ? random.below(3000) : undefined
      const failed = claims.map((claim) => ({ ...claim, error: 'the run failed', retryAfterMs }))
      await call('release', true, (observers) => observers.release(name, failed))
      return
    }
    if (random.chance(0.5)) await this.#runOneShot(name, claims)
    else await this.#runTransaction(name, claims, floor)
  }

  /** A run of a claim of long ago, of somebody else's, or under a fence that nobody was given. */
  async workLate(): Promise<void> {
    const { random, world, coordinator } = this.#host
    const past = world.history.claims.slice(-12)
    if (past.length === 0) return
    const { observer, key, fence } = random.pick(past)
    const isInvented = random.chance(0.3)
    const given = { key: bytes(key), fence: isInvented ? await coordinator.api.tso(1) : fence }
    if (isInvented) await this.#host.think()
    if (random.chance(0.5)) await this.#runOneShot(observer, [given])
    else await this.#runTransaction(observer, [given])
  }

  #commitEffectsOf(name: string, batch: readonly ClaimName[], seen: TxnHistory, isLast = false): CommitEffects {
    const { random } = this.#host
    const acks = batch.map(({ key, fence }) => ({ observer: name, key, fence }))
    for (const { key, fence } of acks) seen.acks.push({ observer: name, key: text(key), fence })
    const key = `${DERIVED}${this.#host.key()}`
    if (isLast || !random.chance(0.15)) return { acks }
    seen.notifies.push({ observer: 'derived', key })
    return { acks, notify: [{ observer: 'derived', keys: [bytes(key)] }] }
  }

  /** What a run writes beside its effects. */
  #alsoWritten(batch: readonly ClaimName[]): string[] {
    const { random } = this.#host
    const keys: string[] = []
    if (random.chance(0.4)) keys.push(`${DERIVED}${this.#host.key()}`)
    if (random.chance(0.15)) keys.push(text((batch[0] as ClaimName).key))
    if (random.chance(0.1)) keys.push(this.#host.key())
    return [...new Set(keys)]
  }

  /** A key that no other run writes, so that it conflicts with none; or a counter, which shows each run once. */
  #effectOf(seen: TxnHistory, key: string): string {
    return `x-${key}-${seen.id}`
  }

  // ---- A run of this client's coordinator

  /** @param floor what was known to be committed when this worker claimed the cells; absent: they are not its own. */
  async #runTransaction(name: string, batch: readonly ClaimName[], floor?: Timestamp): Promise<void> {
    const { random, world, coordinator } = this.#host
    const { history, ledger } = world
    const mode = random.chance(0.7) ? 'optimistic' : 'pessimistic'
    const isolation = random.chance(0.7) ? 'snapshot' : 'serializable'
    const seen = history.begin(mode, isolation, ledger.timeline)
    const options: TransactionOptions = { mode, isolation, lockWaitMs: random.pick([0, 20, 2000]) }
    // The fence of a claim is a timestamp at which its run may begin.
    const atFence = floor !== undefined && batch.length === 1 && random.chance(0.4)
    const startFloor = atFence ? floor : history.floor
    const txn = atFence
      ? new Transaction(coordinator, (batch[0] as ClaimName).fence, options)
      : await coordinator.begin(options)
    if (atFence && history.hasStarted(txn.startTs)) return history.ended(seen, 'aborted')
    history.started(seen, txn.startTs, startFloor)
    try {
      await this.#runIn(txn, seen, batch)
    } catch (error) {
      this.#host.requireKnown(error)
      history.ended(seen, 'aborted')
      return await txn.rollback()
    }
    await this.#host.commit(txn, seen, this.#commitEffectsOf(name, batch, seen))
  }

  async #runIn(txn: Transaction, seen: TxnHistory, batch: readonly ClaimName[]): Promise<void> {
    const { random, think, newValue } = this.#host
    for (const { key } of batch) {
      this.#host.read(seen, text(key), (await txn.get(key))?.value)
      if (random.chance(0.3)) await think()
      if (random.chance(0.4)) {
        const counter = `n-${text(key)}`
        const sum = Number(text((await txn.getForUpdate(bytes(counter)))?.value ?? bytes('0'))) + 1
        await txn.put(bytes(counter), bytes(String(sum)))
        seen.increments.set(counter, 1)
      }
      const put = async (written: string): Promise<void> => {
        const value = newValue(seen)
        await txn.put(bytes(written), bytes(value))
        seen.writes.set(written, value)
      }
      await put(this.#effectOf(seen, text(key)))
      for (const written of this.#alsoWritten([{ key, fence: 0 }])) await put(written)
    }
  }

  // ---- A run whose work was done before its transaction

  async #runOneShot(name: string, batch: readonly ClaimName[], isLast = false): Promise<void> {
    const { random, world, oneShot, requireKnown, sleep, newValue } = this.#host
    const { history, ledger } = world
    const seen = history.begin('one_shot', 'snapshot', ledger.timeline)
    const ops: Op[] = []
    for (const { key } of batch) {
      const value = newValue(seen)
      const effect = this.#effectOf(seen, text(key))
      ops.push({ op: 'put', key: bytes(effect), value: bytes(value) })
      seen.writes.set(effect, value)
      if (!random.chance(0.4)) continue
      const counter = `n-${text(key)}`
      ops.push({ op: 'increment', key: bytes(counter), by: 1 })
      seen.increments.set(counter, 1)
    }
    for (const written of isLast ? [] : this.#alsoWritten(batch)) {
      const value = newValue(seen)
      ops.push({ op: 'put', key: bytes(written), value: bytes(value) })
      seen.writes.set(written, value)
    }
    const commitEffects = this.#commitEffectsOf(name, batch, seen, isLast)
    const request = {
      checks: [],
      ops,
      maxRetries: random.below(3),
      lockWaitMs: random.pick([0, 50, 4000]),
      commitEffects,
    }
    const { floor } = history
    seen.outcome = 'unknown'
    for (let left = 3; left > 0; left--) {
      try {
        const answer = await oneShot(request)
        history.started(seen, answer.startTs, floor)
        if (answer.commitTs !== undefined) history.committed(seen, answer.commitTs)
        return
      } catch (error) {
        requireKnown(error)
        // A copy that came before this one may have committed, and this one is refused for it.
        if (!isUncertain(error)) return history.ended(seen, 'unknown')
      }
      await sleep(500 * random.next())
    }
  }

  // ---- Upkeep

  async upkeep(): Promise<void> {
    const { random, world, call, key } = this.#host
    const { name } = random.pick(OBSERVERS)
    const dice = random.below(20)
    const keyOf = (): string => (name === 'keys' ? key() : `${DERIVED}${key()}`)
    if (dice < 11) {
      const keys = await this.#keysToNotify(name, keyOf)
      const { floor } = world.history
      const { ts } = await call('notify', true, (observers) => observers.notify(name, keys.map(bytes)))
      for (const each of keys)
        world.history.notified.push({ observer: name, key: each, ts, floor, timeline: world.ledger.timeline })
    } else if (dice < 13) await call('retry', true, (observers) => observers.retry(name))
    else if (dice < 15) await call('skip', true, (observers) => observers.skip(name, [bytes(keyOf())]))
    else if (dice < 17) await call('state', true, (observers) => observers.get(name))
    else if (dice < 18) await call('backfill', true, (observers) => observers.backfill(name))
    else {
      await call('pause', true, (observers) => observers.pause(name))
      await this.#host.sleep(500 * random.next())
      await call('resume', true, (observers) => observers.resume(name))
    }
  }

  /** Often keys that somebody is about to commit, maybe at a commit_ts that is taken already. */
  async #keysToNotify(name: string, keyOf: () => string): Promise<string[]> {
    const { random, coordinator } = this.#host
    if (random.chance(0.4)) return [...new Set([keyOf(), keyOf()])]
    const { locks } = await coordinator.api.scanLock({ maxTs: TIMESTAMP_MAX })
    const range = keyRangeOf((OBSERVERS.find((each) => each.name === name) as (typeof OBSERVERS)[number]).range)
    const locked = locks.filter(({ key }) => contains(range, key)).map(({ key }) => text(key))
    return locked.length === 0 ? [keyOf()] : locked
  }

  /** Runs until every cell is at rest. Nobody else is at work, and nothing fails any more. */
  async finish(): Promise<void> {
    const { call, world, sleep, coordinator } = this.#host
    const names = world.ledger.cells.observers
    let now = await coordinator.api.tso(1)
    for (const last = world.ledger.lastExpiry; now < last; now = await coordinator.api.tso(1)) await sleep(1000)
    await call('pass expiries', false, (observers) => observers.passTo(now))
    world.history.passedTs = now
    for (const name of names) await call('resume', false, (observers) => observers.resume(name))
    for (let idle = 0; idle < names.length; ) {
      idle = 0
      for (const name of names) {
        // Cells that are parked, delayed or claimed take the room of others.
        await call('retry', false, (observers) => observers.retry(name))
        const { pending, parked, state } = await call('state', false, (observers) => observers.get(name))
        if (pending === 0 && parked === 0 && state === 'running') idle++
        const request = { worker: 'last', limit: 100, waitMs: 1000, leaseMs: 600_000 }
        const claimed = await call('claim', false, (observers) => observers.claim(name, request)).catch((error) => {
          if (!isKvError(error, 'overloaded')) throw error
          return []
        })
        for (const each of claimed) await this.#runOneShot(name, [each], true)
        if (claimed.length > 0) idle = 0
      }
      await sleep(1000)
    }
  }
}
