// The kinds of transactions of `transactions.mjs`, as requests to a server.
import { call } from './emulated.mjs'

const KEYS = 100_000
const random = () => Math.floor(Math.random() * KEYS)
let next = 0

export const WORK = {
  'put of a known key': (server, i) => call(server, 'PUT', `/v1/kv/own${i}`, 'value'),
  get: (server, i) => call(server, 'GET', `/v1/kv/own${i}`), // After the puts.
  put: (server) => call(server, 'PUT', `/v1/kv/new${next++}`, 'value'),
  transfer(server) {
    const first = random()
    const ops = [first, (first + 1 + random()) % (KEYS + 1)].map((n, i) => ({
      ...{ op: 'increment', key: `account${n}`, by: i * 2 - 1 },
    }))
    return call(server, 'POST', '/v1/txn', JSON.stringify({ ops }))
  },
}

/** As many clients as `clients`, each without pause, until `ms` have passed. @returns rate per second, latencies in ms, lost races. */
export async function load(clients, ms, body) {
  const latencies = []
  let failed = 0
  const began = performance.now()
  const client = async (_, i) => {
    while (performance.now() < began + ms) {
      const at = performance.now()
      try {
        await body(i)
        latencies.push(performance.now() - at)
      } catch (error) {
        if (error.status !== 409 && error.status !== 423) throw error
        failed++
      }
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return { rate: (latencies.length / (performance.now() - began)) * 1000, latencies, failed }
}
