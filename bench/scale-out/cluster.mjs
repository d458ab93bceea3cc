import { Core } from './core.mjs'
import { Events } from './events.mjs'
import { askForCrowd, Follower, Leader } from './oracle.mjs'
import { Random } from './random.mjs'
import { ServerLog } from './server-log.mjs'
import { Table } from './table.mjs'
import { nodeMsOf, transact } from './transactions.mjs'

/** Nodes whose transactions are simulated one by one, with the servers that they need; all others look the same. */
const SLICE_NODES = 10

/**
 * Many servers on one table. Requests come by themselves, as many as fill the nodes and the servers' cores up to `load`; or there are
 * `clients`, each of which sends the next one when it has the answer.
 *
 * Of more than ten nodes a slice of ten is simulated, with its servers and each of their transactions; of the other servers only what
 * they ask of the oracle, which is whole.
 * @param plan.nodes of Bigtable
 * @param plan.kind of the transactions
 * @param plan.load share of what the nodes can do
 * @param plan.isLeaderFree the leader serves no clients
 * @param plan.isRead somebody reads changes
 * @param plan.isAscending all rows stand in one tablet
 * @param plan.clients together; undefined: requests come by themselves
 * @param plan.servers besides a leader that serves no clients; undefined: as many as the load needs
 */
export function cluster(costs, plan) {
  const { nodes, kind, load = 0.7, isLeaderFree = false } = plan
  const { isAscending, isRead = false, clients } = plan
  const { seed = 1, warmUpMs = 5000, ms = 5000 } = plan
  const cpuMs = costs.cpuMs[kind]
  const perMs = (load * nodes) / nodeMsOf(kind, costs)
  const servers = plan.servers ?? Math.max(1, Math.ceil((perMs * cpuMs) / load))
  const isWhole = clients !== undefined
  const sliceNodes = isWhole ? nodes : Math.min(nodes, SLICE_NODES)
  const sliceServers = Math.max(1, Math.round((servers * sliceNodes) / nodes))

  const events = new Events()
  const random = new Random(seed)
  const table = new Table(events, random, costs, { nodes: sliceNodes, isAscending })
  const leaderCore = new Core(events)
  const leader = new Leader(events, leaderCore, table, costs)

  const inWindow = { latencies: [], waits: [] }
  const isCounted = () => events.now >= warmUpMs
  const timed = (oracle) => ({
    next(count, done) {
      const beganAt = events.now
      oracle.next(count, () => {
        if (isCounted()) inWindow.waits.push(events.now - beganAt)
        done()
      })
    },
  })
  const slice = Array.from({ length: sliceServers }, (_, i) => {
    const isLeader = i === 0 && !isLeaderFree
    const oracle = isLeader ? leader : new Follower(leader)
    // The leader is one of many servers, and would be one of few in a slice.
    const isTold = !isLeader || sliceServers === servers
    const log = isRead ? new ServerLog(events, table, oracle) : undefined
    const core = isLeader ? leaderCore : new Core(events)
    return { core, oracle: isTold ? timed(oracle) : oracle, table, log, isTold }
  })
  const serve = (server, answered = () => {}) => {
    const beganAt = events.now
    transact(kind, server, cpuMs, () => {
      if (server.isTold && isCounted()) inWindow.latencies.push(events.now - beganAt)
      answered()
    })
  }
  const come = (server) => {
    events.after(random.until(perMs / servers), () => come(server))
    serve(server)
  }
  const repeat = (server) => serve(server, () => repeat(server))
  if (clients === undefined) for (const server of slice) events.after(random.until(perMs / servers), () => come(server))
  else for (let i = 0; i < clients; i++) repeat(slice[i % slice.length])
  for (let i = sliceServers; i < servers; i++)
    askForCrowd(events, random, leader, timestampsOf(kind) * (perMs / servers))

  events.run(warmUpMs)
  const before = {
    asks: leader.asks,
    batches: leader.batches,
    timestamps: leader.timestamps,
    logChanges: changesOfLogs(slice),
    worked: workedBy(leaderCore, slice, table),
  }
  events.run(warmUpMs + ms)
  const worked = workedBy(leaderCore, slice, table)
  const busy = Object.fromEntries(
    Object.entries(worked).map(([name, value]) => [name, (value - before.worked[name]) / ms]),
  )
  const perSecond = (count) => (count / ms) * 1000
  return {
    nodes,
    servers: servers + (isLeaderFree ? 1 : 0),
    offered: perMs * 1000,
    rate: perSecond(inWindow.latencies.length) * (servers / slice.filter(({ isTold }) => isTold).length),
    p50: quantile(inWindow.latencies, 0.5),
    p99: quantile(inWindow.latencies, 0.99),
    timestampP50: quantile(inWindow.waits, 0.5),
    timestampP99: quantile(inWindow.waits, 0.99),
    timestamps: perSecond(leader.timestamps - before.timestamps),
    asks: perSecond(leader.asks - before.asks),
    batches: perSecond(leader.batches - before.batches),
    logChanges: perSecond(changesOfLogs(slice) - before.logChanges) / sliceServers,
    busy,
  }
}

const changesOfLogs = (servers) => servers.reduce((sum, { log }) => sum + (log?.changes ?? 0), 0)

const timestampsOf = (kind) => (kind === 'get' ? 0 : 2)

/** By the leader, one server of the slice, one node, in ms. What has come and is not done yet counts as well. */
function workedBy(leaderCore, slice, table) {
  const mean = (cores) => (cores.length === 0 ? 0 : cores.reduce((sum, core) => sum + core.workedMs, 0) / cores.length)
  return {
    leader: leaderCore.workedMs,
    server: mean(slice.map(({ core }) => core).filter((core) => core !== leaderCore)),
    node: mean(table.nodes),
  }
}

export function quantile(values, part) {
  const sorted = Float64Array.from(values).sort()
  return sorted.length === 0 ? undefined : sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]
}
