// Operations that are one request, by autocannon: keep-alive connections, each with one request in flight. It looks into answers,
// and takes as much of the processor as the server.
import autocannon from 'autocannon'
import { requestsOf } from './template.mjs'

/** How soon it notices that its time is over. */
const TICK_MS = 20

/**
 * @param operation.template see `template.mjs`.
 * @param operation.isRight of the body of an answer; without it any answer with 2xx is right.
 * @returns requests per second, how many were answered, and the latency in whole ms that 99 % of them kept.
 * @throws when any request fails.
 */
export async function cannon({ url, connections, seconds, operation }) {
  const next = requestsOf(operation)
  const result = await autocannon({
    ...{ url, connections, duration: seconds, sampleInt: TICK_MS, verifyBody: operation.isRight },
    requests: [{ setupRequest: (base) => Object.assign(base, next()) }],
  })
  const { errors, timeouts, non2xx, mismatches, latency, start, finish } = result
  // It goes on without a word when a server closes a connection, with the request on it lost.
  const lost = Math.max(0, result.requests.sent - result['2xx'] - non2xx - connections)
  if (errors + non2xx + mismatches + lost > 0) {
    const failed = JSON.stringify({ errors, timeouts, lost, wrong: mismatches, statuses: result.statusCodeStats })
    throw new Error(`requests of autocannon failed: ${failed}`)
  }
  const count = result['2xx']
  return { rate: (count * 1000) / (finish - start), count, p99: latency.p99 }
}
