// npm run bench:bigtable [-- --seconds N --connections 16,32 --servers 1,2,3 --delay MS --only calls,rates,contention,deadlocks,gap]
// Servers on one table of Google's Bigtable server in memory: calls to the table for each kind of transaction, rates beside those
// of bare conditional changes, how soon a deadlock is found, and how long no server hands out timestamps after a kill -9. Emulator,
// servers and clients share this machine, so the rates compare with each other only.
import { parseArgs } from 'node:util'
import { openTable } from '../dist/store/table/bigtable/google-client.js'
import { printTableAddress } from '../dist/store/table/bigtable/table-address.js'
import { makeTable } from '../dist/store/table/bigtable/table-admin.js'
import { startEmulator } from '../test/bigtable/emulator/emulator.mjs'
import { callerOf } from './http-call.mjs'
import { kill, median, start } from './process.mjs'

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '4' },
    connections: { type: 'string', default: '16,32' },
    servers: { type: 'string', default: '1,2,3' },
    delay: { type: 'string', default: '0' },
    only: { type: 'string', default: 'calls,rates,contention,deadlocks,gap' },
  },
})
const seconds = Number(values.seconds)
const connections = values.connections.split(',').map(Number)
const counts = values.servers.split(',').map(Number)
const only = new Set(values.only.split(','))

const KEYS = 100_000
const REPEATS = 100
const GAPS = 3
const CONNECTIONS_MAX = 64

let tables = 0
async function newTable() {
  const address = { project: 'bench', instance: 'emulator', table: `table-${++tables}` }
  await makeTable(address)
  return address
}

async function startServers(count) {
  const store = printTableAddress(await newTable())
  const flags = ['--store', store, '--log-level', 'error', '--loop-delay-ms-max', '0']
  const startOne = async () => {
    const server = await start(['dist/cli.js', 'serve', '--port', '0', ...flags])
    return { ...server, call: callerOf(server, CONNECTIONS_MAX) }
  }
  return Promise.all(Array.from({ length: count }, startOne))
}

/** @returns the body. */
async function call(server, method, path, body) {
  const [status, text] = await server.call(method, path, body)
  if (status < 400) return text
  throw Object.assign(new Error(`${status}: ${text}`), { status })
}

/** The first server that says that it has this role at the oracle. */
async function serverAs(role, servers) {
  const roles = await Promise.all(
    servers.map(async (server) => JSON.parse(await call(server, 'GET', '/v1/status')).oracle.role),
  )
  return servers[roles.indexOf(role)]
}

const transact = (server, ops, rest = {}) => call(server, 'POST', '/v1/txn', JSON.stringify({ ops, ...rest }))
const add = (key, by) => ({ op: 'increment', key, by })

async function inTransaction(server, mode, keys) {
  const { txn } = JSON.parse(await call(server, 'POST', '/v1/txn/begin', JSON.stringify({ mode })))
  const query = mode === 'pessimistic' ? '?for_update=true' : ''
  for (const key of keys) {
    const value = Number(await call(server, 'GET', `/v1/txn/${txn}/kv/${key}${query}`))
    await call(server, 'PUT', `/v1/txn/${txn}/kv/${key}`, String(value + 1))
  }
  await call(server, 'POST', `/v1/txn/${txn}/commit`)
}

const KINDS = {
  'PUT of a new key': (server, n) => call(server, 'PUT', `/v1/kv/new${n}`, 'value'),
  'PUT of a known key': (server) => call(server, 'PUT', '/v1/kv/known', 'value'),
  GET: (server) => call(server, 'GET', '/v1/kv/account1'),
  'read-modify-write': (server) => transact(server, [add('account1', 1)]),
  'transfer of two rows': (server) => transact(server, [add('account1', -1), add('account2', 1)]),
  'serializable, reads a third row': (server) =>
    transact(server, [{ op: 'get', key: 'account3' }, add('account1', -1), add('account2', 1)], {
      isolation: 'serializable',
    }),
  'interactive, optimistic, two rows': (server) => inTransaction(server, 'optimistic', ['account1', 'account2']),
  'interactive, pessimistic, two rows': (server) => inTransaction(server, 'pessimistic', ['account1', 'account2']),
}

