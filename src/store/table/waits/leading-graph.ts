import { randomUUID } from 'node:crypto'
import { WaitGraph } from './wait-graph.js'
import type { WaitAnswer, WaitAsk } from './wait-report.js'

/** More processes than ever ask one leader. Beyond them it begins anew. */
const SERVERS_MAX = 10_000

/** A graph, for as long as its server leads. */
interface Led {
  readonly epoch: number
  /** Of this process and this time alone, so that no ask of another time is taken for one of this. */
  readonly name: string
  readonly graph: WaitGraph
  /** The last sequence number of each process. */
  readonly sequences: Map<string, number>
}

/** Answers reports of waits while this server leads, and forgets them when it does not. */
export class LeadingGraph {
  #led: Led | undefined
  readonly #epochOf: () => number | undefined
  readonly #nowMs: () => number

  /** @param epochOf undefined while this server does not lead. @param nowMs a monotonic clock. */
  constructor(epochOf: () => number | undefined, nowMs: () => number = () => performance.now()) {
    this.#epochOf = epochOf
    this.#nowMs = nowMs
  }

  /** Waits of all servers; 0 while this one does not lead. */
  get size(): number {
    return this.#led?.graph.size ?? 0
  }

  /** @returns undefined when the ask was answered before: it is sent again, and changes nothing. */
  answer(ask: WaitAsk): WaitAnswer | 'not_leader' | undefined {
    const led = this.#lead()
    if (led === undefined) return 'not_leader'
    const { name, sequences, graph } = led
    if (ask.graph !== name) return { graph: name, circles: [] }
    const last = sequences.get(ask.server)
    if (last !== undefined && ask.sequence <= last) return undefined
    if (last === undefined && sequences.size >= SERVERS_MAX) {
      this.#led = undefined
      return this.answer(ask)
    }
    sequences.set(ask.server, ask.sequence)
    return { graph: name, circles: graph.report(ask.server, ask) }
  }

  #lead(): Led | undefined {
    const epoch = this.#epochOf()
    if (epoch === undefined) this.#led = undefined
    else if (this.#led?.epoch !== epoch)
      this.#led = { epoch, name: randomUUID(), graph: new WaitGraph(this.#nowMs), sequences: new Map() }
    return this.#led
  }
}
