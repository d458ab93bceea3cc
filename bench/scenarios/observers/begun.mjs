// From a PUT to the moment at which a waiting worker has the change, at a steady rate.
import { setTimeout as sleep } from 'node:timers/promises'
import { withConnections } from '../../harness/connection.mjs'
import { atRate, latenciesOf } from '../../harness/load.mjs'
import { numbered, valueAt } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { row } from '../../harness/report.mjs'
import { postJson, put } from '../../harness/requests.mjs'
import { register } from './cells.mjs'

const WORKERS = 8
const LIMIT = 16
const WARM_UP_S = 2

export const begun = {
  full: { rate: 1000, seconds: 15 },
  quick: { rate: 500, seconds: 2 },
  async run({ rate, seconds }) {
    const { p50, p99, max } = latenciesOf(await withPerkv([], (server) => measure(server, rate, seconds)))
    const name = `PUT to run begun, ${rate} PUT/s`
    return [
      row(`${name}, p50`, p50, { unit: 'ms', goal: 5, floor: 50, isAtMost: true }),
      row(`${name}, p99`, p99, { unit: 'ms', goal: 50, floor: 500, isAtMost: true }),
      row(`${name}, longest`, max, { unit: 'ms' }),
    ]
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
