import { type Awaitable, after } from '../event-loop/after.js'
import { lostLeases } from '../leases/rules/check-lease.js'
import { type FailedLeaseCheck, leaseLost } from '../leases/rules/lease.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'
import type { Timestamp } from '../timestamp.js'

export interface LeaseHolders {
  /**
   * Fences in force; 0: the lease is free. If one process grants leases, the answer is that of this turn of the event loop.
   * Otherwise the records are read after the call, and the answer is that of `ts`.
   * @param ts handed out by the oracle before the call. Default: a new one.
   */
  fencesAt(names: readonly string[], ts?: Timestamp): Awaitable<readonly Timestamp[]>
  /** From now on the end of this grant looks for keys. If the grant is over, the commit that attaches keys to it is refused. */
  attaches(guard: LeaseGuard): Promise<void>
}

/** Decides whether a transaction's leases are held. Asks whoever grants leases, and stores nothing. */
export class HeldLeases {
  #holders: LeaseHolders = { fencesAt: (names) => names.map(() => 0), attaches: async () => {} }

  /** At most one listener. Without one every lease is free. */
  listen(holders: LeaseHolders): void {
    this.#holders = holders
  }

  /**
   * The lease checks that fail for a transaction which commits at `ts`. A store that commits in one phase must fix the commit_ts
   * in the same turn of the event loop.
   *
   * If other servers grant leases, the records are read after `ts` was handed out. The README of leases/ argues that a commit
   * under a fence is therefore below every later fence.
   * @param ts commit_ts, from the oracle. Default: now, for a transaction that writes nothing.
   */
  lost(commitEffects: readonly LeaseGuard[], ts?: Timestamp): Awaitable<readonly FailedLeaseCheck[]> {
    if (commitEffects.length === 0) return []
    const fences = this.#holders.fencesAt(
      commitEffects.map(({ lease }) => lease),
      ts,
    )
    return after(fences, (present) => lostLeases(commitEffects, present))
  }

  /** @throws KvError `precondition_failed` */
  async require(commitEffects: readonly LeaseGuard[], ts?: Timestamp): Promise<void> {
    const lost = await this.lost(commitEffects, ts)
    if (lost.length > 0) throw leaseLost(lost)
  }

  attaches(guard: LeaseGuard): Promise<void> {
    return this.#holders.attaches(guard)
  }
}
