import { keyText } from '../../../bytes/key-text.js'
import { KvError } from '../../../errors/kv-error.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { signalOf } from '../../../event-loop/late-signal.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../../percolator/api.js'
import { lockWaitTimeout } from '../../../percolator/errors.js'
import type { Timestamp } from '../../../timestamp.js'
import { lockingAnswer, lockingDepthTs, lockKeys, versionsToRead } from '../../calls/lock-keys.js'
import { reachGuard } from '../../calls/reach-guard.js'
import type { Turn } from '../../lock-waits.js'
import { readPairs } from './reads.js'
import type { RowStore } from './row-store.js'

/** TiKV's `pessimistic-txn.wait-for-lock-timeout`. */
const WAIT_MS_DEFAULT = 1000

/** A place in a queue: fulfilled with a turn, or with undefined when the time is over. */
interface Waiting {
  readonly wait: Promise<Turn | undefined>
}
type Tried = AcquirePessimisticLockAnswer | Waiting

/**
 * Locks taken before the prewrite, and the waiting for them. They stand in memory alone, as in TiKV: a prewrite makes do
 * without one that a crash took.
 */
export class PessimisticLocks {
  readonly #rows: RowStore
  readonly #locksMax: number

  constructor(rows: RowStore, locksMax: number) {
    this.#rows = rows
    this.#locksMax = locksMax
  }

  /** @throws KvError `overloaded` where too many locks stand: these cost a client no write, so nothing else slows it down. */
  async acquire(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    if (this.#rows.locks.size >= this.#locksMax) throw new KvError('overloaded', 'too many locks stand', {})
    const { forUpdateTs, waitTimeout = 0 } = request
    const waitMs = waitTimeout === 0 ? WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const deadline = performance.now() + waitMs
    await this.#rows.observeRead(forUpdateTs) // It reads: nobody may commit below what it saw.
    let turn: Turn | undefined
    try {
      for (let isLastTry = waitMs === 0; ; isLastTry = turn === undefined) {
        // Most who come find the key locked: they line up without a latch, and without reading.
        const tried =
          (isLastTry ? undefined : this.#lineUp(request, deadline)) ?? (await this.#try(request, isLastTry, deadline))
        turn?.done()
        if (!('wait' in tried)) return tried
        turn = await tried.wait
      }
    } finally {
      turn?.done()
    }
  }

  #try(request: AcquirePessimisticLockRequest, isLastTry: boolean, deadline: number): Promise<Tried> {
    const keys = request.keys.map(keyText)
    return this.#rows.guard(() => this.#rows.latches.hold(keys, () => this.#tryLatched(request, isLastTry, deadline)))
  }

  /** A place in the queue of a key that another transaction locks, or that an older one was woken for. */
  #lineUp(request: AcquirePessimisticLockRequest, deadline: number): Waiting | undefined {
    for (const key of request.keys) {
      const entry = this.#rows.locks.get(key)
      const isLocked = entry !== undefined && entry.pending === undefined && entry.lock.startTs !== request.startTs
      if (isLocked || this.#isClaimed(key, request.startTs)) return this.#enqueue(key, request, deadline)
    }
    return undefined
  }

  /** An older transaction was woken for this key, which is free, and has not taken it yet. */
  #isClaimed(key: Uint8Array, startTs: Timestamp): boolean {
    if (this.#rows.locks.get(key) !== undefined) return false
    const claimant = this.#rows.waits.claimant(key)
    return claimant !== undefined && claimant < startTs
  }

  /** @throws KvError `deadlock` */
  #enqueue(key: Uint8Array, { startTs, signal }: AcquirePessimisticLockRequest, deadline: number): Waiting {
    const timeoutMs = Math.max(0, deadline - performance.now())
    return { wait: this.#rows.waits.enqueue(key, startTs, { timeoutMs, signal: signalOf(signal) }) }
  }

  /** Locks all the keys or none. @returns the place in the queue of the first key that is locked, if one is. */
  async #tryLatched(request: AcquirePessimisticLockRequest, isLastTry: boolean, deadline: number): Promise<Tried> {
    const { keys, startTs, waitTimeout, reaches } = request
    const requireReach = reaches && (await reachGuard(this.#rows, keys, startTs, reaches))
    const rows = await this.#rows.readRows(keys, lockingDepthTs(request), 'data')
    // One turn of the event loop from here to the published locks, or to the place in the queue.
    const locking = lockKeys(this.#rows, rows, request, (key) => !isLastTry && this.#isClaimed(key, startTs))
    if (locking.kind === 'busy') {
      const { key, error } = locking
      if (error !== undefined && waitTimeout === -1) throw error
      if (error !== undefined && isLastTry) throw lockWaitTimeout(key, error.fields.lock as LockInfo)
      return this.#enqueue(key, request, deadline)
    }
    requireReach?.(locking.mutations, rows)
    await this.#rows.apply(locking.mutations)
    this.#rows.waits.acquired(startTs)
    const read = await readPairs(this.#rows.engine, versionsToRead(locking.keys, request))
    return lockingAnswer(locking.keys, read, request)
  }
}
