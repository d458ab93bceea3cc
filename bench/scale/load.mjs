import autocannon from 'autocannon'

/** A stall is what is looked for, and no reason to give up on an answer. */
const TIMEOUT_S = 120

/**
 * Requests from `connections` connections, each one after the answer to its last, for so many `seconds`, or until the
 * promise `until` is fulfilled.
 * @param load.isTolerant failures are counted; otherwise they throw.
 * @returns rates, latencies in ms, and `seconds`: the latencies of the answers that came in each second.
 */
export async function load({ server, requests, connections = 64, seconds, until, isTolerant = false }) {
  const arrivals = []
  const start = performance.now()
  const run = autocannon({
    url: server.url,
    requests,
    connections,
    timeout: TIMEOUT_S,
    sampleInt: 100, // How soon it notices that it is over.
    duration: seconds ?? 24 * 3600,
  })
  run.on('response', (_client, _status, _bytes, ms) => {
    const second = Math.floor((performance.now() - start) / 1000)
    while (arrivals.length <= second) arrivals.push([])
    arrivals[second].push(ms)
  })
  until?.finally(() => run.stop())
  const { errors, non2xx, statusCodeStats } = await run
  const elapsed = (performance.now() - start) / 1000
  const failed = errors + non2xx
  if (failed > 0 && !isTolerant) throw new Error(`${failed} requests failed: ${JSON.stringify(statusCodeStats)}`)
  const all = arrivals.flat()
  return { rate: all.length / elapsed, count: all.length, failed, ...latencies(all), elapsed, seconds: arrivals }
}

/** @returns null for what there is nothing to tell of. */
export function latencies(list) {
  const sorted = Float64Array.from(list).sort()
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? null
  return { p50: at(0.5), p99: at(0.99), max: at(1) }
}
