import { MinHeap } from '../bytes/min-heap.js'
import type { Follower } from './channel.js'

/** Streams that are woken in one turn of the event loop. */
const WAKES_PER_TURN = 64

/** Wakes streams: at a time that they have asked for, and in slices when there are many. */
export class Wakes {
  readonly #timed = new MinHeap<Follower>()
  #toWake: Follower[] = []
  #isWaking = false

  /** When the first one has to be woken, by `performance.now`; undefined: never. */
  get firstMs(): number | undefined {
    return this.#timed.first?.rank
  }

  /** The follower asks to be woken at this time, unless it is woken before. */
  at(follower: Follower, ms: number): void {
    this.#timed.set(follower, ms)
  }

  /** It is awake. */
  forget(follower: Follower): void {
    this.#timed.delete(follower)
  }

  /** Those whose time has come, which is over with that. */
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
    if (this.#isWaking) setImmediate(() => this.#wakeSome()) // Others that come in this turn wait for the next one.
    for (const follower of some) follower.wake()
  }
}
