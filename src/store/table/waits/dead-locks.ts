import { keyText } from '../../../bytes/key-text.js'
import { graceMs, LONG_OVER_MS } from '../../../coordinator/dead-lock-grace.js'
import type { Resolver } from '../../../coordinator/lock-resolver.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'

const AT_A_TIME = 64
/** Pause between two questions about a lock, whose primary may live on. */
const ASK_AGAIN_MS = 1000

export interface DeadLocksSources {
  readonly resolver: Pick<Resolver, 'resolve'>
  readonly now: () => Timestamp
}

/**
 * Ends the transactions of dead locks on keys with waiters. No server walks over a shared table to find other dead locks. A
 * waiter need not read the lock itself: a watch ignores the lock of a primary.
 */
export class DeadLocks {
  readonly #sources: DeadLocksSources
  /** Locks to end now, by key. */
  readonly #due = new Map<string, LockInfo>()
  /** Keys whose locks will be due, or were asked about in the last second. */
  readonly #known = new Set<string>()
  #ending = 0
  #isClosed = false

  constructor(sources: DeadLocksSources) {
    this.#sources = sources
  }

  /** Reports a lock that a waiter has met; works in the background. May be called again for the same lock. */
  met(lock: LockInfo): void {
    const overMs = physicalMs(this.#sources.now()) - physicalMs(lock.startTs) - lock.ttl
    const text = keyText(lock.key)
    if (overMs <= 0 || this.#known.has(text)) return
    this.#known.add(text)
    setTimeout(
      () => {
        this.#due.set(text, lock)
        this.#goOn()
      },
      graceMs(overMs > LONG_OVER_MS),
    ).unref()
  }

  close(): void {
    this.#isClosed = true
  }

  #goOn(): void {
    for (const [text, lock] of this.#due) {
      if (this.#isClosed || this.#ending >= AT_A_TIME) return
      this.#due.delete(text)
      this.#ending++
      void this.#end(text, lock)
    }
  }

  async #end(text: string, lock: LockInfo): Promise<void> {
    const { resolver, now } = this.#sources
    try {
      await resolver.resolve([lock], now())
    } catch {
      // A waiter meets the lock again.
    }
    this.#ending--
    setTimeout(() => this.#known.delete(text), ASK_AGAIN_MS).unref()
    this.#goOn()
  }
}
