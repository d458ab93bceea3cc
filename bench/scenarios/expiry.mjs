// Keys that expire together, with a stream of changes and an observer: how long other requests wait meanwhile, and how late the last
// expiry is told.
import { setTimeout as sleep } from 'node:timers/promises'
import { withPerkv } from '../harness/perkv.mjs'
import { Probe } from '../harness/probe.mjs'
import { row } from '../harness/report.mjs'
import { postJson, putJson } from '../harness/requests.mjs'
import { countChanges } from './changes/count.mjs'

const KEYS_AT_A_TIME = 1000
const REST_MS = 1500
const TICKS_PER_MS = 2048

export const expiry = {
  full: { keys: 100_000 },
  quick: { keys: 10_000 },
  run: ({ keys }) => withPerkv(['--durability', 'async'], (server) => measure(server, keys)),
}

async function measure(server, count) {
  await server.call(putJson('/v1/observers/told', { prefix: 'k/' }))
  const expiresMs = Date.now() + 6000 + count / 5
  for (let from = 0; from < count; from += KEYS_AT_A_TIME) {
    const ops = Array.from({ length: Math.min(KEYS_AT_A_TIME, count - from) }, (_, i) => ({
      ...{ op: 'put', key: `k/${from + i}`, value: 'value', expire_ts: expiresMs * TICKS_PER_MS },
    }))
    await server.call(postJson('/v1/txn', { ops }))
  }
  const restMs = expiresMs - Date.now() - REST_MS
  if (restMs < 0) throw new Error('the keys were written too slowly')
  const following = countChanges(server.url, '/v1/changes?prefix=k/', { until: count })
  following.catch(() => {}) // Thrown below.
  const probe = await Probe.of(server)
  await sleep(restMs)
  probe.take()
  await sleep(REST_MS - 200)
  const idle = probe.take()
  await following
  const toldMs = Date.now() - expiresMs
  const told = probe.take()
  const claim = postJson('/v1/observers/told/claim', { worker: 'w', limit: KEYS_AT_A_TIME, lease_ms: 600_000 })
  for (let claimed = 0; claimed < count; ) claimed += (await server.call(claim)).notifications.length
  const claiming = probe.take()
  probe.close()
  return [
    row('longest GET while nothing expires', idle, { unit: 'ms' }),
    row(`longest GET until a stream has ${count} expiries`, told, { unit: 'ms' }),
    row('a stream has the last of them after', toldMs, { unit: 'ms' }),
    row('longest GET while a worker claims them', claiming, { unit: 'ms' }),
  ]
}
