// What the simulation takes from real servers, on this machine, and what it is compared with.
import { callerOf } from '../http-call.mjs'
import { scheduledMicros } from '../proc.mjs'
import { makeDirectory, start } from '../process.mjs'
import { quantile } from './cluster.mjs'
import { call, callsOf, withServers } from './emulated.mjs'
import { leaderOverHttp, oracleAlone } from './oracle-cost.mjs'
import { load, WORK } from './work.mjs'

const LEVELDB_CLIENTS = 64
const SERVER_CLIENTS = 32
const WINDOWS = 8
const WINDOW_MS = 1000
const WARM_UP_MS = 3000
const MS = 4000

/** Of the leader's core. */
export const measureOracle = async () => ({ aloneAskMicros: await oracleAlone(), ...(await leaderOverHttp()) })

/** µs of a server's main thread per transaction, with clients enough that it seldom rests. */
export const measureServer = () =>
  withServers({ count: 2 }, async ({ followers: [server] }) => {
    const micros = {}
    for (const [kind, body] of Object.entries(WORK))
      micros[kind] = (await windowsOf(server, SERVER_CLIENTS, body)).micros
    return micros
  })

/** The quartile of the fastest windows: others use this machine too. */
async function windowsOf(server, clients, body) {
  await load(clients, WARM_UP_MS, (i) => body(server, i))
  const windows = []
  for (let n = 0; n < WINDOWS; n++) {
    const before = scheduledMicros(server).main
    const { rate, latencies } = await load(clients, WINDOW_MS, (i) => body(server, i))
    windows.push({ rate, micros: (scheduledMicros(server).main - before) / latencies.length })
  }
  return {
    rate: quantile(
      windows.map(({ rate }) => rate),
      0.75,
    ),
    micros: quantile(
      windows.map(({ micros }) => micros),
      0.25,
    ),
  }
}

/** One server on LevelDB, which shares the machine with its clients. */
export async function measureLevelDb() {
  const server = await start(['dist/cli.js', 'serve', '--port', '0', '--data', makeDirectory(), '--log-level', 'error'])
  server.call = callerOf(server, LEVELDB_CLIENTS)
  const rates = {}
  for (const [kind, body] of Object.entries(WORK)) rates[kind] = await windowsOf(server, LEVELDB_CLIENTS, body)
  server.child.kill('SIGKILL')
  return rates
}

const CLIENTS = [1, 8]
const WRITERS = 4

/**
 * Real servers on the emulator, each of whose calls takes `delayMs` and what the emulator and this machine add to it: that is told by bare
 * calls, one after the other, while the servers work; and by requests that do nothing, what a request takes.
 */
export const measureLatencies = (delayMs) =>
  withServers({ count: 4, delayMs }, async ({ table, leader, followers }) => {
    const [server] = followers
    const bare = bareCallsOf(table, server)
    await bare(WARM_UP_MS)
    const { micros: bareMicros } = await bare(MS)
    const works = []
    for (const kind of Object.keys(WORK))
      for (const clients of CLIENTS) {
        const body = (i) => WORK[kind](server, i)
        await load(clients, WARM_UP_MS, body)
        const before = [await callsOf(leader), scheduledMicros(server).main]
        const [{ rate, latencies }, { samples, emptyMs }] = await Promise.all([load(clients, MS, body), bare(MS)])
        const micros = (scheduledMicros(server).main - before[1]) / latencies.length
        const batches = ((await callsOf(leader)).read - before[0].read) / latencies.length
        works.push({
          kind,
          clients,
          rate,
          p50: quantile(latencies, 0.5),
          p99: quantile(latencies, 0.99),
          micros,
          batches,
          samples,
          emptyMs,
        })
      }
    const put = (i) => WORK['put of a known key'](followers[i % followers.length], 'hot')
    await load(WRITERS, WARM_UP_MS, put)
    const [{ rate, failed }, { samples, emptyMs }] = await Promise.all([load(WRITERS, MS, put), bare(MS)])
    return { delayMs, bareMicros, works, hotRow: { writers: WRITERS, rate, failed, samples, emptyMs } }
  })

/**
 * Of rows of one cell, one after the other, in this process: how long each took, in ms, and µs of processor time. And the median of as
 * many empty requests to a server.
 */
function bareCallsOf(table, server) {
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined }
  let next = 0
  return async (ms) => {
    const samples = []
    const empty = []
    let micros = 0
    for (const end = performance.now() + ms; performance.now() < end; next++) {
      const key = Buffer.from(`bare${next}`)
      const before = process.cpuUsage()
      const began = performance.now()
      if (next % 2 === 0) await table.rows({ keys: [key], columns: [{ family: 'v' }] })
      else await table.change(key, guard, [{ ...guard, value: Buffer.alloc(16, 1) }])
      const ended = performance.now()
      const { user, system } = process.cpuUsage(before)
      samples.push(Number((ended - began).toFixed(3)))
      micros += user + system
      await call(server, 'GET', '/livez')
      empty.push(performance.now() - ended)
    }
    return { samples, micros: micros / samples.length, emptyMs: quantile(empty, 0.5) }
  }
}
