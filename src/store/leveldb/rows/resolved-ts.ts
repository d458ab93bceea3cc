import type { LockInfo } from '../../../errors/lock-info.js'
import { resolvedBelow } from '../../../percolator/resolved.js'
import type { Timestamp } from '../../../timestamp.js'
import type { LockEntry } from '../memory/lock-table.js'
import { isInFlight } from './published-locks.js'
import type { RowStore } from './row-store.js'

/** The locks stay ranked between this time and twice this time after resolved_ts was taken last. */
const RANKED_MS = 30_000

/** See `ChangeLog.resolve`. The argument that a read misses no commit holds for it too, because it is a read of everything. */
export class ResolvedTs {
  readonly #rows: RowStore
  /** Timestamps of changes that are decided, and have no lock that would hold resolved_ts back. */
  readonly #holds = new Set<Timestamp>()
  #last: Timestamp = 0
  #isAsked = false
  #timer: NodeJS.Timeout | undefined

  constructor(rows: RowStore) {
    this.#rows = rows
  }

  /** The highest that was taken; 0: none. */
  get last(): Timestamp {
    return this.#last
  }

  /** @throws KvError `storage_unavailable` */
  take(): Timestamp {
    const { health, locks, lastTs } = this.#rows
    health.requireAvailable()
    this.#isAsked = true
    this.#timer ??= this.#watchUse()
    if (!health.isWritable) {
      // The table of locks is being loaded anew, or the outcome of a write is unknown.
      if (this.#last === 0) throw health.refusal()
      return this.#last
    }
    let resolved = lastTs
    const lowest = locks.lowest()
    if (lowest !== undefined) resolved = Math.min(resolved, lowest.rank)
    for (const ts of this.#holds) resolved = Math.min(resolved, ts - 1)
    this.#last = Math.max(this.#last, resolved)
    this.#rows.raiseMaxTs(this.#last)
    return this.#last
  }

  /** Keeps resolved_ts below `ts`, which must be above all that was taken, until the returned function is called. */
  hold(ts: Timestamp): () => void {
    this.#holds.add(ts)
    return () => this.#holds.delete(ts)
  }

  heldBackBy(limit: number): LockInfo[] {
    const held: { readonly bound: Timestamp; readonly entry: LockEntry }[] = []
    for (const entry of this.#rows.locks.all()) {
      const bound = isInFlight(entry.lock) ? undefined : resolvedBelow(entry.lock)
      if (bound !== undefined) held.push({ bound, entry })
    }
    held.sort((a, b) => a.bound - b.bound)
    return held.slice(0, limit).map(({ entry }) => this.#rows.ages.infoOf(entry))
  }

  #watchUse(): NodeJS.Timeout {
    return setInterval(() => {
      if (!this.#isAsked) this.close()
      this.#isAsked = false
    }, RANKED_MS).unref()
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#rows.locks.unrank()
  }
}
