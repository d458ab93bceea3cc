// What timestamps cost the core of the server that leads.
import { setTimeout as sleep } from 'node:timers/promises'
import { Clock } from '../../dist/oracle/clock.js'
import { LeaderOracle } from '../../dist/oracle/leader-oracle.js'
import { decodeAnswer, decodeAsk, encodeAnswer, encodeAsk, newNonce } from '../../dist/oracle/signed-ask.js'
import { openTable } from '../../dist/store/table/bigtable/google-client.js'
import { rowKeyOfSystem } from '../../dist/store/table/layout/row-keys.js'
import { withServers } from '../harness/emulated.mjs'
import { load } from '../harness/load.mjs'
import { statusOf } from '../harness/perkv.mjs'
import { cpuMicros } from '../harness/process.mjs'
import { callsOf } from '../harness/table-servers.mjs'
import { divided } from './divided.mjs'

const URL = 'http://leader'

/**
 * src/oracle alone, in this process: an ask is checked, waits for its batch, is answered and signed.
 * @returns µs of processor time per ask, with `inFlight` of them in each batch; most of it are the two signatures.
 */
export async function oracleAlone({ asks = 100_000, inFlight = 64, count = 1 } = {}) {
  let row
  const oracle = new LeaderOracle({
    row: {
      read: async () => row,
      async swap(_, next) {
        row = next
        return 'done'
      },
    },
    forward: async () => 'not_leader',
    url: URL,
    clock: new Clock({}),
  })
  oracle.start()
  await oracle.next()
  const secret = Buffer.alloc(32, 1)
  const bodies = Array.from({ length: 1000 }, () => {
    const nonce = newNonce()
    return encodeAsk(secret, { url: URL, nonce, ask: { count, floor: 0 } })
  })
  const asker = async (_, i) => {
    for (let n = i; n < asks; n += inFlight) {
      const asked = decodeAsk(secret, URL, bodies[n % bodies.length])
      encodeAnswer(secret, asked.nonce, await oracle.answer(asked.ask))
    }
  }
  const round = async () => {
    const before = process.cpuUsage()
    await Promise.all(Array.from({ length: inFlight }, asker))
    const { user, system } = process.cpuUsage(before)
    return (user + system) / asks
  }
  await round() // Until it is compiled.
  const micros = await round()
  await oracle.close()
  return micros
}

const CONNECTIONS = [1, 4, 16, 64]
/** Of every call to the table, so that batches have different sizes. */
const DELAYS_MS = [0, 5]

/**
 * A whole server that leads, asked over HTTP by as many others as there are connections. Its main thread's time is divided between
 * asks and batches by least squares, since runs differ in how many asks share a batch.
 */
export async function leaderOverHttp({ seconds = 4 } = {}) {
  const runs = []
  for (const delayMs of DELAYS_MS)
    await withServers({ count: 1, delayMs }, async ({ address, leader }) => {
      const { leader: url } = (await statusOf(leader)).oracle
      const secret = await secretOf(address)
      const ask = (connections, seconds) =>
        asked(leader, seconds, () => load({ url, connections, seconds, operation: asks(url, secret) }))
      await ask(16, 5) // Until it is compiled.
      const idle = await asked(leader, 3, () => sleep(3000, { count: 0 }))
      for (const connections of CONNECTIONS) {
        const { asks, batches, micros } = await ask(connections, seconds)
        runs.push({ connections, delayMs, asks, batches, micros: micros - idle.micros })
      }
    })
  return { ...divided(runs), runs }
}

/** @returns per second: asks, batches, and µs of the leader's main thread. */
async function asked(leader, seconds, run) {
  const [calls, before] = [(await callsOf(leader)).read, cpuMicros(leader).main]
  const { count, elapsed = seconds } = await run()
  const micros = (cpuMicros(leader).main - before) / elapsed
  return { asks: count / elapsed, batches: ((await callsOf(leader)).read - calls) / elapsed, micros }
}

/** What servers of the table sign their asks with. */
async function secretOf(address) {
  const table = await openTable(address)
  const [row] = await table.rows({ keys: [rowKeyOfSystem('secret')], columns: [{ family: 'o' }] })
  await table.close()
  return row.cells[0].value
}

const asks = (url, secret) =>
  function* () {
    const nonce = newNonce()
    const body = encodeAsk(secret, { url, nonce, ask: { count: 1, floor: 0 } })
    const headers = { 'content-type': 'application/octet-stream' }
    const answer = decodeAnswer(secret, nonce, yield { method: 'POST', path: '/v1/internal/timestamps', headers, body })
    if (answer === undefined || answer === 'not_leader') throw new Error('no timestamps were answered')
  }
