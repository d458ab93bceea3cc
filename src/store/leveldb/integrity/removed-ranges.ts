import { keyText } from '../../../bytes/key-text.js'
import type { KeyChange, RangeChange } from '../../../percolator/change.js'
import type { Timestamp } from '../../../timestamp.js'

export class RemovedRanges {
  /** Ascending. `#ts[i]` applies to the keys from `#starts[i]` to the next start; -1: none. */
  readonly #starts: readonly string[]
  readonly #ts: readonly Timestamp[]

  constructor(removals: readonly RangeChange[]) {
    const parts = removals
      .map(({ key, end, commitTs }) => ({ from: keyText(key), to: keyText(end), commitTs }))
      .sort((a, b) => b.commitTs - a.commitTs)
    const starts = [...new Set(parts.flatMap(({ from, to }) => [from, to]))].sort()
    const places = new Map(starts.map((start, i) => [start, i]))
    const ts: Timestamp[] = new Array(starts.length).fill(-1)
    /** The first index at or after each one that has no timestamp yet, or a step towards it. */
    const free = starts.map((_, i) => i)
    for (const { from, to, commitTs } of parts) {
      const end = places.get(to) ?? 0
      for (let at = nextFree(free, places.get(from) ?? 0); at < end; at = nextFree(free, at)) {
        ts[at] = commitTs
        free[at] = at + 1
      }
    }
    this.#starts = starts
    this.#ts = ts
  }

  has({ key, commitTs }: KeyChange): boolean {
    const text = keyText(key)
    let [low, high] = [0, this.#starts.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#starts[middle] as string) <= text) low = middle + 1
      else high = middle
    }
    return (this.#ts[low - 1] ?? -1) >= commitTs // See `isTaken`.
  }
}

/** Shortens the way for the next search. */
function nextFree(free: number[], from: number): number {
  let at = from
  while (free[at] !== undefined && free[at] !== at) at = free[at] as number
  for (let i = from; i < at; ) {
    const next = free[i] as number
    free[i] = at
    i = next
  }
  return at
}
