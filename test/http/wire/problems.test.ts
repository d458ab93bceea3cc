import { Agent, METHODS } from 'node:http'
import { describe, expect, test } from 'vitest'
import { KvError } from '../../../src/errors/kv-error.js'
import { routesOf } from '../../../src/http/routes/route-list.js'
import { problemOf } from '../../../src/http/wire/problem.js'
import { createLog } from '../../../src/server/log.js'
import { EngineFailure, TappedEngine } from '../../store/support.js'
import { TEST_STORE } from '../../store/test-store.js'
import { expectProblem, type Headers, type Json, pack, rawRequest, rawText, sendTo, testServers } from '../support.js'

const start = testServers()
const JSON_TYPE = { 'content-type': 'application/json' }

const POST_ROUTES = [
  '/v1/txn',
  '/v1/txn/some/ops',
  '/v1/kv/batch_get',
  ...['claim', 'extend', 'release', 'notify', 'skip'].map((call) => `/v1/observers/some/${call}`),
  ...[
    'tso',
    'get',
    'batch_get',
    'scan',
    'prewrite',
    'commit',
    'rollback',
    'cleanup',
    'check_txn_status',
    'check_secondary_locks',
    'txn_heart_beat',
    'resolve_lock',
    'scan_lock',
    'gc',
    'mvcc_get_by_key',
    'mvcc_get_by_start_ts',
    'delete_range',
    'acquire_pessimistic_lock',
    'pessimistic_rollback',
    'validate_reads',
  ].map((call) => `/v1/percolator/${call}`),
]

describe('routes that do not exist', () => {
  for (const [method, url] of [
    ['GET', '/'],
    ['GET', '/nope'],
    ['GET', '/v1'],
    ['GET', '/v2/kv/a'],
    ['GET', '/V1/kv/a'],
    ['POST', '/v1/percolator/nope'],
    ['POST', '/v1/percolator/'],
    ['POST', '/v1/percolator/tso/'],
  ] as const)
    test(`${method} ${url}`, async () => {
      const server = await start()
      expectProblem(await server.send(method, url), 'not_found')
    })

  for (const [name, type, body] of [
    ['malformed JSON', 'application/json', '{bad'],
    ['malformed MessagePack', 'application/msgpack', '\xc1\xc1'],
    ['a form', 'application/x-www-form-urlencoded', 'a=1'],
    ['__proto__', 'application/json', '{"__proto__":1}'],
  ] as const)
    test(`with a body of ${name} are 404 all the same`, async () => {
      const server = await start()
      expectProblem(await server.send('POST', '/v1/nope', { 'content-type': type }, body), 'not_found')
    })
})

describe('methods that a path does not have', () => {
  test('are 405 and say which it has, on every path', { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    const agent = new Agent({ keepAlive: true })
    const known = new Map<string, Set<string>>()
    for (const { method, url } of routesOf(server.app)) {
      const path = url.replace(/:\w+/g, 'x')
      known.set(path, new Set([...(known.get(path) ?? []), ...[method].flat()]))
    }
    known.set('/v1/kv/a/b%2Fc', known.get('/v1/kv/x') ?? new Set())
    known.get('/v1/kv/batch_get')?.add('GET').add('HEAD').add('PUT').add('DELETE') // As a key.
    known.get('/v1/txn/begin')?.add('GET').add('HEAD') // As an id.
    expect(known.size).toBeGreaterThan(30)
    for (const [path, methods] of known) {
      const allow = [...methods].sort()
      const wrong = METHODS.filter((method) => method !== 'CONNECT' && !methods.has(method))
      expect(wrong.length).toBeGreaterThan(20)
      for (const method of wrong) {
        const answer = await sendTo({ port, agent }, method, path)
        expect([answer.status, answer.headers.allow], `${method} ${path}`).toEqual([405, allow.join(', ')])
        expect(answer.headers['x-content-type-options']).toBe('nosniff')
        expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
        if (method !== 'HEAD')
          expect(JSON.parse(answer.body)).toMatchObject({ status: 405, code: 'method_not_allowed', allow })
      }
    }
    agent.destroy()
  })

  test('whoever may not come in learns of none of them', async () => {
    const server = await start({ tokens: 'rw token-0123456789' })
    expectProblem(await server.send('PATCH', '/v1/kv/a'), 'unauthorized')
    expect((await server.send('PATCH', '/v1/kv/a')).headers.allow).toBeUndefined()
  })
})

