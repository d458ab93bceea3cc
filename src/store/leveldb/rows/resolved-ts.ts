import type { LockInfo } from '../../../errors/lock-info.js'
import type { Timestamp } from '../../../timestamp.js'
import type { LockAges } from '../../lock-ages.js'
import type { LockTable } from '../memory/lock-table.js'
import type { Health } from './health.js'
import { isInFlight } from './published-locks.js'

/** The locks stay ranked between this time and twice this time after resolved_ts was taken last. */
const RANKED_MS = 30_000
/** Locks that are looked at for those that hold resolved_ts back. */
const VISITS_MAX = 4096

/** What it needs of a row store. */
export interface ResolvedRows {
  readonly health: Health
  readonly locks: LockTable
  readonly ages: LockAges
  readonly lastTs: Timestamp
  raiseMaxTs(ts: Timestamp): void
}

/** See `ChangeLog.resolve`. The argument that a read misses no commit holds for it too, because it is a read of everything. */
export class ResolvedTs {
  readonly #rows: ResolvedRows
  /** Timestamps of changes that are decided, and have no lock that would hold resolved_ts back. */
  readonly #holds = new Set<Timestamp>()
  #last: Timestamp = 0
  #passed: Timestamp = 0
  #isAsked = false
  #timer: NodeJS.Timeout | undefined

  constructor(rows: ResolvedRows) {
    this.#rows = rows
  }

  /** The highest that was taken; 0: none. */
  get last(): Timestamp {
    return this.#last
  }
  /** Locks that could commit at or below it are not let in any more: `last`, or the newest delete_range. */
  get passed(): Timestamp {
    return Math.max(this.#last, this.#passed)
  }

  /** From this turn of the event loop on nothing is prewritten that could commit at or below `ts`. */
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

  /** Visits at most `VISITS_MAX` locks, so a long batch in flight may hide those behind it. */
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
