import type { Clock } from '../oracle/clock.js'
import type { Oracle } from '../oracle/oracle.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'

export interface TimeSource {
  /** The clock's newest timestamp, or a newer one handed out ahead of it. Later timestamps are in the future. */
  clock(): Timestamp
  /** Lower bound of every timestamp handed out from now on. */
  readonly nextTsMin: Timestamp
  /** The oldest timestamp of the last `ms` milliseconds of real time, even if the clock was set in between. */
  ago(ms: number): Timestamp
  /** Unix milliseconds that advance only with real time, across restarts too. Expiry times are stored in them. */
  steadyMs(): number
  /** Monotonic milliseconds since some moment of this process. */
  elapsedMs(): number
}

export class OwnTime implements TimeSource {
  readonly #oracle: Oracle
  readonly #clock: Clock

  constructor(oracle: Oracle, clock: Clock) {
    this.#oracle = oracle
    this.#clock = clock
  }

  clock(): Timestamp {
    return this.#oracle.clock()
  }
  /** Whatever was handed out so far, the next one is in the clock's millisecond or a later one. */
  get nextTsMin(): Timestamp {
    return timestampFromMs(physicalMs(this.clock()))
  }
  ago(ms: number): Timestamp {
    return timestampFromMs(this.#clock.ago(ms))
  }
  steadyMs(): number {
    return this.#clock.steadyMs()
  }
  elapsedMs(): number {
    return this.#clock.elapsedMs()
  }
}