describe('415', () => {
  for (const type of [
    'text/plain',
    'text/plain;charset=UTF-8',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/jsonx',
    'application/json-patch+json',
    'application/octet-stream',
    'text/plain; application/json',
    'application/json, text/plain',
    'nonsense',
    '',
  ])
    test(`every JSON route refuses ${type || 'an empty content type'}`, async () => {
      const server = await start()
      for (const url of POST_ROUTES)
        for (const body of ['{}', 'a=1'])
          expectProblem(await server.send('POST', url, { 'content-type': type }, body), 'unsupported_media_type')
    })

  test('a body without a content type', async () => {
    const server = await start()
    const port = await server.listen()
    for (const url of POST_ROUTES) {
      const { status, body } = await rawRequest(port, rawText(`POST ${url}`, [], '{}'))
      expect(status).toBe(415)
      expect(JSON.parse(body)).toMatchObject({ code: 'unsupported_media_type' })
    }
  })

  test('parameters and case of the content type do not matter', async () => {
    const server = await start()
    for (const type of [
      'application/json; charset=utf-8',
      'Application/JSON',
      'application/json;charset=UTF-8',
      'application/json; charset="utf-8"',
      'application/json; charset=utf8; x=y',
      'application/json; x=charset',
    ])
      expect((await server.send('POST', '/v1/percolator/tso', { 'content-type': type }, '{}')).statusCode).toBe(200)
    for (const type of ['application/msgpack; charset=utf-8', 'application/x-msgpack;x=y'])
      expect((await server.send('POST', '/v1/percolator/tso', { 'content-type': type }, pack({}))).statusCode).toBe(200)
  })

  for (const charset of [
    ...['utf-16', 'UTF-16LE', '"utf-16"', 'latin1', 'iso-8859-1', 'us-ascii', 'utf-8-x', '', '""', ' utf-16'],
    ...['utf-8; charset=utf-16', 'utf-16; charset=utf-8', 'utf-8"; charset="utf-16'],
  ])
    test(`a charset other than UTF-8: ${charset}`, async () => {
      const server = await start()
      for (const [type, body] of [
        ['application/json', '{}'],
        ['application/json; x=y', '{}'],
        ['application/msgpack', pack({})],
      ] as const)
        for (const url of ['/v1/txn', '/v1/percolator/tso', '/v1/txn/begin', '/v1/txn/some/commit']) {
          const headers = { 'content-type': `${type}; Charset=${charset}` }
          expectProblem(await server.send('POST', url, headers, body), 'unsupported_media_type')
        }
      await server.put('k', 'v', { 'content-type': `application/json; charset=${charset}` }) // A value is any bytes.
    })
})

