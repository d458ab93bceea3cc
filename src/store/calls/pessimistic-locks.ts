import { KvError } from '../../errors/kv-error.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { signalOf, stagesOf } from '../../event-loop/lazy-signal.js'
import { timed } from '../../event-loop/stages.js'
import { ACQUIRE_WAIT_MS_DEFAULT } from '../../limits.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../percolator/api.js'
import { lockWaitTimeout } from '../../percolator/errors.js'
import type { Timestamp } from '../../timestamp.js'
import type { LockWaits, Turn } from '../lock-waits.js'
import { countedRefusal } from './counted-refusal.js'
import { afterWait } from './lock-keys.js'
import type { RowAccess } from './row-access.js'

export interface LockingRows extends Pick<RowAccess, 'observeRead' | 'meters'> {
  readonly waits: LockWaits
  readonly lockCount: number
  holderOf(key: Uint8Array): Timestamp | undefined
  lockLeftMs(key: Uint8Array): number
  /** True while a batch in flight adds, changes or removes the lock. */
  isLockPending(key: Uint8Array): boolean
  /**
   * Locks all the keys or none, as `lockKeys` decides.
   * @param onBusy must run in the same turn of the event loop as the decision, so that no release of the key is missed.
   * @returns the answer, or the result of `onBusy`.
   */
  lock<T>(request: AcquirePessimisticLockRequest, isClaimed: IsClaimed, onBusy: OnBusy<T>): Promise<Answer | T>
}
export type IsClaimed = (key: Uint8Array) => boolean
export type OnBusy<T> = (key: Uint8Array, error: KvError<'key_locked'> | undefined) => T
type Answer = AcquirePessimisticLockAnswer

/** A place in a queue. `wait` is fulfilled with a turn, or with undefined after the timeout. */
interface Waiting {
  readonly wait: Promise<Turn | undefined>
}

export class PessimisticLocks {
  readonly #rows: LockingRows
  readonly #locksMax: number

  constructor(rows: LockingRows, locksMax: number) {
    this.#rows = rows
    this.#locksMax = locksMax
  }

  /**
   * The limit on locks exists because a pessimistic lock costs a client no write.
   * @throws KvError `overloaded` when the store has too many locks.
   */
  async acquire(request: AcquirePessimisticLockRequest): Promise<Answer> {
    if (this.#rows.lockCount >= this.#locksMax) throw new KvError('overloaded', 'the store holds too many locks', {})
    const { forUpdateTs, waitTimeout = 0 } = request
    const waitMs = waitTimeout === 0 ? ACQUIRE_WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const beganMs = performance.now()
    const deadline = beganMs + waitMs
    await this.#rows.observeRead(forUpdateTs) // The call is a read, so later commits must be above its timestamp.
    let turn: Turn | undefined
    let asked = request
    try {
      for (let isLastTry = waitMs === 0; ; isLastTry = turn === undefined) {
        // On a hot key most requests find the lock taken. They join the queue without a latch or a read.
        const tried =
          (isLastTry ? undefined : this.#lineUp(request, deadline)) ?? (await this.#try(asked, isLastTry, deadline))
        turn?.done()
        if (!('wait' in tried)) return tried
        turn = await tried.wait
        asked = afterWait(request, beganMs)
      }
    } catch (error) {
      throw countedRefusal(this.#rows.meters, error)
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

  /** Joins the queue of a key that another transaction has locked, or that is promised to an older transaction. */
  #lineUp(request: AcquirePessimisticLockRequest, deadline: number): Waiting | undefined {
    for (const key of request.keys) {
      const holder = this.#rows.holderOf(key)
      const isLocked = holder !== undefined && holder !== request.startTs && !this.#rows.isLockPending(key)
      if (isLocked || this.#isClaimed(key, request.startTs)) return this.#enqueue(key, request, deadline)
    }
    return undefined
  }

  /** True for a free key whose waiting, older transaction was woken but has not taken the lock yet. */
  #isClaimed(key: Uint8Array, startTs: Timestamp): boolean {
    if (this.#rows.holderOf(key) !== undefined) return false
    const claimant = this.#rows.waits.claimant(key)
    return claimant !== undefined && claimant < startTs
  }

  /** @throws KvError `deadlock` */
  #enqueue(key: Uint8Array, request: AcquirePessimisticLockRequest, deadline: number): Waiting {
    const { startTs, signal, untilExpired } = request
    const leftMs = Math.max(0, deadline - performance.now())
    const timeoutMs = untilExpired ? Math.min(leftMs, this.#rows.lockLeftMs(key)) : leftMs
    const wait = this.#rows.waits.enqueue(key, startTs, { timeoutMs, signal: signalOf(signal) })
    return { wait: timed(stagesOf(signal), 'lockMs', wait) }
  }
}
