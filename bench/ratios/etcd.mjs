// etcd, one member on a directory of its own, and its operations through its JSON gateway.
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { startProgram } from '../process.mjs'
import { load } from './load.mjs'
import { fresh, keyOf, random, valueAt } from './payload.mjs'
import { postJson } from './request.mjs'

const READY_MS = 10_000
/** Of more, the gateway's answer would be chunked, which load.mjs does not read. */
const BATCH = 20

export async function startEtcd(directory) {
  const url = `http://127.0.0.1:${await freePort()}`
  const peerUrl = `http://127.0.0.1:${await freePort()}`
  const server = startProgram('etcd', [
    ...['--data-dir', directory],
    ...['--listen-client-urls', url, '--advertise-client-urls', url],
    ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
    ...['--initial-cluster', `default=${peerUrl}`],
  ])
  for (let waited = 0; !(await isReady(url)); waited += 50) {
    if (waited > READY_MS) throw new Error('etcd did not start')
    await sleep(50)
  }
  return { ...server, url }
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

const isReady = (url) =>
  fetch(`${url}/health`).then(
    (answer) => answer.ok,
    () => false,
  )

const base64 = (text) => Buffer.from(text).toString('base64')
const encoded = ({ key, value }) => ({ key: base64(key), value: base64(value) })
const requestPut = (pair) => ({ requestPut: encoded(pair) })

export async function fillEtcd(server, count) {
  const batch = (at) => Array.from({ length: BATCH }, (_, n) => ({ key: keyOf(at + n), value: valueAt(at + n) }))
  const operation = function* (n) {
    yield postJson('/v3/kv/txn', { success: batch(n * BATCH).map(requestPut) })
  }
  await load({ url: server.url, connections: 16, count: Math.ceil(count / BATCH), operation })
}

// etcd answers 200 also where nothing was found, and where a comparison did not hold: hence the look into each answer.
export const etcdOperations = {
  getHot: {
    request: postJson('/v3/kv/range', { key: base64(keyOf(0)) }),
    isRight: (body) => body.includes('"value":'),
  },
  put: { request: () => postJson('/v3/kv/put', encoded(fresh())) },
  /** @param keys how many are there to be compared. */
  txn: (keys) => ({
    request() {
      const key = base64(keyOf(random(keys)))
      const compare = [{ key, target: 'VERSION', result: 'GREATER', version: '0' }]
      return postJson('/v3/kv/txn', { compare, success: [requestPut(fresh()), requestPut(fresh())] })
    },
    isRight: (body) => body.includes('"succeeded":true'),
  }),
}
