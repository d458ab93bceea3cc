// More load than the server can serve, of each kind: what it answers, what it takes, whether it stays alive, and how soon it is itself
// again. One core or more should be left for the clients.
import { setTimeout as sleep } from 'node:timers/promises'
import { median } from '../../harness/numbers.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { hasEnded, rssBytes, startWorker, stop } from '../../harness/process.mjs'
import { BEYOND, short } from '../../harness/report.mjs'
import { KINDS } from './kinds.mjs'
import { Probe } from './probe.mjs'

const MIB = 1024 * 1024
const REST_MS = 10_000
/** The default of the server. */
const BUSY_AT = ['--loop-delay-ms-max', '1000']
const FULL = { connections: 2000, seconds: 20, restMs: REST_MS }
const QUICK = { connections: 200, seconds: 2, restMs: 1000 }

const scenarioOf = (name) => ({
  full: name === 'small' ? { ...FULL, seconds: 60 } : FULL,
  quick: QUICK,
  run: (settings) => withPerkv(BUSY_AT, (server) => run(server, name, settings)),
})

export const overload = Object.fromEntries(Object.keys(KINDS).map((name) => [name, scenarioOf(name)]))

async function run(server, name, { connections, seconds, restMs }) {
  const { title, prepare } = KINDS[name]
  await prepare?.(server.url)
  const probe = new Probe(server)
  const load = startWorker('bench/scenarios/overload/load.mjs')
  await load.call('start', { name, url: server.url, connections })
  await sleep(seconds * 1000)
  const { counts, p99 } = await load.call('stop')
  await stop(load)
  const { rssPeak, livez, livezFailed } = probe.stop()
  const firstPut = await untilPut(server)
  await sleep(restMs)
  if (hasEnded(server)) throw new Error('the server has died')
  const mib = (bytes) => short(bytes / MIB)
  const late = livez.filter((ms) => ms >= 1000).length
  const answers = Object.entries(counts).map(([status, count]) => `${status}: ${short(count / seconds)}`)
  const row = {
    [`${connections} connections`]: title,
    'answers per second': answers.join(', ') || 'none',
    'p99, ms': p99,
    'memory at most, later, MiB': `${mib(rssPeak)}, ${mib(rssBytes(server))}`,
    '`/livez` p50, at most, ms': `${short(median(livez))}, ${short(Math.max(...livez))}`,
    'over 1 s, failed': `${late}, ${livezFailed} of ${livez.length}`,
    'first PUT after the load, ms': firstPut,
    [BEYOND]: livezFailed > 0 || late > 0,
  }
  return [row]
}

/** @returns after how many ms a PUT that is repeated succeeds. */
async function untilPut(server) {
  const since = performance.now()
  while (!hasEnded(server)) {
    const answer = await fetch(`${server.url}/v1/kv/after`, { method: 'PUT', body: 'load' }).catch(() => ({}))
    if (answer.status === 200) return performance.now() - since
    await sleep(10)
  }
  throw new Error('the server has died')
}
