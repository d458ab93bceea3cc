import type { Timestamp } from '../percolator/timestamp.js'

/** Timestamps that are being read at: collection must not pass the oldest of them. */
export class Pins {
  readonly #held = new Set<{ readonly ts: Timestamp }>()

  /** @returns what lets go of it; calling that again does nothing. */
  hold(ts: Timestamp): () => void {
    const pin = { ts }
    this.#held.add(pin)
    return () => void this.#held.delete(pin)
  }

  get oldest(): Timestamp | undefined {
    return this.#held.size === 0 ? undefined : Math.min(...[...this.#held].map(({ ts }) => ts))
  }
}
