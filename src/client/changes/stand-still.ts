import type { Timestamp } from '../../timestamp.js'

/**
 * After this time without progress something holds the feed back: locks, which `feed.held_back_by` of the status names. Where
 * servers share the store, nothing is named.
 */
export const STANDS_MS = 2000
/** `heartbeatMs` for loops that must notice it. */
export const NOTICING_HEARTBEAT_MS = 1000

export class StandStill {
  #resolvedTs: Timestamp = -1
  #sinceMs = performance.now()

  /** Call for each transaction. */
  moved(): void {
    this.#sinceMs = performance.now()
  }

  /** Call for each `resolvedTs`. @returns milliseconds since it last rose. */
  at(resolvedTs: Timestamp): number {
    if (resolvedTs !== this.#resolvedTs) this.moved()
    this.#resolvedTs = resolvedTs
    return performance.now() - this.#sinceMs
  }
}
