import { describe, expect, test } from 'vitest'
import { RequestReader } from '../../../src/http/fast-lane/request-reader.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'

const LIMITS = DEFAULT_LIMITS
const read = (text: string, at = 0) => new RequestReader(LIMITS, undefined).read(text, at)

const HOST = 'Host: a\r\n'
const get = (headers: string, target = '/v1/kv/k') => `GET ${target} HTTP/1.1\r\n${headers}\r\n`
const put = (headers: string, body: string) => `PUT /v1/kv/k HTTP/1.1\r\n${HOST}${headers}\r\n${body}`
const post = (headers: string, body: string) => `POST /v1/txn HTTP/1.1\r\n${HOST}${headers}\r\n${body}`
const lease = (headers: string, body: string, target = '/v1/leases/l') =>
  `PUT ${target} HTTP/1.1\r\n${HOST}${headers}\r\n${body}`
const JSON_TYPE = 'Content-Type: application/json\r\n'

describe('in the subset', () => {
  const cases: readonly (readonly [name: string, text: string, found: object])[] = [
    ['a read', get(HOST), { kind: 'get', key: 'k' }],
    ['a removal', 'DELETE /v1/kv/k HTTP/1.1\r\nHost: a\r\n\r\n', { kind: 'delete', key: 'k' }],
    ['an escaped key', get(HOST, '/v1/kv/a%2Fb/c'), { key: 'a%2Fb/c' }],
    ['a key that reads like a call', get(HOST, '/v1/kv/batch_get'), { key: 'batch_get' }],
    ['names of headers in any case, and no space', get('hOST:a\r\nACCEPT:*/*\r\n'), { kind: 'get' }],
    ['spaces around a value', get('Host:   a   \r\n'), { kind: 'get' }],
    ['keep-alive', get(`${HOST}Connection: Keep-Alive\r\n`), { kind: 'get' }],
    ['a write', put('Content-Length: 5\r\n', 'value'), { kind: 'put', key: 'k' }],
    ['an empty value', put('Content-Length: 0\r\n', ''), { kind: 'put' }],
    ['a removal with length 0', 'DELETE /v1/kv/k HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n', {}],
    ['a lease', lease(`${JSON_TYPE}Content-Length: 2\r\n`, '{}'), { kind: 'lease', key: 'l' }],
    ['an escaped name', lease(`${JSON_TYPE}Content-Length: 2\r\n`, '{}', '/v1/leases/a%2Fb/c'), { key: 'a%2Fb/c' }],
    ['a transaction', post(`${JSON_TYPE}Content-Length: 2\r\n`, '{}'), { kind: 'txn', key: '' }],
    [
      'a charset',
      post('Content-Type: application/JSON; charset=UTF-8\r\nContent-Length: 2\r\n', '{}'),
      { kind: 'txn' },
    ],
  ]
  test.each(cases)('%s', (_, text, found) => {
    expect(read(text)).toMatchObject({ ...found, end: text.length })
    expect(read(`${text}GET `)).toMatchObject({ ...found, end: text.length })
    expect(read(`before${text}`, 6)).toMatchObject({ ...found, end: text.length + 6 })
  })

  test.each(cases)('%s: no beginning of it is taken for a whole request, or for one outside', (_, text, found) => {
    const headEnd = text.indexOf('\r\n\r\n') + 4
    for (let length = 0; length < headEnd; length++)
      expect(read(text.slice(0, length)), text.slice(0, length)).toBe('partial')
    for (let length = headEnd; length < text.length; length++)
      expect(read(text.slice(0, length))).toMatchObject({ ...found, end: text.length })
  })
})

