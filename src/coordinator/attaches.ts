import type { PrewriteMutation } from '../percolator/api.js'
import type { LeaseRider } from '../percolator/riders.js'

/** What a transaction that attaches keys to leases writes for their ends. */
export interface Attached {
  /** One for each key: it goes with the transaction, and is found when the lease ends. */
  readonly rows: readonly PrewriteMutation[]
  /** To be called when the commit is over, however it has ended. */
  done(): void
}

/**
 * Asks the mutations of a transaction for keys that they attach. From then on the ends of these leases look for keys.
 * @param leases that the transaction checks.
 * @returns undefined: there are none.
 * @throws KvError `invalid_argument` for more keys than a lease may have; `precondition_failed`
 */
export type Attaches = (
  mutations: readonly PrewriteMutation[],
  leases: readonly LeaseRider[],
) => Promise<Attached | undefined>
