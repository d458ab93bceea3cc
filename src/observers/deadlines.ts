/** An item of `Deadlines`, which alone changes these fields. */
export interface Timed {
  atMs: number
  /** Its place in the heap; -1: it is not there. */
  place: number
}

/** Items by their time: a binary heap in which an item can be moved and removed. */
export class Deadlines<T extends Timed> {
  readonly #heap: T[] = []

  /** The item with the earliest time. */
  get first(): T | undefined {
    return this.#heap[0]
  }

  /** Adds the item, or changes its time. */
  set(item: T, atMs: number): void {
    item.atMs = atMs
    if (item.place === -1) this.#put(item, this.#heap.length)
    this.#settle(item)
  }

  delete(item: T): void {
    const { place } = item
    if (place === -1) return
    item.place = -1
    const last = this.#heap.pop() as T
    if (last === item) return
    this.#put(last, place)
    this.#settle(last)
  }

  #settle(item: T): void {
    for (let parent = this.#at((item.place - 1) >> 1); parent !== undefined && item.atMs < parent.atMs; ) {
      this.#swap(item, parent)
      parent = this.#at((item.place - 1) >> 1)
    }
    for (let child = this.#earlierChild(item); child !== undefined && child.atMs < item.atMs; ) {
      this.#swap(child, item)
      child = this.#earlierChild(item)
    }
  }

  #earlierChild({ place }: T): T | undefined {
    const left = this.#at(2 * place + 1)
    const right = this.#at(2 * place + 2)
    return right !== undefined && left !== undefined && right.atMs < left.atMs ? right : left
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
