/**
 * Finds isolation anomalies in a history of transactions that append unique values to lists and read lists.
 *
 * A list that was read tells in which order its values were appended, and which it lacked; from that follow the
 * dependencies between the transactions, and an anomaly is a cycle of them.
 * @see Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020; Adya,
 *   "Weak Consistency", 1999.
 */

interface ListRead {
  readonly type: 'read'
  readonly key: string
  readonly values: readonly number[]
}
interface ListAppend {
  readonly type: 'append'
  readonly key: string
  /** Never appended by anyone else, to whatever key. */
  readonly value: number
}
export type ListOp = ListRead | ListAppend

export interface ListTransaction {
  /** For people. */
  readonly name: string
  readonly ops: readonly ListOp[]
  /** `unknown`: whoever reads one of its values shows that it committed. */
  readonly outcome: 'committed' | 'aborted' | 'unknown'
  /** Instants on one clock: before its first request was sent, and after its last answer arrived. */
  readonly begin: number
  readonly end: number
}

export type AnomalyType =
  | 'internal' // A transaction contradicts itself.
  | 'duplicate' // One value twice in a list, or appended twice.
  | 'unwritten' // A value that nobody appended.
  | 'G1a' // Aborted read.
  | 'G1b' // Intermediate read.
  | 'incompatible-order' // Two reads of which neither continues the other: an update was lost.
  | 'lost-append' // Committed, as an answer or another value of it says, and not in what was read later.
  | CycleType
  | `${CycleType}-realtime`

/**
 * By the strongest kind of edge in them: G0 of ww alone; G1c of ww and wr; G-single has one rw; G-nonadjacent several, no
 * two in a row; G2 others. Snapshot isolation allows G2 alone, serializability none. `-realtime`: with an edge from a
 * transaction to those that began after it had ended.
 */
type CycleType = 'G0' | 'G1c' | 'G-single' | 'G-nonadjacent' | 'G2'

export interface Anomaly {
  readonly type: AnomalyType
  readonly detail: string
}

type EdgeKind = 'ww' | 'wr' | 'rw' | 'rt'
interface Edge {
  readonly to: number
  readonly kind: EdgeKind
  /** For people. */
  readonly why: string
}
type Graph = readonly (readonly Edge[])[]

/** @returns at least one of each type that there is; none for a history as from transactions one after another. */
export function checkListAppend(history: readonly ListTransaction[]): Anomaly[] {
  return new Checker(history).check()
}

class Checker {
  readonly #anomalies: Anomaly[] = []
  /** Of a value: who appended it. */
  readonly #writers = new Map<number, ListTransaction>()
  /** Of a transaction and a key: its last append. */
  readonly #lastAppends = new Map<ListTransaction, Map<string, number>>()
  /** Of each key: the longest list read of it. */
  readonly #orders = new Map<string, readonly number[]>()
  readonly #committed: ListTransaction[]

  constructor(readonly history: readonly ListTransaction[]) {
    for (const txn of history) this.#recordAppends(txn)
    this.#committed = this.#committedOnes()
  }

  check(): Anomaly[] {
    for (const txn of this.#committed) {
      this.#checkInternal(txn)
      for (const op of txn.ops) if (op.type === 'read') this.#checkRead(txn, op)
    }
    this.#findOrders()
    this.#findLostAppends()
    this.#findCycles()
    return this.#anomalies
  }

