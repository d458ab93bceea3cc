// Servers on one table: calls to the table for each kind of transaction, and where changes are read, how soon a deadlock is found, and
// how long no server hands out timestamps after a kill -9. The store under the table, servers and clients share this machine.
import { setTimeout as sleep } from 'node:timers/promises'
import { Connection } from '../harness/connection.mjs'
import { load } from '../harness/load.mjs'
import { latenciesOf } from '../harness/numbers.mjs'
import { metric } from '../harness/perkv.mjs'
import { kill } from '../harness/process.mjs'
import { row } from '../harness/report.mjs'
import { get, postJson, put } from '../harness/requests.mjs'
import { callsOf } from '../harness/table-servers.mjs'
import { WORK } from '../scale-out/work.mjs'

const transact = (ops, rest) => postJson('/v1/txn', { ops, ...rest })
const add = (key, by) => ({ op: 'increment', key, by })
const TRANSFER = [add('account1', -1), add('account2', 1)]

/** An operation of one request. */
const single = (request) =>
  function* () {
    yield request
  }

const interactive = (mode) =>
  function* () {
    const { txn } = JSON.parse(yield postJson('/v1/txn/begin', { mode }))
    for (const key of ['account1', 'account2']) {
      const value = yield get(`/v1/txn/${txn}/kv/${key}${mode === 'pessimistic' ? '?for_update=true' : ''}`)
      yield put(`/v1/txn/${txn}/kv/${key}`, String(Number(value) + 1))
    }
    yield postJson(`/v1/txn/${txn}/commit`, {})
  }

const KINDS = {
  *'PUT of a new key'(n) {
    yield put(`/v1/kv/new${n}`, 'value')
  },
  'PUT of a known key': single(put('/v1/kv/known', 'value')),
  GET: single(get('/v1/kv/account1')),
  'read-modify-write': single(transact([add('account1', 1)])),
  'transfer of two rows': single(transact(TRANSFER)),
  'serializable, reads a third row': single(
    transact([{ op: 'get', key: 'account3' }, ...TRANSFER], { isolation: 'serializable' }),
  ),
  'interactive, optimistic, two rows': interactive('optimistic'),
  'interactive, pessimistic, two rows': interactive('pessimistic'),
}

/** On a follower, so that the leader's own reads and writes of its row are not counted. */
const calls = (withServers) => ({
  full: { repeats: 100 },
  quick: { repeats: 10 },
  run: ({ repeats }) =>
    withServers({ count: 2 }, async ({ followers: [server] }) => {
      for (const key of ['account1', 'account2', 'account3']) await server.call(put(`/v1/kv/${key}`, '0'))
      const rows = []
      for (const [name, operation] of Object.entries(KINDS)) {
        const before = await callsOf(server)
        const { p50 } = await load({ url: server.url, connections: 1, count: repeats, operation })
        await sleep(50) // The other keys of a transaction are committed after its answer.
        const after = await callsOf(server)
        const of = (kind) => ((after[kind] - before[kind]) / repeats).toFixed(2)
        const counts = { reads: of('read'), changes: of('change') }
        rows.push({ 'calls to the table, without timestamps': name, ...counts, 'p50, ms': p50 })
      }
      return rows
    }),
})

/** What a commit costs more once changes have been read, at a server that nobody reads them from. */
const feed = (withServers) => ({
  full: { seconds: 10, connections: [1, 32] },
  quick: { seconds: 1, connections: [1, 32] },
  run: ({ seconds, connections }) =>
    withServers({ count: 2 }, async ({ leader, followers: [server] }) => {
      const rows = []
      for (const isRead of [false, true]) {
        if (isRead) await leader.call(get('/v1/changes?limit=1'))
        for (const clients of connections) {
          const run = () => load({ url: server.url, connections: clients, seconds, operation: WORK.transfer })
          await run()
          const before = await callsOf(server)
          const { count, rate, p50, p99 } = await run()
          const after = await callsOf(server)
          const of = (kind) => ((after[kind] - before[kind]) / count).toFixed(2)
          const name = `${clients} ${clients === 1 ? 'client' : 'clients'}${isRead ? ', changes are read' : ''}`
          const counts = { reads: of('read'), changes: of('change') }
          rows.push({
            'calls per transfer': name,
            ...counts,
            'transfers/s': Math.round(rate),
            'p50, ms': p50,
            'p99, ms': p99,
          })
        }
      }
      return rows
    }),
})

