// Operations that are one request, by autocannon: keep-alive connections, each with one request in flight.
import autocannon from 'autocannon'

/** How soon it notices that its time is over. */
const TICK_MS = 20

/**
 * @param operation.request a request, or a function that makes one each time.
 * @param operation.isRight of the body of an answer; without it any answer with 2xx is right.
 * @returns requests a second, and the latency in whole ms that 99 % of them kept.
 * @throws when any request fails.
 */
export async function cannon({ url, connections, seconds, operation: { request, isRight } }) {
  const requests = [
    typeof request === 'function' ? { setupRequest: (base) => Object.assign(base, request()) } : request,
  ]
  const options = { url, connections, duration: seconds, requests, verifyBody: isRight, sampleInt: TICK_MS }
  const result = await autocannon(options)
  const { errors, timeouts, non2xx, mismatches, latency, start, finish } = result
  // It goes on without a word when a server closes a connection, with the request on it lost.
  const lost = Math.max(0, result.requests.sent - result['2xx'] - non2xx - connections)
  if (errors + non2xx + mismatches + lost > 0) {
    const failed = JSON.stringify({ errors, timeouts, lost, wrong: mismatches, statuses: result.statusCodeStats })
    throw new Error(`requests of autocannon failed: ${failed}`)
  }
  return { rate: (result['2xx'] * 1000) / (finish - start), p99: latency.p99 }
}
