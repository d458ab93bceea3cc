import type { Clock } from '../../oracle/clock.js'
import type { TimestampSource } from '../../oracle/timestamp-source.js'
import { physicalMs, type Timestamp } from '../../timestamp.js'
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
  /** The time that this server knows may be ahead of the newest timestamp. */
  get nextTsMin(): Timestamp {
    return this.#source.last + 1
  }
  ago(ms: number): Timestamp {
    return this.#source.ago(ms)
  }
  /** The time that the servers share does not jump. */
  steadyMs(): number {
    return physicalMs(this.#source.now())
  }
  elapsedMs(): number {
    return this.#clock.elapsedMs()
  }
}
