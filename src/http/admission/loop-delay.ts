const TICK_MS = 50

/**
 * How late the event loop is over and over: the least of its last delays, so one long request doesn't count. A timer
 * of its own: twenty short calls a second, where `monitorEventLoopDelay` wakes the process a hundred times.
 */
export class LoopDelay {
  #lastMs = performance.now()
  #before = 0
  #ms = 0
  readonly #timer: NodeJS.Timeout

  constructor() {
    this.#timer = setInterval(() => {
      const nowMs = performance.now()
      const delayMs = Math.max(0, nowMs - this.#lastMs - TICK_MS)
      this.#ms = Math.min(delayMs, this.#before)
      this.#before = delayMs
      this.#lastMs = nowMs
    }, TICK_MS)
    this.#timer.unref()
  }

  get ms(): number {
    return this.#ms
  }

  stop(): void {
    clearInterval(this.#timer)
  }
}
