import { Histogram, SECONDS } from '../../meters/histogram.js'

const TICK_MS = 50

/**
 * Measures how late the event loop runs: the smaller of its last two delays, so that one long request does not count. Its own
 * timer fires 20 times per second; `monitorEventLoopDelay` would wake the process 100 times per second.
 */
export class LoopDelay {
  #lastMs = performance.now()
  #before = 0
  #ms = 0
  readonly #timer: NodeJS.Timeout
  /** Delays of all ticks, in seconds. */
  readonly delays = new Histogram(SECONDS)

  constructor() {
    this.#timer = setInterval(() => {
      const nowMs = performance.now()
      const delayMs = Math.max(0, nowMs - this.#lastMs - TICK_MS)
      this.delays.observe(delayMs / 1000)
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
