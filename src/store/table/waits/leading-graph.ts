import { randomUUID } from 'node:crypto'
import { WaitGraph } from './wait-graph.js'
import type { WaitAnswer, WaitAsk } from './wait-report.js'

/** More processes than ever ask one leader. With more the graph starts again. */
const SERVERS_MAX = 10_000

interface Led {
  readonly epoch: number
  /** Unique to this process and term, so that no ask of another term is mistaken for one of this. */
  readonly name: string
  readonly graph: WaitGraph
  readonly sequences: Map<string, number>
}

/** Answers reports of waits while this server leads, and forgets them afterwards. */
export class LeadingGraph {
  #led: Led | undefined
  readonly #epochOf: () => number | undefined
  readonly #nowMs: () => number

  /** @param epochOf returns undefined while this server does not lead. @param nowMs a monotonic clock. */
  constructor(epochOf: () => number | undefined, nowMs: () => number = () => performance.now()) {
    this.#epochOf = epochOf
    this.#nowMs = nowMs
  }

  /** Waits of all servers; 0 while this one does not lead. */
  get size(): number {
    return this.#led?.graph.size ?? 0
  }

  /** @returns undefined for a repeated ask, which changes nothing. */
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
