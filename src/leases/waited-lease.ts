import type { Ranked } from '../bytes/min-heap.js'
import type { Timestamp } from '../timestamp.js'
import type { Queue, WaitingHolder } from './waiting-holders.js'

export class WaitedLease implements Ranked {
  rank = 0
  place = -1
  readonly queue: Queue = new Set()
  /** Requests that have come, or whose waits have ended, since the last look. */
  news = new Set<WaitingHolder>()
  /** All other requests wait for the end of this grant; 0: every request must be decided. */
  waitsFor: Timestamp = 0
  /** Pending while the queue is being answered. Never rejects. */
  attended: Promise<void> | undefined
  /** The lease may have changed since the last look. */
  isAsked = false
  #wake: () => void = () => {}

  constructor(readonly name: string) {}

  /** Ends the pause. */
  ask(): void {
    this.isAsked = true
    this.#wake()
  }

  /** Resolves at the next `ask`. */
  pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}
