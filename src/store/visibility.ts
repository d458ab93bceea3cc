import { hasExpired, isVisible, type WriteRecord } from '../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

export interface VisibilitySource {
  readonly oracle: { clock(): Timestamp }
  observe(ts: Timestamp): undefined | Promise<void>
}

/**
 * Decides which versions one read finds. A read at a timestamp decides about expiry at that timestamp, so it has one answer for
 * ever. A read of the latest versions decides by the clock; a version that it found expired must not come back, even if the clock
 * is set back.
 */
export class Visibility {
  readonly #source: VisibilitySource
  readonly #at: Timestamp
  readonly #isLatest: boolean
  #expired: Timestamp = 0

  constructor(source: VisibilitySource, ts: Timestamp) {
    this.#source = source
    this.#isLatest = ts === TIMESTAMP_MAX
    this.#at = this.#isLatest ? source.oracle.clock() : ts
  }

  /** @param write the newest Put or Delete at or below the timestamp of the read. */
  sees(write: Pick<WriteRecord, 'type' | 'expireTs'>): boolean {
    if (isVisible(write, this.#at)) return true
    if (this.#isLatest && hasExpired(write.expireTs, this.#at)) this.#expired = Math.max(this.#expired, write.expireTs)
    return false
  }

  /** Await before the answer: every timestamp handed out from then on is above the expiries that this read has found. */
  observeExpired(): undefined | Promise<void> {
    return this.#expired === 0 ? undefined : this.#source.observe(this.#expired)
  }
}
