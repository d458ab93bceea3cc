import type { Coordinator } from '../../coordinator/coordinator.js'
import type { GcWorker } from '../../gc/gc-worker.js'
import type { Pins } from '../../gc/pins.js'
import type { Limits } from '../../limits.js'
import type { Store } from '../../store/store.js'
import type { OpenTransactions } from '../../txn/interactive-transactions.js'
import type { OneShots } from '../../txn/one-shots.js'
import type { Outcomes } from '../../txn/outcomes.js'
import type { Traffic } from '../admission/traffic.js'

/** What every route is given. */
export interface AppContext {
  readonly store: Store
  /** Of the transactions that this server runs for its clients. */
  readonly coordinator: Coordinator
  readonly oneShots: OneShots
  readonly openTransactions: OpenTransactions
  readonly outcomes: Outcomes
  readonly gc: GcWorker
  /** Collection stays below what they hold. */
  readonly pins: Pins
  readonly limits: Limits
  readonly traffic: Traffic
  readonly version: string
  readonly durability: 'sync' | 'async'
}
