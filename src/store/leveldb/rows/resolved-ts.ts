import type { LockInfo } from '../../../errors/lock-info.js'
import type { Timestamp } from '../../../timestamp.js'
import type { LockAges } from '../../lock-ages.js'
import type { LockTable } from '../memory/lock-table.js'
import type { Health } from './health.js'
import { isInFlight } from './published-locks.js'

/** The locks stay ranked for this time to twice this time after the last use of resolved_ts. */
const RANKED_MS = 30_000
const VISITS_MAX = 4096

export interface ResolvedRows {
  readonly health: Health
  readonly locks: LockTable
  readonly ages: LockAges
  readonly lastTs: Timestamp
  raiseMaxTs(ts: Timestamp): void
}

/** See `ChangeLog.resolve`. It counts as a read of everything, so it misses no commit for the same reason as any read. */
export class ResolvedTs {
  readonly #rows: ResolvedRows
  /** Timestamps of changes that are decided without a lock to hold resolved_ts back. */
  readonly #holds = new Set<Timestamp>()
  #last: Timestamp = 0
  #passed: Timestamp = 0
  #isAsked = false
  #timer: NodeJS.Timeout | undefined

  constructor(rows: ResolvedRows) {
    this.#rows = rows
  }

  /** 0: none. */
  get last(): Timestamp {
    return this.#last
  }
  /** No lock that could commit at or below it is admitted any more: `last`, or the newest delete_range. */
  get passed(): Timestamp {
    return Math.max(this.#last, this.#passed)
  }

  /** From this turn of the event loop on, no prewrite can lead to a commit at or below `ts`. */
  pass(ts: Timestamp): void {
    this.#passed = Math.max(this.#passed, ts)
    this.#rows.raiseMaxTs(ts)
  }

  /** @throws KvError `storage_unavailable` */
  take(): Timestamp {
    const { health, locks, lastTs } = this.#rows
    health.requireAvailable()
    this.#noteUse()
    if (!health.isWritable) {
      // The table of locks is being reloaded, or the outcome of a write is unknown.
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

  /** Keeps resolved_ts below `ts`, which must be above all earlier ones, until the returned function is called. */
  hold(ts: Timestamp): () => void {
    this.#holds.add(ts)
    return () => this.#holds.delete(ts)
  }

  /** Visits at most `VISITS_MAX` locks, so a long batch in flight may hide the locks behind it. */
  heldBackBy(limit: number): LockInfo[] {
    const { locks, ages } = this.#rows
    const held: LockInfo[] = []
    for (const entry of locks.ascending(VISITS_MAX)) {
      if (held.length === limit) break
      if (!isInFlight(entry.lock)) held.push(ages.infoOf(entry))
    }
    return held
  }

  #noteUse(): void {
    this.#isAsked = true
    this.#timer ??= this.#watchUse()
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
