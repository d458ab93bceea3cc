// From a PUT to the moment at which a waiting worker has the change, at a steady rate.
import { setTimeout as sleep } from 'node:timers/promises'
import { valueAt } from '../ratios/payload.mjs'
import { postJson, put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { cellKey, register } from './cells.mjs'
import { withConnections } from './connection.mjs'
import { percentile, row } from './goals.mjs'
import { atRate } from './rate.mjs'

const WORKERS = 8
const LIMIT = 16
const WARM_UP_S = 2

export async function begun({ rate, seconds }) {
  const { latencies, late } = await withPerkv(({ url }) => measure(url, rate, seconds))
  const name = `PUT to run begun, ${rate} PUT/s`
  return {
    settings: { rate, seconds, workers: WORKERS, limit: LIMIT },
    rows: [
      row(`${name}, p50`, percentile(latencies, 0.5), { unit: 'ms', goal: 5, floor: 50, isAtMost: true }),
      row(`${name}, p99`, percentile(latencies, 0.99), { unit: 'ms', goal: 50, floor: 500, isAtMost: true }),
      row(`${name}, longest`, Math.max(...latencies), { unit: 'ms' }),
      row(`${name}, sent over 5 ms late`, late, { unit: `of ${latencies.length}` }),
    ],
  }
}

async function measure(url, rate, seconds) {
  await register(url, 'begun', 'begun/')
  /** When each PUT was due, by its key. */
  const due = new Map()
  const latencies = []
  let isOver = false
  const work = async (connection, i) => {
    const claim = postJson('/v1/observers/begun/claim', {
      worker: `worker-${i}`,
      limit: LIMIT,
      wait_ms: 500,
      values: true,
    })
    while (!isOver || due.size > 0) {
      const { notifications } = await connection.json(claim)
      const now = performance.now()
      if (notifications.length === 0) continue
      for (const { key } of notifications) {
        latencies.push(now - due.get(key))
        due.delete(key)
      }
      const acks = notifications.map(({ key, fence }) => ({ observer: 'begun', key, fence }))
      await connection.json(postJson('/v1/txn', { acks, ops: [] }))
    }
  }
  const working = withConnections(url, WORKERS, (connections) => Promise.all(connections.map(work)))
  working.catch(() => {}) // Thrown below, even if it fails before.
  await sleep(100)
  let late = 0
  await atRate(url, rate, WARM_UP_S + seconds, async (connection, n, dueAt) => {
    if (n === rate * WARM_UP_S) {
      latencies.length = 0
      late = 0
    }
    if (performance.now() - dueAt > 5) late++
    due.set(cellKey('begun/', n), dueAt)
    await connection.json(put(`/v1/kv/${cellKey('begun/', n)}`, valueAt(n)))
  })
  isOver = true
  await working
  return { latencies, late }
}
