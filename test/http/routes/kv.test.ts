import { describe, expect, test } from 'vitest'
import { Clock, expectProblem, numberOf, okBody, rawRequest, rawText, testServers, urlOf } from '../support.js'

const start = testServers()

describe('one key', () => {
  test('put, get, overwrite, delete', async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const answer = await server.get('/v1/kv/k')
    expect([answer.statusCode, answer.body, answer.headers.etag]).toEqual([200, 'one', `"${first}"`])
    const second = await server.put('k', 'two')
    expect(second).toBeGreaterThan(first)
    expect((await server.get('/v1/kv/k')).body).toBe('two')
    expect((await server.get(`/v1/kv/k?ts=${first}`)).body).toBe('one')
    expectProblem(await server.get(`/v1/kv/k?ts=${first - 1}`), 'not_found')
    const third = await server.remove('k')
    expect(third).toBeGreaterThan(second)
    expectProblem(await server.get('/v1/kv/k'), 'not_found')
    expect((await server.get(`/v1/kv/k?ts=${third - 1}`)).body).toBe('two')
    expectProblem(await server.get(`/v1/kv/k?ts=${third}`), 'not_found')
  })

  test('deleting an absent key succeeds', async () => {
    const server = await start()
    expect(await server.remove('nobody')).toBeGreaterThan(0)
  })

  test('values are raw bytes, empty ones too', async () => {
    const server = await start()
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    await server.put('bytes', bytes)
    await server.put('empty', '')
    expect((await server.get('/v1/kv/bytes')).rawPayload.equals(bytes)).toBe(true)
    const empty = await server.get('/v1/kv/empty')
    expect([empty.statusCode, empty.rawPayload.length, empty.headers['content-length']]).toEqual([200, 0, '0'])
  })

  test('a value of 1 MiB is accepted, one byte more is not, nor is it written', async () => {
    const server = await start()
    await server.put('k', Buffer.alloc(1024 * 1024, 1))
    expect((await server.get('/v1/kv/k')).rawPayload.length).toBe(1024 * 1024)
    const over = await server.send('PUT', '/v1/kv/k', { 'content-type': 'text/plain' }, Buffer.alloc(1024 * 1024 + 1))
    expectProblem(over, 'payload_too_large', { field: 'body', limit: 1024 * 1024 })
    expect((await server.get('/v1/kv/k')).rawPayload.length).toBe(1024 * 1024)
  })

  for (const type of [
    'text/plain',
    'application/json',
    'application/msgpack',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/octet-stream',
    'image/png',
    'text/plain; charset',
  ])
    test(`a body of ${type} is taken as it is`, async () => {
      const server = await start()
      await server.put('k', '{not json', { 'content-type': type })
      expect((await server.get('/v1/kv/k')).body).toBe('{not json')
    })

  for (const type of ['text', 'garbage', 'a/b/c', '*', 'x'.repeat(300)])
    test(`a body of the odd content type ${type.slice(0, 10)} is taken as it is`, async () => {
      const server = await start()
      await server.put('k', 'v', { 'content-type': type })
      expect((await server.get('/v1/kv/k')).body).toBe('v')
    })

  test('a body without a content type is taken as it is; no body is the empty value', async () => {
    const server = await start()
    const port = await server.listen()
    expect((await rawRequest(port, rawText('PUT /v1/kv/k', [], 'v'))).status).toBe(200)
    expect((await server.get('/v1/kv/k')).body).toBe('v')
    expect((await rawRequest(port, rawText('PUT /v1/kv/k'))).status).toBe(200)
    expect((await server.get('/v1/kv/k')).body).toBe('')
  })

  test('a chunked body is taken as it is', async () => {
    const server = await start()
    const port = await server.listen()
    const request = rawText('PUT /v1/kv/k', ['Transfer-Encoding: chunked'])
    expect((await rawRequest(port, `${request}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n`)).status).toBe(200)
    expect((await server.get('/v1/kv/k')).body).toBe('abcde')
  })

  for (const type of ['application/json', 'text/plain', 'application/x-www-form-urlencoded'])
    test(`DELETE with the content type ${type} and no body`, async () => {
      const server = await start()
      await server.put('k', 'v')
      okBody(await server.send('DELETE', '/v1/kv/k', { 'content-type': type }))
      expectProblem(await server.get('/v1/kv/k'), 'not_found')
    })

  test('HEAD is GET without the body', async () => {
    const server = await start()
    const port = await server.listen()
    const commitTs = await server.put('k', 'value')
    const head = await server.send('HEAD', '/v1/kv/k')
    expect([head.statusCode, head.headers.etag, head.headers['content-length']]).toEqual([200, `"${commitTs}"`, '5'])
    expect(await rawRequest(port, rawText('HEAD /v1/kv/k'))).toEqual({ status: 200, body: '' })
    expect(await rawRequest(port, rawText('HEAD /v1/kv/nobody'))).toEqual({ status: 404, body: '' })
    expect((await server.send('HEAD', `/v1/kv/k?ts=${commitTs - 1}`)).statusCode).toBe(404)
    expect((await server.send('HEAD', '/v1/kv/k?bogus=1')).statusCode).toBe(400)
  })

  test('not_found carries the key', async () => {
    const server = await start()
    expectProblem(await server.get('/v1/kv/nobody'), 'not_found')
  })
})

