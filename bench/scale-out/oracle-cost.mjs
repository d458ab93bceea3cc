// What timestamps cost the core of the server that leads.
import http from 'node:http'
import { Clock } from '../../dist/oracle/clock.js'
import { LeaderOracle } from '../../dist/oracle/leader-oracle.js'
import { decodeAnswer, decodeAsk, encodeAnswer, encodeAsk, newNonce } from '../../dist/oracle/signed-ask.js'
import { scheduledMicros } from '../proc.mjs'
import { divided } from './divided.mjs'
import { callsOf, secretOf, statusOf, withServers } from './emulated.mjs'

const URL = 'http://leader'

/**
 * src/oracle alone, in this process: an ask is checked, waits for its batch, is answered and signed.
 * @returns µs of processor time per ask, with `inFlight` of them in each batch; most of it are the two signatures.
 */
export async function oracleAlone({ asks = 100_000, inFlight = 64, count = 1 } = {}) {
  let row
  const oracle = new LeaderOracle({
    row: {
      read: async () => row,
      async swap(_, next) {
        row = next
        return 'done'
      },
    },
    forward: async () => 'not_leader',
    url: URL,
    clock: new Clock({}),
  })
  oracle.start()
  await oracle.next()
  const secret = Buffer.alloc(32, 1)
  const bodies = Array.from({ length: 1000 }, () => {
    const nonce = newNonce()
    return encodeAsk(secret, { url: URL, nonce, ask: { count, floor: 0 } })
  })
  const asker = async (_, i) => {
    for (let n = i; n < asks; n += inFlight) {
      const asked = decodeAsk(secret, URL, bodies[n % bodies.length])
      encodeAnswer(secret, asked.nonce, await oracle.answer(asked.ask))
    }
  }
  const round = async () => {
    const before = process.cpuUsage()
    await Promise.all(Array.from({ length: inFlight }, asker))
    const { user, system } = process.cpuUsage(before)
    return (user + system) / asks
  }
  await round() // Until it is compiled.
  const micros = await round()
  await oracle.close()
  return micros
}

const CONNECTIONS = [1, 4, 16, 64]
/** Of every call to the table, so that batches have different sizes. */
const DELAYS_MS = [0, 5]

/**
 * A whole server that leads, asked over HTTP by as many others as there are connections. Its main thread's time is divided between
 * asks and batches by least squares, since runs differ in how many asks share a batch.
 */
export async function leaderOverHttp({ seconds = 4, count = 1 } = {}) {
  const runs = []
  for (const delayMs of DELAYS_MS)
    await withServers({ count: 1, delayMs }, async ({ table, leader }) => {
      const { leader: url } = (await statusOf(leader)).oracle
      const secret = await secretOf(table)
      const during = (connections, ms) => asked(leader, connections, ms, askerOf(url, secret, connections, count))
      await during(16, 5000) // Until it is compiled.
      const idle = await during(0, 3000)
      for (const connections of CONNECTIONS) {
        const { asks, batches, micros } = await during(connections, seconds * 1000)
        runs.push({ connections, delayMs, asks, batches, micros: micros - idle.micros })
      }
    })
  return { ...divided(runs), runs }
}

/** @returns per second: asks, batches, and µs of the leader's main thread. */
async function asked(leader, connections, ms, ask) {
  const calls = (await callsOf(leader)).read
  const micros = scheduledMicros(leader).main
  const began = performance.now()
  let asks = 0
  const asker = async () => {
    for (; performance.now() < began + ms; asks++) await ask()
  }
  if (connections === 0) await new Promise((resolve) => setTimeout(resolve, ms))
  await Promise.all(Array.from({ length: connections }, asker))
  const seconds = (performance.now() - began) / 1000
  const worked = scheduledMicros(leader).main - micros
  return { asks: asks / seconds, batches: ((await callsOf(leader)).read - calls) / seconds, micros: worked / seconds }
}

function askerOf(url, secret, connections, count) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: connections })
  const target = new globalThis.URL('/v1/internal/timestamps', url)
  return () =>
    new Promise((resolve, reject) => {
      const nonce = newNonce()
      const body = encodeAsk(secret, { url, nonce, ask: { count, floor: 0 } })
      const headers = { 'content-type': 'application/octet-stream', 'content-length': body.length }
      const request = http.request(target, { method: 'POST', agent, headers }, (response) => {
        const chunks = []
        response.on('data', (chunk) => chunks.push(chunk))
        response.on('end', () => {
          const answer = decodeAnswer(secret, nonce, Buffer.concat(chunks))
          if (answer === undefined || answer === 'not_leader')
            reject(new Error(`no timestamps: ${response.statusCode}`))
          else resolve(answer)
        })
      })
      request.on('error', reject)
      request.end(body)
    })
}
