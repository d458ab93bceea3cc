import type { PercolatorApi } from '../percolator/api.js'
import type { Timestamp } from '../timestamp.js'

export interface HeartbeatOptions {
  readonly startedAt: number
  readonly ttlMs: number
  /**
   * Age of the transaction at which heartbeats stop. A program that forgets a transaction must not keep its locks for ever.
   */
  readonly ageMaxMs: number
  readonly sentAt?: number
}

/** Limit on unanswered beats, so that a hanging server gets no more. */
const IN_FLIGHT_MAX = 2

/** Renews a primary lock at a third of its TTL, so that one renewal may be lost or late. */
export class Heartbeat {
  readonly #timer: ReturnType<typeof setInterval>

  /** The primary need not be locked yet. */
  constructor(
    api: Pick<PercolatorApi, 'txnHeartBeat'>,
    { primary, startTs }: { readonly primary: Uint8Array; readonly startTs: Timestamp },
    { startedAt, ttlMs, ageMaxMs, sentAt }: HeartbeatOptions,
  ) {
    let inFlight = 0
    const beat = async (): Promise<void> => {
      const ageMs = Math.ceil(performance.now() - startedAt)
      if (ageMs > ageMaxMs) return this.stop()
      if (inFlight >= IN_FLIGHT_MAX) return
      inFlight++
      try {
        await api.txnHeartBeat({ primary, startTs, adviseLockTtl: ageMs + ttlMs })
      } catch {
        // The primary may not be locked yet, and the next beat may succeed.
      } finally {
        inFlight--
      }
    }
    const periodMs = ttlMs / 3
    this.#timer = setInterval(() => void beat(), periodMs)
    // The timer must not keep a Node process alive. In browsers timers are numbers.
    if (typeof this.#timer === 'object') this.#timer.unref()
    if (sentAt !== undefined && performance.now() - sentAt >= periodMs) void beat()
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
