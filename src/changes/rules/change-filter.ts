import { type KeyRange, mergedRanges } from '../../bytes/key-range.js'
import { keyText } from '../../bytes/key-text.js'
import type { Change, RangeChange } from '../../percolator/change.js'

interface Part {
  readonly range: KeyRange
  readonly from: string
  /** undefined: unbounded. */
  readonly to: string | undefined
}

export class ChangeFilter {
  /** Ascending, neither overlapping nor touching. undefined: every key. */
  readonly #parts: readonly Part[] | undefined

  /** @param ranges in any order. Absent: every key. */
  constructor(ranges?: readonly KeyRange[]) {
    this.#parts =
      ranges &&
      mergedRanges(ranges.filter(isSome)).map((range) => ({
        range,
        from: range.start === undefined ? '' : keyText(range.start),
        to: range.end && keyText(range.end),
      }))
  }

  /** Whether the change is in the ranges; a delete_range: whether it overlaps them. */
  has(change: Change): boolean {
    if (this.#parts === undefined) return true
    if (change.type !== 'delete_range') return this.hasKey(change.key)
    const part = this.#parts[this.#firstEndingAfter(keyText(change.key))]
    return part !== undefined && part.from < keyText(change.end)
  }

  hasKey(key: Uint8Array): boolean {
    if (this.#parts === undefined) return true
    const text = keyText(key)
    const part = this.#parts[this.#firstEndingAfter(text)]
    return part !== undefined && part.from <= text
  }

  /** The parts of a delete_range that are in the ranges, ascending. */
  clip(change: RangeChange): RangeChange[] {
    if (this.#parts === undefined) return [change]
    const [from, to] = [keyText(change.key), keyText(change.end)]
    const clipped: RangeChange[] = []
    for (let i = this.#firstEndingAfter(from); i < this.#parts.length; i++) {
      const part = this.#parts[i] as Part
      if (part.from >= to) break
      const key = part.from > from ? (part.range.start as Uint8Array) : change.key
      const end = part.to !== undefined && part.to < to ? (part.range.end as Uint8Array) : change.end
      clipped.push({ ...change, key, end })
    }
    return clipped
  }

  /** Index of the first part that ends after `text`. */
  #firstEndingAfter(text: string): number {
    const parts = this.#parts as readonly Part[]
    let [low, high] = [0, parts.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      const { to } = parts[middle] as Part
      if (to === undefined || to > text) high = middle
      else low = middle + 1
    }
    return low
  }
}

function isSome({ start, end }: KeyRange): boolean {
  return end === undefined || (start === undefined ? '' : keyText(start)) < keyText(end)
}
