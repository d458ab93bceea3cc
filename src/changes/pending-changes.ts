import { MinHeap, type Ranked } from '../bytes/min-heap.js'
import { type Change, compareChanges } from '../percolator/change.js'
import type { Timestamp } from '../timestamp.js'
import { memoryOf } from './committed-txn.js'

interface Item extends Ranked {
  readonly change: Change
}

export class PendingChanges {
  #heap = new MinHeap<Item>()
  #bytes = 0
  #size = 0

  /** Memory that they take. */
  get bytes(): number {
    return this.#bytes
  }
  get size(): number {
    return this.#size
  }

  add(change: Change): void {
    this.#heap.set({ change, rank: 0, place: -1 }, change.commitTs)
    this.#bytes += memoryOf(change)
    this.#size++
  }

  /**
   * Removes the first `count` changes at or below `ts`, and those that share the commit_ts of the last one.
   * @returns them in order; undefined when they are more than `most`.
   */
  take(ts: Timestamp, count: number, most: number): Change[] | undefined {
    const taken: Change[] = []
    for (let item = this.#heap.first; item !== undefined && item.rank <= ts; item = this.#heap.first) {
      if (taken.length >= count && (taken.at(-1) as Change).commitTs !== item.rank) break
      if (taken.length === most) return undefined
      this.#remove(item)
      taken.push(item.change)
    }
    return taken.sort(compareChanges)
  }

  /** Removes at most `count` changes at or below `ts`. @returns whether any was removed. */
  drop(ts: Timestamp, count: number): boolean {
    let dropped = 0
    for (; dropped < count; dropped++) {
      const item = this.#heap.first
      if (item === undefined || item.rank > ts) break
      this.#remove(item)
    }
    return dropped > 0
  }

  #remove(item: Item): void {
    this.#heap.delete(item)
    this.#bytes -= memoryOf(item.change)
    this.#size--
  }

  clear(): void {
    this.#heap = new MinHeap()
    this.#bytes = 0
    this.#size = 0
  }
}
