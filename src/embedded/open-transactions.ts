import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../coordinator/coordinator.js'
import type { Transaction, TransactionOptions } from '../coordinator/transaction.js'
import type { PercolatorApi } from '../percolator/api.js'
import type { Capabilities } from '../store/store.js'
import { commitOptionsOf } from '../txn/commit-options.js'

/** Fewer are not looked through for those that have ended. */
const LOOKED_THROUGH_MIN = 64

/** The coordinator of a database that is closed some time: its transactions end then. */
export class OpenTransactions extends Coordinator {
  /** Those that have ended are among them until the next look. */
  readonly #begun = new Set<Transaction>()
  #lookAt = LOOKED_THROUGH_MIN

  constructor(api: PercolatorApi, capabilities: Capabilities) {
    // A transaction that the program forgot loses its locks in the end, as over HTTP.
    const { heartbeatMaxMs } = COMMIT_OPTIONS_DEFAULT
    super(api, { ...commitOptionsOf(capabilities), heartbeatMaxMs })
  }

  override async begin(options: TransactionOptions): Promise<Transaction> {
    const txn = await super.begin(options)
    this.#begun.add(txn)
    if (this.#begun.size >= this.#lookAt) {
      for (const one of this.#begun) if (!isAlive(one)) this.#begun.delete(one)
      this.#lookAt = Math.max(LOOKED_THROUGH_MIN, 2 * this.#begun.size)
    }
    return txn
  }

  /** Rolls back those that are open; to be called when none of their calls is in flight. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#begun].filter(isAlive).map((txn) => txn.rollback()))
    await this.idle()
  }
}

function isAlive({ state }: Transaction): boolean {
  return state === 'open' || state === 'undetermined'
}