  #found(type: AnomalyType, detail: string): void {
    this.#anomalies.push({ type, detail })
  }

  #recordAppends(txn: ListTransaction): void {
    const last = new Map<string, number>()
    for (const op of txn.ops) {
      if (op.type !== 'append') continue
      const other = this.#writers.get(op.value)
      if (other !== undefined) this.#found('duplicate', `${op.value} is appended by ${other.name} and ${txn.name}`)
      this.#writers.set(op.value, txn)
      last.set(op.key, op.value)
    }
    this.#lastAppends.set(txn, last)
  }

  /** Reads of one that may have committed count once it is known, so this goes on until nothing is added. */
  #committedOnes(): ListTransaction[] {
    const committed = new Set(this.history.filter(({ outcome }) => outcome === 'committed'))
    for (const txn of committed) {
      for (const op of txn.ops) {
        if (op.type !== 'read') continue
        for (const value of op.values) {
          const writer = this.#writers.get(value)
          if (writer?.outcome === 'unknown') committed.add(writer) // Iterated later by the same loop.
        }
      }
    }
    return [...committed]
  }

  // ---- One read

  #checkInternal(txn: ListTransaction): void {
    const known = new Map<string, { values: readonly number[]; isWhole: boolean }>()
    for (const op of txn.ops) {
      const before = known.get(op.key)
      if (op.type === 'append') {
        const values = [...(before?.values ?? []), op.value]
        known.set(op.key, { values, isWhole: before?.isWhole ?? false })
        continue
      }
      if (before !== undefined) {
        const seen = before.isWhole ? op.values : op.values.slice(-before.values.length)
        if (!isSame(seen, before.values))
          this.#found('internal', `${txn.name} read ${print(op)} where it had [${before.values}]`)
      }
      known.set(op.key, { values: op.values, isWhole: true })
    }
  }

  #checkRead(txn: ListTransaction, read: ListRead): void {
    if (new Set(read.values).size < read.values.length) this.#found('duplicate', `${txn.name} read ${print(read)}`)
    for (const value of read.values) {
      const writer = this.#writers.get(value)
      const isOfKey = writer?.ops.some((op) => op.type === 'append' && op.key === read.key && op.value === value)
      if (writer === undefined || !isOfKey) this.#found('unwritten', `${value}: ${txn.name} read ${print(read)}`)
      else if (writer.outcome === 'aborted' && writer !== txn)
        this.#found('G1a', `${value} of ${writer.name}, which aborted: ${txn.name} read ${print(read)}`)
    }
    const last = externalPart(read.values, (value) => this.#writers.get(value) === txn).at(-1)
    const writer = last === undefined ? undefined : this.#writers.get(last)
    const final = writer && this.#lastAppends.get(writer)?.get(read.key)
    if (writer !== undefined && final !== last)
      this.#found('G1b', `${last} of ${writer.name}, which went on to ${final}: ${txn.name} read ${print(read)}`)
  }

  // ---- Lists

  #findOrders(): void {
    const reads = this.#committed.flatMap((txn) => txn.ops.flatMap((op) => (op.type === 'read' ? [{ txn, op }] : [])))
    const readers = new Map<string, string>()
    for (const { txn, op } of reads) {
      const longest = this.#orders.get(op.key)
      if (longest !== undefined && longest.length >= op.values.length) continue
      this.#orders.set(op.key, op.values)
      readers.set(op.key, txn.name)
    }
    for (const { txn, op } of reads) {
      const longest = this.#orders.get(op.key) ?? []
      if (isSame(op.values, longest.slice(0, op.values.length))) continue
      const detail = `${txn.name} read ${print(op)}, ${readers.get(op.key)} read [${longest}]`
      this.#found('incompatible-order', detail)
    }
  }

  #findLostAppends(): void {
    const lastReads = new Map<string, ListTransaction>()
    /** Of one that may have committed: who read a value of it, first of all to end. */
    const witnesses = new Map<ListTransaction, ListTransaction>()
    for (const txn of this.#committed) {
      for (const op of txn.ops) {
        if (op.type !== 'read') continue
        if (txn.begin > (lastReads.get(op.key)?.begin ?? -1)) lastReads.set(op.key, txn)
        for (const value of op.values) {
          const writer = this.#writers.get(value)
          if (writer?.outcome !== 'unknown' || writer === txn) continue
          if (txn.end < (witnesses.get(writer)?.end ?? Number.POSITIVE_INFINITY)) witnesses.set(writer, txn)
        }
      }
    }
    for (const txn of this.#committed) {
      for (const op of txn.ops) {
        if (op.type !== 'append' || this.#orders.get(op.key)?.includes(op.value)) continue
        const reader = lastReads.get(op.key)
        const witness = txn.outcome === 'committed' ? txn : witnesses.get(txn)
        if (reader === undefined || witness === undefined) continue
        if (reader.begin > witness.end || reader === witness)
          this.#found('lost-append', `${op.value} of ${txn.name} to ${op.key}: nobody read it, ${reader.name} later`)
      }
    }
  }

  // ---- Dependencies

  #findCycles(): void {
    const data = this.#dataEdges()
    const all = data.map((edges) => [...edges])
    for (const [from, to] of realTimeOrder(this.#committed))
      all[from]?.push({ to, kind: 'rt', why: 'ended before it began' })
    const found = new Set<CycleType>()
    for (const [graph, suffix] of [
      [data, ''],
      [all, '-realtime'],
    ] as const) {
      for (const [type, cycle] of cyclesOf(graph)) {
        if (found.has(type)) continue
        found.add(type)
        this.#found(`${type}${suffix}`, this.#printCycle(cycle))
      }
    }
  }

  #dataEdges(): Edge[][] {
    const index = new Map(this.#committed.map((txn, i) => [txn, i]))
    const edges: Edge[][] = this.#committed.map(() => [])
    const link = (from: ListTransaction | undefined, to: ListTransaction | undefined, kind: EdgeKind, why: string) => {
      const [source, target] = [from && index.get(from), to && index.get(to)]
      if (source === undefined || target === undefined || source === target) return
      edges[source]?.push({ to: target, kind, why })
    }
    for (const [key, order] of this.#orders) {
      order.forEach((value, i) => {
        if (i === 0) return
        const before = order[i - 1] as number
        link(this.#writers.get(before), this.#writers.get(value), 'ww', `${key}: ${before}, then ${value}`)
      })
    }
    for (const txn of this.#committed) {
      for (const op of txn.ops) {
        if (op.type !== 'read') continue
        const values = externalPart(op.values, (value) => this.#writers.get(value) === txn)
        const last = values.at(-1)
        if (last !== undefined) link(this.#writers.get(last), txn, 'wr', `${op.key}: appended ${last}, which it read`)
        const next = this.#orders.get(op.key)?.[values.length]
        if (next !== undefined) link(txn, this.#writers.get(next), 'rw', `${op.key}: read it without ${next}`)
      }
    }
    return edges
  }

  #printCycle(cycle: readonly (Edge & { readonly from: number })[]): string {
    const name = (node: number): string => this.#committed[node]?.name ?? '?'
    return cycle.map(({ from, to, kind, why }) => `${name(from)} -${kind}-> ${name(to)} (${why})`).join('; ')
  }
}

/** What of a list was there before the reader's own appends. */
function externalPart(values: readonly number[], isOwn: (value: number) => boolean): readonly number[] {
  const firstOwn = values.findIndex(isOwn)
  return firstOwn === -1 ? values : values.slice(0, firstOwn)
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i])
}

function print({ key, values }: ListRead): string {
  return `[${values}] of ${key}`
}

/**
 * The order of those that did not overlap, without the pairs that follow from others. One whose outcome was unknown has
 * no end.
 */
function realTimeOrder(txns: readonly ListTransaction[]): [from: number, to: number][] {
  const events = txns.flatMap(({ begin, end, outcome }, txn) => [
    { at: begin, txn, isEnd: false },
    ...(outcome === 'committed' ? [{ at: end, txn, isEnd: true }] : []),
  ])
  events.sort((a, b) => a.at - b.at || Number(b.isEnd) - Number(a.isEnd))
  const order: [number, number][] = []
  /** Ended, and nothing that began since has ended. */
  const latest = new Set<number>()
  const before = new Map<number, number[]>()
  for (const { txn, isEnd } of events) {
    if (!isEnd) {
      before.set(txn, [...latest])
      for (const ended of latest) order.push([ended, txn])
    } else {
      for (const ended of before.get(txn) ?? []) latest.delete(ended)
      latest.add(txn)
    }
  }
  return order
}

// ---- Cycles

type Cycle = readonly (Edge & { readonly from: number })[]

/** @returns one cycle of each type that the graph has, as far as a worse type does not cover it; `rt` counts like `ww`. */
function cyclesOf(graph: Graph): Map<CycleType, Cycle> {
  const cycles = new Map<CycleType, Cycle>()
  const only = (...kinds: EdgeKind[]): Graph => graph.map((edges) => edges.filter(({ kind }) => kinds.includes(kind)))
  const writes = findCycle(only('ww', 'rt'), () => true)
  if (writes !== undefined) cycles.set('G0', writes)
  const dependencies = only('ww', 'wr', 'rt')
  const flow = findCycle(dependencies, ({ kind }) => kind === 'wr')
  if (flow !== undefined) cycles.set('G1c', flow)
  if (violatesSnapshotIsolation(graph)) {
    const single = findCycle(graph, isRw, dependencies)
    if (single !== undefined) cycles.set('G-single', single)
    else if (flow === undefined && writes === undefined) {
      const nonAdjacent = findCycle(graph, isRw, graph, (cycle) => typeOf(cycle) === 'G-nonadjacent')
      if (nonAdjacent !== undefined) cycles.set('G-nonadjacent', nonAdjacent)
    }
  }
  const skew = findCycle(graph, isRw, graph, (cycle) => typeOf(cycle) === 'G2')
  if (skew !== undefined) cycles.set('G2', skew)
  return cycles
}

function isRw({ kind }: Edge): boolean {
  return kind === 'rw'
}

/** Of a cycle with rw edges. */
function typeOf(cycle: Cycle): CycleType {
  const isInARow = cycle.some((edge, i) => isRw(edge) && isRw(cycle[(i + 1) % cycle.length] as Edge))
  if (cycle.filter(isRw).length === 1) return 'G-single'
  return isInARow ? 'G2' : 'G-nonadjacent'
}

/**
 * Under snapshot isolation, what leads to a transaction by ww, wr or real time committed before it began, and an rw edge
 * leads to one that committed after its reader began. So no walk returns that takes no two rw edges in a row.
 */
function violatesSnapshotIsolation(graph: Graph): boolean {
  // Each node twice: reached by an rw edge, or by another, after which an rw edge may follow.
  const twice: Edge[][] = []
  graph.forEach((edges, node) => {
    const others = edges.filter((edge) => !isRw(edge)).map((edge) => ({ ...edge, to: 2 * edge.to }))
    twice[2 * node] = [...others, ...edges.filter(isRw).map((edge) => ({ ...edge, to: 2 * edge.to + 1 }))]
    twice[2 * node + 1] = others
  })
  const components = componentsOf(twice)
  return new Set(components).size < components.length
}

/** @returns a shortest cycle through an edge that is wanted, whose way back is in `back`. */
function findCycle(
  graph: Graph,
  isWanted: (edge: Edge) => boolean,
  back: Graph = graph,
  isRight: (cycle: Cycle) => boolean = () => true,
): Cycle | undefined {
  const components = componentsOf(graph)
  for (const [from, edges] of graph.entries()) {
    for (const edge of edges) {
      if (components[from] !== components[edge.to] || !isWanted(edge)) continue
      const path = shortestPath(back, edge.to, from, components)
      const cycle = path && [{ ...edge, from }, ...path]
      if (cycle !== undefined && isRight(cycle)) return cycle
    }
  }
  return undefined
}

/** Within the component of both ends. */
function shortestPath(graph: Graph, start: number, end: number, components: readonly number[]): Cycle | undefined {
  const arrivals = new Map<number, Edge & { from: number }>()
  const queue = [start]
  for (const from of queue) {
    for (const edge of graph[from] ?? []) {
      if (components[edge.to] !== components[start] || arrivals.has(edge.to) || edge.to === start) continue
      arrivals.set(edge.to, { ...edge, from })
      queue.push(edge.to)
    }
    if (arrivals.has(end)) break
  }
  const path: (Edge & { from: number })[] = []
  for (let node = end; node !== start; ) {
    const arrival = arrivals.get(node)
    if (arrival === undefined) return undefined
    path.unshift(arrival)
    node = arrival.from
  }
  return path
}

/** @returns of each node the number of its strongly connected component. (Tarjan, without recursion.) */
function componentsOf(graph: Graph): number[] {
  const component: number[] = graph.map(() => -1)
  const order: number[] = graph.map(() => -1)
  const low: number[] = graph.map(() => -1)
  const open: number[] = []
  let visited = 0
  let components = 0
  for (const root of graph.keys()) {
    if (order[root] !== -1) continue
    const path = [{ node: root, next: 0 }]
    while (path.length > 0) {
      const step = path.at(-1) as { node: number; next: number }
      const { node } = step
      if (step.next === 0) {
        order[node] = low[node] = visited++
        open.push(node)
      }
      const edge = graph[node]?.[step.next++]
      if (edge !== undefined) {
        if (order[edge.to] === -1) path.push({ node: edge.to, next: 0 })
        else if (component[edge.to] === -1) low[node] = Math.min(low[node] as number, order[edge.to] as number)
        continue
      }
      path.pop()
      const parent = path.at(-1)?.node
      if (parent !== undefined) low[parent] = Math.min(low[parent] as number, low[node] as number)
      if (low[node] !== order[node]) continue
      for (let member = -1; member !== node; ) {
        member = open.pop() as number
        component[member] = components
      }
      components++
    }
  }
  return component
}
