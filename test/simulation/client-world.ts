import type { Faults } from './faults.js'
import type { History } from './history.js'
import type { LeaseBooks } from './lease-ledger.js'
import type { Ledger } from './ledger.js'
import type { Network } from './network.js'
import type { Scheduler } from './scheduler.js'
import type { Violations } from './violations.js'

/** What the simulated clients share. */
export interface ClientWorld {
  readonly scheduler: Scheduler
  readonly faults: Faults
  readonly network: Network
  readonly history: History
  readonly ledger: Ledger
  readonly leases: LeaseBooks
  readonly violations: Violations
  /** Begin nothing new. */
  readonly isEnding: () => boolean
  readonly count: (operation: string) => void
}
