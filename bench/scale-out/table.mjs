import { Core } from './core.mjs'
import { latencyOf } from './random.mjs'

/**
 * Bigtable: nodes that each serve so many rows per second, and the way to them. Rows are spread evenly, in tablets too many to
 * matter, unless `isAscending`: then all rows stand at the end of the table, in one tablet of one node.
 */
export class Table {
  #events
  #random
  #latency
  #costs
  #isAscending
  nodes

  /** @param costs `{ latency, readMs, writeMs }`: `readMs` and `writeMs` of a node, per row. */
  constructor(events, random, costs, { nodes, isAscending = false }) {
    this.#events = events
    this.#random = random
    this.#latency = latencyOf(costs.latency, random)
    this.#costs = costs
    this.#isAscending = isAscending
    this.nodes = Array.from({ length: nodes }, () => new Core(events))
  }

  /** One request for that many rows. @param look sees them when a node comes to them; its result comes back. */
  read(rows, done, look) {
    this.#call(rows, this.#costs.readMs, done, look)
  }

  /** One row, on a condition: it is read, and written. */
  change(done, look) {
    this.#call(1, this.#costs.readMs + this.#costs.writeMs, done, look)
  }

  #call(rows, ms, done, look) {
    const way = this.#latency() / 2
    this.#events.after(way, () => {
      let end = 0
      for (let i = 0; i < rows; i++) end = Math.max(end, this.#node().workUntil(ms))
      const seen = look?.()
      this.#events.at(end + way, () => done(seen))
    })
  }

  #node() {
    return this.nodes[this.#isAscending ? 0 : this.#random.below(this.nodes.length)]
  }
}
