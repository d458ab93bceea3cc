import type { LockInfo } from '../../../errors/lock-info.js'
import type { Clock } from '../../../oracle/clock.js'
import type { Lock } from '../../../percolator/lock.js'
import { lockInfo } from '../../../percolator/lock-info.js'
import type { Mutation } from '../../../percolator/row.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'
import type { LockEntry } from '../memory/lock-table.js'

/** TTLs are kept as time that passes, and seen as differences of timestamps, which jumps of the clock make longer. */
export class LockAges {
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  jumpedSince(ts: Timestamp): number {
    return this.#clock.jumps.length === 0 ? 0 : this.#clock.jumpedSince(physicalMs(ts))
  }

  /**
   * Before locks are seen: a jump that is noticed only after `seen` has added those before it would count in `kept` alone,
   * and who gets a lock to see asks for the time next.
   */
  noticeJumps(): void {
    this.#clock.now()
  }

  /** A lock of the table as actions and clients see it. */
  seen(lock: Lock): Lock {
    const jumpedMs = this.jumpedSince(lock.startTs)
    return jumpedMs === 0 ? lock : { ...lock, ttlMs: lock.ttlMs + jumpedMs }
  }

  infoOf({ key, lock }: LockEntry): LockInfo {
    this.noticeJumps()
    return lockInfo(key, this.seen(lock))
  }

  /** What actions have made of locks that they saw, as it is kept. */
  kept(mutations: readonly Mutation[]): readonly Mutation[] {
    return this.#clock.jumps.length === 0 ? mutations : mutations.map((mutation) => this.#kept(mutation))
  }

  #kept(mutation: Mutation): Mutation {
    const jumpedMs = mutation.type === 'put-lock' ? this.jumpedSince(mutation.lock.startTs) : 0
    if (mutation.type !== 'put-lock' || jumpedMs === 0) return mutation
    return { ...mutation, lock: { ...mutation.lock, ttlMs: Math.max(0, mutation.lock.ttlMs - jumpedMs) } }
  }
}
