// Timestamps as src/oracle hands them out.

/**
 * The server that leads. It answers what waits in one batch, and each batch only after a read of the oracle's row that began after the
 * requests came. Its core is that of a server, which may serve clients too.
 */
export class Leader {
  asks = 0
  batches = 0
  timestamps = 0
  #events
  #core
  #table
  #costs
  #waiting = []
  #isProving = false

  /**
   * @param costs `{ hopMs, askMs, batchMs }`: one way between servers; of the leader's core per request of another server, and per batch.
   */
  constructor(events, core, table, costs) {
    this.#events = events
    this.#core = core
    this.#table = table
    this.#costs = costs
  }

  /** For another server. */
  answer(count, done) {
    const { hopMs, askMs } = this.#costs
    this.#events.after(hopMs, () => {
      this.asks++
      this.#core.work(askMs / 2, () =>
        this.next(count, () => this.#core.work(askMs / 2, () => this.#events.after(hopMs, done))),
      )
    })
  }

  /** For itself. */
  next(count, done) {
    this.#waiting.push(done)
    this.timestamps += count
    this.#handOut()
  }

  #handOut() {
    if (this.#isProving || this.#waiting.length === 0) return
    const batch = this.#waiting
    this.#waiting = []
    this.#isProving = true
    this.batches++
    this.#core.work(this.#costs.batchMs, () =>
      this.#table.read(1, () => {
        this.#isProving = false
        for (const done of batch) done()
        this.#handOut()
      }),
    )
  }
}

/** A server that does not lead: one request in flight for all that wait. */
export class Follower {
  #leader
  #waiting = []
  #count = 0
  #isAsking = false

  constructor(leader) {
    this.#leader = leader
  }

  next(count, done) {
    this.#waiting.push(done)
    this.#count += count
    this.#ask()
  }

  #ask() {
    if (this.#isAsking || this.#waiting.length === 0) return
    this.#isAsking = true
    const [batch, count] = [this.#waiting, this.#count]
    this.#waiting = []
    this.#count = 0
    this.#leader.answer(count, () => {
      this.#isAsking = false
      for (const done of batch) done()
      this.#ask()
    })
  }
}

/**
 * A server of which only what it asks for is simulated: what its transactions want comes by itself, `rate` timestamps per ms, and all that
 * came while a request was in flight goes with the next one.
 */
export function askForCrowd(events, random, leader, rate) {
  const waitForFirst = () => events.after(random.until(rate), () => ask(1))
  function ask(count) {
    const askedAt = events.now
    leader.answer(count, () => {
      const wanted = random.poisson(rate * (events.now - askedAt))
      if (wanted === 0) waitForFirst()
      else ask(wanted)
    })
  }
  waitForFirst()
}
