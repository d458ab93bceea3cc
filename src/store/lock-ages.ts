import type { Clock } from '../oracle/clock.js'
import type { Lock } from '../percolator/lock.js'
import type { Mutation } from '../percolator/row.js'
import { physicalMs, type Timestamp } from '../timestamp.js'

/**
 * Corrects the TTLs of locks for jumps of the clock. A store keeps a TTL in milliseconds of real time. Actions and
 * clients compare it with differences of timestamps, which a jump of the clock makes larger.
 */
export class LockAges {
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Milliseconds by which the clock has jumped since `ts`. */
  jumpedSince(ts: Timestamp): number {
    return this.#clock.jumps.length === 0 ? 0 : this.#clock.jumpedSince(physicalMs(ts))
  }

  /** Converts a stored lock for actions and clients. */
  seen(lock: Lock): Lock {
    const jumpedMs = this.jumpedSince(lock.startTs)
    return jumpedMs === 0 ? lock : { ...lock, ttlMs: lock.ttlMs + jumpedMs }
  }

  /** Converts the mutation of an action for the store: the inverse of `seen`. */
  kept(mutation: Mutation): Mutation {
    const jumpedMs = mutation.type === 'put-lock' ? this.jumpedSince(mutation.lock.startTs) : 0
    if (mutation.type !== 'put-lock' || jumpedMs === 0) return mutation
    return { ...mutation, lock: { ...mutation.lock, ttlMs: Math.max(0, mutation.lock.ttlMs - jumpedMs) } }
  }
}
