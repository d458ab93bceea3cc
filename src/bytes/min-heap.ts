/** An item of a `MinHeap`. Only the heap changes these fields. */
export interface Ranked {
  rank: number
  /** Index in the heap; -1: not in it. */
  place: number
}

export class MinHeap<T extends Ranked> {
  readonly #heap: T[] = []

  get size(): number {
    return this.#heap.length
  }

  /** The item with the lowest rank. */
  get first(): T | undefined {
    return this.#heap[0]
  }

  /** The items, the lowest rank first. The first n cost n log n. The heap must not change meanwhile. */
  *ascending(): Generator<T, void> {
    const next = new MinHeap<Place>()
    const add = (place: number): void => {
      const item = this.#at(place)
      if (item !== undefined) next.set({ of: place, rank: 0, place: -1 }, item.rank)
    }
    add(0)
    for (let lowest = next.first; lowest !== undefined; lowest = next.first) {
      next.delete(lowest)
      add(2 * lowest.of + 1)
      add(2 * lowest.of + 2)
      yield this.#heap[lowest.of] as T
    }
  }

  /** Adds the item, or changes its rank. */
  set(item: T, rank: number): void {
    item.rank = rank
    if (item.place === -1) this.#put(item, this.#heap.length)
    this.#sift(item)
  }

  delete(item: T): void {
    const { place } = item
    if (place === -1) return
    item.place = -1
    const last = this.#heap.pop() as T
    if (last === item) return
    this.#put(last, place)
    this.#sift(last)
  }

  #sift(item: T): void {
    for (let parent = this.#at((item.place - 1) >> 1); parent !== undefined && item.rank < parent.rank; ) {
      this.#swap(item, parent)
      parent = this.#at((item.place - 1) >> 1)
    }
    for (let child = this.#lesserChild(item); child !== undefined && child.rank < item.rank; ) {
      this.#swap(child, item)
      child = this.#lesserChild(item)
    }
  }

  #lesserChild({ place }: T): T | undefined {
    const left = this.#at(2 * place + 1)
    const right = this.#at(2 * place + 2)
    return right !== undefined && left !== undefined && right.rank < left.rank ? right : left
  }

  #at(place: number): T | undefined {
    return place < 0 ? undefined : this.#heap[place]
  }

  #swap(one: T, other: T): void {
    const { place } = one
    this.#put(one, other.place)
    this.#put(other, place)
  }

  #put(item: T, place: number): void {
    this.#heap[place] = item
    item.place = place
  }
}

/** Refers to an item of another heap. */
interface Place extends Ranked {
  readonly of: number
}
