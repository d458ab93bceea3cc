import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../coordinator/coordinator.js'
import type { Transaction, TransactionOptions } from '../coordinator/transaction.js'
import type { PercolatorApi } from '../percolator/api.js'
import type { Traits } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { commitOptionsOf } from '../txn/commit-options.js'

/** Ended transactions are removed from the list only when it is longer than this. */
const SWEEP_MIN = 64

export class EmbeddedCoordinator extends Coordinator {
  /** Weak references: an ended transaction stays in the list until the next sweep, and must not keep its writes in memory. */
  #begun: WeakRef<Transaction>[] = []
  #sweepAt = SWEEP_MIN

  constructor(api: PercolatorApi, capabilities: Traits) {
    // As over HTTP, heartbeats stop at some age: a forgotten transaction must not keep its locks for ever.
    const { heartbeatMaxMs } = COMMIT_OPTIONS_DEFAULT
    super(api, { ...commitOptionsOf(capabilities), heartbeatMaxMs })
  }

  override async begin(options: TransactionOptions, startTs?: Timestamp): Promise<Transaction> {
    const txn = await super.begin(options, startTs)
    this.#begun.push(new WeakRef(txn))
    if (this.#begun.length >= this.#sweepAt) {
      this.#begun = this.#begun.filter((one) => isAlive(one.deref()))
      this.#sweepAt = Math.max(SWEEP_MIN, 2 * this.#begun.length)
    }
    return txn
  }

  /** Rolls back open transactions. Must not be called while one of their calls is in flight. */
  async close(): Promise<void> {
    const open = this.#begun.map((one) => one.deref()).filter(isAlive)
    await Promise.allSettled(open.map((txn) => txn.rollback()))
    await this.idle()
  }
}

function isAlive(txn: Transaction | undefined): txn is Transaction {
  return txn?.state === 'open' || txn?.state === 'undetermined'
}