describe('time travel', () => {
  test('at: everything up to and in the instant’s millisecond', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    await server.put('k', 'one')
    const instant = new Date(clock.ms)
    clock.ms += 1000
    await server.put('k', 'two')
    const before = new Date(clock.ms - 1)
    const now = new Date(clock.ms)
    const at = async (text: string): Promise<string> =>
      (await server.get(`/v1/kv/k?at=${encodeURIComponent(text)}`)).body
    expect(await at(instant.toISOString())).toBe('one')
    expect(await at(before.toISOString())).toBe('one')
    expect(await at(now.toISOString())).toBe('two')
    expect(await at(now.toISOString().replace('Z', '+00:00'))).toBe('two')
    expect(await at(now.toISOString().toLowerCase())).toBe('two')
    const plusTwo = new Date(instant.getTime() + 2 * 3_600_000).toISOString().replace('Z', '+02:00')
    expect(await at(plusTwo)).toBe('one')
    expect((await server.get(`/v1/kv/k?at=${plusTwo}`)).body).toBe('one') // An unescaped plus.
  })

  for (const at of [
    '2026-01-31',
    'yesterday',
    '',
    '2026-02-29T00:00:00Z',
    '2026-01-31T12:00:00',
    '2026-13-01T00:00:00Z',
    '1969-12-31T23:59:59Z',
    '1700000000',
    '2026-01-31T12:00:00%2B25:00',
    '2026-01-31T24:00:00Z',
    '9999-01-01T00:00:00Z',
  ])
    test(`at=${at} is no RFC 3339 instant that has a timestamp`, async () => {
      const server = await start()
      expectProblem(await server.get(`/v1/kv/k?at=${at}`), 'invalid_argument', { field: 'at' })
    })

  test('ts and at together are refused', async () => {
    const server = await start()
    expectProblem(await server.get('/v1/kv/k?ts=5&at=2026-01-01T00:00:00Z'), 'invalid_argument')
  })

  for (const ts of ['-1', '1.5', 'x', '', '9007199254740992', '1e3', '0x10', '%20'])
    test(`ts=${ts} is no timestamp`, async () => {
      const server = await start()
      expectProblem(await server.get(`/v1/kv/k?ts=${ts}`), 'invalid_argument', { field: 'ts' })
    })

  test('a read in the future moves neither the oracle nor max_ts beyond the clock', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    await server.put('k', 'v')
    expect((await server.get(`/v1/kv/k?ts=${clock.ts() * 2}`)).body).toBe('v')
    expect((await server.get(`/v1/kv/k?ts=${Number.MAX_SAFE_INTEGER}`)).body).toBe('v')
    expect((await server.get('/v1/kv/k?at=2100-01-01T00:00:00Z')).body).toBe('v')
    expect((await server.get(`/v1/kv?ts=${clock.ts() * 2}`)).statusCode).toBe(200)
    const limit = clock.ts(2 * 2048)
    expect(numberOf(await server.ok('tso', {}), 'ts')).toBeLessThan(limit)
    expect(await server.put('k', 'w')).toBeLessThan(limit)
    const answer = await server.lock(clock.ts(1), ['async'], { use_async_commit: true })
    expect(numberOf(answer, 'min_commit_ts')).toBeLessThan(limit)
  })

  test('below the safe point: 410', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    await server.put('k', 'v')
    clock.ms += 1000
    const safePoint = clock.ts()
    await server.ok('gc', { safe_point: safePoint })
    for (const url of [`/v1/kv/k?ts=${safePoint - 1}`, `/v1/kv?ts=5`, `/v1/kv?count_only&ts=5`])
      expectProblem(await server.get(url), 'ts_below_safe_point', { safe_point: safePoint })
    expect((await server.get(`/v1/kv/k?ts=${safePoint}`)).body).toBe('v')
  })
})