/** Calls to the table so far, by kind. */
async function callsOf(server) {
  const text = await call(server, 'GET', '/metrics')
  return Object.fromEntries(
    [...text.matchAll(/^perkv_table_calls_total\{kind="(\w+)"\} (\d+)/gm)].map(([, kind, n]) => [kind, Number(n)]),
  )
}

/** On a follower, so that the leader's own reads and writes of its row are not counted. */
async function measureCalls() {
  const servers = await startServers(2)
  const server = await serverAs('follower', servers)
  for (const key of ['account1', 'account2', 'account3']) await call(server, 'PUT', `/v1/kv/${key}`, '0')
  console.log('\nCalls to the table per transaction, one client, without those for timestamps')
  console.log(
    `${'kind'.padEnd(38)}${'reads'.padStart(8)}${'changes'.padStart(9)}${'puts'.padStart(7)}${'p50 ms'.padStart(9)}`,
  )
  for (const [name, run] of Object.entries(KINDS)) {
    const before = await callsOf(server)
    const latencies = []
    for (let n = 0; n < REPEATS; n++) {
      const began = performance.now()
      await run(server, n)
      latencies.push(performance.now() - began)
    }
    await new Promise((resolve) => setTimeout(resolve, 50)) // The other keys of a transaction are committed after its answer.
    const after = await callsOf(server)
    const of = (kind) => ((after[kind] - before[kind]) / REPEATS).toFixed(2)
    console.log(
      `${name.padEnd(38)}${of('read').padStart(8)}${of('change').padStart(9)}${of('put').padStart(7)}${median(latencies).toFixed(1).padStart(9)}`,
    )
  }
  await Promise.all(servers.map(kill))
}

