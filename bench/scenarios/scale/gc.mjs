// A collection of old versions: how long it takes, at once and with the worker's rests, and what it does to requests meanwhile.
import { diskBytes } from '../../harness/disk.mjs'
import { load } from '../../harness/load.mjs'
import { fillVersions, timestamp, withPerkv } from '../../harness/perkv.mjs'
import { whole } from '../../harness/report.mjs'
import { postJson } from '../../harness/requests.mjs'
import { uniform } from './requests.mjs'

/** Of GETs, and as many of PUTs. */
const CONNECTIONS = 32
const CALLS = { resting: '/v1/admin/gc', 'at once': '/v1/percolator/gc' }

export const gc = {
  full: { keys: [1000, 30_000], versions: 300_000, seconds: 4 },
  quick: { keys: [500], versions: 20_000, seconds: 1 },
  /** @param settings.versions of all keys together */
  async run({ keys: shapes, versions: all, seconds }) {
    const rows = []
    for (const keys of shapes) {
      const versions = Math.round(all / keys)
      const name = `${keys.toLocaleString('en-US')} keys x ${versions}`
      const run = (use) =>
        withPerkv([], async (server) => {
          await fillVersions(server, keys, versions)
          return use(server, keys)
        })
      rows.push({ ...(await run((server) => collect(server, CALLS['at once']))), name: `${name}, alone`, ...EMPTY })
      for (const [how, call] of Object.entries(CALLS))
        rows.push(await run((server) => underLoad(server, { name: `${name}, ${how}`, keys, seconds, call })))
    }
    return rows.map(({ name, seconds, diskBefore, diskAfter, before, during }) => ({
      collection: name,
      seconds,
      'requests/s before, during': pair(before.rate, during.rate, 0),
      'GET p99, ms': pair(before.getP99, during.getP99, 1),
      'PUT p99, ms': pair(before.putP99, during.putP99, 1),
      'longest, ms': pair(before.max, during.max, 0),
      'on disk before, after, MB': pair(diskBefore, diskAfter, 0),
    }))
  },
  tell: ({ settings: { versions }, blocks }) => [
    '### Garbage collection',
    `${whole(versions)} old versions are collected beside ${CONNECTIONS} connections that read and ${CONNECTIONS} that write: by the server's own collections, which [rest](../src/gc/README.md), or by the call \`gc\`, at once. Pairs are before and during.`,
    ...blocks,
  ],
}

const EMPTY = { before: {}, during: {} }
const pair = (before, during, digits) =>
  before === undefined ? '' : `${before.toFixed(digits)}, ${during.toFixed(digits)}`

async function underLoad(server, { name, keys, seconds, call }) {
  // Below all that the load does: a pass ends the transactions that are older than its safe point.
  const safePoint = await timestamp(server)
  await foreground(server, keys, { seconds: 1 })
  const before = await foreground(server, keys, { seconds })
  const pass = collect(server, call, safePoint)
  const during = await foreground(server, keys, { until: pass })
  return { ...(await pass), name, before, during }
}

async function collect(server, call, safePoint) {
  const diskBefore = (await diskBytes(server.data)) / 1e6
  const since = performance.now()
  await server.call(postJson(call, { safe_point: safePoint ?? (await timestamp(server)) }))
  const seconds = (performance.now() - since) / 1000
  return { seconds, diskBefore, diskAfter: (await diskBytes(server.data)) / 1e6 }
}

async function foreground({ url }, keys, end) {
  const run = (make) => load({ url, request: () => make(keys), connections: CONNECTIONS, ...end })
  const [gets, puts] = await Promise.all([run(uniform.get), run(uniform.put)])
  return { rate: gets.rate + puts.rate, getP99: gets.p99, putP99: puts.p99, max: Math.max(gets.max, puts.max) }
}
