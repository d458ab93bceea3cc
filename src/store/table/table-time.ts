import type { Clock } from '../../oracle/clock.js'
import type { TimestampSource } from '../../oracle/timestamp-source.js'
import { type Timestamp, timestampFromMs } from '../../timestamp.js'
import type { TimeSource } from '../time-source.js'

export class TableTime implements TimeSource {
  readonly #source: TimestampSource
  readonly #clock: Clock

  constructor(source: TimestampSource, clock: Clock) {
    this.#source = source
    this.#clock = clock
  }

  clock(): Timestamp {
    return this.#source.clock()
  }
  /** This server's clock may be ahead of the leader's. */
  get nextTsMin(): Timestamp {
    return this.#source.last + 1
  }
  ago(ms: number): Timestamp {
    return timestampFromMs(this.#clock.ago(ms))
  }
  /** Servers come and go, so the wall clock is all that they have in common. */
  steadyMs(): number {
    return this.#clock.now()
  }
  elapsedMs(): number {
    return this.#clock.elapsedMs()
  }
}
