// What more keys cost. One directory grows; each size has a server process of its own, so that its memory is its own.
import { readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { lines } from '../chart.mjs'
import { rssBytes } from '../proc.mjs'
import { VALUE_BYTES } from './data.mjs'
import { diskBytes } from './disk.mjs'
import { fill } from './fill.mjs'
import { load } from './load.mjs'
import { each, getUniform, putUniform } from './requests.mjs'
import { withPerkvOn } from './servers.mjs'

const SIZES = [10_000, 100_000, 1_000_000, 10_000_000]
const WARM_UP_S = 1
const REST_MS = 10_000

export async function keys({ data, keysMax, seconds }) {
  const present = await readdir(data).catch(() => [])
  if (present.length > 0) throw new Error(`keys: ${data} is not empty`)
  const rows = []
  let loaded = 0
  for (const size of [...SIZES.filter((size) => size < keysMax), keysMax]) {
    rows.push(await withPerkvOn(data, (server) => measure(server, { from: loaded, size, data, seconds })))
    loaded = size
  }
  return { settings: { value_bytes: VALUE_BYTES, connections: 64, seconds }, rows, charts: charts(rows) }
}

async function measure(server, { from, size, data, seconds }) {
  const loadRate = await fill(server, from, size)
  const [disk, rssLoaded] = [await diskBytes(data), rssBytes(server)]
  const gets = await warmed(server, () => getUniform(size), seconds)
  const rssRead = rssBytes(server)
  const puts = await warmed(server, () => putUniform(size), seconds)
  await sleep(REST_MS)
  return {
    keys: size,
    load_per_s: loadRate,
    get_per_s: gets.rate,
    get_p99_ms: gets.p99,
    put_per_s: puts.rate,
    put_p99_ms: puts.p99,
    disk_mb: disk / 1e6,
    disk_at_rest_mb: (await diskBytes(data)) / 1e6,
    rss_loaded_mb: rssLoaded / 1e6,
    rss_after_gets_mb: rssRead / 1e6,
    rss_at_rest_mb: rssBytes(server) / 1e6,
  }
}

async function warmed(server, make, seconds) {
  await load({ server, requests: each(make), seconds: Math.min(seconds, WARM_UP_S) })
  return load({ server, requests: each(make), seconds })
}

function charts(rows) {
  const x = { label: 'keys', kind: 'log10' }
  const of = (field) => rows.map((row) => [row.keys, row[field]])
  return {
    keys: lines({
      title: 'Throughput by number of keys, 64 connections',
      x,
      y: { label: 'requests/s' },
      series: [
        { name: 'GET, uniform', points: of('get_per_s') },
        { name: 'durable PUT, uniform', points: of('put_per_s') },
      ],
    }),
    'keys-memory': lines({
      title: 'Memory and disk by number of keys',
      x,
      y: { label: 'RSS, MB' },
      y2: { label: 'disk, MB', kind: 'log10' },
      series: [
        { name: 'RSS after the load', points: of('rss_loaded_mb') },
        { name: 'RSS at rest', points: of('rss_at_rest_mb') },
        { name: 'disk', points: of('disk_mb'), right: true },
      ],
    }),
  }
}
