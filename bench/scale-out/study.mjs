// What is simulated.
import { cluster } from './cluster.mjs'
import { TIMESTAMPS_PER_SECOND } from './costs.mjs'
import { hotRow } from './hot-row.mjs'
import { demandOf, KINDS, nodeMsOf } from './transactions.mjs'

const NODES = [1, 3, 10, 30, 100, 300, 1000]
export const LOAD = 0.7

/** How timestamps are had. The leader has no clients where the load balancer leaves it out. */
const ORACLES = {
  'as today': {},
  'leader without clients': { isLeaderFree: true },
}

const READ_NODES = [1, 10]

const WRITERS = [1, 4, 16, 64]
const ASCENDING_NODES = [10, 100]
const ASCENDING_CLIENTS = 500

export function study(costs, seed) {
  const run = (plan) => ({ ...plan, ...cluster(costs, { load: LOAD, seed, ...plan }) })
  const transfers = Object.entries(ORACLES).flatMap(([oracle, plan]) =>
    NODES.map((nodes) => ({ oracle, ...run({ ...plan, kind: 'transfer', nodes }) })),
  )
  const puts = NODES.map((nodes) => run({ kind: 'put', nodes }))
  return {
    transfers,
    puts,
    kinds: Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, kindOf(kind, costs)])),
    read: READ_NODES.flatMap((nodes) => [false, true].map((isRead) => run({ kind: 'transfer', nodes, isRead }))),
    hotRows: WRITERS.map((writers) => ({ writers, ...hotRow(costs, { writers, seed }) })),
    ascending: ASCENDING_NODES.map((nodes) =>
      run({ kind: 'put', nodes, isAscending: true, clients: ASCENDING_CLIENTS, servers: 20 }),
    ),
  }
}

/** Of one kind: what a node can do of it at most, and at how many nodes the timestamps of a second are used up. */
function kindOf(kind, costs) {
  const demand = demandOf(kind)
  const perNode = 1000 / nodeMsOf(kind, costs)
  const nodesMax = demand.timestamps === 0 ? undefined : TIMESTAMPS_PER_SECOND / (demand.timestamps * perNode)
  return { ...demand, perNode, cpuMs: costs.cpuMs[kind], nodesMax }
}
