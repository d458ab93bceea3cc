import type { Clock } from './clock.js'

/** By how much faster or slower than time a leader's time runs while its clock is ahead or behind. */
const SLEW = 1 / 8

/**
 * The time of the servers of a table, in Unix milliseconds, by which all of them judge ages: the leader's.
 *
 * A follower's runs on from the leader's last answer, by the monotonic clock, so that its own wall clock does not matter. A server
 * that takes over goes on from there, and approaches its own clock by an eighth of the time that passes. So no takeover and no
 * step of a clock makes anything older at once. Only a server that knows nothing of the others' time begins at its own clock.
 */
export class SharedTime {
  readonly #clock: Pick<Clock, 'now' | 'elapsedMs'>
  /** undefined: not known yet. */
  #ms: number | undefined
  /** Monotonic time at which it was `#ms`. */
  #atMs = 0
  #isLeading = false

  constructor(clock: Pick<Clock, 'now' | 'elapsedMs'>) {
    this.#clock = clock
  }

  get isKnown(): boolean {
    return this.#ms !== undefined
  }

  now(): number {
    if (this.#ms === undefined) return this.#clock.now()
    const atMs = this.#clock.elapsedMs()
    const elapsedMs = Math.max(0, atMs - this.#atMs)
    const expectedMs = this.#ms + elapsedMs
    if (!this.#isLeading) return Math.floor(expectedMs)
    const clockMs = this.#clock.now()
    const slewMs = elapsedMs * SLEW
    this.#ms = Math.min(Math.max(clockMs, expectedMs - slewMs), expectedMs + slewMs)
    this.#atMs = atMs
    return Math.floor(this.#ms)
  }

  /** @param ms the leader's, now. */
  follow(ms: number): void {
    this.#set(ms, false)
  }

  /** @param fromMs where to begin if the time is not known. */
  lead(fromMs: number): void {
    this.#set(this.isKnown ? this.now() : fromMs, true)
  }

  stopLeading(): void {
    this.#set(this.now(), false)
  }

  #set(ms: number, isLeading: boolean): void {
    this.#ms = ms
    this.#atMs = this.#clock.elapsedMs()
    this.#isLeading = isLeading
  }
}
