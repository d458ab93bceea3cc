import type { PercolatorApi } from '../percolator/api.js'
import { isKvError } from '../percolator/errors.js'
import type { Timestamp } from '../percolator/timestamp.js'
import { MANAGED_LOCK_TTL_MS } from './lock-ttl.js'

/** client-go beats at half the TTL too. */
const BEAT_MS = MANAGED_LOCK_TTL_MS / 2
/** A program that forgot its transaction must not hold its locks for ever. client-go `MaxTxnTTL`. */
const AGE_MAX_MS = 60 * 60 * 1000

/** Keeps a transaction's primary lock alive until `stop`, or until the lock is gone. */
export class Heartbeat {
  readonly #timer: ReturnType<typeof setInterval>

  /** @param startedAt `performance.now()` at the transaction's start. */
  constructor(
    api: Pick<PercolatorApi, 'txnHeartBeat'>,
    txn: { readonly primary: Uint8Array; readonly startTs: Timestamp },
    startedAt: number,
  ) {
    this.#timer = setInterval(() => {
      const ageMs = Math.ceil(performance.now() - startedAt)
      if (ageMs > AGE_MAX_MS) return this.stop()
      api.txnHeartBeat({ ...txn, adviseLockTtl: ageMs + MANAGED_LOCK_TTL_MS }).catch((error: unknown) => {
        if (isKvError(error, 'txn_not_found')) this.stop() // What else fails may work at the next beat.
      })
    }, BEAT_MS)
    // A program that ends need not wait for it. (Browsers have plain numbers for timers.)
    if (typeof this.#timer === 'object') this.#timer.unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
