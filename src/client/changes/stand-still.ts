import type { Timestamp } from '../../timestamp.js'

/** A feed that has stood still for so long is held back by locks, and `feed.held_back_by` of the status names them. */
export const STANDS_MS = 2000
/** `heartbeatMs` for loops that have to notice it. */
export const NOTICING_HEARTBEAT_MS = 1000

/** For how long a loop of `changes` has come no further. */
export class StandStill {
  #resolvedTs: Timestamp = -1
  #sinceMs = performance.now()

  /** Told of each transaction. */
  moved(): void {
    this.#sinceMs = performance.now()
  }

  /** Told of each `resolvedTs`, also of one that it knows. @returns milliseconds. */
  at(resolvedTs: Timestamp): number {
    if (resolvedTs !== this.#resolvedTs) this.moved()
    this.#resolvedTs = resolvedTs
    return performance.now() - this.#sinceMs
  }
}
