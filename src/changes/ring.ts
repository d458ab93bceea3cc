import type { Timestamp } from '../timestamp.js'
import type { CommittedTxn } from './committed-txn.js'

/** Transactions that keep their events: almost no live stream still has to take older ones. */
const EVENTS_KEPT = 1024

export class Ring {
  #items: CommittedTxn[] = []
  #head = 0
  #bytes = 0
  /** Number of transactions pushed so far; they are numbered from 1. */
  #pushed = 0
  #floor: Timestamp = 0

  get bytes(): number {
    return this.#bytes
  }
  /** The ring has every committed transaction above it. */
  get floor(): Timestamp {
    return this.#floor
  }
  /** Number of the newest transaction that was dropped. */
  get dropped(): number {
    return this.#pushed - (this.#items.length - this.#head)
  }

  /** @returns the number of the transaction. */
  push(txn: CommittedTxn): number {
    this.#items.push(txn)
    this.#items[this.#items.length - 1 - EVENTS_KEPT]?.forgetEvents()
    this.#bytes += txn.memory
    return ++this.#pushed
  }

  clear(floor: Timestamp): void {
    this.#items = []
    this.#head = 0
    this.#bytes = 0
    this.#floor = Math.max(this.#floor, floor)
  }

  /** Drops the oldest transactions until the rest takes at most `bytesMax` of memory. */
  shrink(bytesMax: number): void {
    while (this.#bytes > bytesMax && this.#head < this.#items.length) {
      const { commitTs, memory } = this.#items[this.#head] as CommittedTxn
      this.#head++
      this.#bytes -= memory
      this.#floor = Math.max(this.#floor, commitTs)
    }
    if (this.#head < 1024 || this.#head < this.#items.length / 2) return
    this.#items = this.#items.slice(this.#head)
    this.#head = 0
  }

  /** The transactions above `since`, in order. Requires `floor <= since`. The ring must not change meanwhile. */
  *after(since: Timestamp): Generator<CommittedTxn> {
    let [low, high] = [this.#head, this.#items.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.#items[middle] as CommittedTxn).commitTs > since) high = middle
      else low = middle + 1
    }
    for (; low < this.#items.length; low++) yield this.#items[low] as CommittedTxn
  }
}
