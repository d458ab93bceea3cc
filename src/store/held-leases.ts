import type { FailedLeaseCheck } from '../percolator/lease.js'
import type { LeaseRider } from '../percolator/riders.js'
import type { Timestamp } from '../timestamp.js'

/** Knows which leases are held. Must not throw. */
export interface LeaseHolders {
  /** Of the lease at this moment; 0: it is free. */
  fenceOf(name: string): Timestamp
}

/** The leases as the store sees them: transactions are judged by them in the turn of the event loop that fixes their commit_ts. */
export class HeldLeases {
  #holders: LeaseHolders | undefined

  /** There is one at most; without one every lease is free. */
  listen(holders: LeaseHolders): void {
    this.#holders = holders
  }

  /**
   * The riders whose leases are lost. A later grant has a later fence, and a commit_ts that is fixed in this turn is below every timestamp
   * that is handed out after it, so all commits under one fence are below every later fence.
   */
  lost(riders: readonly LeaseRider[]): FailedLeaseCheck[] {
    return riders.flatMap(({ lease, fence, index }, i) => {
      const present = this.#holders?.fenceOf(lease) ?? 0
      return present === fence ? [] : [{ index: index ?? i, lease, fence: present }]
    })
  }
}
