// npm run bench:leases [-- --leases N --every MS --connections N --rounds N --seconds N --only renewals|turns --waiters N --profile DIR]
// Leases that are renewed all the time over keep-alive connections: what that takes of a core, beside a bare node:http server that echoes the
// same JSON at the same rate, in turns. Then the longest turns of the event loop that many leases make.
import { parseArgs } from 'node:util'
import { Holders } from './leases/told.mjs'
import { turns } from './leases/turns.mjs'
import { scheduledMicros } from './proc.mjs'
import { makeDirectory, median, removeDirectory, start, stop } from './process.mjs'

const { values } = parseArgs({
  options: {
    leases: { type: 'string', default: '10000' },
    every: { type: 'string', default: '3000' },
    connections: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '6' },
    only: { type: 'string', default: 'renewals,turns' },
    waiters: { type: 'string', default: '10000' },
    profile: { type: 'string' },
  },
})
const [leases, everyMs, connections, rounds, seconds, waiters] = [
  ...[values.leases, values.every, values.connections, values.rounds, values.seconds, values.waiters].map(Number),
]
const only = values.only.split(',')
const IDLE_MS = 3000
const profile = values.profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', values.profile]
const rest = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

if (only.includes('renewals')) await renewals()
if (only.includes('turns')) {
  const rows = await turns({ leases, connections, waiters, profile })
  console.log('\nthe longest answer to another request while')
  for (const { name, ms } of rows) console.log(`${name.padEnd(58)} ${ms.toFixed(1).padStart(8)} ms`)
}

async function renewals() {
  const directory = makeDirectory()
  const other = makeDirectory()
  const cli = ['dist/cli.js', 'serve', '--port', '0', '--leases-max', `${leases}`, '--data']
  const programs = {
    PerKV: [...profile, ...cli, directory],
    'PerKV, --fast-lane off': [...cli, other, '--fast-lane', 'off'],
    'bare node:http': ['bench/leases/echo.mjs'],
  }
  const contenders = []
  for (const [name, args] of Object.entries(programs)) {
    const server = await start(args)
    const holders = await Holders.open({ url: server.url, connections, leases, everyMs })
    await holders.do('grant')
    contenders.push({ name, server, holders, rounds: [], idle: undefined, writes: 0 })
  }
  for (const { holders } of contenders) await holders.do('renew', { seconds: 3 }) // Compiles the code.
  for (const contender of contenders) {
    const before = scheduledMicros(contender.server)
    await rest(IDLE_MS)
    contender.idle = share(before, scheduledMicros(contender.server), IDLE_MS)
  }
  for (let round = 0; round < rounds; round++) {
    for (const contender of contenders) {
      const { server, holders } = contender
      const writesBefore = await engineWrites(contender)
      const [before, beginMs] = [scheduledMicros(server), performance.now()]
      const renewed = await holders.do('renew', { seconds })
      const after = scheduledMicros(server)
      const took = share(before, after, performance.now() - beginMs)
      contender.writes += (await engineWrites(contender)) - writesBefore
      contender.rounds.push({ ...renewed, ...took, micros: (after.all - before.all) / renewed.count })
    }
  }
  const perSecond = Math.round((leases * 1000) / everyMs)
  console.log(
    `${leases} leases, each renewed every ${everyMs} ms (${perSecond}/s) over ${connections} connections, ${rounds} rounds of ${seconds} s`,
  )
  for (const { name, idle, rounds, writes } of contenders) {
    const of = (field, digits = 1) => {
      const all = rounds.map((round) => round[field])
      return `${median(all).toFixed(digits)} (${Math.min(...all).toFixed(digits)} to ${Math.max(...all).toFixed(digits)})`
    }
    console.log(name)
    console.log(
      `  of a core, %        all threads ${of('all')}, main thread ${of('main')}, idle ${idle.all.toFixed(1)}`,
    )
    console.log(`  µs per renewal      ${of('micros')}`)
    console.log(`  latency, ms         p50 ${of('p50', 2)}, p99 ${of('p99', 2)}, longest ${of('max')}`)
    if (name.startsWith('PerKV')) console.log(`  writes to the disk  ${writes}`)
  }
  for (const { server, holders } of contenders) {
    await holders.close()
    await stop(server)
  }
  removeDirectory(directory)
  removeDirectory(other)
}

/** Percent of a core. */
function share(before, after, ms) {
  const of = (field) => (after[field] - before[field]) / ms / 10
  return { all: of('all'), main: of('main') }
}

/** Every fsync is part of one. */
async function engineWrites({ name, server }) {
  if (!name.startsWith('PerKV')) return 0
  const text = await (await fetch(`${server.url}/metrics`)).text()
  return Number(/^perkv_engine_write_seconds_count(?:\{.*\})? (\d+)/m.exec(text)[1])
}
