import type { Queue } from './waiting-holders.js'

/** A lease that requests of this process wait for. */
export class WaitedLease {
  readonly queue: Queue = new Set()
  /** Somebody goes through the queue. */
  isAttended = false
  /** Something may have changed since that has begun. */
  isAsked = false
  #wake: () => void = () => {}

  constructor(readonly name: string) {}

  /** Ends the pause. */
  ask(): void {
    this.isAsked = true
    this.#wake()
  }

  /** Fulfilled after `ms`, or when somebody asks. */
  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      timer.unref()
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}
