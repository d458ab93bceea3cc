// KV Connect beside the HTTP API on one server: a set and a PUT, a get and a GET, of the same keys and values.
import { BinaryWriter } from '@bufbuild/protobuf/wire'
import { load } from '../harness/load.mjs'
import { keyOf, valueAt } from '../harness/payload.mjs'
import { withPerkv } from '../harness/perkv.mjs'
import { bytesOf, get, put } from '../harness/requests.mjs'
import { addedRows, inTurn, metered } from '../harness/rounds.mjs'

const DATABASE = '/kv-connect/bench'
const SET = 1
const BYTES = 3

export const scenarios = {
  'kv-connect': {
    full: { keys: 10_000, connections: 64, rounds: 7, seconds: 4 },
    quick: { keys: 1000, connections: 16, rounds: 3, seconds: 1 },
    run: (settings) => withPerkv(['--kv-connect'], (server) => measure(server, settings)),
  },
}

async function measure(server, { keys, connections, rounds, seconds }) {
  const { databaseId } = await (await fetch(server.url + DATABASE, { method: 'POST', body: supported })).json()
  const headers = { 'x-denokv-version': '3', 'x-denokv-database-id': databaseId }
  const post = (call, body) => ({ method: 'POST', path: `${DATABASE}/${call}`, headers, body })
  // Made before, because a generator that is slower with one kind would let the server do more work per request.
  const all = (requestOf) =>
    Array.from({ length: keys }, (_, n) => Buffer.from(bytesOf(requestOf(keyOf(n), valueAt(n)))))
  const requests = {
    set: all((key, value) => post('atomic_write', setOf(key, value))),
    put: all((key, value) => put(`/v1/kv/${key}`, value)),
    get: all((key) => post('snapshot_read', readOf(key))),
    GET: all((key) => get(`/v1/kv/${key}`)),
  }
  const contender = (name) => (time) =>
    metered(server, () =>
      load({ ...{ url: server.url, connections, seconds: time }, request: (n) => requests[name][n % keys] }),
    )
  for (const name of ['set', 'put'])
    await load({ url: server.url, connections, count: keys, request: (n) => requests[name][n] })
  const writes = await inTurn({ set: contender('set'), put: contender('put') }, { rounds, seconds })
  const reads = await inTurn({ get: contender('get'), GET: contender('GET') }, { rounds, seconds })
  return [
    ...addedRows(writes, 'set beside PUT', ['set', 'put'], 'by CPU', { goal: 0.6, floor: 0.4 }),
    ...addedRows(reads, 'get beside GET', ['get', 'GET'], 'by CPU', { goal: 0.5, floor: 0.33 }),
  ]
}

const supported = JSON.stringify({ supportedVersions: [3] })

function setOf(key, value) {
  const writer = new BinaryWriter().tag(2, 2).fork().tag(1, 2).bytes(Buffer.from(key))
  writer.tag(2, 2).fork().tag(1, 2).bytes(Buffer.from(value)).tag(2, 0).int32(BYTES).join()
  return Buffer.from(writer.tag(3, 0).int32(SET).join().finish())
}

function readOf(key) {
  const writer = new BinaryWriter().tag(1, 2).fork().tag(1, 2).bytes(Buffer.from(key))
  writer
    .tag(2, 2)
    .bytes(Buffer.from(`${key}\0`))
    .tag(3, 0)
    .int32(1)
    .join()
  return Buffer.from(writer.finish())
}
