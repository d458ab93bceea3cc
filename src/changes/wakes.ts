import { MinHeap } from '../bytes/min-heap.js'
import type { Follower } from './channel.js'

/** Streams woken in one turn of the event loop. */
const WAKES_PER_TURN = 64

export class Wakes {
  readonly #timed = new MinHeap<Follower>()
  #toWake: Follower[] = []
  #isWaking = false

  /** When the first follower must be woken, by `performance.now`; undefined: never. */
  get firstMs(): number | undefined {
    return this.#timed.first?.rank
  }

  /** Wakes the follower at this time, unless it is woken before. */
  at(follower: Follower, ms: number): void {
    this.#timed.set(follower, ms)
  }

  /** Call when the follower was woken. */
  forget(follower: Follower): void {
    this.#timed.delete(follower)
  }

  /** Removes and returns the followers whose time has come. */
  takeDue(nowMs: number): Follower[] {
    const due: Follower[] = []
    for (let first = this.#timed.first; first !== undefined && first.rank <= nowMs; first = this.#timed.first) {
      this.#timed.delete(first)
      due.push(first)
    }
    return due
  }

  wake(followers: Iterable<Follower>): void {
    for (const follower of followers) this.#toWake.push(follower)
    if (this.#isWaking || this.#toWake.length === 0) return
    this.#isWaking = true
    this.#wakeSome()
  }

  #wakeSome(): void {
    const some = this.#toWake.splice(0, WAKES_PER_TURN)
    this.#isWaking = some.length > 0
    if (this.#isWaking) setImmediate(() => this.#wakeSome()) // Followers added in this turn wait for the next one.
    for (const follower of some) follower.wake()
  }
}
