// Calls within one process: some at a time, each followed by the next; those in flight at the end are waited for, and count.
import { percentile99 } from './load.mjs'

export async function lanes(inFlight, seconds, call) {
  const latencies = []
  const begin = performance.now()
  const end = begin + seconds * 1000
  const lane = async () => {
    for (let since = performance.now(); since < end; ) {
      await call()
      const now = performance.now()
      latencies.push(now - since)
      since = now
    }
  }
  await Promise.all(Array.from({ length: inFlight }, lane))
  const elapsed = (performance.now() - begin) / 1000
  return { rate: latencies.length / elapsed, p99: percentile99(latencies) }
}
