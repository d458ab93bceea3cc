import { lostLeases } from '../leases/rules/check-lease.js'
import { type FailedLeaseCheck, leaseLost } from '../leases/rules/lease.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'

/** Knows which leases are held. */
export interface LeaseHolders {
  /** The fence in force at this moment; 0: the lease is free. Must not throw. */
  fenceOf(name: string): Timestamp
  /**
   * From now on the end of this grant looks for keys.
   * @throws KvError `precondition_failed` if it is over, where the lease is not judged in one turn with the commit.
   */
  attaches(rider: LeaseRider): void | Promise<void>
  /** Only where other servers grant leases too. */
  readonly shared?: SharedHolders
}

/** Leases that several servers grant. */
interface SharedHolders {
  /**
   * Reads the leases after the call.
   * @param ts the oracle has handed it out before the call. Default: one that it hands out now.
   * @returns the fence of each lease that is in force at `ts`; 0: it is free.
   */
  fencesAt(names: readonly string[], ts?: Timestamp): Promise<ReadonlyMap<string, Timestamp>>
}

/** The leases by which transactions are judged. The store keeps none itself: it asks whoever grants them. */
export class HeldLeases {
  #holders: LeaseHolders = { fenceOf: () => 0, attaches: () => {} }

  /** There is one listener at most. Without one every lease is free. */
  listen(holders: LeaseHolders): void {
    this.#holders = holders
  }

  /** The checks that do not hold in this turn of the event loop: see `lostLeases`. Only in a store that commits in one phase. */
  lost(riders: readonly LeaseRider[]): readonly FailedLeaseCheck[] {
    return lostLeases(riders, (name) => this.#holders.fenceOf(name))
  }

  /**
   * The checks that do not hold for a transaction which commits at `ts`, in any store.
   *
   * Where other servers grant leases, the records are read after `ts` was handed out. So a commit under a fence is below every later
   * fence. If the lease was seen to be held by a record that somebody replaced after the read, then whoever is granted it next either reads
   * after that, and asks for its fence later still; or replaces the very record that was read here, with a fence that is not below its end.
   * @param ts commit_ts, from the oracle. Default: now, for a transaction that writes nothing.
   */
  async lostAt(riders: readonly LeaseRider[], ts?: Timestamp): Promise<readonly FailedLeaseCheck[]> {
    const { shared } = this.#holders
    if (shared === undefined || riders.length === 0) return this.lost(riders)
    const fences = await shared.fencesAt([...new Set(riders.map(({ lease }) => lease))], ts)
    return lostLeases(riders, (name) => fences.get(name) ?? 0)
  }

  /** @throws KvError `precondition_failed` */
  async require(riders: readonly LeaseRider[], ts?: Timestamp): Promise<void> {
    const lost = await this.lostAt(riders, ts)
    if (lost.length > 0) throw leaseLost(lost)
  }

  /** See `LeaseHolders.attaches`. */
  async attaches(rider: LeaseRider): Promise<void> {
    await this.#holders.attaches(rider)
  }
}
