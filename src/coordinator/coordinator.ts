import type { PercolatorApi } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import type { Attaches } from './attaches.js'
import type { CommitOptions, TransactionContext } from './committer.js'
import type { EffectsAsRows } from './effect-rows.js'
import { LockResolver } from './lock-resolver.js'
import { type ReadOptions, SnapshotReader } from './snapshot-reader.js'
import { StampLead } from './stamp-lead.js'
import { Transaction, type TransactionOptions } from './transaction.js'
import { withSignal } from './with-signal.js'

/** TiKV's figures: batches of 16 KiB, async commit up to 256 keys. */
export const COMMIT_OPTIONS_DEFAULT: CommitOptions = {
  batchBytes: 16 * 1024,
  commitsPrimaryAlone: false,
  onePhase: true,
  plainOnePhase: false,
  asyncCommitKeysMax: 256,
  triesMax: 3,
  repeatMsMax: Number.POSITIVE_INFINITY,
  isInProcess: false,
  heartbeatMaxMs: 60 * 60 * 1000,
}

/**
 * The Percolator client: begins transactions over `PercolatorApi`, in process or over HTTP. Its transactions share one
 * lock resolver and the work that goes on after a commit was answered.
 */
export class Coordinator implements TransactionContext {
  readonly resolver: LockResolver
  readonly stampLead = new StampLead()
  readonly #background = new Set<Promise<unknown>>()

  constructor(
    readonly api: PercolatorApi,
    readonly commitOptions: CommitOptions = COMMIT_OPTIONS_DEFAULT,
    readonly effectsAsRows?: EffectsAsRows | undefined,
    readonly attaches?: Attaches | undefined,
  ) {
    this.resolver = new LockResolver(api)
  }

  /** @param startTs must come from the oracle and belong to no other transaction. Default: a new timestamp. */
  async begin(options: TransactionOptions, startTs?: Timestamp): Promise<Transaction> {
    return new Transaction(this, startTs ?? (await withSignal(this.api, options.signal).tso(1)), options)
  }

  snapshot(ts: Timestamp, options: ReadOptions): SnapshotReader {
    return new SnapshotReader(withSignal(this.api, options.signal), this.resolver, ts, options)
  }

  /** Failures are ignored: the next reader or writer of a key resolves a lock that is left behind. */
  readonly inBackground = (work: Promise<unknown>): void => {
    const done = work.catch(() => {}).finally(() => this.#background.delete(done))
    this.#background.add(done)
  }

  async idle(): Promise<void> {
    while (this.#background.size > 0) await Promise.all(this.#background)
  }
}
