import { keyText } from '../../../bytes/key-text.js'

/** How long a key on which this server lost a race is likely to be contended again. */
const REMEMBERED_MS = 5000
const KEYS_MAX = 10_000

/**
 * Keys that other servers have lately locked or changed under a prewrite of this one. Transactions that lock the same keys in any
 * order may each get some of them, and all fail. The one that locks the smallest contended key first gets the others too.
 */
export class ContendedKeys {
  readonly #nowMs: () => number
  /** Time of the last contention, oldest first. */
  readonly #lastMs = new Map<string, number>()

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  add(key: Uint8Array): void {
    const text = keyText(key)
    this.#lastMs.delete(text)
    this.#lastMs.set(text, this.#nowMs())
    if (this.#lastMs.size <= KEYS_MAX) return
    for (const oldest of this.#lastMs.keys()) {
      this.#lastMs.delete(oldest)
      break
    }
  }

  /** @returns the index of the smallest contended key. */
  smallestOf(keys: readonly Uint8Array[]): number | undefined {
    if (this.#lastMs.size === 0) return undefined
    const since = this.#nowMs() - REMEMBERED_MS
    let smallest: number | undefined
    for (const [i, key] of keys.entries()) {
      const lastMs = this.#lastMs.get(keyText(key))
      if (lastMs === undefined || lastMs < since) continue
      if (smallest === undefined || Buffer.compare(key, keys[smallest] as Uint8Array) < 0) smallest = i
    }
    return smallest
  }
}
