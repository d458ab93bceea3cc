import { lostLeases } from '../percolator/actions/check-lease.js'
import type { FailedLeaseCheck } from '../percolator/lease.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'

/** Knows which leases are held. Must not throw. */
export interface LeaseHolders {
  /** The fence in force at this moment; 0: the lease is free. */
  fenceOf(name: string): Timestamp
}

/** The leases by which transactions are judged. The store keeps none itself: it asks whoever grants them. */
export class HeldLeases {
  #fenceOf: LeaseHolders['fenceOf'] = () => 0

  /** There is one listener at most. Without one every lease is free. */
  listen(holders: LeaseHolders): void {
    this.#fenceOf = (name) => holders.fenceOf(name)
  }

  /** The checks that do not hold in this turn of the event loop: see `lostLeases`. */
  lost(riders: readonly LeaseRider[]): readonly FailedLeaseCheck[] {
    return lostLeases(riders, this.#fenceOf)
  }
}