describe('malformed bodies are 400', () => {
  const bodies: readonly (readonly [name: string, body: string | Buffer])[] = [
    ['nothing', ''],
    ['half an object', '{"count":'],
    ['two objects', '{}{}'],
    ['a comma too many', '{"count":1,}'],
    ['single quotes', "{'count':1}"],
    ['a list', '[]'],
    ['null', 'null'],
    ['text', '"count"'],
    ['a number', '5'],
    ['not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
    ['Latin-1', Buffer.from('{"key":"é"}', 'latin1')],
    ['UTF-16', Buffer.from('{}', 'utf16le')],
    ['__proto__', '{"__proto__":{"count":1}}'],
    ['__proto__ in disguise', '{"\\u005f\\u005fproto__":{"count":1}}'],
    ['constructor.prototype', '{"constructor":{"prototype":{"count":1}}}'],
    ['deep nesting', `${'['.repeat(100_000)}${']'.repeat(100_000)}`],
    ['deep nesting, not closed', '{"a":'.repeat(50_000)],
    ['an unknown field', '{"bogus":1}'],
    ['a number too large', '{"start_ts":1e999}'],
  ]
  for (const [name, body] of bodies)
    test(name, { tags: ['long'] }, async () => {
      const server = await start()
      for (const url of POST_ROUTES) expectProblem(await server.send('POST', url, JSON_TYPE, body), 'invalid_argument')
    })

  test('nested __proto__', async () => {
    const server = await start()
    const body = '{"ops":[{"op":"get","key":"a","__proto__":{}}]}'
    expectProblem(await server.send('POST', '/v1/txn', JSON_TYPE, body), 'invalid_argument')
  })
})

describe('bytes in JSON', () => {
  const bad: readonly unknown[] = [
    { base64: 'YQ' },
    { base64: 'YQ=' },
    { base64: 'YQ===' },
    { base64: 'YR==' },
    { base64: 'Y Q==' },
    { base64: '_w==' },
    { base64: '-w==' },
    { base64: 'YQ==\n' },
    { base64: '!!!!' },
    { base64: '=' },
    { base64: '' },
    { base64: 5 },
    { base64: null },
    { base64: ['YQ=='] },
    { base64: 'YQ==', extra: 1 },
    { Base64: 'YQ==' },
    {},
    '\ud800',
    'a\udc00b',
    '',
    5,
    null,
    true,
    ['a'],
  ]
  for (const key of bad)
    test(`the key ${JSON.stringify(key)} is 400`, async () => {
      const server = await start()
      expectProblem(await server.call('get', { key }), 'invalid_argument', { field: 'key' })
      const mutations = [{ op: 'put', key, value: 'v' }]
      const problem = expectProblem(
        await server.call('prewrite', { mutations, primary: 'a', start_ts: 5 }),
        'invalid_argument',
      )
      expect(problem['field']).toBe('mutations[0].key')
    })

  test('what is legal comes back as it was', async () => {
    const server = await start()
    for (const value of ['', '\0', '\ufeffbom', 'é😀', '\u2028', '"\\', { base64: '/w==' }, { base64: 'wK8=' }]) {
      await server.txn({ ops: [{ op: 'put', key: 'k', value }] })
      expect(await server.ok('get', { key: 'k' })).toMatchObject({ found: true, value })
    }
    await server.txn({ ops: [{ op: 'put', key: { base64: 'YQ==' }, value: { base64: '' } }] })
    expect(await server.ok('get', { key: 'a' })).toMatchObject({ value: '' })
  })
})

describe('query parameters', () => {
  test('unknown and duplicate ones are refused on every route', async () => {
    const server = await start()
    for (const url of ['/v1/kv/a', '/v1/kv', '/livez', '/readyz', '/v1/status'])
      expectProblem(await server.get(`${url}?bogus=1`), 'invalid_argument', { field: 'bogus' })
    for (const url of POST_ROUTES) expectProblem(await server.post(`${url}?bogus=1`, {}), 'invalid_argument')
    for (const method of ['PUT', 'DELETE'] as const)
      expectProblem(await server.send(method, '/v1/kv/a?ts=5'), 'invalid_argument', { field: 'ts' })
    expectProblem(await server.get('/v1/kv/a?ts=5&ts=5'), 'invalid_argument', { field: 'ts' })
    expectProblem(await server.send('PUT', '/v1/kv/a?lock_wait_ms=1&lock_wait_ms=1'), 'invalid_argument')
    expect(await server.mvcc('a')).toMatchObject({ writes: [] })
  })
})

describe('413', () => {
  test('a body over its limit', async () => {
    const server = await start({ limits: { bodyBytesMax: 2000 } })
    const body = JSON.stringify({ keys: ['a'.repeat(3000)] })
    expectProblem(await server.send('POST', '/v1/kv/batch_get', JSON_TYPE, body), 'payload_too_large')
    const port = await server.listen()
    const chunked = ['Content-Type: application/json', 'Transfer-Encoding: chunked']
    const request = `${rawText('POST /v1/kv/batch_get', chunked)}${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
    const answer = await rawRequest(port, request)
    expect(answer.status).toBe(413)
  })

  test('too many keys', async () => {
    const server = await start()
    const keys = Array.from({ length: 100_001 }, (_, i) => `${i}`)
    expectProblem(await server.post('/v1/kv/batch_get', { keys }), 'payload_too_large')
  })
})

describe('wrong types name their field', () => {
  const cases: readonly (readonly [call: string, body: Json, field: string])[] = [
    ['get', { key: 'a', ts: '5' }, 'ts'],
    ['get', { key: 'a', ts: 1.5 }, 'ts'],
    ['get', { key: 'a', ts: -1 }, 'ts'],
    ['get', { key: 'a', ts: 2 ** 53 }, 'ts'],
    ['get', { key: 'a', ts: true }, 'ts'],
    ['get', {}, 'key'],
    ['get', { key: 'a', tss: 5 }, 'tss'],
    ['batch_get', { keys: ['a', 5] }, 'keys[1]'],
    ['batch_get', { keys: { 0: 'a' } }, 'keys'],
    ['scan', { ts: 5, limit: '10' }, 'limit'],
    ['scan', { ts: 5, limit: 10, reverse: 1 }, 'reverse'],
    ['prewrite', { mutations: [{ op: 'PUT', key: 'a' }], primary: 'a', start_ts: 5 }, 'mutations[0].op'],
    ['prewrite', { mutations: [{ op: 'put', key: 'a', val: '' }], primary: 'a', start_ts: 5 }, 'mutations[0].val'],
  ]
  for (const [call, body, field] of cases)
    test(`${call} ${JSON.stringify(body)}`, async () => {
      const server = await start()
      expectProblem(await server.call(call, body), 'invalid_argument', { field })
    })
})

test('problems are JSON whatever else is asked for', async () => {
  const server = await start()
  const wishes: Headers[] = [{}, { accept: 'text/html' }, { accept: 'application/x-ndjson' }, { accept: '*/*;q=0' }]
  for (const headers of wishes) expectProblem(await server.get('/v1/kv/nobody', headers), 'not_found')
})

test('livez, readyz and status', async () => {
  const server = await start()
  const { onePhaseCommit, asyncCommit, deadlocks, lockCount } = server.store.traits
  for (const url of ['/livez', '/readyz']) expect((await server.get(url)).statusCode).toBe(200)
  expect((await server.get('/v1/status')).json<Json>()).toMatchObject({
    version: '0.0.0-test',
    store: TEST_STORE,
    capabilities: { one_phase_commit: onePhaseCommit, async_commit: asyncCommit, deadlocks },
    safe_point: 0,
    uptime_ms: expect.any(Number),
    writable: true,
    counts: { open_transactions: 0, ...(lockCount && { locks: 0 }) },
  })
})

test('a failing engine is 503 storage_unavailable, readyz says so, livez does not', async () => {
  const server = await start()
  await server.database.close()
  for (const answer of [await server.get('/v1/kv/a'), await server.get('/readyz'), await server.get('/v1/kv')]) {
    expect(answer.statusCode).toBe(503)
    expect(answer.json<Json>()).toMatchObject({ code: 'storage_unavailable', status: 503 })
  }
  expect((await server.get('/livez')).statusCode).toBe(200)
})

test('what a store lacks is no fault of the server', () => {
  const lacking = problemOf(new KvError('not_supported', 'the store has none', {}), 'request')
  expect([lacking.status, lacking.isServerFault]).toEqual([501, false])
  expect(problemOf(new KvError('storage_unavailable', 'the disk is full', {}), 'request').isServerFault).toBe(true)
})

test('a storage that fails is logged once, not for every request', async () => {
  const lines: string[] = []
  const tapped = new TappedEngine()
  const log = createLog('error', (line) => void lines.push(line))
  const server = await start({ openEngine: tapped.open, log })
  tapped.onRequireRoom = async () => {
    throw new Error('no room')
  }
  tapped.onWrite = async () => {
    throw new EngineFailure('disk full')
  }
  for (let i = 0; i < 20; i++) expect((await server.send('PUT', '/v1/kv/a', {}, 'v')).statusCode).toBe(503)
  expect(lines).toHaveLength(2) // The write that failed, and what is refused since.
})
