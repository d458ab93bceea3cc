import type { LockInfo } from '../errors/lock-info.js'
import type { Clock } from '../oracle/clock.js'
import type { Lock } from '../percolator/lock.js'
import { lockInfo } from '../percolator/lock-info.js'
import type { Mutation } from '../percolator/row.js'
import { physicalMs, type Timestamp } from '../timestamp.js'

/**
 * Converts TTLs. Stored TTLs are elapsed milliseconds. Actions and clients compare a TTL with differences of timestamps, which
 * jumps of the clock make longer, so they see it with the jumps added.
 */
export class LockAges {
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  jumpedSince(ts: Timestamp): number {
    return this.#clock.jumps.length === 0 ? 0 : this.#clock.jumpedSince(physicalMs(ts))
  }

  /**
   * Call before `seen`: a jump noticed between `seen` and `kept` would be subtracted without having been added. Readers of a lock
   * also ask for the time next, which would notice the jump.
   */
  noticeJumps(): void {
    this.#clock.now()
  }

  seen(lock: Lock): Lock {
    const jumpedMs = this.jumpedSince(lock.startTs)
    return jumpedMs === 0 ? lock : { ...lock, ttlMs: lock.ttlMs + jumpedMs }
  }

  infoOf({ key, lock }: { readonly key: Uint8Array; readonly lock: Lock }): LockInfo {
    this.noticeJumps()
    return lockInfo(key, this.seen(lock))
  }

  /** Inverse of `seen`, for the locks that actions return. */
  kept(mutations: readonly Mutation[]): readonly Mutation[] {
    return this.#clock.jumps.length === 0 ? mutations : mutations.map((mutation) => this.#kept(mutation))
  }

  #kept(mutation: Mutation): Mutation {
    const jumpedMs = mutation.type === 'put-lock' ? this.jumpedSince(mutation.lock.startTs) : 0
    if (mutation.type !== 'put-lock' || jumpedMs === 0) return mutation
    return { ...mutation, lock: { ...mutation.lock, ttlMs: Math.max(0, mutation.lock.ttlMs - jumpedMs) } }
  }
}
