// Watchers of keys of their own: what an idle one takes of the server's memory, and how soon one is told of its change.
import { setTimeout as sleep } from 'node:timers/promises'
import { percentile, row } from '../observers/goals.mjs'
import { atRate } from '../observers/rate.mjs'
import { cpuMicros, rssBytes } from '../proc.mjs'
import { load } from '../ratios/load.mjs'
import { keyOf, valueAt } from '../ratios/payload.mjs'
import { put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { Streams } from './streams.mjs'

const CONNECTIONS = 64
const STEP = 7919

export async function watchers({ count, rate, seconds, idleS }) {
  const { kib, idleCpu, latencies } = await withPerkv((server) => measure(server, { count, rate, seconds, idleS }))
  return {
    settings: { count, rate, seconds, idleS },
    rows: [
      row(`${count} idle watchers`, kib, { unit: 'KiB each', goal: 20, floor: 60, isAtMost: true }),
      row(`${count} idle watchers, CPU`, idleCpu * 100, { unit: '% of a core' }),
      row(`PUT to event, ${rate} PUT/s, p50`, percentile(latencies, 0.5), { unit: 'ms' }),
      row(`PUT to event, ${rate} PUT/s, p99`, percentile(latencies, 0.99), {
        unit: 'ms',
        goal: 20,
        floor: 200,
        isAtMost: true,
      }),
      row(`PUT to event, ${rate} PUT/s, longest`, percentile(latencies, 1), { unit: 'ms' }),
    ],
  }
}

async function measure(server, { count, rate, seconds, idleS }) {
  const { url } = server
  // As on a server that has worked: the memory for its work is there.
  await load({
    url,
    connections: CONNECTIONS,
    count: 3 * count,
    *operation(n) {
      yield put(`/v1/kv/${keyOf(n % count)}`, valueAt(n))
    },
  })
  await sleep(2000)
  const before = rssBytes(server)
  const streams = await Streams.open(
    url,
    Array.from({ length: count }, (_, n) => `/v1/kv/${keyOf(n)}`),
  )
  const cpuBefore = cpuMicros(server)
  await sleep(idleS * 1000)
  const idleCpu = (cpuMicros(server).all - cpuBefore.all) / (idleS * 1e6)
  const kib = (rssBytes(server) - before) / 1024 / count
  const sent = new Map()
  const latencies = []
  /** Each key at most once, so that no version is left out. */
  const all = Math.min(count, rate * seconds)
  await atRate(url, rate, all / rate, async (connection, n, dueAt) => {
    const key = keyOf((n * STEP) % count)
    sent.set(key, performance.timeOrigin + dueAt)
    await connection.json(put(`/v1/kv/${key}`, valueAt(n)))
  })
  for (const { key, at } of await streams.events(all)) latencies.push(at - sent.get(key))
  await streams.close()
  return { kib, idleCpu, latencies }
}
