import { groupBy } from '../bytes/group-by.js'
import { graceMs, LONG_OVER_MS } from '../coordinator/dead-lock-grace.js'
import { txnText } from '../coordinator/found-locks.js'
import type { Resolver } from '../coordinator/lock-resolver.js'
import { KvError } from '../errors/kv-error.js'
import type { LockInfo } from '../errors/lock-info.js'
import { throttle } from '../event-loop/throttle.js'
import { laterTurn } from '../event-loop/time-slicer.js'
import { isExpired, type Lock } from '../percolator/lock.js'
import type { StandingLocks, Store } from '../store/store.js'
import { physicalMs, TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

const LOOK_MS = 500
/**
 * Bounds of the pause between two questions about a transaction that cannot be ended yet. The first pause is twice the
 * lower bound.
 */
const ASK_AGAIN_MS_MIN = 1000
const ASK_AGAIN_MS_MAX = 3000
const LOCKS_AT_A_TIME = 1024
/** Steps that run at the same time, so that their writes share an fsync. */
const STEPS_AT_A_TIME = 4
const TXNS_AT_A_TIME = 256
const TXNS_PER_TURN = 32
/** Transactions remembered at a time. Others wait for a later pass. */
const TXNS_MAX = 65_536

export interface ExpiredLocksSources {
  /** A store that finds its locks without a walk over the disk (`lockCount`). */
  readonly store: Pick<Store, 'scanLock' | 'now' | 'time'>
  readonly locks: Pick<StandingLocks, 'count'>
  readonly resolver: Pick<Resolver, 'resolve'>
  readonly onError: (error: unknown) => void
}

interface SeenTxn {
  dueMs: number
  waitMs: number
  look: number
}

/**
 * Ends the transactions of dead clients before a reader meets their locks. A dead lock holds up the feed, and nobody is
 * notified of a commit that its client did not finish. Each transaction is asked about with back-off, in steps between
 * which other work runs.
 */
export class ExpiredLocks {
  readonly #sources: ExpiredLocksSources
  readonly #txns = new Map<string, SeenTxn>()
  readonly #end = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #looks = 0
  #lookedAt: Timestamp
  /** Never rejects. */
  #looking: Promise<void> = Promise.resolve()

  constructor(sources: ExpiredLocksSources) {
    this.#sources = sources
    this.#lookedAt = sources.store.now()
    this.#schedule()
  }

  /** Ends a pass after its present step. */
  async close(): Promise<void> {
    this.#end.abort()
    clearTimeout(this.#timer)
    await this.#looking
  }

  #schedule(): void {
    if (this.#end.signal.aborted) return
    this.#timer = setTimeout(() => {
      this.#looking = this.#look()
        .catch((error) => {
          if (!(error instanceof KvError)) this.#sources.onError(error) // The next pass tries again.
        })
        .finally(() => this.#schedule())
    }, LOOK_MS).unref()
  }

  async #look(): Promise<void> {
    const { store, locks: standing } = this.#sources
    const lastLook = this.#lookedAt
    this.#lookedAt = store.now()
    if (standing.count === 0) return this.#txns.clear()
    this.#looks++
    const steps = new Set<Promise<void>>()
    try {
      for (let start: Uint8Array | undefined; !this.#end.signal.aborted; ) {
        const beganMs = performance.now()
        const [now, nowMs] = [store.now(), store.time.elapsedMs()]
        const { locks } = await store.scanLock({
          maxTs: TIMESTAMP_MAX,
          start,
          limit: LOCKS_AT_A_TIME,
          withReserved: true,
          isWanted: (lock) => isExpired(lock, now) && this.#isDue(lock, now, nowMs, lastLook),
        })
        const step = this.#ask(locks).finally(() => steps.delete(step))
        steps.add(step)
        start = locks.at(-1)?.key
        if (locks.length < LOCKS_AT_A_TIME) break
        await throttle(performance.now() - beganMs, this.#end.signal)
        if (steps.size === STEPS_AT_A_TIME) await Promise.race(steps)
      }
    } finally {
      await Promise.all(steps)
    }
    for (const [txn, { look }] of this.#txns) if (look !== this.#looks) this.#txns.delete(txn)
  }

  #isDue(lock: Lock, now: Timestamp, nowMs: number, lastLook: Timestamp): boolean {
    const text = txnText(lock)
    let seen = this.#txns.get(text)
    if (seen === undefined) {
      if (this.#txns.size >= TXNS_MAX) return false
      // If the last pass did not meet a lock that had expired by then, the lock was placed expired, or a restart has
      // found it. The second test is for a pass that took so long that its beginning says little.
      const overMs = physicalMs(now) - physicalMs(lock.startTs) - lock.ttlMs
      const isLate = isExpired(lock, lastLook) || overMs > LONG_OVER_MS
      seen = { dueMs: nowMs + graceMs(isLate) - (isLate ? 0 : overMs), waitMs: ASK_AGAIN_MS_MIN, look: this.#looks }
      this.#txns.set(text, seen)
    }
    seen.look = this.#looks
    return nowMs >= seen.dueMs
  }

  /** Never rejects. */
  async #ask(locks: readonly LockInfo[]): Promise<void> {
    const txns = [...groupBy(locks, txnText)]
    for (let from = 0; from < txns.length && !this.#end.signal.aborted; from += TXNS_AT_A_TIME) {
      const asked: Promise<void>[] = []
      for (const [text, own] of txns.slice(from, from + TXNS_AT_A_TIME)) {
        if (asked.length > 0 && asked.length % TXNS_PER_TURN === 0) await laterTurn()
        asked.push(this.#endTxn(text, own))
      }
      await Promise.all(asked)
    }
  }

  async #endTxn(text: string, locks: readonly LockInfo[]): Promise<void> {
    const { store, resolver, onError } = this.#sources
    const areGone = await resolver.resolve(locks, store.now()).catch((error: unknown) => {
      if (!(error instanceof KvError)) onError(error)
      return false
    })
    const seen = this.#txns.get(text)
    if (areGone || seen === undefined) return
    seen.waitMs = Math.min(2 * seen.waitMs, ASK_AGAIN_MS_MAX)
    seen.dueMs = store.time.elapsedMs() + seen.waitMs
  }
}
