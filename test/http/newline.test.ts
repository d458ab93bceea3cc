import { expect, test } from 'vitest'
import { type Headers, type Method, rawAnswer, rawText, sendTo, testServers } from './support.js'

const start = testServers()

const MSGPACK = { accept: 'application/msgpack' }

test('JSON ends with a newline, so that a shell’s prompt begins a line; values and MessagePack are what they are', {
  tags: ['long'],
}, async () => {
  const server = await start()
  const port = await server.listen()
  await server.put('k', '{"json": true}')
  const asked: [Method, string, Headers, endsLine: boolean][] = [
    ['GET', '/livez', {}, true],
    ['GET', '/readyz', {}, true],
    ['GET', '/v1/status', {}, true],
    ['GET', '/v1/kv', {}, true],
    ['GET', '/v1/kv?count_only', {}, true],
    ['GET', '/v1/kv', { accept: 'application/x-ndjson' }, true],
    ['PUT', '/v1/kv/other', {}, true],
    ['POST', '/v1/txn/begin', {}, true],
    ['POST', '/v1/percolator/tso', {}, true],
    ['GET', '/v1/kv/nobody', {}, true],
    ['GET', '/nope', {}, true],
    ['GET', '/%zz', {}, true],
    ['PATCH', '/v1/kv/k', {}, true],
    ['GET', '/v1/kv/k', {}, false],
    ['GET', '/v1/kv/k', { accept: 'application/json' }, false],
    ['GET', '/v1/kv/k', { 'if-none-match': '*' }, false],
    ['GET', '/livez', MSGPACK, false],
    ['GET', '/v1/kv/nobody', MSGPACK, false],
  ]
  for (const [method, path, headers, endsLine] of asked) {
    const what = `${method} ${path} ${JSON.stringify(headers)}`
    const answer = await sendTo({ port }, method, path, headers)
    expect(answer.body.endsWith('\n'), what).toBe(endsLine)
    expect(answer.body.endsWith('\n\n'), what).toBe(false)
    const { 'content-length': length } = answer.headers
    if (length !== undefined && headers !== MSGPACK)
      expect(Number(length), what).toBe(Buffer.byteLength(answer.body, 'utf8'))
    if (method !== 'GET' || path === '/v1/status' || answer.status === 304) continue
    const head = await sendTo({ port }, 'HEAD', path, headers)
    expect([head.status, head.body, head.headers['content-length']], what).toEqual([answer.status, '', length])
  }
  expect((await rawAnswer(port, 'nonsense\r\n\r\n')).body).toMatch(/^\{.*\}\n$/)
  expect((await rawAnswer(port, rawText('PUT /v1/kv/a', [], 'v'))).body).toMatch(/^\{.*\}\n$/)
})
