import type { Clock } from '../oracle/clock.js'
import type { Oracle } from '../oracle/oracle.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../timestamp.js'

/** What time it is for a store, beside `Store.now`. To look costs nothing. */
export interface TimeSource {
  /** The newest timestamp of the clock, or a newer one that was handed out ahead of it. Later ones are in the future. */
  clock(): Timestamp
  /** No timestamp that is asked for from now on is below. */
  readonly nextTsMin: Timestamp
  /** The oldest timestamp of the last `ms` milliseconds of real time, even if the clock was set in between. */
  ago(ms: number): Timestamp
  /** Unix milliseconds that advance with real time only, across restarts too. Expiry times are kept in them. */
  steadyMs(): number
  /** Milliseconds from some moment of this process on. They pass as time does, whatever happens to the wall clock. */
  elapsedMs(): number
}

/** The time of a store that one process has to itself. */
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
  /** Whatever was handed out so far, the next one is in the clock's millisecond or in a later one. */
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
