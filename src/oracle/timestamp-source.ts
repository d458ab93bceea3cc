import type { Timestamp } from '../timestamp.js'

/** Where a store's timestamps come from. `Oracle` is the one of a process that is alone with its store. */
export interface TimestampSource {
  /** Every timestamp handed out so far, and every one observed, is at or below this. */
  readonly last: Timestamp
  /** The newest timestamp that is not in the future: of the clock, or `last` where that runs ahead of it. */
  clock(): Timestamp
  /** The same by the clock alone, for ages. */
  now(): Timestamp
  /**
   * The last of `count` consecutive timestamps, none handed out before. A promise only where there is something to wait
   * for; where it rejects, nothing was handed out.
   */
  next(count?: number): Timestamp | Promise<Timestamp>
  /**
   * From now on every timestamp handed out is above `ts`, but that a `ts` in the future counts as the clock's now. The
   * next one that would be handed out is not in the future, also where timestamps run ahead of the clock.
   * @returns undefined when that holds at once.
   */
  observe(ts: Timestamp): undefined | Promise<void>
  /** Before a clean stop. */
  close(): Promise<void>
}
