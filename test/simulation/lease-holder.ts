import type { Transaction } from '../../src/coordinator/transaction.js'
import { isUncertain } from '../../src/coordinator/uncertain.js'
import { isKvError } from '../../src/errors/kv-error.js'
import type { LeaseState } from '../../src/leases/rules/leases-api.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { OneShot, OneShotAnswer } from '../../src/txn/one-shot.js'
import type { Op } from '../../src/txn/op.js'
import type { TxnHistory } from './history.js'
import { type LeaseBooks, TTL_MS_MAX } from './lease-ledger.js'
import type { RunningServer } from './running-server.js'
import type { WorkerHost } from './worker.js'

export const LEASES = ['a', 'b/c']
const TTLS_MS = [100, 400, TTL_MS_MAX]
/** Keys that are written by holders of leases alone, some of them attached. No observer has them. */
export const KEY = 'z-'

export interface LeaseHost extends Omit<WorkerHost, 'call' | 'oneShot'> {
  /** A process of its own has a name of its own. */
  readonly holder: string
  readonly ledger: LeaseBooks
  call<A>(label: string, isRepeatable: boolean, run: (server: RunningServer) => Promise<A>): Promise<A>
}

const bytes = (text: string): Buffer => Buffer.from(text)

/** Takes a lease and works under it: in time, or after a pause in which it may have been granted to another. */
export class LeaseHolder {
  readonly #host: LeaseHost

  constructor(host: LeaseHost) {
    this.#host = host
  }

