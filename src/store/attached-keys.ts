import type { Timestamp } from '../timestamp.js'

/** Keys that are attached to one grant of a lease. */
interface Count {
  /** Upper bound of them; undefined: not known since the start. */
  atMost: number | undefined
  /** By `performance.now()`. */
  countedAtMs: number
}

/** The grants to which keys may be attached, by their fences, with an upper bound of how many. */
export class AttachedKeys {
  readonly #counts = new Map<Timestamp, Count>()

  has(fence: Timestamp): boolean {
    return this.#counts.has(fence)
  }

  /** A record of the grant has been found. */
  found(fence: Timestamp): void {
    if (!this.has(fence)) this.#counts.set(fence, { atMost: undefined, countedAtMs: Number.NEGATIVE_INFINITY })
  }

  atMost(fence: Timestamp): number | undefined {
    return this.has(fence) ? this.#counts.get(fence)?.atMost : 0
  }

  countedAtMs(fence: Timestamp): number {
    return this.#counts.get(fence)?.countedAtMs ?? Number.NEGATIVE_INFINITY
  }

  counted(fence: Timestamp, atMost: number, countedAtMs: number): void {
    this.#counts.set(fence, { atMost, countedAtMs })
  }

  /** Call this in the turn of the event loop that fixes the commit_ts. */
  attached(fence: Timestamp, keys: number): void {
    const { atMost = 0, countedAtMs = Number.NEGATIVE_INFINITY } = this.#counts.get(fence) ?? {}
    this.#counts.set(fence, { atMost: atMost + keys, countedAtMs })
  }

  /** The grant has ended, and so have its records. */
  forget(fence: Timestamp): void {
    this.#counts.delete(fence)
  }
}
