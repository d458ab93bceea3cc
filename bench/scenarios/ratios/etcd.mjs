// etcd, one member on a directory of its own, and its operations through its JSON gateway.
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { keyOf, valueAt } from '../../harness/payload.mjs'
import { startProgram } from '../../harness/process.mjs'
import { postJson } from '../../harness/requests.mjs'

const READY_MS = 10_000

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

const putOf = (key) => ({ key, value: '<value64>' })
const first = Buffer.from(keyOf(0)).toString('base64')

/** Of one request each: see `template.mjs`. etcd answers 200 also where nothing was found, and where a comparison did not
 * hold: hence the look into each answer. */
export const etcdOperations = {
  getHot: { template: postJson('/v3/kv/range', { key: first }), isRight: (body) => body.includes('"value":') },
  put: { template: postJson('/v3/kv/put', putOf('<new1>')) },
  txn: {
    template: postJson('/v3/kv/txn', {
      compare: [{ key: '<new1>', target: 'VERSION', result: 'EQUAL', version: '0' }],
      success: ['<new1>', '<new2>'].map((key) => ({ requestPut: putOf(key) })),
    }),
    isRight: (body) => body.includes('"succeeded":true'),
  },
}

/** Puts the key that `getHot` reads. */
export async function fillEtcd({ url }) {
  const body = JSON.stringify({ key: first, value: Buffer.from(valueAt(0)).toString('base64') })
  const { status } = await fetch(`${url}/v3/kv/put`, { method: 'POST', body })
  if (status !== 200) throw new Error(`etcd answered a put with ${status}`)
}
