/** Choices that a seed repeats. */
export class Random {
  #state

  constructor(seed) {
    this.#state = seed >>> 0
  }

  /** 0 to below 1 (mulberry32). */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let bits = this.#state
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1)
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61)
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32
  }

  below(n) {
    return Math.floor(this.next() * n)
  }
}
