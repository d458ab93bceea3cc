import { type Awaitable, after } from '../event-loop/after.js'
import { lostLeases } from '../leases/rules/check-lease.js'
import { type FailedLeaseCheck, leaseLost } from '../leases/rules/lease.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'

/** Knows which leases are held. */
export interface LeaseHolders {
  /**
   * The fence in force of each lease; 0: it is free. Where one process grants leases, the answer is that of this turn of the event loop. Else
   * they are read after the call, and the answer is that of `ts`.
   * @param ts the oracle has handed it out before the call. Default: one that it hands out now.
   */
  fencesAt(names: readonly string[], ts?: Timestamp): Awaitable<readonly Timestamp[]>
  /** From now on the end of this grant looks for keys. If it is over, whatever attaches them is refused when it commits. */
  attaches(rider: LeaseRider): Promise<void>
}

/** The leases by which transactions are judged. The store keeps none itself: it asks whoever grants them. */
export class HeldLeases {
  #holders: LeaseHolders = { fencesAt: (names) => names.map(() => 0), attaches: async () => {} }

  /** There is one listener at most. Without one every lease is free. */
  listen(holders: LeaseHolders): void {
    this.#holders = holders
  }

  /**
   * The checks that do not hold for a transaction which commits at `ts`. In a store that commits in one phase they are judged in this turn of
   * the event loop, which has to be the one that fixes the commit_ts.
   *
   * Where other servers grant leases, the records are read after `ts` was handed out. So a commit under a fence is below every later
   * fence. If the lease was seen to be held by a record that somebody replaced after the read, then whoever is granted it next either reads
   * after that, and asks for its fence later still; or replaces the very record that was read here, with a fence that is not below its end.
   * @param ts commit_ts, from the oracle. Default: now, for a transaction that writes nothing.
   */
  lost(riders: readonly LeaseRider[], ts?: Timestamp): Awaitable<readonly FailedLeaseCheck[]> {
    if (riders.length === 0) return []
    const fences = this.#holders.fencesAt(
      riders.map(({ lease }) => lease),
      ts,
    )
    return after(fences, (present) => lostLeases(riders, present))
  }

  /** @throws KvError `precondition_failed` */
  async require(riders: readonly LeaseRider[], ts?: Timestamp): Promise<void> {
    const lost = await this.lost(riders, ts)
    if (lost.length > 0) throw leaseLost(lost)
  }

  /** See `LeaseHolders.attaches`. */
  attaches(rider: LeaseRider): Promise<void> {
    return this.#holders.attaches(rider)
  }
}
