import type { PercolatorApi } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'

/** client-go beats at half the TTL too. */
const BEAT_MS = MANAGED_LOCK_TTL_MS / 2

/** Keeps a transaction's primary lock alive until `stop`. */
export class Heartbeat {
  readonly #timer: ReturnType<typeof setInterval>

  /**
   * @param startedAt `performance.now()` at the transaction's start.
   * @param ageMaxMs when it gives up: a program that forgot its transaction must not hold its locks for ever.
   */
  constructor(
    api: Pick<PercolatorApi, 'txnHeartBeat'>,
    { primary, startTs }: { readonly primary: Uint8Array; readonly startTs: Timestamp },
    startedAt: number,
    ageMaxMs: number,
  ) {
    this.#timer = setInterval(() => {
      const ageMs = Math.ceil(performance.now() - startedAt)
      if (ageMs > ageMaxMs) return this.stop()
      // What fails may work at the next beat: the primary may not be locked yet.
      api.txnHeartBeat({ primary, startTs, adviseLockTtl: ageMs + MANAGED_LOCK_TTL_MS }).catch(() => {})
    }, BEAT_MS)
    // A program that ends need not wait for it. (Browsers have plain numbers for timers.)
    if (typeof this.#timer === 'object') this.#timer.unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
