// What marks and acknowledgements add to a request: contenders in turn on one server, processor time of the server.
import { setTimeout as sleep } from 'node:timers/promises'
import { median } from '../process.mjs'
import { fresh } from '../ratios/payload.mjs'
import { get, postJson, put } from '../ratios/request.mjs'
import { withPerkv } from '../scale/servers.mjs'
import { alternate, block, CONNECTIONS, ratioRows } from './blocks.mjs'
import { cellKey, claimAll, one, putCells, register, remove } from './cells.mjs'
import { row } from './goals.mjs'

const ELSEWHERE = 256
/** Observers that were removed are swept, and files compacted. */
const REST_MS = 300

export async function costs({ rounds, requests }) {
  const rows = [
    ...(await withPerkv((server) => putsElsewhere(server, rounds, requests))),
    ...(await withPerkv((server) => putsObserved(server, rounds, requests))),
    ...(await withPerkv((server) => acknowledgements(server, rounds, requests))),
  ]
  return { settings: { connections: CONNECTIONS, rounds, requests_per_block: requests }, rows }
}

const putBelow = (prefix) =>
  function* () {
    const { key, value } = fresh()
    yield put(`/v1/kv/${prefix}${key}`, value)
  }

async function putsElsewhere(server, rounds, requests) {
  const { url } = server
  const names = Array.from({ length: ELSEWHERE }, (_, i) => `elsewhere-${i}`)
  const isRegistered = async (isWanted) => {
    const { observers } = await one(url, get('/v1/observers'))
    if (observers.length > 0 !== isWanted) {
      await Promise.all(names.map((name) => (isWanted ? register(url, name, `${name}/`) : remove(url, name))))
      await sleep(REST_MS)
    }
  }
  const contenders = {
    async none() {
      await isRegistered(false)
      return block(server, requests, putBelow(''))
    },
    async elsewhere() {
      await isRegistered(true)
      return block(server, requests, putBelow(''))
    },
  }
  const blocks = await alternate(contenders, rounds)
  const name = `PUT, ${ELSEWHERE} observers elsewhere`
  return ratioRows(blocks, name, 'elsewhere', 'none', 'main', { goal: 0.98, floor: 0.7 })
}

async function putsObserved(server, rounds, requests) {
  await register(server.url, 'one', 'one/')
  for (const name of ['a', 'b', 'c']) await register(server.url, `three-${name}`, 'three/')
  const contenders = {
    none: () => block(server, requests, putBelow('none/')),
    one: () => block(server, requests, putBelow('one/')),
    three: () => block(server, requests, putBelow('three/')),
  }
  const blocks = await alternate(contenders, rounds)
  return [
    ...ratioRows(blocks, 'PUT of a key with 1 observer', 'one', 'none', 'cpu', {
      goal: 0.85,
      floor: 0.5,
    }),
    ...ratioRows(blocks, 'PUT of a key with 3 observers', 'three', 'none', 'cpu', {
      goal: 0.75,
      floor: 0.4,
    }),
  ]
}

async function acknowledgements(server, rounds, requests) {
  const { url } = server
  await register(url, 'acked', 'acked/')
  let made = 0
  const prepare = async (prefix) => {
    const from = made
    made += requests
    await putCells(url, prefix, from, made)
    return from
  }
  const ops = (key) => {
    const { key: output, value } = fresh()
    return [
      { op: 'get', key },
      { op: 'put', key: output, value },
    ]
  }
  const contenders = {
    async 'without an ack'() {
      const from = await prepare('plain/')
      return block(server, requests, function* (n) {
        yield postJson('/v1/txn', { ops: ops(cellKey('plain/', from + n)) })
      })
    },
    async 'with an ack'() {
      await prepare('acked/')
      const claims = await claimAll(url, 'acked', requests)
      return block(server, requests, function* (n) {
        const { key, fence } = claims[n]
        yield postJson('/v1/txn', { acks: [{ observer: 'acked', key, fence }], ops: ops(key) })
      })
    },
  }
  const blocks = await alternate(contenders, rounds)
  const name = 'txn of get, put and ack'
  const rates = blocks['with an ack'].map(({ rate }) => rate)
  return [
    ...ratioRows(blocks, name, 'with an ack', 'without an ack', 'cpu', { goal: 0.6, floor: 0.3 }),
    row('txn of get, put and ack', median(rates), { unit: 'txn/s', goal: 4000, floor: 1000 }),
  ]
}
