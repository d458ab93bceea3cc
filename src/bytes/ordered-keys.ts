const CHUNK_MAX = 256

/**
 * A sorted set of strings, kept as a sorted list of sorted chunks. Adding and removing cost one binary search over the
 * chunks, one inside a chunk, and a splice. An iteration starts with the same two searches.
 */
export class OrderedKeys {
  #chunks: string[][] = []

  add(key: string): void {
    const at = this.#chunkOf(key)
    const chunk = this.#chunks[at]
    if (chunk === undefined) {
      this.#chunks.push([key])
      return
    }
    const index = lowerBound(chunk, key)
    if (chunk[index] === key) return
    chunk.splice(index, 0, key)
    if (chunk.length > CHUNK_MAX) this.#chunks.splice(at + 1, 0, chunk.splice(CHUNK_MAX / 2))
  }

  delete(key: string): void {
    const at = this.#chunkOf(key)
    const chunk = this.#chunks[at]
    if (chunk === undefined) return
    const index = lowerBound(chunk, key)
    if (chunk[index] !== key) return
    chunk.splice(index, 1)
    if (chunk.length === 0) this.#chunks.splice(at, 1)
  }

  clear(): void {
    this.#chunks = []
  }

  /** The lowest key that is not below `start`. */
  first(start: string): string | undefined {
    const at = this.#chunkOf(start)
    const chunk = this.#chunks[at]
    return chunk?.[lowerBound(chunk, start)] ?? this.#chunks[at + 1]?.[0]
  }

  /** The keys in `[start, end)`; descending when `reverse`. */
  *range(start: string | undefined, end: string | undefined, reverse: boolean): Generator<string> {
    if (this.#chunks.length === 0) return
    if (reverse) {
      let at = end === undefined ? this.#chunks.length - 1 : this.#chunkOf(end)
      let index = end === undefined ? Number.POSITIVE_INFINITY : lowerBound(this.#chunks[at] as string[], end)
      for (; at >= 0; at--, index = Number.POSITIVE_INFINITY) {
        const chunk = this.#chunks[at] as string[]
        for (let i = Math.min(index, chunk.length) - 1; i >= 0; i--) {
          const key = chunk[i] as string
          if (start !== undefined && key < start) return
          yield key
        }
      }
      return
    }
    let at = start === undefined ? 0 : this.#chunkOf(start)
    let index = start === undefined ? 0 : lowerBound(this.#chunks[at] as string[], start)
    for (; at < this.#chunks.length; at++, index = 0) {
      const chunk = this.#chunks[at] as string[]
      for (let i = index; i < chunk.length; i++) {
        const key = chunk[i] as string
        if (end !== undefined && key >= end) return
        yield key
      }
    }
  }

  /** Index of the chunk that `key` belongs to: the last chunk that starts at or before it, otherwise the first chunk. */
  #chunkOf(key: string): number {
    let low = 0
    let high = this.#chunks.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (((this.#chunks[middle] as string[])[0] as string) <= key) low = middle + 1
      else high = middle
    }
    return Math.max(0, low - 1)
  }
}

/** @returns the index of the first string that is not below `key`. */
export function lowerBound(sorted: readonly string[], key: string): number {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((sorted[middle] as string) < key) low = middle + 1
    else high = middle
  }
  return low
}
