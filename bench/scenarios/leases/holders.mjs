// A worker: the holders of many leases, and those who wait for one.
import { openConnections } from '../../harness/connection.mjs'
import { latenciesOf } from '../../harness/numbers.mjs'
import { bytesOf, get, putJson } from '../../harness/requests.mjs'
import { answerCalls } from '../../harness/worker.mjs'

const url = process.argv[2]
const TTL_MS = 60_000
/** What a server that grants nothing answers has none. */
const NO_FENCE = 1_111_111_111_111_111

let settings
let connections
const renewals = []
let waiting = []
let answers

const leasePut = (i, rest) => putJson(`/v1/leases/shard/${i}`, { holder: `worker-${i}`, ttl_ms: TTL_MS, ...rest })
const connectionOf = (i) => connections[i % connections.length]

answerCalls({
  async open(given) {
    settings = given
    connections = await openConnections(settings.connections, () => url)
  },

  async grant(ttlMs = TTL_MS) {
    const grant = async (_, i) => {
      const { fence = NO_FENCE } = await connectionOf(i).call(leasePut(i, { ttl_ms: ttlMs }))
      renewals[i] = bytesOf(leasePut(i, { fence }))
    }
    await Promise.all(Array.from({ length: settings.leases }, grant))
  },

  /** Each lease at its own moment in each period. Latencies begin when a renewal was handed to its connection. */
  async renew({ seconds }) {
    const { leases, everyMs } = settings
    const moments = Array.from({ length: leases }, (_, i) => ({ i, ms: Math.random() * everyMs }))
    const due = moments.sort((a, b) => a.ms - b.ms)
    const latencies = []
    const beginMs = performance.now()
    const endMs = beginMs + seconds * 1000
    let sent = 0
    await new Promise((resolve, reject) => {
      const end = () => latencies.length === sent && performance.now() >= endMs && resolve()
      const tick = () => {
        const nowMs = performance.now()
        for (; nowMs < endMs; sent++) {
          const { i, ms } = due[sent % leases]
          if (beginMs + Math.floor(sent / leases) * everyMs + ms > nowMs) break
          connectionOf(i).send(renewals[i], (error, status) => {
            if (error !== undefined || status !== 200)
              return reject(error ?? new Error(`a renewal was answered ${status}`))
            latencies.push(performance.now() - nowMs)
            end()
          })
        }
        if (nowMs < endMs) setTimeout(tick, 1)
        else end()
      }
      tick()
    })
    return { count: latencies.length, ...latenciesOf(latencies) }
  },

  async list() {
    await connections[0].ask(get('/v1/leases'))
  },

  /** So many begin to wait for the lease of another, each on a connection of its own. */
  async wait({ count, isOneHolder = false, waitMs }) {
    waiting = await openConnections(count, () => url)
    answers = waiting.map((connection, i) => {
      const holder = isOneHolder ? 'they' : `waiter-${i}`
      return connection.ask(putJson('/v1/leases/wanted', { holder, ttl_ms: TTL_MS, wait_ms: waitMs }))
    })
    for (const answer of answers) answer.catch(() => {}) // Those who leave have none.
  },

  async answered() {
    await Promise.all(answers)
  },

  async leave() {
    for (const connection of waiting) connection.close()
  },
})
