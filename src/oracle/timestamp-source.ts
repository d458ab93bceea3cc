import type { Timestamp } from '../timestamp.js'

/** The timestamps of a store. `Oracle` serves a process that is alone with its store, `LeaderOracle` many servers. */
export interface TimestampSource {
  /** Upper bound of every timestamp handed out or observed so far. */
  readonly last: Timestamp
  /** The newest timestamp that is not in the future: the clock's, or `last` if that is ahead of it. */
  clock(): Timestamp
  now(): Timestamp
  /** The `now()` from which `ms` of time have passed. */
  ago(ms: number): Timestamp
  /**
   * @returns the last of `count` consecutive timestamps, none handed out before. A promise only when it has to wait; if
   *   it rejects, nothing was handed out.
   */
  next(count?: number): Timestamp | Promise<Timestamp>
  /**
   * Makes every timestamp handed out from now on greater than `ts`; a `ts` in the future counts as the clock's now. The
   * next timestamp is never in the future, even when timestamps run ahead of the clock.
   * @returns undefined when that holds at once.
   */
  observe(ts: Timestamp): undefined | Promise<void>
  close(): Promise<void>
}