/** @returns how often per second `body` was done, and how often it lost against others. */
async function rateOf(clients, body, duration = seconds) {
  let done = 0
  let failed = 0
  const began = performance.now()
  const end = began + duration * 1000
  const client = async (_, i) => {
    while (performance.now() < end)
      try {
        await body(i)
        done++
      } catch (error) {
        if (error.status !== 409 && error.status !== 423) throw error
        failed++
      }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return { rate: (done / (performance.now() - began)) * 1000, failed }
}

const random = (n) => Math.floor(Math.random() * n)

async function measureRates() {
  console.log(`\nRates per second, ${seconds} s each, one process of clients`)
  const print = (name, cells) => console.log(name.padEnd(38) + cells.map((cell) => cell.padStart(20)).join(''))
  print(
    '',
    connections.map((n) => `${n} connections`),
  )
  const table = await openTable(await newTable())
  let next = 0
  const guard = { family: 'v', qualifier: Buffer.from('r'), value: undefined }
  const write = async () => {
    const key = Buffer.from(`row${next++}`)
    const cell = { family: 'w', qualifier: Buffer.alloc(8, 1), value: Buffer.alloc(40) }
    await table.change(key, guard, [{ ...guard, value: Buffer.alloc(16, 1) }, cell])
  }
  await rateOf(32, write, 1)
  const bare = []
  for (const n of connections) bare.push((await rateOf(n, write)).rate)
  print(
    'bare conditional changes',
    bare.map((rate) => rate.toFixed(0)),
  )
  await table.close()
  for (const count of counts) {
    const servers = await startServers(count)
    const works = {
      PUT: (i) => call(servers[i % count], 'PUT', `/v1/kv/key${random(KEYS)}`, 'value'),
      transfers: (i) => {
        const first = random(KEYS - 1)
        const second = first + 1 + random(KEYS - 1 - first)
        return transact(servers[i % count], [add(`a${first}`, -1), add(`a${second}`, 1)])
      },
    }
    for (const [name, body] of Object.entries(works)) {
      await rateOf(32, body, 1)
      const cells = []
      for (const [i, n] of connections.entries()) {
        const { rate, failed } = await rateOf(n, body)
        cells.push(`${rate.toFixed(0)} (${(rate / bare[i]).toFixed(2)}${failed > 0 ? `, ${failed} lost` : ''})`)
      }
      print(`${name}, servers: ${count}`, cells)
    }
    await Promise.all(servers.map(kill))
  }
  console.log('In brackets: of the bare rate.')
}

const WRITERS = 4
const HOT = 4

/** Four writers without pause, at so many servers, of the same rows or each of its own. */
async function measureContention() {
  console.log(`\n${WRITERS} writers of ${HOT} rows, ${seconds} s each`)
  const columns = ['commits/s', 'p50 ms', 'p99 ms', 'longest', '409 or 423']
  console.log(`${''.padEnd(46)}${columns.map((name) => name.padStart(11)).join('')}`)
  const put = (keys, value = 'value') => keys.map((key) => ({ op: 'put', key, value }))
  const twoOf = (keys) => {
    const first = random(HOT)
    return [keys[first], keys[(first + 1 + random(HOT - 1)) % HOT]]
  }
  const works = {
    'puts, own rows': (server, keys, i) => transact(server, put(keys.map((key) => `${key}-${i}`))),
    'puts, same rows': (server, keys) => transact(server, put(keys)),
    'puts, same rows in a random order': (server, keys) =>
      transact(server, put(keys.toSorted(() => Math.random() - 0.5))),
    'increments, same rows': (server, keys) =>
      transact(
        server,
        keys.map((key) => add(key, 1)),
      ),
    'transfers between two of them': (server, keys) => {
      const [from, to] = twoOf(keys)
      return transact(server, [add(from, -1), add(to, 1)])
    },
    'interactive, optimistic, two of them': (server, keys) => inTransaction(server, 'optimistic', twoOf(keys)),
    'interactive, pessimistic, two in order': (server, keys) =>
      inTransaction(server, 'pessimistic', twoOf(keys).toSorted()),
  }
  for (const count of counts) {
    const servers = await startServers(count)
    for (const [n, [name, work]] of Object.entries(works).entries()) {
      // New rows for each: nothing removes old versions yet, and each makes reads of a row slower.
      const keys = Array.from({ length: HOT }, (_, i) => `hot${n}-${i}`)
      await transact(servers[0], put(keys, '0'))
      const latencies = []
      const body = async (i) => {
        const began = performance.now()
        try {
          await work(servers[i % count], keys, i)
        } finally {
          latencies.push(performance.now() - began)
        }
      }
      const { rate, failed } = await rateOf(WRITERS, body)
      latencies.sort((a, b) => a - b)
      const at = (part) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))].toFixed(0)
      const cells = [rate.toFixed(0), at(0.5), at(0.99), at(1), String(failed)]
      console.log(`servers: ${count}, ${name}`.padEnd(46) + cells.map((cell) => cell.padStart(11)).join(''))
    }
    await Promise.all(servers.map(kill))
  }
}

const CIRCLES = 50
const LOCK_WAIT_MS = 60_000

/**
 * One transaction per server holds a key and waits for the next one's; the last one closes the circle.
 * @param meanwhile runs before that.
 * @returns milliseconds from its request to the first answer that refuses one of them.
 */
