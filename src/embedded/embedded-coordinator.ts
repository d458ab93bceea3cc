import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../coordinator/coordinator.js'
import type { Transaction, TransactionOptions } from '../coordinator/transaction.js'
import type { PercolatorApi } from '../percolator/api.js'
import type { Capabilities } from '../store/store.js'
import { commitOptionsOf } from '../txn/commit-options.js'

/** Fewer transactions are not searched for ended ones. */
const SWEEP_MIN = 64

/** A coordinator that can be closed: it knows which of its transactions are open. */
export class EmbeddedCoordinator extends Coordinator {
  /** Ended transactions leave at the next sweep, and must not keep their writes in memory until then. */
  #begun: WeakRef<Transaction>[] = []
  #sweepAt = SWEEP_MIN

  constructor(api: PercolatorApi, capabilities: Capabilities) {
    // As over HTTP, the locks of a forgotten transaction are not kept alive for ever.
    const { heartbeatMaxMs } = COMMIT_OPTIONS_DEFAULT
    super(api, { ...commitOptionsOf(capabilities), heartbeatMaxMs })
  }

  override async begin(options: TransactionOptions): Promise<Transaction> {
    const txn = await super.begin(options)
    this.#begun.push(new WeakRef(txn))
    if (this.#begun.length >= this.#sweepAt) {
      this.#begun = this.#begun.filter((one) => isAlive(one.deref()))
      this.#sweepAt = Math.max(SWEEP_MIN, 2 * this.#begun.length)
    }
    return txn
  }

  /** Rolls back open transactions; to be called when none of their calls is in flight. */
  async close(): Promise<void> {
    const open = this.#begun.map((one) => one.deref()).filter(isAlive)
    await Promise.allSettled(open.map((txn) => txn.rollback()))
    await this.idle()
  }
}

function isAlive(txn: Transaction | undefined): txn is Transaction {
  return txn?.state === 'open' || txn?.state === 'undetermined'
}
