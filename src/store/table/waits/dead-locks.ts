import { keyText } from '../../../bytes/key-text.js'
import { graceMs, LONG_OVER_MS } from '../../../coordinator/dead-lock-grace.js'
import type { Resolver } from '../../../coordinator/lock-resolver.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import { physicalMs, type Timestamp } from '../../../timestamp.js'

/** Locks that are ended at the same time. */
const AT_A_TIME = 64
/** From one question about a lock to the next: its primary may live on. */
const ASK_AGAIN_MS = 1000

export interface DeadLocksSources {
  readonly resolver: Pick<Resolver, 'resolve'>
  readonly now: () => Timestamp
}

/**
 * Ends the transactions of dead locks on keys that somebody waits for. Nobody walks over a shared table to find the others, and what waits
 * for a key need not read its lock: a watch passes one of a primary.
 */
export class DeadLocks {
  readonly #sources: DeadLocksSources
  /** By key. */
  readonly #due = new Map<string, LockInfo>()
  /** Keys that are going to be due, and those that were asked about in the last second. */
  readonly #known = new Set<string>()
  #ending = 0
  #isClosed = false

  constructor(sources: DeadLocksSources) {
    this.#sources = sources
  }

  /** Beside the work of the caller. It may be told of a lock again and again. */
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
      // Whoever waits meets it again.
    }
    this.#ending--
    setTimeout(() => this.#known.delete(text), ASK_AGAIN_MS).unref()
    this.#goOn()
  }
}
