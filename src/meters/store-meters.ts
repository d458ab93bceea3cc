import { BYTES, COUNTS, Histogram, SECONDS } from './histogram.js'

/** Counts of one store since the start of the process: plain numbers, which docs/metrics.md explains. */
export class StoreMeters {
  readonly commits = { onePhase: 0, twoPhase: 0, async: 0 }
  /** Keys of transactions that were rolled back by their clients. */
  rolledBackKeys = 0
  /** Locks of other transactions that were resolved, by the outcome of their transaction. */
  readonly resolvedLocks = { committed: 0, rolledBack: 0 }
  /** Refusals of prewrites, commits and pessimistic locks, by the code of the error and, for a conflict, its reason. */
  readonly refusals = new Map<string, number>()
  /** Seconds that requests have waited for latches. Free latches are not counted. */
  readonly latchWaits = new Histogram(SECONDS)
  /** Seconds that pessimistic requests have waited in the queue of a lock. */
  readonly lockWaits = new Histogram(SECONDS)
  /** Reads of single keys that the version cache could answer, or could not. */
  readonly cache = { hits: 0, misses: 0 }
  /** Batches per write. */
  readonly groupBatches = new Histogram(COUNTS)
  readonly groupBytes = new Histogram(BYTES)
  /** Seconds from the beginning of a write until it is done, with `sync` after its fsync. */
  readonly writes = new Histogram(SECONDS)
  failedWrites = 0
  /** Collections of old versions. `removedVersions` includes collections that clients asked for. */
  readonly collections = { runs: 0, failures: 0, removedVersions: 0, seconds: 0 }

  refused(code: string, reason = ''): void {
    const name = `${code}\n${reason}`
    this.refusals.set(name, (this.refusals.get(name) ?? 0) + 1)
  }
}
