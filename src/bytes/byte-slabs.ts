const SLAB_BYTES = 64 * 1024
/** Longer copies have memory of their own. */
const SHORT_MAX = 8 * 1024

/**
 * Copies bytes that are dropped in the order in which they were copied. Copies share slabs of their own: a slice of the pool of
 * `Buffer` keeps 8 KiB in memory, whatever else was in it.
 */
export class ByteSlabs {
  #slab = Buffer.alloc(0)
  #used = 0

  copyOf(bytes: Uint8Array): Buffer {
    const { length } = bytes
    if (length > SHORT_MAX) {
      const own = Buffer.allocUnsafeSlow(length)
      own.set(bytes)
      return own
    }
    if (this.#used + length > this.#slab.length) {
      this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES)
      this.#used = 0
    }
    const copy = this.#slab.subarray(this.#used, this.#used + length)
    copy.set(bytes)
    this.#used += length
    return copy
  }

  clear(): void {
    this.#slab = Buffer.alloc(0)
    this.#used = 0
  }
}
