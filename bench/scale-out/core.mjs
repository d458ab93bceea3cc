/** Does one thing at a time, in the order in which they came: the main thread of a process, or a node of Bigtable. */
export class Core {
  #events
  #freeAt = 0
  /** How long it has worked on all that has come so far, in ms. */
  workedMs = 0

  constructor(events) {
    this.#events = events
  }

  /** @returns when that much work, which comes now, is done. */
  workUntil(ms) {
    this.#freeAt = Math.max(this.#freeAt, this.#events.now) + ms
    this.workedMs += ms
    return this.#freeAt
  }

  work(ms, done) {
    this.#events.at(this.workUntil(ms), done)
  }
}
