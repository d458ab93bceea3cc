/** Bytes under byte strings (one character a byte), in their order. Small enough to be an array. */
export class SortedMap {
  #keys: string[]
  #values: Map<string, Buffer>
  /** Somebody else reads the same arrays: copied before the next change. */
  #isShared = false

  constructor(keys: string[] = [], values = new Map<string, Buffer>()) {
    this.#keys = keys
    this.#values = values
  }

  get(key: string): Buffer | undefined {
    return this.#values.get(key)
  }

  set(key: string, value: Buffer): void {
    this.#own()
    if (!this.#values.has(key)) this.#keys.splice(this.#placeOf(key), 0, key)
    this.#values.set(key, value)
  }

  delete(key: string): void {
    if (!this.#values.has(key)) return
    this.#own()
    this.#values.delete(key)
    this.#keys.splice(this.#placeOf(key), 1)
  }

  /** Stays as it is now. */
  snapshot(): SortedMap {
    this.#isShared = true
    const snapshot = new SortedMap(this.#keys, this.#values)
    snapshot.#isShared = true
    return snapshot
  }

  /** The keys in `[from, to)`. */
  keys(from: string, to: string): string[] {
    return this.#keys.slice(this.#placeOf(from), this.#placeOf(to))
  }

  #own(): void {
    if (!this.#isShared) return
    this.#keys = [...this.#keys]
    this.#values = new Map(this.#values)
    this.#isShared = false
  }

  #placeOf(key: string): number {
    let low = 0
    let high = this.#keys.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#keys[middle] as string) < key) low = middle + 1
      else high = middle
    }
    return low
  }
}
