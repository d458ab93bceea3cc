import type { PercolatorApi } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'

/** Half the TTL, as in client-go. */
const BEAT_MS = MANAGED_LOCK_TTL_MS / 2

export class Heartbeat {
  readonly #timer: ReturnType<typeof setInterval>

  /**
   * @param startedAt `performance.now()` at the transaction's start.
   * @param ageMaxMs the age of the transaction at which heartbeats stop. A program that forgets a transaction must not
   *   keep its locks for ever.
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
      // A failure is ignored: the primary may not be locked yet, and the next beat may succeed.
      api.txnHeartBeat({ primary, startTs, adviseLockTtl: ageMs + MANAGED_LOCK_TTL_MS }).catch(() => {})
    }, BEAT_MS)
    // The timer must not keep a Node process alive. In browsers timers are numbers.
    if (typeof this.#timer === 'object') this.#timer.unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
