// Throughput and p99 by the number of connections.
import { lines } from '../chart.mjs'
import { median } from '../process.mjs'
import { value } from './data.mjs'
import { load } from './load.mjs'
import { each, putFresh } from './requests.mjs'
import { withPerkv } from './servers.mjs'

const CONNECTIONS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
const HOT = '/v1/kv/hot'
const KINDS = {
  get: { name: 'GET of a hot key', requests: [{ method: 'GET', path: HOT }] },
  put: { name: 'Durable PUT, distinct keys', requests: each(() => putFresh()) },
}

export function connections({ seconds, rounds }) {
  return withPerkv(async (server) => {
    await fetch(server.url + HOT, { method: 'PUT', body: value() })
    const rows = []
    for (const kind of Object.keys(KINDS)) {
      await load({ server, requests: KINDS[kind].requests, seconds })
      for (const connections of CONNECTIONS) rows.push({ kind, connections, ...(await measured(kind, connections)) })
    }
    return { settings: { seconds, rounds }, rows, charts: charts(rows) }

    async function measured(kind, connections) {
      const results = []
      for (let round = 0; round < rounds; round++)
        results.push(await load({ server, requests: KINDS[kind].requests, connections, seconds }))
      const rates = results.map(({ rate }) => rate)
      return {
        per_s: median(rates),
        per_s_min: Math.min(...rates),
        per_s_max: Math.max(...rates),
        p50_ms: median(results.map(({ p50 }) => p50)),
        p99_ms: median(results.map(({ p99 }) => p99)),
      }
    }
  })
}

function charts(rows) {
  const of = (kind, field) => rows.filter((row) => row.kind === kind).map((row) => [row.connections, row[field]])
  const chart = (kind) =>
    lines({
      title: KINDS[kind].name,
      x: { label: 'connections', kind: 'log2' },
      y: { label: 'requests/s' },
      y2: { label: 'p99, ms' },
      series: [
        { name: 'requests/s', points: of(kind, 'per_s') },
        { name: 'p99', points: of(kind, 'p99_ms'), right: true },
      ],
    })
  return { 'connections-get': chart('get'), 'connections-put': chart('put') }
}
