import type { Changes } from '../../src/changes/changes.js'
import type { LockResolver } from '../../src/coordinator/lock-resolver.js'
import type { Leases } from '../../src/leases/leases.js'
import type { Observers } from '../../src/observers/observers.js'
import type { PrewriteAnswer, PrewriteRequest } from '../../src/percolator/api.js'
import type { Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import type { OneShots } from '../../src/txn/one-shots.js'
import type { Owner } from './scheduler.js'

/** The server's process, as long as it lives. */
export interface RunningServer {
  readonly owner: Owner
  readonly store: Store
  readonly resolver: LockResolver
  readonly oneShots: Pick<OneShots, 'run'>
  readonly pins: {
    create(wanted: { readonly ts: Timestamp; readonly ttlMs: number }): Promise<{ pin: string; ts: Timestamp }>
    remove(pin: string): Promise<void>
  }
  readonly observers: Observers
  readonly changes: Changes
  readonly leases: Leases | undefined
  /** See `Profile.collects`. */
  collect(isByHand: boolean, behindMs: number): Promise<unknown>
  prewrite(request: PrewriteRequest): Promise<PrewriteAnswer>
  /** When it has no call any more. */
  close(): Promise<unknown>
}
