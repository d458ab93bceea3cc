// Watchers of keys of their own: what an idle one takes of the server's memory, and how soon one is told of its change.
import { setTimeout as sleep } from 'node:timers/promises'
import { atRate, load } from '../../harness/load.mjs'
import { keyOf, valueAt } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { cpuMicros, rssBytes } from '../../harness/process.mjs'
import { latencyRows, row } from '../../harness/report.mjs'
import { put } from '../../harness/requests.mjs'
import { clockAt, Streams } from './streams.mjs'

const STEP = 7919

export const watchers = {
  full: { count: 10_000, rate: 500, seconds: 10, idleS: 20 },
  quick: { count: 1000, rate: 200, seconds: 2, idleS: 2 },
  async run(settings) {
    const { count, rate } = settings
    const { kib, idleCpu, latencies } = await withPerkv([], (server) => measure(server, settings))
    const bounds = { p50: {}, p99: { goal: 20, floor: 200 }, longest: {} }
    return [
      row(`${count} idle watchers`, kib, { unit: 'KiB each', goal: 20, floor: 60, isAtMost: true }),
      row(`${count} idle watchers, CPU`, idleCpu * 100, { unit: '% of a core' }),
      ...latencyRows(`PUT to their events, ${rate} PUT/s`, latencies, bounds),
    ]
  },
}

async function measure(server, { count, rate, seconds, idleS }) {
  const { url } = server
  // As on a server that has worked: the memory for its work is there.
  await load({
    ...{ url, count: 3 * count },
    request: (n) => put(`/v1/kv/${keyOf(n % count)}`, valueAt(n)),
  })
  await sleep(2000)
  const before = rssBytes(server)
  const paths = Array.from({ length: count }, (_, n) => `/v1/kv/${keyOf(n)}`)
  const streams = await Streams.open(url, paths)
  const cpuBefore = cpuMicros(server)
  await sleep(idleS * 1000)
  const idleCpu = (cpuMicros(server).all - cpuBefore.all) / (idleS * 1e6)
  const kib = (rssBytes(server) - before) / 1024 / count
  const due = new Map()
  /** Each key at most once, so that no version is left out. */
  const all = Math.min(count, rate * seconds)
  await atRate(url, rate, all / rate, async (connection, n, dueAt) => {
    const key = keyOf((n * STEP) % count)
    due.set(key, clockAt(dueAt))
    await connection.call(put(`/v1/kv/${key}`, valueAt(n)))
  })
  const latencies = (await streams.events(all)).map(({ key, at }) => at - due.get(key))
  await streams.close()
  return { kib, idleCpu, latencies }
}
