// The holders of many leases, and those who wait for one, in a process of their own. It does what it is told over IPC.
import { Connection, put, request } from './connection.mjs'

const { url, connections: connectionCount, leases: leaseCount, everyMs } = JSON.parse(process.argv[2])
const at = new URL(url)
const TTL_MS = 60_000
/** What a server that grants nothing answers has none. */
const NO_FENCE = 1_111_111_111_111_111
/** New connections in one turn. */
const OPENED_TOGETHER = 100

const path = (i) => `/v1/leases/shard/${i}`
const holding = (i, rest = {}) => ({ holder: `worker-${i}`, ttl_ms: TTL_MS, ...rest })
const connections = await opened(connectionCount)
const renewals = []
let waiting = []

const DO = {
  async grant({ ttlMs = TTL_MS }) {
    await all(
      leaseCount,
      (i) => put(path(i), holding(i, { ttl_ms: ttlMs })),
      (i, body) => {
        const { fence = NO_FENCE } = JSON.parse(body)
        renewals[i] = put(path(i), holding(i, { fence }))
      },
    )
  },

  /** Each lease at its own moment in each period. Latencies begin when a renewal was handed to its connection. */
  async renew({ seconds }) {
    const dues = Array.from({ length: leaseCount }, (_, i) => ({ i, ms: Math.random() * everyMs })).sort(
      (a, b) => a.ms - b.ms,
    )
    const latencies = []
    const beginMs = performance.now()
    const endMs = beginMs + seconds * 1000
    let next = 0
    let sent = 0
    const isOver = new Promise((resolve) => {
      const end = () => latencies.length === sent && performance.now() >= endMs && resolve()
      const tick = () => {
        const nowMs = performance.now()
        for (; nowMs < endMs; next++) {
          const { i, ms } = dues[next % leaseCount]
          if (beginMs + Math.floor(next / leaseCount) * everyMs + ms > nowMs) break
          sent++
          connections[i % connectionCount].send(renewals[i], (status) => {
            if (status !== 200) throw new Error(`a renewal was answered ${status}`)
            latencies.push(performance.now() - nowMs)
            end()
          })
        }
        if (nowMs < endMs) setTimeout(tick, 1)
        else end()
      }
      tick()
    })
    await isOver
    latencies.sort((a, b) => a - b)
    const share = (part) => latencies[Math.floor(latencies.length * part)]
    return { count: latencies.length, p50: share(0.5), p99: share(0.99), max: latencies.at(-1) }
  },

  async list() {
    return new Promise((resolve) => {
      connections[0].send(request('GET', '/v1/leases'), (_, body) => resolve({ bytes: body.length }))
    })
  },

  /** So many wait for the lease of another, each on a connection of its own. */
  async wait({ count, sameHolder, waitMs }) {
    const askers = await opened(count)
    const statuses = {}
    const answers = askers.map(
      (asker, i) =>
        new Promise((resolve) => {
          const body = { holder: sameHolder ? 'they' : `waiter-${i}`, ttl_ms: TTL_MS, wait_ms: waitMs }
          asker.send(put('/v1/leases/wanted', body), (status) => {
            statuses[status] = (statuses[status] ?? 0) + 1
            resolve()
          })
        }),
    )
    waiting = askers
    return { answered: Promise.all(answers).then(() => ({ statuses })) }
  },

  async leave() {
    for (const asker of waiting) asker.close()
    waiting = []
  },
}

async function opened(count) {
  const all = []
  while (all.length < count) {
    const together = Math.min(OPENED_TOGETHER, count - all.length)
    all.push(...(await Promise.all(Array.from({ length: together }, () => Connection.open(at)))))
  }
  return all
}

function all(count, bytesOf, answered) {
  return Promise.all(
    Array.from(
      { length: count },
      (_, i) =>
        new Promise((resolve, reject) => {
          connections[i % connectionCount].send(bytesOf(i), (status, body) => {
            if (status !== 200) return reject(new Error(`a grant was answered ${status}: ${body}`))
            answered(i, body)
            resolve()
          })
        }),
    ),
  )
}

process.on('message', async ({ id, what, ...rest }) => {
  const result = await DO[what](rest)
  const { answered, ...known } = result ?? {}
  process.send({ id, result: known })
  if (answered !== undefined) process.send({ id: `${id} answered`, result: await answered })
})
process.on('disconnect', () => process.exit())
process.send({ id: 'ready' })
