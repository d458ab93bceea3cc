import { sleep } from '../event-loop/sleep.js'

/**
 * Waits that double from 2 ms to 100 ms, each shortened by up to half at random so that those who met the same lock
 * don't come back together.
 */
export class Backoff {
  #nextMs = 2

  /** Waits, but no longer than `atMostMs`. Rejects with the signal's reason when that is aborted. */
  async wait(atMostMs = Number.POSITIVE_INFINITY, signal?: AbortSignal): Promise<void> {
    const ms = this.#nextMs * (0.5 + Math.random() / 2)
    this.#nextMs = Math.min(100, this.#nextMs * 2)
    await sleep(Math.max(0, Math.min(ms, atMostMs)), signal)
  }
}
