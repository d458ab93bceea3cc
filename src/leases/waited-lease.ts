import type { Ranked } from '../bytes/min-heap.js'
import type { Timestamp } from '../timestamp.js'
import type { Queue, WaitingHolder } from './waiting-holders.js'

/** A lease that requests of this process wait for. Ranked by the end of the pause before the next look. */
export class WaitedLease implements Ranked {
  rank = 0
  place = -1
  readonly queue: Queue = new Set()
  /** Those of the queue that have come, or whose waits have ended, since somebody has looked. */
  news = new Set<WaitingHolder>()
  /** All others were told to wait for the end of this grant; 0: everybody has to be judged. */
  waitsFor: Timestamp = 0
  /** While somebody goes through the queue. Never rejects. */
  attended: Promise<void> | undefined
  /** Something may have changed since that has looked. */
  isAsked = false
  #wake: () => void = () => {}

  constructor(readonly name: string) {}

  /** Ends the pause. */
  ask(): void {
    this.isAsked = true
    this.#wake()
  }

  /** Fulfilled when somebody asks. */
  pause(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}