describe('keys in URLs', () => {
  const cases: readonly (readonly [path: string, key: string | { base64: string }])[] = [
    ['%FF', { base64: '/w==' }],
    ['a%2Fb', 'a/b'],
    ['a/b', 'a/b'],
    ['/', '/'],
    ['//a//', '//a//'],
    ['..', '..'],
    ['.', '.'],
    ['a/../b', 'a/../b'],
    ['%2e%2e', '..'],
    ['%00', '\0'],
    ['a+b', 'a+b'],
    ['a%2Bb', 'a+b'],
    ['%20', ' '],
    ['%25', '%'],
    ['%2525', '%25'],
    ['%3F%23', '?#'],
    ['a;b=c,d&e', 'a;b=c,d&e'],
    ['%C3%A9', 'é'],
    ['%c3%a9', 'é'],
    ['%F0%9F%98%80', '😀'],
    ['%EF%BB%BFa', '\ufeffa'],
    ['%ED%A0%80', { base64: '7aCA' }],
    ['batch_get', 'batch_get'],
    ['key', 'key'],
    [':key', ':key'],
    ['__proto__', '__proto__'],
    ['a:b@c', 'a:b@c'],
    ['*', '*'],
  ]
  test('every byte string is a key, raw or escaped', { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    for (const [path, key] of cases) {
      expect((await rawRequest(port, rawText(`PUT /v1/kv/${path}`, [], path))).status, path).toBe(200)
      expect(await rawRequest(port, rawText(`GET /v1/kv/${path}`)), path).toEqual({ status: 200, body: path })
      expect((await rawRequest(port, rawText(`HEAD /v1/kv/${path}`))).status, path).toBe(200)
      const answer = await server.ok('get', { key })
      expect(answer, path).toMatchObject({ found: true, value: path })
      const scanned = okBody(await server.get('/v1/kv'))
      expect(scanned['pairs'], path).toEqual([expect.objectContaining({ key, value: path })])
      expect((await rawRequest(port, rawText(`DELETE /v1/kv/${path}`))).status, path).toBe(200)
      expect((await rawRequest(port, rawText(`GET /v1/kv/${path}`))).status, path).toBe(404)
    }
  })

  test('a URL in absolute form means the same key', async () => {
    const server = await start()
    const port = await server.listen()
    await rawRequest(port, rawText(`PUT http://127.0.0.1:${port}/v1/kv/k`, [], 'v'))
    expect(okBody(await server.get('/v1/kv'))['pairs']).toEqual([expect.objectContaining({ key: 'k' })])
    expect(await rawRequest(port, rawText(`GET http://test/v1/kv/k`))).toEqual({ status: 200, body: 'v' })
  })

  test('4096 bytes are a key, one more is 413, none is 400', async () => {
    const server = await start()
    const port = await server.listen()
    const longest = '%FF'.repeat(4096)
    expect((await rawRequest(port, rawText(`PUT /v1/kv/${longest}`, [], 'v'))).status).toBe(200)
    expect(await rawRequest(port, rawText(`GET /v1/kv/${longest}`))).toEqual({ status: 200, body: 'v' })
    for (const method of ['GET', 'PUT', 'DELETE'] as const) {
      expectProblem(await server.send(method, `/v1/kv/${'a'.repeat(4097)}`), 'payload_too_large')
      expectProblem(await server.send(method, '/v1/kv/'), 'invalid_argument', { field: 'key' })
    }
  })

  for (const path of ['%', '%4', '%zz', 'a%', '%u0041', '%%20', '%-1', '%+1'])
    test(`the bad escape ${path} is 400`, async () => {
      const server = await start()
      const port = await server.listen()
      const { status, body } = await rawRequest(port, rawText(`PUT /v1/kv/${path}`, [], 'v'))
      expect(status).toBe(400)
      expect(JSON.parse(body)).toMatchObject({ code: 'invalid_argument', field: 'key' })
      expect(okBody(await server.get('/v1/kv'))['pairs']).toEqual([])
    })

  test('limits can be configured', async () => {
    const server = await start({ limits: { keyBytesMax: 3, valueBytesMax: 4 } })
    await server.put('abc', 'four')
    const headers = { 'content-type': 'text/plain' }
    expectProblem(await server.send('PUT', '/v1/kv/abcd', headers, 'v'), 'payload_too_large')
    expectProblem(await server.send('PUT', '/v1/kv/abc', headers, 'five!'), 'payload_too_large')
    expectProblem(await server.post('/v1/kv/batch_get', { keys: ['abcd'] }), 'payload_too_large')
    expectProblem(await server.get('/v1/kv?prefix=abcd'), 'payload_too_large')
    const ops = [{ op: 'put', key: 'k', value: 'five!' }]
    expectProblem(await server.post('/v1/txn', { ops }), 'payload_too_large')
  })
})

