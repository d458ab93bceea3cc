import type { PrewriteMutation } from '../percolator/api.js'
import type { LeaseGuard } from '../percolator/commit-effects.js'

export interface Attached {
  /** One row per key. It commits with the transaction and lets the end of the lease find the key. */
  readonly rows: readonly PrewriteMutation[]
  done(): void
}

/**
 * Makes the rows for mutations that attach keys to leases. From then on, the ends of these leases look for the keys.
 * @param leases the leases that the transaction checks.
 * @returns undefined when no mutation attaches a key.
 * @throws KvError `invalid_argument` for more keys than a lease may have; `precondition_failed`
 */
export type Attaches = (
  mutations: readonly PrewriteMutation[],
  leases: readonly LeaseGuard[],
) => Promise<Attached | undefined>
