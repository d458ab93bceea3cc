import type { WaitForEntry } from '../../../errors/registry.js'
import { SHARED_WAIT_BYTES_MAX, SHARED_WAITS_MAX } from '../../../limits.js'
import type { Timestamp } from '../../../timestamp.js'
import { waitCircle } from '../../wait-circle.js'
import { CIRCLE_BYTES_MAX, costOf, type FoundCircle, type WaitReport } from './wait-report.js'

/** A wait without renewal for this long is over: its server has died, or cannot reach this one. @internal */
export const WAIT_LIFE_MS = 3000
/** Transactions that one search visits. Larger circles end by time-outs. */
const LOOKED_AT_MAX = 200

interface Edge {
  readonly wait: WaitForEntry
  renewedMs: number
}

/**
 * The wait-for graph, as servers have reported it. It has no circles: a wait that would close one is reported to its server, and
 * left out. Its waits may be over already, so a circle is only a reason to look at the rows.
 */
export class WaitGraph {
  readonly #nowMs: () => number
  /** By server and number. */
  readonly #servers = new Map<string, Map<number, Edge>>()
  readonly #byTxn = new Map<Timestamp, Set<Edge>>()
  #size = 0
  #bytes = 0
  #sweptMs: number

  /** @param nowMs a monotonic clock. */
  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
    this.#sweptMs = nowMs()
  }

  get size(): number {
    return this.#size
  }

  /** @returns the circles that waits of this report close, in their order, as far as they fit into an answer. */
  report(server: string, { waits, ended }: WaitReport): readonly FoundCircle[] {
    const nowMs = this.#nowMs()
    this.#sweep(nowMs)
    for (const id of ended) this.#remove(server, id)
    const found: FoundCircle[] = []
    let bytes = 0
    for (const { id, wait } of waits) {
      const known = this.#servers.get(server)?.get(id)
      if (known !== undefined && isLive(known, nowMs)) {
        known.renewedMs = nowMs
        continue
      }
      this.#remove(server, id)
      const circle = waitCircle(wait, (txn) => this.#waitsOf(txn, nowMs), LOOKED_AT_MAX)
      if (circle === undefined) {
        this.#add(server, id, { wait, renewedMs: nowMs })
        continue
      }
      const cost = circle.reduce((sum, each) => sum + costOf(each), 0)
      if (bytes + cost > CIRCLE_BYTES_MAX) continue
      bytes += cost
      found.push({ id, circle })
    }
    return found
  }

  *#waitsOf(txn: Timestamp, nowMs: number): Iterable<WaitForEntry> {
    for (const edge of this.#byTxn.get(txn) ?? []) if (isLive(edge, nowMs)) yield edge.wait
  }

  #add(server: string, id: number, edge: Edge): void {
    const cost = costOf(edge.wait)
    if (this.#size >= SHARED_WAITS_MAX || this.#bytes + cost > SHARED_WAIT_BYTES_MAX) return
    this.#size++
    this.#bytes += cost
    const own = this.#servers.get(server)
    if (own === undefined) this.#servers.set(server, new Map([[id, edge]]))
    else own.set(id, edge)
    const { txn } = edge.wait
    const edges = this.#byTxn.get(txn)
    if (edges === undefined) this.#byTxn.set(txn, new Set([edge]))
    else edges.add(edge)
  }

  #remove(server: string, id: number): void {
    const own = this.#servers.get(server)
    const edge = own?.get(id)
    if (own === undefined || edge === undefined) return
    own.delete(id)
    if (own.size === 0) this.#servers.delete(server)
    const { txn } = edge.wait
    const edges = this.#byTxn.get(txn)
    edges?.delete(edge)
    if (edges?.size === 0) this.#byTxn.delete(txn)
    this.#size--
    this.#bytes -= costOf(edge.wait)
  }

  /** Runs once per `WAIT_LIFE_MS`, so that it costs each report next to nothing. */
  #sweep(nowMs: number): void {
    if (nowMs - this.#sweptMs < WAIT_LIFE_MS) return
    this.#sweptMs = nowMs
    for (const [server, own] of this.#servers)
      for (const [id, edge] of own) if (!isLive(edge, nowMs)) this.#remove(server, id)
  }
}

function isLive({ renewedMs }: Edge, nowMs: number): boolean {
  return nowMs - renewedMs < WAIT_LIFE_MS
}