async function circleMs(servers, name, meanwhile = async () => {}) {
  const keys = servers.map((_, i) => `${name}-${i}`)
  const txns = []
  const put = (i, key) => call(servers[i], 'PUT', `/v1/txn/${txns[i]}/kv/${key}?lock_wait_ms=${LOCK_WAIT_MS}`, 'value')
  for (const [i, server] of servers.entries()) {
    const begun = await call(
      server,
      'POST',
      '/v1/txn/begin',
      JSON.stringify({ mode: 'pessimistic', ttl_ms: LOCK_WAIT_MS }),
    )
    txns.push(JSON.parse(begun).txn)
    await put(i, keys[i])
  }
  let closedAt = 0
  let refusedAt = 0
  const finish = async (i) => {
    try {
      await put(i, keys[(i + 1) % keys.length])
      await call(servers[i], 'POST', `/v1/txn/${txns[i]}/commit`)
    } catch (error) {
      if (error.status !== 409) throw error
      refusedAt ||= performance.now()
      await call(servers[i], 'POST', `/v1/txn/${txns[i]}/rollback`)
    }
  }
  const last = servers.length - 1
  const first = servers.slice(0, last).map((_, i) => finish(i))
  for (const server of servers.slice(0, last))
    while (!/^perkv_lock_waiters [1-9]/m.test(await call(server, 'GET', '/metrics')));
  await meanwhile()
  closedAt = performance.now()
  await Promise.all([...first, finish(last)])
  return refusedAt - closedAt
}

/** How long it takes until one of those who wait in a circle is refused. */
async function measureDeadlocks() {
  console.log(`\nFrom the request that closes a circle to the answer deadlock, ${CIRCLES} circles each, ms`)
  console.log(`${''.padEnd(46)}${['p50', 'p99', 'longest'].map((name) => name.padStart(11)).join('')}`)
  for (const count of counts.filter((each) => each > 1)) {
    const servers = await startServers(count)
    const times = []
    for (let i = 0; i < CIRCLES; i++) times.push(await circleMs(servers, `circle${i}`))
    times.sort((a, b) => a - b)
    const at = (part) => times[Math.min(CIRCLES - 1, Math.floor(CIRCLES * part))].toFixed(1).padStart(11)
    console.log(`servers: ${count}, one transaction at each`.padEnd(46) + at(0.5) + at(0.99) + at(1))
    await Promise.all(servers.map(kill))
  }
  const afterKills = []
  for (let round = 0; round < GAPS; round++) {
    const servers = await startServers(3)
    const leader = await serverAs('leader', servers)
    const others = servers.filter((server) => server !== leader)
    afterKills.push(await circleMs(others, 'circle', () => kill(leader)))
    await Promise.all(others.map(kill))
  }
  console.log(
    `The same right after a kill -9 of the server that hands out the timestamps: ${afterKills.map(Math.round).join(', ')}`,
  )
}

/** The longest time between two timestamps, with a client at each server that is left. */
async function measureGap() {
  const gaps = []
  for (let round = 0; round < GAPS; round++) {
    const servers = await startServers(3)
    const leader = await serverAs('leader', servers)
    const others = servers.filter((server) => server !== leader)
    const end = performance.now() + 6000
    let last = performance.now()
    let gap = 0
    const killed = new Promise((resolve) => setTimeout(resolve, 1000)).then(() => kill(leader))
    const client = async (server) => {
      while (performance.now() < end)
        try {
          await call(server, 'POST', '/v1/percolator/tso')
          gap = Math.max(gap, performance.now() - last)
          last = performance.now()
        } catch (error) {
          if (error.status !== 503) throw error
        }
    }
    await Promise.all([killed, ...others.map(client)])
    gaps.push(gap)
    await Promise.all(others.map(kill))
  }
  console.log(
    `\nTime without timestamps after a kill -9 of the server that hands them out, which is not started again, ms: ${gaps.map(Math.round).join(', ')}`,
  )
}

const emulator = await startEmulator({ delayMs: Number(values.delay) })
process.env.BIGTABLE_EMULATOR_HOST = emulator.host
if (only.has('calls')) await measureCalls()
if (only.has('rates')) await measureRates()
if (only.has('contention')) await measureContention()
if (only.has('deadlocks')) await measureDeadlocks()
if (only.has('gap')) await measureGap()
await emulator.stop()
process.exit(0) // Google's client keeps its connections open.
