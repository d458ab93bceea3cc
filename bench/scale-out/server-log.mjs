// The log of a server's commits, as src/store/table/log appends to it.

const APPEND_MS = 20
const BEAT_MS = 250
const CHUNK_ENTRIES = 256

/** One append is under way at most, 20 ms or more after the one before: what is decided meanwhile shares the next one. */
export class ServerLog {
  /** Changes of rows of the log. */
  changes = 0
  #events
  #table
  #oracle
  #waiting = []
  #isAppending = false
  #beganAt = Number.NEGATIVE_INFINITY
  #entries = 0

  constructor(events, table, oracle) {
    this.#events = events
    this.#table = table
    this.#oracle = oracle
    this.#beat()
  }

  append(done) {
    this.#waiting.push(done)
    if (this.#isAppending) return
    this.#isAppending = true
    this.#events.after(Math.max(0, this.#beganAt + APPEND_MS - this.#events.now), () => this.#appendAll())
  }

  #appendAll() {
    const batch = this.#waiting
    this.#waiting = []
    this.#beganAt = this.#events.now
    this.#change(++this.#entries % CHUNK_ENTRIES === 0 ? 2 : 1, () => {
      this.#isAppending = false
      const [next] = this.#waiting.splice(0, 1)
      if (next !== undefined) this.append(next)
      for (const done of batch) done()
    })
  }

  /** One after the other: the next chunk stands before its predecessor is full. */
  #change(count, done) {
    this.changes++
    this.#table.change(() => (count === 1 ? done() : this.#change(count - 1, done)))
  }

  #beat() {
    this.#events.after(BEAT_MS, () => this.#oracle.next(1, () => this.append(() => {})))
    this.#events.after(BEAT_MS, () => this.#beat())
  }
}
