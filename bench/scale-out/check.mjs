// The model beside real servers: the same clients, with calls that take what bare calls took at the same time.
import { cluster } from './cluster.mjs'
import { hotRow } from './hot-row.mjs'
import { demandOf } from './transactions.mjs'

/** What the model says for each measured work. A request takes `emptyMs` besides what it waits for, and so does one to the leader. */
export function checked({ oracle, latencies: { bareMicros, works, hotRow: measuredRow } }, seed) {
  const askMs = oracle.askMicros / 1000
  const costs = ({ samples, emptyMs }, cpuMs) => ({
    ...{ latency: { samples }, readMs: 0, writeMs: 0 },
    ...{ askMs, hopMs: Math.max(0, emptyMs - askMs) / 2 },
    batchMs: 0, // The processor time of a call is in its latency.
    cpuMs,
  })
  const modelled = works.map((measured) => {
    const { kind, clients, micros, emptyMs } = measured
    const cpuMs = { [kind]: Math.max(0, micros - demandOf(kind).calls * bareMicros) / 1000 }
    const plan = { nodes: 1, servers: 1, isLeaderFree: true, ms: 20_000, kind, clients, seed }
    const { p50, rate, batches } = cluster(costs(measured, cpuMs), plan)
    return { ...{ kind, clients, measured }, modelled: { p50: p50 + emptyMs, batches: batches / rate } }
  })
  const { commits } = hotRow(costs(measuredRow, {}), { writers: measuredRow.writers, seed })
  return { works: modelled, hotRow: { writers: measuredRow.writers, measured: measuredRow.rate, modelled: commits } }
}
