import { KvError } from '../../errors/kv-error.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { signalOf } from '../../event-loop/late-signal.js'
import { ACQUIRE_WAIT_MS_DEFAULT } from '../../limits.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../percolator/api.js'
import { lockWaitTimeout } from '../../percolator/errors.js'
import type { Timestamp } from '../../timestamp.js'
import type { LockWaits, Turn } from '../lock-waits.js'
import type { RowAccess } from './row-access.js'

/** What a store provides for pessimistic locks. */
export interface LockingRows extends Pick<RowAccess, 'observeRead'> {
  readonly waits: LockWaits
  /** Locks that stand. */
  readonly lockCount: number
  /** start_ts of the lock on a key; undefined: there is none. */
  holderOf(key: Uint8Array): Timestamp | undefined
  /** A batch on its way adds, changes or removes the lock of the key. */
  isLockPending(key: Uint8Array): boolean
  /**
   * Locks all the keys, as `lockKeys` decides, or none.
   * @param onBusy called in the turn of the event loop that decides, while nobody can release the key unnoticed.
   * @returns the answer, or what `onBusy` returned.
   */
  lock<T>(request: AcquirePessimisticLockRequest, isClaimed: IsClaimed, onBusy: OnBusy<T>): Promise<Answer | T>
}
export type IsClaimed = (key: Uint8Array) => boolean
export type OnBusy<T> = (key: Uint8Array, error: KvError<'key_locked'> | undefined) => T
type Answer = AcquirePessimisticLockAnswer

/** A place in a queue: fulfilled with a turn, or with undefined when the time is over. */
interface Waiting {
  readonly wait: Promise<Turn | undefined>
}

/** Locks taken before the prewrite, and the waiting for them. */
export class PessimisticLocks {
  readonly #rows: LockingRows
  readonly #locksMax: number

  constructor(rows: LockingRows, locksMax: number) {
    this.#rows = rows
    this.#locksMax = locksMax
  }

  /** @throws KvError `overloaded` where too many locks stand: these cost a client no write, so nothing else slows it down. */
  async acquire(request: AcquirePessimisticLockRequest): Promise<Answer> {
    if (this.#rows.lockCount >= this.#locksMax) throw new KvError('overloaded', 'the store holds too many locks', {})
    const { forUpdateTs, waitTimeout = 0 } = request
    const waitMs = waitTimeout === 0 ? ACQUIRE_WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const deadline = performance.now() + waitMs
    await this.#rows.observeRead(forUpdateTs) // It reads: nobody may commit below what it saw.
    let turn: Turn | undefined
    try {
      for (let isLastTry = waitMs === 0; ; isLastTry = turn === undefined) {
        // Most requests find the key locked: they line up without a latch, and without reading.
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

  #try(request: AcquirePessimisticLockRequest, isLastTry: boolean, deadline: number): Promise<Answer | Waiting> {
    const { startTs, waitTimeout } = request
    const isClaimed: IsClaimed = (key) => !isLastTry && this.#isClaimed(key, startTs)
    return this.#rows.lock(request, isClaimed, (key, error) => {
      if (error !== undefined && waitTimeout === -1) throw error
      if (error !== undefined && isLastTry) throw lockWaitTimeout(key, error.fields.lock as LockInfo)
      return this.#enqueue(key, request, deadline)
    })
  }

  /** A place in the queue of a key that another transaction locks, or that an older one was woken for. */
  #lineUp(request: AcquirePessimisticLockRequest, deadline: number): Waiting | undefined {
    for (const key of request.keys) {
      const holder = this.#rows.holderOf(key)
      const isLocked = holder !== undefined && holder !== request.startTs && !this.#rows.isLockPending(key)
      if (isLocked || this.#isClaimed(key, request.startTs)) return this.#enqueue(key, request, deadline)
    }
    return undefined
  }

  /** An older transaction was woken for this key, which is free, and has not taken it yet. */
  #isClaimed(key: Uint8Array, startTs: Timestamp): boolean {
    if (this.#rows.holderOf(key) !== undefined) return false
    const claimant = this.#rows.waits.claimant(key)
    return claimant !== undefined && claimant < startTs
  }

  /** @throws KvError `deadlock` */
  #enqueue(key: Uint8Array, { startTs, signal }: AcquirePessimisticLockRequest, deadline: number): Waiting {
    const timeoutMs = Math.max(0, deadline - performance.now())
    return { wait: this.#rows.waits.enqueue(key, startTs, { timeoutMs, signal: signalOf(signal) }) }
  }
}
