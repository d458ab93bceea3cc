import { expect, test } from 'vitest'
import { type OneOfSeveral, severalServers } from './several-servers.js'
import type { Headers, Json } from './support.js'

const start = severalServers()

const [RW, APP] = ['rw-token-0123456789', 'app-token-0123456789']
const as = (token: string): Headers => ({ authorization: `Bearer ${token}`, 'content-type': 'application/json' })
const COPY = '/v1/consumers/copy'

async function register(server: OneOfSeveral, prefix: string): Promise<number> {
  const answer = await server.send('PUT', COPY, as(RW), JSON.stringify({ prefix }))
  expect(answer.status, answer.body).toBe(201)
  return Number((JSON.parse(answer.body) as Json)['position'])
}

test('a consumer that another server has registered just now is known', async () => {
  const { servers } = await start(2)
  const [a, b] = servers as [OneOfSeveral, OneOfSeveral]
  const from = await register(a, 'app/')
  const acknowledged = await b.post('/v1/txn', { positions: [{ consumer: 'copy', from, ts: from }] })
  expect(acknowledged.status, acknowledged.body).toBe(200)
})

test('a consumer that another server has registered anew is moved only by a token that reaches its range of now', async () => {
  const { servers } = await start(2, { tokens: `rw ${RW}\nrw ${APP} prefix=app/\n` })
  const [a, b] = servers as [OneOfSeveral, OneOfSeveral]
  await register(a, 'app/')
  expect((await b.send('GET', COPY, as(APP))).status).toBe(200)
  await a.send('DELETE', COPY, as(RW))
  const from = await register(a, '')
  const moved = { positions: [{ consumer: 'copy', from, ts: from }] }
  expect((await b.post('/v1/txn', moved, as(APP))).status).toBe(404)
  const { txn } = JSON.parse((await b.post('/v1/txn/begin', {}, as(APP))).body) as Json
  expect((await b.post(`/v1/txn/${txn}/commit`, moved, as(APP))).status).toBe(404)
  expect((await b.post('/v1/txn', moved, as(RW))).status).toBe(200)
})
