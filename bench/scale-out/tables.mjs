// The study as tables, as they stand in docs/scale-out.md.
import { short, whole } from '../harness/report.mjs'
import { DOCUMENTED, PAPER } from './costs.mjs'
import { LOAD } from './study.mjs'

const ratio = (value) => value.toFixed(2)
const percent = (part) => `${Math.round(part * 100)} %`
const signed = (part) => `${part < 0 ? '-' : '+'}${Math.abs(Math.round(part * 100))} %`
const hours = (seconds) => (seconds / 3600).toFixed(3)
/** Of an object's entries as rows. */
const rowsOf = (kinds, row) => Object.entries(kinds).map(([kind, of]) => row(kind, of))

export function blocksOf({ seed, assumed, measured, results, checks, levelDb }) {
  const { kinds, transfers, puts, read, hotRows, ascending } = results
  return [
    inputs(seed, assumed, measured),
    '### One transaction',
    rowsOf(kinds, kindRow),
    '### By nodes',
    transfers.filter(({ oracle }) => oracle === 'as today').map((row, i) => nodesRow(row, puts[i])),
    '### The oracle',
    transfers.filter(({ nodes }) => SHOWN_NODES.includes(nodes)).map(oracleRow),
    '### Hot keys',
    [
      ...hotRows.map(({ writers, commits, failures }) =>
        hotKeyRow(`commits of one row, writers: ${writers}`, commits, failures),
      ),
      ...ascending.map(({ nodes, rate }) => hotKeyRow(`PUTs of ascending keys, nodes: ${nodes}`, rate)),
    ],
    '### A reader of changes',
    read.map((row) => readRow(row, kinds.transfer)),
    '### Node-hours',
    rowsOf(kinds, costRow),
    levelDbLine(kinds, levelDb),
    checkLine(checks),
  ]
}

function inputs(seed, { medianMs, p99Ms, hopMs }, { machine, node, oracle }) {
  return [
    `Seed ${seed}.`,
    `Documented: ${whole(DOCUMENTED.rowReadsPerSecond)} row reads or ${whole(DOCUMENTED.rowWritesPerSecond)} row writes per second and node.`,
    `Assumed: a call takes ${medianMs} ms at the median and ${p99Ms} ms at the 99th percentile (lognormal), the way from server to server ${hopMs} ms; nodes and servers are loaded to ${percent(LOAD)}.`,
    `Measured on ${machine.cpu}, ${machine.cores} cores, ${machine.system}, Node ${node.replace('v', '')}, load average before ${machine.load_before.toFixed(1)}: the leader's main thread takes ${whole(oracle.askMicros)} µs per request of another server, of which ${whole(oracle.aloneAskMicros)} are the oracle and its signatures and the rest is HTTP, and ${whole(oracle.batchMicros)} µs per batch.`,
  ].join(' ')
}

const kindRow = (kind, { roundTrips, calls, rowReads, rowWrites, timestamps, cpuMs, perNode }) => ({
  transaction: kind,
  'round trips': roundTrips,
  calls,
  'row reads': rowReads,
  'row writes': rowWrites,
  timestamps,
  'server CPU, ms': ratio(cpuMs),
  'per node and second, at most': whole(perNode),
  'of raw': ratio(perNode / (kind === 'get' ? DOCUMENTED.rowReadsPerSecond : DOCUMENTED.rowWritesPerSecond)),
  'in the paper': paperOf(kind),
})

function paperOf(kind) {
  const { readsPerSecond: reads, writesPerSecond: writes } = PAPER
  if (kind === 'get') return ratio(reads.percolator / reads.bigtable)
  return kind === 'put' ? ratio(writes.percolator / writes.bigtable) : ''
}

const nodesRow = (transfers, puts) => ({
  nodes: whole(transfers.nodes),
  'PUT/s': whole(puts.rate),
  'p50, ms': whole(puts.p50),
  p99: whole(puts.p99),
  servers: whole(puts.servers),
  'transfers/s': whole(transfers.rate),
  'their p50, ms': whole(transfers.p50),
  'their p99': whole(transfers.p99),
  'their servers': whole(transfers.servers),
  'requests/s at the leader': whole(transfers.asks),
  "leader's core": percent(transfers.busy.leader),
})

/** All are in the JSON. */
const SHOWN_NODES = [10, 100, 1000]

const oracleRow = ({ oracle, nodes, asks, busy, timestampP50, timestampP99, p50, p99 }) => ({
  oracle,
  nodes: whole(nodes),
  'requests/s at the leader': whole(asks),
  "leader's core": percent(busy.leader),
  'timestamp p50, ms': whole(timestampP50),
  p99: whole(timestampP99),
  'transfer p50, ms': whole(p50),
  'its p99': whole(p99),
})

const hotKeyRow = (load, rate, failures) => ({
  load,
  'per second': whole(rate),
  'failed tries per second': failures === undefined ? '' : whole(failures),
})

/** A change reads its row and writes it. */
function readRow({ nodes, isRead, servers, rate, logChanges, p50, p99 }, { rowReads, rowWrites }) {
  const added = (2 * logChanges * servers) / rate
  return {
    nodes,
    'changes are read': isRead ? 'yes' : 'no',
    'appends per second and server': whole(logChanges),
    'row operations per transfer': ratio(rowReads + rowWrites + added),
    more: isRead ? `${((added / (rowReads + rowWrites)) * 100).toFixed(1)} %` : '',
    'transfers/s': whole(rate),
    'p50, ms': whole(p50),
    p99: whole(p99),
  }
}

const costRow = (kind, { perNode, cpuMs }) => ({
  'a million': kind,
  'node-hours at full load': hours(1e6 / perNode),
  [`at ${percent(LOAD)}`]: hours(1e6 / perNode / LOAD),
  [`core-hours of servers at ${percent(LOAD)}`]: hours((1e6 * cpuMs) / 1000 / LOAD),
})

function levelDbLine(kinds, levelDb) {
  const nodes = levelDb.map(({ kind, rate }) => rate / kinds[kind].perNode)
  const rates = levelDb.map(({ name, rate }) => `${name}: ${whole(rate)}`)
  return `One LevelDB server does per second as much as ${Math.min(...nodes).toFixed(1)} to ${Math.max(...nodes).toFixed(1)} nodes at full load, by the time of its main thread (${rates.join(', ')}).`
}

/** How far the model's medians are from those of real servers on Google's server in memory. */
function checkLine({ works, hotRow }) {
  const byClients = [...new Set(works.map(({ clients }) => clients))].map((clients) => {
    const parts = works
      .filter((work) => work.clients === clients)
      .map(({ measured, modelled }) => modelled.p50 / measured.p50 - 1)
    return `${signed(Math.min(...parts))} to ${signed(Math.max(...parts))} with ${clients} client${clients === 1 ? '' : 's'}`
  })
  return `Beside real servers on Google's server in memory the model's median is off by ${byClients.join(', ')}; ${hotRow.writers} writers of one row at three servers commit ${short(hotRow.measured)} times per second, ${short(hotRow.modelled)} in the model.`
}
