// npm run bench:overload [-- --only NAME[,NAME] --seconds N --connections N --server CLI --flags '--requests-max 500']
// More load than the server can serve, of each kind for a minute: what it answers, what it takes, whether it stays alive,
// and how soon it is itself again. One core or more should be left for the clients.
import { parseArgs } from 'node:util'
import { KINDS } from './overload/kinds.mjs'
import { Probe } from './overload/probe.mjs'
import { rssBytes } from './proc.mjs'
import { makeDirectory, median, removeDirectory, start, startWorker, stop } from './process.mjs'

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', default: Object.keys(KINDS).join() },
    seconds: { type: 'string', default: '60' },
    connections: { type: 'string', default: '2000' },
    server: { type: 'string', default: 'dist/cli.js' },
    flags: { type: 'string', default: '' },
  },
})
const seconds = Number(options.seconds)
const connections = Number(options.connections)
const MIB = 1024 * 1024
/** After the load, until memory is looked at again. */
const REST_MS = 10_000

const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms))
const mib = (bytes) => `${Math.round(bytes / MIB)} MiB`
const ms = (time) => (time === undefined ? '-' : `${Math.round(time)} ms`)

async function run(name) {
  const { title, prepare } = KINDS[name]
  const data = makeDirectory()
  const flags = options.flags.split(' ').filter((flag) => flag !== '')
  const server = await start([options.server, 'serve', '--port', '0', '--data', data, ...flags])
  await prepare?.(server.url)
  const rssBefore = rssBytes(server)
  const probe = new Probe(server)
  const load = startWorker('bench/overload/load.mjs', [JSON.stringify({ name, url: server.url, connections })])
  await sleep(seconds * 1000)
  const result = await new Promise((resolve) => {
    load.child.once('message', resolve)
    load.child.send('stop')
  })
  const { rssPeak, livez, livezFailed } = probe.stop()
  const stoppedAt = performance.now()
  const isDead = server.child.exitCode !== null || server.child.signalCode !== null
  const firstPutMs = isDead ? undefined : await untilPut(server.url, stoppedAt)
  const rssAtEnd = isDead ? 0 : rssBytes(server)
  await sleep(REST_MS)
  const rssLater = isDead ? 0 : rssBytes(server)
  const status = isDead ? {} : await (await fetch(`${server.url}/v1/status`)).json()
  await stop(server)
  removeDirectory(data)

  const byStatus = Object.entries(result.counts).map(([code, n]) => `${code}: ${Math.round(n / seconds)}/s`)
  console.log(`${title}, ${connections} connections, ${seconds} s`)
  console.log(`  answers    ${byStatus.join(', ') || 'none'}, p50 ${ms(result.p50)}, p99 ${ms(result.p99)}`)
  if (isDead) console.log('  the server DIED')
  console.log(
    `  RSS        before ${mib(rssBefore)}, peak ${mib(rssPeak)}, end ${mib(rssAtEnd)}, ${REST_MS / 1000} s later ${mib(rssLater)}`,
  )
  const late = livez.filter((time) => time >= 1000).length
  console.log(
    `  /livez     p50 ${ms(median(livez))}, max ${ms(Math.max(...livez))}, ${late} of ${livez.length} over 1 s, ${livezFailed} failed`,
  )
  console.log(`  recovery   first PUT answered ${ms(firstPutMs)} after the load`)
  if (status.overload !== undefined) console.log(`  overload   ${JSON.stringify(status.overload)}`)
  return !isDead && livezFailed === 0 && Math.max(...livez) < 1000
}

/** A PUT that is repeated until it succeeds. */
async function untilPut(url, since) {
  for (;;) {
    const { status } = await fetch(`${url}/v1/kv/after`, { method: 'PUT', body: 'load' }).catch(() => ({ status: 0 }))
    if (status === 200) return performance.now() - since
    await sleep(10)
  }
}

let isGood = true
for (const name of options.only.split(',')) isGood = (await run(name)) && isGood
process.exitCode = isGood ? 0 : 1
