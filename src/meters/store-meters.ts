import { BYTES, COUNTS, Histogram, SECONDS } from './histogram.js'

/**
 * What a store counts since the process has started: plain numbers, which somebody reads now and then (docs/monitoring/README.md).
 * One object per store; its parts get it from the store.
 */
export class StoreMeters {
  /** Transactions, each once. */
  readonly commits = { onePhase: 0, twoPhase: 0, async: 0 }
  /** Keys of transactions that were rolled back by their clients. */
  rolledBackKeys = 0
  /** Locks of other transactions that were ended, by what became of their transaction. */
  readonly resolvedLocks = { committed: 0, rolledBack: 0 }
  /** Refusals of prewrites, commits and pessimistic locks, by the code of the error and, of a conflict, its reason. */
  readonly refusals = new Map<string, number>()
  /** Seconds that requests have waited for latches. Those that found them free are not in it. */
  readonly latchWaits = new Histogram(SECONDS)
  /** Seconds that pessimistic requests have waited in the queue of a lock. */
  readonly lockWaits = new Histogram(SECONDS)
  /** Reads of single keys that the version cache could answer, or could not. */
  readonly cache = { hits: 0, misses: 0 }
  /** Batches that share a write. */
  readonly groupBatches = new Histogram(COUNTS)
  readonly groupBytes = new Histogram(BYTES)
  /** Seconds from the beginning of a write until it is done, with `sync` after its fsync. */
  readonly writes = new Histogram(SECONDS)
  failedWrites = 0
  /** Collections of old versions. Removed versions are counted whoever asked for the collection. */
  readonly collections = { runs: 0, failures: 0, removedVersions: 0, seconds: 0 }

  refused(code: string, reason = ''): void {
    const name = `${code}\n${reason}`
    this.refusals.set(name, (this.refusals.get(name) ?? 0) + 1)
  }
}
