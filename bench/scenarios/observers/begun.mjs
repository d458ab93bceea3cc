// From a PUT to the moment at which a waiting worker has the change, at a steady rate.
import { setTimeout as sleep } from 'node:timers/promises'
import { withConnections } from '../../harness/connection.mjs'
import { atRate } from '../../harness/load.mjs'
import { numbered, valueAt } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { latencyRows } from '../../harness/report.mjs'
import { postJson, put } from '../../harness/requests.mjs'
import { register } from './cells.mjs'

const WORKERS = 8
const LIMIT = 16
const WARM_UP_S = 2

export const begun = {
  full: { rate: 1000, seconds: 15 },
  quick: { rate: 500, seconds: 2 },
  async run({ rate, seconds }) {
    const latencies = await withPerkv([], (server) => measure(server, rate, seconds))
    const bounds = { p50: { goal: 5, floor: 50 }, p99: { goal: 50, floor: 500 }, longest: {} }
    return latencyRows(`PUT to run begun, ${rate} PUT/s`, latencies, bounds)
  },
}

async function measure(server, rate, seconds) {
  await register(server, 'begun', 'begun/')
  /** When each PUT was due, by its key. */
  const due = new Map()
  const latencies = []
  let isOver = false
  const working = withConnections(server.url, WORKERS, async (connection, i) => {
    const body = { worker: `worker-${i}`, limit: LIMIT, wait_ms: 500, values: true }
    const claim = postJson('/v1/observers/begun/claim', body)
    while (!isOver || due.size > 0) {
      const { notifications } = await connection.call(claim)
      const now = performance.now()
      if (notifications.length === 0) continue
      for (const { key } of notifications) {
        latencies.push(now - due.get(key))
        due.delete(key)
      }
      const acks = notifications.map(({ key, fence }) => ({ observer: 'begun', key, fence }))
      await connection.call(postJson('/v1/txn', { acks, ops: [] }))
    }
  })
  working.catch(() => {}) // Thrown below, even if it fails before.
  await sleep(100)
  await atRate(server.url, rate, WARM_UP_S + seconds, async (connection, n, dueAt) => {
    if (n === rate * WARM_UP_S) latencies.length = 0
    const key = numbered('begun/', n)
    due.set(key, dueAt)
    await connection.call(put(`/v1/kv/${key}`, valueAt(n)))
  })
  isOver = true
  await working
  return latencies
}
