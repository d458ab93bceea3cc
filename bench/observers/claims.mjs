// Claiming many cells by some workers at once.
import { postJson } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { LONG_LEASE_MS, putCells, register } from './cells.mjs'
import { withConnections } from './connection.mjs'
import { percentile, row } from './goals.mjs'

const WORKERS = 8
const LIMIT = 64

export async function claims({ cells }) {
  const { seconds, latencies, keys } = await withPerkv(({ url }) => measure(url, cells))
  const twice = keys.length - new Set(keys).size
  const name = `claims, ${WORKERS} workers, ${LIMIT} per call`
  return {
    settings: { cells, workers: WORKERS, limit: LIMIT },
    rows: [
      row(name, keys.length / seconds, { unit: 'cells/s', goal: 30_000, floor: 10_000 }),
      row(`${name}, longest call`, Math.max(...latencies), { unit: 'ms', goal: 100, floor: 500, isAtMost: true }),
      row(`${name}, p99 of calls`, percentile(latencies, 0.99), { unit: 'ms' }),
      row(`${name}, handed out twice`, twice, { goal: 0, floor: 0, isAtMost: true }),
      row(`${name}, not handed out`, cells - new Set(keys).size, { goal: 0, floor: 0, isAtMost: true }),
    ],
  }
}

async function measure(url, cells) {
  await register(url, 'claimed', 'claimed/')
  await putCells(url, 'claimed/', 0, cells)
  const latencies = []
  const keys = []
  const since = performance.now()
  await withConnections(url, WORKERS, (connections) =>
    Promise.all(
      connections.map(async (connection, i) => {
        const request = postJson('/v1/observers/claimed/claim', {
          worker: `worker-${i}`,
          limit: LIMIT,
          lease_ms: LONG_LEASE_MS,
        })
        for (;;) {
          const from = performance.now()
          const { notifications } = await connection.json(request)
          latencies.push(performance.now() - from)
          if (notifications.length === 0) return
          for (const { key } of notifications) keys.push(key)
        }
      }),
    ),
  )
  return { seconds: (performance.now() - since) / 1000, latencies, keys }
}
