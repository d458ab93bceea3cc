// What marks and acknowledgements add to a request: contenders in turn on one server, processor time of the server.
import { setTimeout as sleep } from 'node:timers/promises'
import { load } from '../../harness/load.mjs'
import { median } from '../../harness/numbers.mjs'
import { fresh, numbered } from '../../harness/payload.mjs'
import { withPerkv } from '../../harness/perkv.mjs'
import { row } from '../../harness/report.mjs'
import { get, postJson, put } from '../../harness/requests.mjs'
import { addedRows, inTurn, metered } from '../../harness/rounds.mjs'
import { claimAll, putCells, register, unregister } from './cells.mjs'

const ELSEWHERE = 256
/** Observers that were removed are swept, and files compacted. */
const REST_MS = 300

export const costs = {
  full: { rounds: 25, requests: 3000 },
  quick: { rounds: 5, requests: 1000 },
  run: async (settings) => [
    ...(await withPerkv([], (server) => putsElsewhere(server, settings))),
    ...(await withPerkv([], (server) => putsObserved(server, settings))),
    ...(await withPerkv([], (server) => acknowledgements(server, settings))),
  ],
  tell: ({ blocks }) => blocks.map((rows) => rows.filter(isTold)),
}

/** Of the ratios only those that have a goal. */
const isTold = ({ measured, goal }) => goal !== '' || !measured.includes(': by ')

const block = (server, count, request) => metered(server, () => load({ url: server.url, count, request }))

const putsBelow = (server, requests, prefix) =>
  block(server, requests, () => {
    const { key, value } = fresh()
    return put(`/v1/kv/${prefix}${key}`, value)
  })

async function putsElsewhere(server, { rounds, requests }) {
  const names = Array.from({ length: ELSEWHERE }, (_, i) => `elsewhere-${i}`)
  const contender = (isWanted) => async () => {
    const { observers } = await server.call(get('/v1/observers'))
    if (observers.length > 0 !== isWanted) {
      for (const name of names) await (isWanted ? register(server, name, `${name}/`) : unregister(server, name))
      await sleep(REST_MS)
    }
    return putsBelow(server, requests, '')
  }
  const results = await inTurn({ none: contender(false), elsewhere: contender(true) }, { rounds })
  const name = `PUT, ${ELSEWHERE} observers elsewhere`
  return addedRows(results, name, ['elsewhere', 'none'], 'by main thread', { goal: 0.98, floor: 0.7 })
}

async function putsObserved(server, { rounds, requests }) {
  await register(server, 'one', 'one/')
  for (const name of ['a', 'b', 'c']) await register(server, `three-${name}`, 'three/')
  const contender = (prefix) => () => putsBelow(server, requests, prefix)
  const contenders = { none: contender('none/'), one: contender('one/'), three: contender('three/') }
  const results = await inTurn(contenders, { rounds })
  const one = { goal: 0.85, floor: 0.5 }
  const three = { goal: 0.75, floor: 0.4 }
  return [
    ...addedRows(results, 'PUT of a key with one observer', ['one', 'none'], 'by CPU', one),
    ...addedRows(results, 'PUT of a key with three observers', ['three', 'none'], 'by CPU', three),
  ]
}

async function acknowledgements(server, { rounds, requests }) {
  await register(server, 'acked', 'acked/')
  let made = 0
  const prepare = async (prefix) => {
    const from = made
    made += requests
    await putCells(server, prefix, from, made)
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
    async without() {
      const from = await prepare('plain/')
      return block(server, requests, (n) => postJson('/v1/txn', { ops: ops(numbered('plain/', from + n)) }))
    },
    async with() {
      await prepare('acked/')
      const claims = await claimAll(server, 'acked', requests)
      return block(server, requests, (n) => {
        const { key, fence } = claims[n]
        return postJson('/v1/txn', { acks: [{ observer: 'acked', key, fence }], ops: ops(key) })
      })
    },
  }
  const results = await inTurn(contenders, { rounds })
  const rate = median(results.with.map(({ rate }) => rate))
  return [
    ...addedRows(results, 'txn of get and put, with an ack', ['with', 'without'], 'by CPU', { goal: 0.6, floor: 0.3 }),
    row('transactions with acks', rate, { unit: 'per second', goal: 4000, floor: 1000 }),
  ]
}