describe('outside of the subset', () => {
  test.each([
    ['a query', get(HOST, '/v1/kv/k?ts=1')],
    ['an empty query', get(HOST, '/v1/kv/k?')],
    ['a fragment', get(HOST, '/v1/kv/k#a')],
    ['an empty key', get(HOST, '/v1/kv/')],
    ['a scan', get(HOST, '/v1/kv')],
    ['an escaped route', get(HOST, '/v1/%6bv/k')],
    ['a whole URL', get(HOST, 'http://a/v1/kv/k')],
    ['a space in the key', get(HOST, '/v1/kv/a b')],
    ['a quote in the key', get(HOST, '/v1/kv/"')],
    ['bytes beyond ASCII in the key', get(HOST, '/v1/kv/\xe4')],
    ['a control byte in the key', get(HOST, '/v1/kv/a\0')],
    ['another path', get(HOST, '/v1/txn/1')],
    ['a call that begins like the transaction', 'POST /v1/txn/begin HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['HEAD', 'HEAD /v1/kv/k HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['a method in lower case', 'get /v1/kv/k HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['HTTP/1.0', 'GET /v1/kv/k HTTP/1.0\r\nHost: a\r\n\r\n'],
    ['no version', 'GET /v1/kv/k\r\nHost: a\r\n\r\n'],
    ['two spaces', 'GET  /v1/kv/k HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['an empty line before', '\r\nGET /v1/kv/k HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['lines that end with LF', 'GET /v1/kv/k HTTP/1.1\nHost: a\n\n\r\n\r\n'],
    ['no headers', 'GET /v1/kv/k HTTP/1.1\r\n\r\n\r\n'],
    ['no Host', get('Accept: */*\r\n')],
    ['two Hosts', get(`${HOST}host: b\r\n`)],
    ['a header that is not on the list', get(`${HOST}X-Mine: 1\r\n`)],
    ['a condition', get(`${HOST}If-None-Match: *\r\n`)],
    ['an idempotency key', put('Idempotency-Key: a\r\nContent-Length: 1\r\n', 'v')],
    ['the end of the connection', get(`${HOST}Connection: close\r\n`)],
    ['an upgrade', get(`${HOST}Connection: upgrade\r\nUpgrade: h2c\r\n`)],
    ['an expectation', put('Expect: 100-continue\r\nContent-Length: 1\r\n', 'v')],
    ['a folded header', get(`${HOST}Accept: a\r\n b\r\n`)],
    ['a space before the colon', get('Host : a\r\n')],
    ['a header without a name', get(`${HOST}: a\r\n`)],
    ['a header without a colon', get(`${HOST}Accept\r\n`)],
    ['a tab', get('Host:\ta\r\n')],
    ['a bare CR in a value', get('Host: a\rb\r\n')],
    ['a bare LF in a value', get('Host: a\nAccept: b\r\n')],
    ['bytes beyond ASCII in a value', get('Host: \xe4\r\n')],
    ['a read with a body', `${get(`${HOST}Content-Length: 1\r\n`)}v`],
    ['no length', put('', '')],
    ['two lengths', put('Content-Length: 1\r\nContent-Length: 1\r\n', 'v')],
    ['a list of lengths', put('Content-Length: 1, 1\r\n', 'v')],
    ['a signed length', put('Content-Length: +1\r\n', 'v')],
    ['a hexadecimal length', put('Content-Length: 0x1\r\n', 'v')],
    ['a length with zeros', put('Content-Length: 01\r\n', 'v')],
    ['a length beyond numbers', put(`Content-Length: ${'9'.repeat(30)}\r\n`, 'v')],
    ['chunks', put('Transfer-Encoding: chunked\r\n', '1\r\nv\r\n0\r\n\r\n')],
    ['chunks and a length', put('Content-Length: 1\r\nTransfer-Encoding: chunked\r\n', 'v')],
    ['a long body', put('Content-Length: 16385\r\n', 'v')],
    ['a line end', '\n'],
    ['the beginning of another method', 'OP'],
    ['a transaction in MessagePack', post('Content-Type: application/msgpack\r\nContent-Length: 1\r\n', '\x80')],
    ['a transaction without a type', post('Content-Length: 2\r\n', '{}')],
    ['another charset', post('Content-Type: application/json; charset=latin1\r\nContent-Length: 2\r\n', '{}')],
    ['a lease in MessagePack', lease('Content-Type: application/msgpack\r\nContent-Length: 1\r\n', '\x80')],
    ['a lease with a long body', lease(`${JSON_TYPE}Content-Length: 1025\r\n`, '{')],
    ['a lease without a length', lease(JSON_TYPE, '')],
    ['a lease with a query', lease(`${JSON_TYPE}Content-Length: 2\r\n`, '{}', '/v1/leases/l?ttl_ms=5')],
    ['a lease without a name', lease(`${JSON_TYPE}Content-Length: 2\r\n`, '{}', '/v1/leases/')],
    ['the list of leases', get(HOST, '/v1/leases')],
    ['a look at a lease', get(HOST, '/v1/leases/l')],
    ['the release of a lease', 'DELETE /v1/leases/l?holder=h HTTP/1.1\r\nHost: a\r\n\r\n'],
    ['a long head', get(`${HOST}Accept: ${'a'.repeat(8192)}\r\n`)],
    ['a long head that goes on', `GET /v1/kv/${'a'.repeat(9000)}`],
    ['long headers that go on', get(`${HOST}Accept: ${'a'.repeat(9000)}`).slice(0, -2)],
  ])('%s', (_, text) => {
    expect(read(text)).toBe('outside')
  })

  test('a head that is longer than the server allows', () => {
    const reader = new RequestReader({ ...LIMITS, headerBytesMax: 100 }, undefined)
    expect(reader.read(get(HOST), 0)).toMatchObject({ kind: 'get' })
    expect(reader.read(get(HOST, `/v1/kv/${'k'.repeat(80)}`), 0)).toBe('outside')
  })

  test('a body that is longer than the server allows', () => {
    const reader = new RequestReader({ ...LIMITS, valueBytesMax: 4, bodyBytesMax: 1 }, undefined)
    expect(reader.read(put('Content-Length: 4\r\n', 'v'), 0)).toMatchObject({ kind: 'put' })
    expect(reader.read(put('Content-Length: 5\r\n', 'v'), 0)).toBe('outside')
    expect(reader.read(post(`${JSON_TYPE}Content-Length: 2\r\n`, '{}'), 0)).toBe('outside')
    expect(reader.read(lease(`${JSON_TYPE}Content-Length: 2\r\n`, '{}'), 0)).toBe('outside')
  })

  test('a browser that the guard refuses', () => {
    const reader = new RequestReader(LIMITS, { loopbackNamesOnly: true })
    expect(reader.read(get('Host: localhost:7400\r\nAccept-Language: de\r\n'), 0)).toMatchObject({ kind: 'get' })
    expect(reader.read(get('Host: rebound.test\r\nAccept-Language: de\r\n'), 0)).toBe('outside')
    expect(reader.read(get('Host: rebound.test\r\n'), 0)).toMatchObject({ kind: 'get' })
  })
})

test('the remembered headers hold only for the same bytes', () => {
  const reader = new RequestReader(LIMITS, undefined)
  const first = reader.read(put('Content-Length: 1\r\n', 'v'), 0)
  const again = reader.read(put('Content-Length: 1\r\n', 'w'), 0)
  expect(first).toMatchObject({ headers: { contentLength: 1 } })
  expect((again as { headers: object }).headers).toBe((first as { headers: object }).headers)
  expect(reader.read(put('Content-Length: 10\r\n', '0123456789'), 0)).toMatchObject({ headers: { contentLength: 10 } })
  expect(reader.read(put('Content-Length: 1\r\nX: 1\r\n', 'v'), 0)).toBe('outside')
})