  async hold(): Promise<void> {
    const { random } = this.#host
    const lease = random.pick(LEASES)
    const { fence, ttlMs } = await this.#put(lease, {
      ttlMs: random.pick(TTLS_MS),
      waitMs: random.pick([0, 300, 5000]),
    })
    for (let left = 1 + random.below(6); left > 0; left--) await this.#step(lease, fence, ttlMs)
    if (random.chance(0.3)) return
    if (random.chance(0.3)) {
      await this.#release(lease, fence)
      if (random.chance(0.5)) await this.#step(lease, fence, ttlMs)
    } else await this.#together([this.#release(lease, fence), ...this.#steps(lease, fence, ttlMs)])
  }

  async #step(lease: string, fence: Timestamp, ttlMs: number): Promise<void> {
    const { random } = this.#host
    const dice = random.below(100)
    if (dice < 25) await this.#renew(lease, fence, random.chance(0.8) ? ttlMs : random.pick(TTLS_MS))
    else if (dice < 50) await this.#runOneShot(lease, fence)
    else if (dice < 55) await this.#look(lease, fence)
    else if (dice < 75) await this.#runTransaction(lease, fence)
    else if (dice < 85)
      await this.#host.sleep(ttlMs * (random.chance(0.5) ? 1.5 * random.next() : 1 + 0.2 * random.next()))
    else await this.#together(this.#steps(lease, fence, ttlMs))
  }

  /** What a process does at once knows nothing of each other. */
  #steps(lease: string, fence: Timestamp, ttlMs: number): Promise<void>[] {
    return Array.from({ length: 1 + this.#host.random.below(5) }, () => this.#step(lease, fence, ttlMs))
  }

  /** Ends when all have. */
  async #together(steps: readonly Promise<void>[]): Promise<void> {
    for (const outcome of await Promise.allSettled(steps)) if (outcome.status === 'rejected') throw outcome.reason
  }

  async #put(
    lease: string,
    request: { readonly ttlMs: number; readonly waitMs: number; readonly fence?: Timestamp },
  ): Promise<LeaseState> {
    const { call, ledger, world, holder } = this.#host
    const { scheduler } = world
    return call('lease', true, async ({ leases }) => {
      const asked = { lease, holder, ttlMs: request.ttlMs }
      ledger.asked(asked, scheduler.nowMs)
      const state = await requireLeases(leases)
        .put(lease, { holder, ...request })
        .catch((error: unknown) => {
          ledger.refused(asked, isKvError(error, 'lease_held') ? error.fields.holder : undefined)
          throw error
        })
      ledger.answered(asked, state, scheduler.nowMs)
      if (request.fence !== undefined && request.fence !== state.fence)
        world.violations.add('lease', `${lease} was renewed by ${request.fence}, and has ${state.fence}`)
      return state
    })
  }

  async #renew(lease: string, fence: Timestamp, ttlMs: number): Promise<void> {
    await this.#put(lease, { ttlMs, waitMs: 0, fence })
  }

  async #release(lease: string, fence: Timestamp): Promise<void> {
    const { call, ledger, world, holder } = this.#host
    await call('release', true, async ({ leases, store }) => {
      ledger.releasing(lease, fence, world.scheduler.nowMs)
      const { deleting } = await requireLeases(leases)
        .remove(lease, holder, fence)
        .catch((error: unknown) => {
          ledger.notReleased(lease, fence)
          throw error
        })
      ledger.released(lease, fence, world.scheduler.nowMs, deleting)
      ledger.over(lease, fence, await store.tso(1), !deleting)
    })
  }

  // ---- Work under the lease

  async #runOneShot(lease: string, fence: Timestamp): Promise<void> {
    const { random, world, call, requireKnown, sleep, newValue, ledger } = this.#host
    const { history } = world
    const seen = history.begin('one_shot', 'snapshot', world.ledger.timeline)
    seen.leases.push({ lease, fence })
    const ops: Op[] = []
    if (random.chance(0.3)) ops.push({ op: 'get', key: bytes(`${KEY}${lease}`) })
    for (const key of this.#keysOf(lease)) {
      const value = newValue(seen)
      const isAttached = random.chance(0.5)
      ops.push({ op: 'put', key: bytes(key), value: bytes(value), lease: isAttached ? lease : undefined })
      seen.writes.set(key, value)
      if (isAttached) seen.attached.set(key, fence)
    }
    const request: OneShot = {
      ...{ checks: [], ops, maxRetries: random.below(3), lockWaitMs: random.pick([0, 50, 4000]) },
      commitEffects: { leases: [{ lease, fence }] },
    }
    const { floor } = history
    seen.outcome = 'unknown'
    try {
      const answer = await call('one_shot', false, async ({ oneShots }): Promise<OneShotAnswer> => {
        const arrivedMs = world.scheduler.nowMs
        const { answer } = await oneShots.run(request)
        ledger.letIn(lease, fence, arrivedMs)
        return answer
      })
      history.started(seen, answer.startTs, floor)
      if (answer.commitTs !== undefined) history.committed(seen, answer.commitTs)
    } catch (error) {
      requireKnown(error)
      if (!isUncertain(error)) history.ended(seen, 'aborted')
    }
    await sleep(10 * random.next())
  }

  /** A transaction that writes nothing. */
  async #look(lease: string, fence: Timestamp): Promise<void> {
    const { call, world, ledger, requireKnown } = this.#host
    const request: OneShot = {
      ...{ checks: [], ops: [{ op: 'get', key: bytes(`${KEY}${lease}`) }], maxRetries: 0, lockWaitMs: 0 },
      commitEffects: { leases: [{ lease, fence }] },
    }
    try {
      await call('look', false, async ({ oneShots }) => {
        const arrivedMs = world.scheduler.nowMs
        await oneShots.run(request)
        ledger.letIn(lease, fence, arrivedMs)
      })
    } catch (error) {
      requireKnown(error)
    }
  }

  async #runTransaction(lease: string, fence: Timestamp): Promise<void> {
    const { random, world, coordinator, newValue, think } = this.#host
    const { history, ledger } = world
    const mode = random.chance(0.7) ? 'optimistic' : 'pessimistic'
    const seen = history.begin(mode, 'snapshot', ledger.timeline)
    seen.leases.push({ lease, fence })
    const { floor } = history
    const txn: Transaction = await coordinator.begin({
      mode,
      isolation: 'snapshot',
      lockWaitMs: random.pick([0, 20, 2000]),
    })
    history.started(seen, txn.startTs, floor)
    try {
      for (const key of this.#keysOf(lease)) {
        const value = newValue(seen)
        const draw = random.below(10)
        if (draw < 3) {
          seen.attached.set(key, fence)
          await txn.put(bytes(key), bytes(value), { lease })
        } else if (draw < 6) {
          seen.kept.add(key)
          const keeps = await txn.getToWrite(bytes(key))
          if (random.chance(0.3)) await think()
          await txn.put(bytes(key), bytes(value), { keeps })
        } else await txn.put(bytes(key), bytes(value))
        seen.writes.set(key, value)
        if (random.chance(0.3)) await think()
      }
    } catch (error) {
      this.#host.requireKnown(error)
      history.ended(seen, 'aborted')
      return await txn.rollback()
    }
    const isHeld = seen.attached.size > 0 || random.chance(0.7)
    if (!isHeld) seen.leases.splice(0)
    await this.#host.commit(txn, seen, isHeld ? { leases: [{ lease, fence }] } : {})
  }

  #keysOf(lease: string): string[] {
    const { random } = this.#host
    const keys = [`${KEY}${lease}`]
    if (random.chance(0.5)) keys.push(`${KEY}${lease}-${random.below(2)}`)
    if (random.chance(0.3)) keys.push(`${KEY}of-both`) // It may move from one lease to the other.
    return keys
  }

  /** Nothing fails any more, and nobody renews: each lease can be had again. */
  async finish(): Promise<void> {
    const { world } = this.#host
    for (const lease of LEASES)
      try {
        const { fence } = await this.#put(lease, {
          ttlMs: TTL_MS_MAX,
          waitMs: world.ledger.isShared ? 60_000 : TTL_MS_MAX + 4000,
        })
        await this.#release(lease, fence)
      } catch (error) {
        if (!isKvError(error, 'lease_held')) throw error
        world.violations.add('lease', `${lease} does not end`)
      }
  }
}

function requireLeases(leases: RunningServer['leases']): NonNullable<RunningServer['leases']> {
  if (leases === undefined) throw new Error('this world has no leases')
  return leases
}

/** Whether a transaction was refused because of its lease. */
export function isLeaseLost(error: unknown, { leases }: TxnHistory): boolean {
  return leases.length > 0 && isKvError(error, 'precondition_failed')
}