const LOCK_WAIT_MS = 60_000

/** How long it takes until one of those who wait in a circle is refused. */
const deadlocks = (withServers) => ({
  full: { servers: [2, 3], circles: 50 },
  quick: { servers: [2], circles: 3 },
  async run({ servers: counts, circles }) {
    const rows = []
    for (const count of counts)
      await withServers({ count }, async ({ servers }) => {
        const times = []
        for (let i = 0; i < circles; i++) times.push(await circleMs(servers, `circle${i}`))
        const { p50, p99, max } = latenciesOf(times)
        const name = 'from the request that closes a circle to `deadlock`, one transaction at each of'
        rows.push({ [name]: `${count} servers`, 'p50, ms': p50, 'p99, ms': p99, 'longest, ms': max })
      })
    return rows
  },
})

/**
 * One transaction per server holds a key and waits for the next one's; the last one closes the circle.
 * @returns milliseconds from its request to the first answer that refuses one of them.
 */
async function circleMs(servers, name) {
  const keys = servers.map((_, i) => `${name}-${i}`)
  const connections = await Promise.all(servers.map(({ url }) => Connection.open(url)))
  const txns = []
  const write = (i, key) =>
    connections[i].call(put(`/v1/txn/${txns[i]}/kv/${key}?lock_wait_ms=${LOCK_WAIT_MS}`, 'value'))
  for (const [i, connection] of connections.entries()) {
    const begin = postJson('/v1/txn/begin', { mode: 'pessimistic', ttl_ms: LOCK_WAIT_MS })
    txns.push((await connection.call(begin)).txn)
    await write(i, keys[i])
  }
  let refusedAt = 0
  const finish = async (i) => {
    try {
      await write(i, keys[(i + 1) % keys.length])
      await connections[i].call(postJson(`/v1/txn/${txns[i]}/commit`, {}))
    } catch (error) {
      if (error.status !== 409) throw error
      refusedAt ||= performance.now()
      await connections[i].call(postJson(`/v1/txn/${txns[i]}/rollback`, {}))
    }
  }
  const last = servers.length - 1
  const first = servers.slice(0, last).map((_, i) => finish(i))
  for (const server of servers.slice(0, last)) while ((await metric(server, 'perkv_lock_waiters')) === 0);
  const closedAt = performance.now()
  await Promise.all([...first, finish(last)])
  for (const connection of connections) connection.close()
  return refusedAt - closedAt
}

/** The longest time between two timestamps, with a client at each server that is left. */
const gap = (withServers) => ({
  full: { kills: 3, seconds: 6 },
  quick: { kills: 1, seconds: 6 },
  async run({ kills, seconds }) {
    const gaps = []
    for (let round = 0; round < kills; round++)
      await withServers({ count: 3 }, async ({ leader, followers }) => {
        let last = performance.now()
        let longest = 0
        const onDone = () => {
          longest = Math.max(longest, performance.now() - last)
          last = performance.now()
        }
        const url = followers.map((server) => server.url)
        const operation = single(postJson('/v1/percolator/tso', {}))
        const asking = load({ url, connections: 2, seconds, operation, tolerated: [503], onDone })
        await Promise.all([asking, sleep(1000).then(() => kill(leader))])
        gaps.push(longest)
      })
    const spread = [Math.min(...gaps), Math.max(...gaps)]
    return [row('no timestamps after a kill -9 of who hands them out', spread[1], { unit: 'ms', spread })]
  },
})

/** @param withServers runs its second parameter with servers on a new table. */
export const scenariosOn = (withServers) => ({
  calls: calls(withServers),
  feed: feed(withServers),
  deadlocks: deadlocks(withServers),
  gap: gap(withServers),
})
