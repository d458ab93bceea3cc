import type { StoredRange } from '../files/lost-records.js'

const OPEN_END = Buffer.alloc(256, 0xff)
const START = Buffer.alloc(0)

interface Closed {
  readonly gte: Buffer
  readonly lte: Buffer
}

/**
 * Ranges in which damaged files lost records. A key there may be gone, or an older state of it may be back, because deletions are
 * lost too.
 */
export class DamagedRanges {
  /** Ascending and disjoint. */
  readonly #ranges: readonly Closed[]

  constructor(ranges: readonly StoredRange[]) {
    const sorted = ranges
      .map(({ gte = START, lte = OPEN_END }) => ({ gte, lte }))
      .sort((a, b) => Buffer.compare(a.gte, b.gte))
    const merged: { gte: Buffer; lte: Buffer }[] = []
    for (const range of sorted) {
      const last = merged.at(-1)
      if (last === undefined || range.gte.compare(last.lte) > 0) merged.push(range)
      else if (range.lte.compare(last.lte) > 0) last.lte = range.lte
    }
    this.#ranges = merged
  }

  get isEmpty(): boolean {
    return this.#ranges.length === 0
  }

  /** True when a range overlaps `[gte, lt)`; without `lt`, when one contains the key `gte`. */
  meets(gte: Buffer, lt?: Buffer): boolean {
    // Finds the first range that does not end below `gte`.
    let [low, high] = [0, this.#ranges.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#ranges[middle] as Closed).lte.compare(gte) < 0) low = middle + 1
      else high = middle
    }
    const range = this.#ranges[low]
    if (range === undefined) return false
    return lt === undefined ? range.gte.compare(gte) <= 0 : range.gte.compare(lt) < 0
  }
}
