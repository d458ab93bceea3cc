// A collection of old versions: how long it takes, at once and with the worker's rests, and what it does to requests meanwhile.

import { rssBytes } from '../proc.mjs'
import { diskBytes } from './disk.mjs'
import { fillVersions } from './fill.mjs'
import { load } from './load.mjs'
import { post, timestamp } from './post.mjs'
import { each, getUniform, putUniform } from './requests.mjs'
import { withPerkv } from './servers.mjs'

/** Of GETs, and as many of PUTs. */
const CONNECTIONS = 32

/** @param context.shapes [{keys, versions}] */
export async function gc({ shapes, seconds }) {
  const rows = []
  for (const shape of shapes) {
    const alone = await withPerkv((server, data) => passAlone(server, data, shape))
    const name = `${shape.keys} keys x ${shape.versions}`
    rows.push({ shape: name, ...alone })
    for (const call of ['/v1/admin/gc', '/v1/percolator/gc']) {
      const loaded = await withPerkv((server, data) => passUnderLoad(server, data, shape, seconds, call))
      rows.push({ shape: name, call, ...loaded })
    }
  }
  return { settings: { connections: 2 * CONNECTIONS, seconds_before: seconds }, rows }
}

async function passAlone(server, data, { keys, versions }) {
  const rate = await fillVersions(server, keys, versions)
  const before = await diskBytes(data)
  const { elapsed, removed } = await collect(server, '/v1/percolator/gc', await timestamp(server))
  return {
    load_per_s: rate,
    pass_s: elapsed,
    removed,
    removed_per_s: removed / elapsed,
    disk_before_mb: before / 1e6,
    disk_after_mb: (await diskBytes(data)) / 1e6,
    rss_after_mb: rssBytes(server) / 1e6,
  }
}

async function passUnderLoad(server, data, { keys, versions }, seconds, call) {
  await fillVersions(server, keys, versions)
  // Below all that the load does: a pass ends the transactions that are older than its safe point.
  const safePoint = await timestamp(server)
  const diskBefore = await diskBytes(data)
  await foreground(server, keys, { seconds: 1 })
  const before = await foreground(server, keys, { seconds })
  const pass = collect(server, call, safePoint)
  const during = await foreground(server, keys, { until: pass })
  const { elapsed, removed } = await pass
  return {
    pass_s: elapsed,
    removed,
    disk_before_mb: diskBefore / 1e6,
    disk_after_mb: (await diskBytes(data)) / 1e6,
    ...prefixed('before_', before),
    ...prefixed('during_', during),
    failed: before.failed + during.failed,
  }
}

async function collect(server, call, safePoint) {
  const start = performance.now()
  const { versions_removed } = await post(server, call, { safe_point: safePoint })
  return { elapsed: (performance.now() - start) / 1000, removed: Number(versions_removed) }
}

async function foreground(server, keys, end) {
  const run = (make) =>
    load({ server, requests: each(() => make(keys)), connections: CONNECTIONS, isTolerant: true, ...end })
  const [gets, puts] = await Promise.all([run(getUniform), run(putUniform)])
  return { gets, puts, failed: gets.failed + puts.failed }
}

function prefixed(prefix, { gets, puts }) {
  return {
    [`${prefix}per_s`]: gets.rate + puts.rate,
    [`${prefix}get_p99_ms`]: gets.p99,
    [`${prefix}put_p99_ms`]: puts.p99,
    [`${prefix}max_ms`]: Math.max(gets.max, puts.max),
  }
}
