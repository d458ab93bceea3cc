import { expect, test } from 'vitest'
import { expectProblem, rawRequest, rawText, testServers } from './support.js'

const start = testServers()

test('every 413 names the limit that it is over', async () => {
  const limits = {
    keyBytesMax: 10,
    valueBytesMax: 20,
    bodyBytesMax: 400,
    requestKeysMax: 3,
    headerBytesMax: 8192,
    txnBytesMax: 30,
  }
  const server = await start({ limits })
  const port = await server.listen()
  const { txn } = (await server.post('/v1/txn/begin', {})).json()
  const value = 'v'.repeat(21)
  for (const url of ['/v1/kv/k', `/v1/txn/${txn}/kv/k`]) {
    expectProblem(await server.send('PUT', url, {}, value), 'payload_too_large', { field: 'body', limit: 20 })
    expectProblem(await server.send('DELETE', url, {}, value), 'payload_too_large', { field: 'body', limit: 20 })
    const long = url.replace(/k$/, 'k'.repeat(11))
    for (const method of ['GET', 'PUT', 'DELETE'] as const)
      expectProblem(await server.send(method, long), 'payload_too_large', { field: 'key', limit: 10 })
    const chunked = `${rawText(`PUT ${url}`, ['Transfer-Encoding: chunked'])}15\r\n${value}\r\n0\r\n\r\n`
    const { status, body } = await rawRequest(port, chunked)
    expect([status, JSON.parse(body)]).toMatchObject([413, { code: 'payload_too_large', field: 'body', limit: 20 }])
  }
  const many = { keys: ['a', 'b', 'c', 'd'] }
  expectProblem(await server.post('/v1/kv/batch_get', many), 'payload_too_large', { field: 'keys', limit: 3 })
  const keys = { keys: ['k'.repeat(11)] }
  expectProblem(await server.post('/v1/kv/batch_get', keys), 'payload_too_large', { field: 'keys[0]', limit: 10 })
  const body = { keys: ['k'.repeat(500)] }
  expectProblem(await server.post('/v1/kv/batch_get', body), 'payload_too_large', { field: 'body', limit: 400 })
  const ops = [{ op: 'put', key: 'k', value }]
  expectProblem(await server.post('/v1/txn', { ops }), 'payload_too_large', { field: 'ops[0].value', limit: 20 })
  expectProblem(await server.get(`/v1/kv?prefix=${'k'.repeat(11)}`), 'payload_too_large', {
    field: 'prefix',
    limit: 10,
  })
  await server.send('PUT', `/v1/txn/${txn}/kv/a`, {}, 'v'.repeat(20))
  const over = await server.send('PUT', `/v1/txn/${txn}/kv/b`, {}, 'v'.repeat(20))
  expectProblem(over, 'payload_too_large', { limit: 30 })
  const { status, body: refused } = await rawRequest(port, rawText(`GET /v1/kv/${'k'.repeat(9000)}`))
  expect([status, JSON.parse(refused)]).toMatchObject([
    413,
    { code: 'payload_too_large', field: 'headers', limit: 8192 },
  ])
})
