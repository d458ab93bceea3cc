import type { Resolver } from '../coordinator/lock-resolver.js'
import type { LockInfo } from '../errors/lock-info.js'
import { resolvedBelow } from '../percolator/resolved.js'
import type { Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'

/** Locks that hold resolved_ts back for so long are asked whether their transactions live. */
const HELD_MS = 1000
/** Locks that are named. */
const NAMED_MAX = 16
/** Locks that are asked at a time. */
const ASKED_MAX = 256

/** A timestamp above resolved_ts that was handed out already. */
interface Awaited {
  readonly ts: Timestamp
  readonly sinceMs: number
}

/** The locks that hold resolved_ts back: they are resolved when their transactions are over, and named while these live. */
export class HeldLocks {
  readonly #store: Store
  readonly #resolver: Resolver
  #awaited: Awaited | undefined
  #askedMs = 0
  #isAsking = false
  #living: readonly LockInfo[] = []

  constructor(store: Store, resolver: Resolver) {
    this.#store = store
    this.#resolver = resolver
  }

  /** resolved_ts has yet to come to a timestamp that was handed out. */
  get isAwaited(): boolean {
    return this.#awaited !== undefined
  }
  /** Locks whose transactions live, and that have held resolved_ts back for a second. */
  get living(): readonly LockInfo[] {
    return this.#living
  }

  /** resolved_ts should come to `ts`. */
  await(ts: Timestamp, resolved: Timestamp): void {
    if (this.#awaited !== undefined || ts <= resolved || ts > this.#store.clock()) return
    this.#awaited = { ts, sinceMs: performance.now() }
  }

  /** resolved_ts has come to `ts`. */
  passed(ts: Timestamp): void {
    if (this.#awaited !== undefined && this.#awaited.ts <= ts) this.clear()
  }

  clear(): void {
    this.#awaited = undefined
    this.#living = []
  }

  /**
   * Asks the transactions of the locks, when they have held resolved_ts back for a second, and once per second.
   * @param goesOn whether anybody still waits for resolved_ts.
   * @returns undefined when there is nothing to ask now.
   */
  ask(goesOn: () => boolean): Promise<void> | undefined {
    const awaited = this.#awaited
    const now = performance.now()
    if (awaited === undefined || now < awaited.sinceMs + HELD_MS) return undefined
    if (this.#isAsking || now < this.#askedMs + HELD_MS) return undefined
    this.#isAsking = true
    this.#askedMs = now
    return this.#ask(awaited, goesOn).finally(() => {
      this.#isAsking = false
    })
  }

  async #ask(awaited: Awaited, goesOn: () => boolean): Promise<void> {
    // Goes on while it meets transactions that are over: a dead one may have left any number of locks.
    for (let areAllGone = true; areAllGone && goesOn(); ) {
      const locks = this.#holding(awaited.ts, ASKED_MAX)
      areAllGone = (await this.#resolver.resolve(locks, this.#store.now())) && locks.length > 0
    }
    if (this.#awaited === awaited) this.#living = this.#holding(awaited.ts, NAMED_MAX)
  }

  #holding(ts: Timestamp, limit: number): LockInfo[] {
    const locks = this.#store.changes.heldBackBy(limit)
    return locks.filter((lock) => (resolvedBelow(lock) ?? ts) < ts)
  }
}
