import { keyText } from '../../../bytes/key-text.js'

/** Time in which a key that somebody else had locked or changed first is likely to meet somebody else again. */
const REMEMBERED_MS = 5000
const KEYS_MAX = 10_000

/**
 * Keys that other servers have lately locked or changed under a prewrite of this one. Transactions that lock the same keys in any order
 * can each get some of them, and all fail; whoever gets the smallest of them first gets the others too.
 */
export class ContendedKeys {
  readonly #nowMs: () => number
  /** When each was contended last, the longest ago first. */
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

  /** @returns the place of the smallest contended key; undefined: none is. */
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
