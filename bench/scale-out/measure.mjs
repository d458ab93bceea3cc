// What the simulation takes from real servers, on this machine, and what it is compared with.
import { openTable } from '../../dist/store/table/bigtable/google-client.js'
import { Connection } from '../harness/connection.mjs'
import { withServers } from '../harness/emulated.mjs'
import { load } from '../harness/load.mjs'
import { median, percentile } from '../harness/numbers.mjs'
import { withPerkv } from '../harness/perkv.mjs'
import { cpuMicros } from '../harness/process.mjs'
import { get, put } from '../harness/requests.mjs'
import { metered } from '../harness/rounds.mjs'
import { callsOf } from '../harness/table-servers.mjs'
import { WORK } from './work.mjs'

const LEVELDB_CLIENTS = 64
const SERVER_CLIENTS = 32
const WINDOWS = 8
const WARM_UP_S = 3
const SECONDS = 4

/** µs of a server's main thread per transaction, with clients enough that it seldom rests. */
export const measureServer = () =>
  withServers({ count: 2 }, async ({ followers: [server] }) => {
    const all = await allWindows(server, SERVER_CLIENTS)
    return Object.fromEntries(Object.entries(all).map(([kind, { micros }]) => [kind, micros]))
  })

/** One server on LevelDB, which shares the machine with its clients. */
export const measureLevelDb = () => withPerkv(['--log-level', 'error'], (server) => allWindows(server, LEVELDB_CLIENTS))

/** The quartile of the fastest windows: others use this machine too. */
async function allWindows(server, connections) {
  const results = {}
  for (const [kind, operation] of Object.entries(WORK)) {
    const run = (seconds) => metered(server, () => load({ url: server.url, connections, seconds, operation }))
    await run(WARM_UP_S)
    const windows = []
    for (let n = 0; n < WINDOWS; n++) windows.push(await run(1))
    const quartile = (field, share) => percentile(windows.map(field), share)
    results[kind] = { rate: quartile(({ rate }) => rate, 0.75), micros: quartile(({ cpu }) => cpu.main, 0.25) }
  }
  return results
}

const CLIENTS = [1, 8]
const WRITERS = 4

/**
 * Real servers on the emulator, each of whose calls takes `delayMs` and what the emulator and this machine add to it: that is told by bare
 * calls, one after the other, while the servers work; and by requests that do nothing, what a request takes.
 */
export const measureLatencies = (delayMs) =>
  withServers({ count: 4, delayMs }, async ({ address, leader, followers }) => {
    const [server] = followers
    const table = await openTable(address)
    const bare = bareCallsOf(table, await Connection.open(server.url))
    await bare(WARM_UP_S)
    const { micros: bareMicros } = await bare(SECONDS)
    const works = []
    for (const [kind, operation] of Object.entries(WORK))
      for (const clients of CLIENTS) {
        const run = (seconds) => load({ url: server.url, connections: clients, seconds, operation })
        await run(WARM_UP_S)
        const before = [await callsOf(leader), cpuMicros(server).main]
        const [{ rate, p50, p99, count }, { samples, emptyMs }] = await Promise.all([run(SECONDS), bare(SECONDS)])
        const micros = (cpuMicros(server).main - before[1]) / count
        const batches = ((await callsOf(leader)).read - before[0].read) / count
        works.push({ kind, clients, rate, p50, p99, micros, batches, samples, emptyMs })
      }
    const hot = {
      ...{ url: followers.map(({ url }) => url), connections: WRITERS, tolerated: [409, 423] },
      *operation() {
        yield put('/v1/kv/ownhot', 'value')
      },
    }
    await load({ ...hot, seconds: WARM_UP_S })
    const [{ rate, failed }, { samples, emptyMs }] = await Promise.all([
      load({ ...hot, seconds: SECONDS }),
      bare(SECONDS),
    ])
    await table.close()
    return { delayMs, bareMicros, works, hotRow: { writers: WRITERS, rate, failed, samples, emptyMs } }
  })

/**
 * Of rows of one cell, one after the other, in this process: how long each took, in ms, and µs of processor time. And the median of as
 * many empty requests to a server.
 */
function bareCallsOf(table, connection) {
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined }
  let next = 0
  return async (seconds) => {
    const samples = []
    const empty = []
    let micros = 0
    for (const end = performance.now() + seconds * 1000; performance.now() < end; next++) {
      const key = Buffer.from(`bare${next}`)
      const before = process.cpuUsage()
      const began = performance.now()
      if (next % 2 === 0) await table.rows({ keys: [key], columns: [{ family: 'v' }] })
      else await table.change(key, guard, [{ ...guard, value: Buffer.alloc(16, 1) }])
      const ended = performance.now()
      const { user, system } = process.cpuUsage(before)
      samples.push(Number((ended - began).toFixed(3)))
      micros += user + system
      await connection.ask(get('/livez'))
      empty.push(performance.now() - ended)
    }
    return { samples, micros: micros / samples.length, emptyMs: median(empty) }
  }
}