describe('conditional writes', () => {
  test('If-Match on the present version, then on a past one', { tags: ['long'] }, async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const second = await server.put('k', 'two', { 'if-match': `"${first}"` })
    const lost = await server.send('PUT', '/v1/kv/k', { 'if-match': `"${first}"` }, 'three')
    expectProblem(lost, 'precondition_failed', { key: 'k', commit_ts: second })
    expectProblem(await server.send('DELETE', '/v1/kv/k', { 'if-match': `"${first}"` }), 'precondition_failed')
    expect((await server.get('/v1/kv/k')).body).toBe('two')
    okBody(await server.send('DELETE', '/v1/kv/k', { 'if-match': `"${second}"` }))
    expectProblem(await server.send('PUT', '/v1/kv/k', { 'if-match': `"${second}"` }, 'x'), 'precondition_failed', {
      commit_ts: 0,
    })
  })

  test('If-None-Match: * creates only', async () => {
    const server = await start()
    const headers = { 'if-none-match': '*' }
    const commitTs = await server.put('k', 'one', headers)
    expectProblem(await server.send('PUT', '/v1/kv/k', headers, 'two'), 'precondition_failed', { commit_ts: commitTs })
    await server.remove('k')
    await server.put('k', 'again', headers)
  })

  test('of many creations at once one wins', async () => {
    const server = await start()
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => server.send('PUT', '/v1/kv/k', { 'if-none-match': '*' }, `${i}`)),
    )
    expect(answers.filter(({ statusCode }) => statusCode === 200)).toHaveLength(1)
    expect(answers.filter(({ statusCode }) => statusCode === 412)).toHaveLength(19)
  })

  const tags: readonly (readonly [
    header: 'if-match' | 'if-none-match',
    text: (etag: string) => string,
    status: number,
  ])[] = [
    ['if-match', (etag) => etag, 200],
    ['if-match', () => '*', 200],
    ['if-match', (etag) => `"1", ${etag} ,"2"`, 200],
    ['if-match', () => '"1","2"', 412],
    ['if-match', (etag) => `W/${etag}`, 412],
    ['if-match', () => '""', 412],
    ['if-match', () => '"abc"', 412],
    ['if-match', () => '"0"', 412],
    ['if-match', () => '"99999999999999999999"', 412],
    ['if-match', (etag) => etag.replace('"', '"0'), 412],
    ['if-match', () => '"a,b"', 412],
    ['if-match', (etag) => `"1",, ${etag},`, 200],
    ['if-match', (etag) => etag.replaceAll('"', ''), 400],
    ['if-match', () => '"unterminated', 400],
    ['if-match', () => '', 400],
    ['if-match', () => '*, "1"', 400],
    ['if-match', () => '"1" "2"', 400],
    ['if-none-match', (etag) => etag, 412],
    ['if-none-match', (etag) => `W/${etag}`, 412],
    ['if-none-match', () => '*', 412],
    ['if-none-match', (etag) => `"1", ${etag}`, 412],
    ['if-none-match', () => '"1", W/"2"', 200],
    ['if-none-match', () => '"a,b"', 200],
    ['if-none-match', () => 'nonsense', 400],
    ['if-none-match', () => '', 400],
  ]
  for (const [header, text, status] of tags)
    for (const method of ['PUT', 'DELETE'] as const)
      test(`${method} with ${header}: ${text('"<etag>"')} is ${status}`, async () => {
        const server = await start()
        const commitTs = await server.put('k', 'v')
        const answer = await server.send(method, '/v1/kv/k', { [header]: text(`"${commitTs}"`) })
        expect(answer.statusCode, answer.body).toBe(status)
        if (status === 200) return
        const code = status === 400 ? 'invalid_argument' : 'precondition_failed'
        expectProblem(answer, code, status === 412 ? { key: 'k', commit_ts: commitTs } : {})
        expect((await server.get('/v1/kv/k')).body).toBe('v')
      })

  test('both conditions must hold', async () => {
    const server = await start()
    const commitTs = await server.put('k', 'v')
    const answer = await server.send('PUT', '/v1/kv/k', { 'if-match': `"${commitTs}"`, 'if-none-match': '*' }, 'x')
    expectProblem(answer, 'precondition_failed')
  })

  test('conditional reads: 304 and 412', async () => {
    const server = await start()
    const commitTs = await server.put('k', 'v')
    const unchanged = await server.get('/v1/kv/k', { 'if-none-match': `"${commitTs}"` })
    expect([unchanged.statusCode, unchanged.body, unchanged.headers.etag]).toEqual([304, '', `"${commitTs}"`])
    expectProblem(await server.get('/v1/kv/k', { 'if-match': '"1"' }), 'precondition_failed')
    expect((await server.get('/v1/kv/k', { 'if-none-match': '"1"' })).body).toBe('v')
  })
})

test('a key of a problem is bytes like any other', async () => {
  const server = await start()
  const port = await server.listen()
  const { body } = await rawRequest(port, rawText('PUT /v1/kv/%FF', ['If-Match: "1"'], 'v'))
  expect(JSON.parse(body)).toMatchObject({ code: 'precondition_failed', key: { base64: '/w==' }, commit_ts: 0 })
})

test('GET answers what Accept cannot change: the raw bytes', async () => {
  const server = await start()
  await server.put('k', 'v')
  for (const accept of ['application/msgpack', 'application/json', 'text/html'])
    expect((await server.get(urlOf('k'), { accept })).body).toBe('v')
})
