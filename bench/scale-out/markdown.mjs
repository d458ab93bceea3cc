// The study as tables, as they stand in docs/scale-out.md.
import { DOCUMENTED, PAPER } from './costs.mjs'
import { LOAD } from './study.mjs'

const whole = (value) => Math.round(value).toLocaleString('en-US')
/** To three digits. */
const short = (value) => (value === undefined ? '' : Number(value.toPrecision(3)).toLocaleString('en-US'))
const ratio = (value) => value.toFixed(2)
const percent = (part) => `${Math.round(part * 100)} %`
const signed = (part) => `${part < 0 ? '-' : '+'}${Math.abs(Math.round(part * 100))} %`

/** @param columns `[name, cell of a row]`; the first is to the left, all others are numbers. */
function table(columns, rows) {
  const cells = [columns.map(([name]) => name), ...rows.map((row) => columns.map(([, cell]) => cell(row)))]
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i].length)))
  const line = (texts) => `| ${texts.join(' | ')} |`
  const [head, ...body] = cells.map((texts) =>
    line(texts.map((text, i) => (i === 0 ? text.padEnd(widths[i]) : text.padStart(widths[i])))),
  )
  const rule = line(widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)))
  return [head, rule, ...body].join('\n')
}

export function markdownOf({ seed, assumed, measured, results, checks, levelDb }) {
  return [
    inputs(seed, assumed, measured),
    '### One transaction',
    kindsTable(results.kinds),
    '### By nodes',
    nodesTable(results),
    '### The oracle',
    oracleTable(results.transfers),
    '### Hot keys',
    hotTable(results),
    '### Node-hours',
    costTable(results.kinds),
    levelDbLine(results.kinds, levelDb),
    checkLine(checks),
  ].join('\n\n')
}

function inputs(seed, { medianMs, p99Ms, hopMs }, { machine, node, oracle }) {
  return [
    `Seed ${seed}.`,
    `Documented: ${whole(DOCUMENTED.rowReadsPerSecond)} row reads or ${whole(DOCUMENTED.rowWritesPerSecond)} row writes per second and node.`,
    `Assumed: a call takes ${medianMs} ms at the median and ${p99Ms} ms at the 99th percentile (lognormal), the way from server to server ${hopMs} ms; nodes and servers are loaded to ${percent(LOAD)}.`,
    `Measured on ${machine.cpu}, ${machine.cores} cores, ${machine.system}, Node ${node.replace('v', '')}, load average before ${machine.load_before.toFixed(1)}: the leader's main thread takes ${whole(oracle.askMicros)} µs per request of another server, of which ${whole(oracle.aloneAskMicros)} are the oracle and its signatures and the rest is HTTP, and ${whole(oracle.batchMicros)} µs per batch.`,
  ].join(' ')
}

const kindsTable = (kinds) =>
  table(
    [
      ['transaction', ([kind]) => kind],
      ['round trips', ([, { roundTrips }]) => String(roundTrips)],
      ['calls', ([, { calls }]) => String(calls)],
      ['row reads', ([, { rowReads }]) => String(rowReads)],
      ['row writes', ([, { rowWrites }]) => String(rowWrites)],
      ['timestamps', ([, { timestamps }]) => String(timestamps)],
      ['server CPU, ms', ([, { cpuMs }]) => ratio(cpuMs)],
      ['per node and second, at most', ([, { perNode }]) => whole(perNode)],
      ['of raw', ([kind, { perNode }]) => ratio(perNode / rawOf(kind))],
      ['in the paper', ([kind]) => paperOf(kind)],
    ],
    Object.entries(kinds),
  )

const rawOf = (kind) => (kind === 'get' ? DOCUMENTED.rowReadsPerSecond : DOCUMENTED.rowWritesPerSecond)

function paperOf(kind) {
  const { readsPerSecond: reads, writesPerSecond: writes } = PAPER
  if (kind === 'get') return ratio(reads.percolator / reads.bigtable)
  return kind === 'put' ? ratio(writes.percolator / writes.bigtable) : ''
}

function nodesTable({ transfers, puts }) {
  const today = transfers.filter(({ oracle }) => oracle === 'as today')
  return table(
    [
      ['nodes', ([{ nodes }]) => whole(nodes)],
      ['PUT/s', ([, { rate }]) => whole(rate)],
      ['p50, ms', ([, { p50 }]) => whole(p50)],
      ['p99', ([, { p99 }]) => whole(p99)],
      ['servers', ([, { servers }]) => whole(servers)],
      ['transfers/s', ([{ rate }]) => whole(rate)],
      ['p50, ms', ([{ p50 }]) => whole(p50)],
      ['p99', ([{ p99 }]) => whole(p99)],
      ['servers', ([{ servers }]) => whole(servers)],
      ['requests/s at the leader', ([{ asks }]) => whole(asks)],
      ["leader's core", ([{ busy }]) => percent(busy.leader)],
    ],
    today.map((row, i) => [row, puts[i]]),
  )
}

const SHOWN_NODES = [10, 100, 1000]
/** The others bring little, as the document says; all are in the JSON. */
const SHOWN_ORACLES = ['as today', 'leader without clients']

const oracleTable = (transfers) =>
  table(
    [
      ['oracle', ({ oracle }) => oracle],
      ['nodes', ({ nodes }) => whole(nodes)],
      ['requests/s at the leader', ({ asks }) => whole(asks)],
      ["leader's core", ({ busy }) => percent(busy.leader)],
      ['timestamp p50, ms', ({ timestampP50 }) => whole(timestampP50)],
      ['p99', ({ timestampP99 }) => whole(timestampP99)],
      ['transfer p50, ms', ({ p50 }) => whole(p50)],
      ['p99', ({ p99 }) => whole(p99)],
    ],
    transfers.filter(({ nodes, oracle }) => SHOWN_NODES.includes(nodes) && SHOWN_ORACLES.includes(oracle)),
  )

const hotTable = ({ hotRows, ascending }) =>
  table(
    [
      ['load', ({ name }) => name],
      ['per second', ({ rate }) => whole(rate)],
      ['failed tries per second', ({ failures }) => (failures === undefined ? '' : whole(failures))],
    ],
    [
      ...hotRows.map(({ writers, commits, failures }) => ({
        ...{ name: `commits of one row, writers: ${writers}`, rate: commits, failures },
      })),
      ...ascending.map(({ nodes, rate }) => ({ name: `PUTs of ascending keys, nodes: ${nodes}`, rate })),
    ],
  )

const costTable = (kinds) =>
  table(
    [
      ['a million', ([kind]) => kind],
      ['node-hours at full load', ([, { perNode }]) => hours(1e6 / perNode)],
      [`at ${percent(LOAD)}`, ([, { perNode }]) => hours(1e6 / perNode / LOAD)],
      [`core-hours of servers at ${percent(LOAD)}`, ([, { cpuMs }]) => hours((1e6 * cpuMs) / 1000 / LOAD)],
    ],
    Object.entries(kinds),
  )

const hours = (seconds) => (seconds / 3600).toFixed(3)

function levelDbLine(kinds, levelDb) {
  const nodes = levelDb.map(({ kind, rate }) => rate / kinds[kind].perNode)
  const rates = levelDb.map(({ name, rate }) => `${name}: ${whole(rate)}`)
  return `One LevelDB server does per second as much as ${Math.min(...nodes).toFixed(1)} to ${Math.max(...nodes).toFixed(1)} nodes at full load (${rates.join('; ')}).`
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
