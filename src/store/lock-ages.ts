import type { Clock } from '../oracle/clock.js'
import type { Lock } from '../percolator/lock.js'
import type { Mutation } from '../percolator/row.js'
import { physicalMs, type Timestamp } from '../timestamp.js'

/**
 * TTLs of locks. A store keeps them as milliseconds that pass. Actions and clients see them as differences of timestamps,
 * which a jump of the clock makes longer.
 */
export class LockAges {
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Milliseconds. */
  jumpedSince(ts: Timestamp): number {
    return this.#clock.jumps.length === 0 ? 0 : this.#clock.jumpedSince(physicalMs(ts))
  }

  /** A stored lock as actions and clients see it. */
  seen(lock: Lock): Lock {
    const jumpedMs = this.jumpedSince(lock.startTs)
    return jumpedMs === 0 ? lock : { ...lock, ttlMs: lock.ttlMs + jumpedMs }
  }

  /** What an action has made of a lock that it saw, as it is stored. */
  kept(mutation: Mutation): Mutation {
    const jumpedMs = mutation.type === 'put-lock' ? this.jumpedSince(mutation.lock.startTs) : 0
    if (mutation.type !== 'put-lock' || jumpedMs === 0) return mutation
    return { ...mutation, lock: { ...mutation.lock, ttlMs: Math.max(0, mutation.lock.ttlMs - jumpedMs) } }
  }
}
