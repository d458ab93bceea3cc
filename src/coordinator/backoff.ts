import { sleep } from '../event-loop/sleep.js'

/**
 * Waits that double, by default from 2 ms to 100 ms. Each is shortened at random by up to half, so that requests that met the
 * same lock do not all return at once.
 */
export class Backoff {
  readonly #maxMs: number
  #nextMs: number

  constructor(firstMs = 2, maxMs = 100) {
    this.#nextMs = firstMs
    this.#maxMs = maxMs
  }

  /** Rejects with the signal's reason when the signal is aborted. */
  async wait(atMostMs = Number.POSITIVE_INFINITY, signal?: AbortSignal): Promise<void> {
    const ms = this.#nextMs * (0.5 + Math.random() / 2)
    this.#nextMs = Math.min(this.#maxMs, this.#nextMs * 2)
    await sleep(Math.max(0, Math.min(ms, atMostMs)), signal)
  }
}
