import { describe, expect, test } from 'vitest'
import { expectProblem, type Headers, type Method, rawAnswer, rawRequest, rawText, testServers } from '../support.js'

const start = testServers()

const SAFE: Headers = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
}

test('every answer is safe for a browser: values, problems, unknown paths, preflights, what is no HTTP', {
  tags: ['long'],
}, async () => {
  const server = await start({ tokens: 'rw abcdefghijklmnop' })
  const token = { authorization: 'Bearer abcdefghijklmnop' }
  await server.put('page', '<script>alert(1)</script>', { ...token, 'content-type': 'text/html' })
  const asked: [Method, string, Headers, cacheControl: string][] = [
    ['GET', '/v1/kv/page', token, 'private, no-cache'],
    ['HEAD', '/v1/kv/page', token, 'private, no-cache'],
    ['GET', '/v1/kv/page', { ...token, 'if-none-match': '*' }, 'private, no-cache'],
    ['GET', '/v1/kv/page', {}, 'no-store'],
    ['GET', '/v1/kv/nobody', token, 'no-store'],
    ['GET', '/v1/kv', token, 'no-store'],
    ['GET', '/v1/kv', { ...token, accept: 'application/x-ndjson' }, 'no-store'],
    ['PUT', '/v1/kv/a', token, 'no-store'],
    ['POST', '/v1/txn', token, 'no-store'],
    ['POST', '/v1/txn', { ...token, 'content-type': 'text/plain' }, 'no-store'],
    ['GET', '/livez', {}, 'no-store'],
    ['GET', '/', token, 'no-store'],
    ['GET', '/%zz', {}, 'no-store'],
  ]
  for (const [method, url, headers, cacheControl] of asked) {
    const answer = await server.send(method, url, headers)
    expect(answer.headers, `${method} ${url}`).toMatchObject({ ...SAFE, 'cache-control': cacheControl })
    expect(answer.headers['content-type'] ?? '').not.toMatch(/html|script|xml|image/)
  }

  const preflight = { origin: 'https://elsewhere.test', 'access-control-request-method': 'PUT' }
  for (const headers of [preflight, { ...preflight, ...token }])
    for (const url of ['/v1/kv/page', '/v1/txn', '/livez']) {
      const answer = await server.send('OPTIONS', url, headers)
      expect(answer.statusCode).toBeGreaterThanOrEqual(400)
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control-'))).toEqual([])
    }
})

describe('answers that Node would write by itself', () => {
  const cases: readonly (readonly [name: string, raw: string, status: number])[] = [
    ['no Host', 'GET /v1/kv HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['no Host, with a body', 'PUT /v1/kv/a HTTP/1.1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nv', 400],
    ['no Host, of a path that is not there', 'GET /nope HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['no Host, of a bad URL', 'GET /%zz HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
    ['no HTTP', 'nonsense\r\n\r\n', 400],
    ['an unknown method', 'BREW /v1/kv HTTP/1.1\r\nHost: a\r\n\r\n', 400],
    ['a URL with a space', rawText('GET /v1/kv/a b'), 400],
    ['another version', 'GET /v1/kv HTTP/7.3\r\nHost: a\r\n\r\n', 400],
    ['a header that is none', rawText('GET /v1/kv', ['no colon']), 400],
    ['two lengths', rawText('PUT /v1/kv/a', ['Content-Length: 1', 'Content-Length: 2'], 'v'), 400],
    ['headers that are too long', rawText('GET /v1/kv', [`X: ${'x'.repeat(70_000)}`]), 413],
    [
      'a chunk that is none',
      `${rawText('PUT /v1/kv/a', ['Transfer-Encoding: chunked', 'Authorization: Bearer abcdefghijklmnop'])}zz\r\n`,
      400,
    ],
    ['an expectation', rawText('GET /livez', ['Expect: a miracle']), 417],
    ['an upgrade', rawText('GET /livez', ['Connection: upgrade', 'Upgrade: websocket']), 200],
    ['a tunnel', 'CONNECT elsewhere.test:80 HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n', 404],
    ['a tunnel without Host', 'CONNECT elsewhere.test:80 HTTP/1.1\r\n\r\n', 404],
  ]
  test.each(cases)('%s', async (_name, raw, status) => {
    const server = await start({ tokens: 'rw abcdefghijklmnop' })
    const port = await server.listen()
    const { head, body } = await rawAnswer(port, raw)
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    for (const [name, value] of Object.entries(SAFE)) expect(head).toContain(`${name}: ${value}\r\n`)
    expect(head).toMatch(/^date: /im)
    if (status < 400) return
    expect(head).toMatch(/^content-type: application\/problem\+json/m)
    expect(head).toMatch(new RegExp(`^content-length: ${Buffer.byteLength(body)}\r$`, 'im'))
    expect(JSON.parse(body)).toMatchObject({ status, code: expect.any(String), detail: expect.any(String) })
  })

  test('HTTP/1.0 has no Host', async () => {
    const server = await start()
    expect((await rawRequest(await server.listen(), 'GET /livez HTTP/1.0\r\n\r\n')).status).toBe(200)
  })
})

describe('a server without tokens', () => {
  const loopback = { browserGuard: { loopbackNamesOnly: true } } as const

  test('answers to names of this machine', async () => {
    const server = await start(loopback)
    for (const host of ['localhost', 'LOCALHOST:7400', '127.0.0.1:7400', '127.8.9.1', '[::1]:7400', '[::1]'])
      expect((await server.get('/livez', { host })).statusCode, host).toBe(200)
    const browsers = [{ 'user-agent': 'Mozilla/5.0 (X11)' }, { 'accept-language': 'en' }]
    for (const host of ['evil.test', 'evil.test:7400', 'localhost.evil.test', '127.0.0.1.evil.test', '10.0.0.1']) {
      for (const headers of browsers)
        expectProblem(await server.get('/v1/kv/a', { host, 'user-agent': 'x', ...headers }), 'forbidden')
      expect((await server.get('/livez', { host, 'user-agent': 'curl/8.0' })).statusCode).toBe(200)
    }
    const port = await server.listen()
    expect((await rawRequest(port, 'GET /livez HTTP/1.0\r\n\r\n')).status).toBe(200) // Without Host.
    const rebound = rawText('GET http://evil.test/livez', ['Accept-Language: en'])
    expect((await rawRequest(port, rebound)).status).toBe(403)
  })

  test('answers to any name where it is told to', async () => {
    const server = await start({ browserGuard: { loopbackNamesOnly: false } })
    expect((await server.get('/livez', { host: 'kv.internal:7400' })).statusCode).toBe(200)
    expectProblem(await server.get('/livez', { host: 'kv.internal', 'sec-fetch-site': 'cross-site' }), 'forbidden')
  })

  const host = 'localhost:7400'
  const pages: [string, Method, Headers, boolean][] = [
    ['a program', 'POST', {}, true],
    ['a page of its own', 'POST', { 'sec-fetch-site': 'same-origin', origin: 'http://localhost:7400' }, true],
    ['its own page behind a proxy', 'POST', { 'sec-fetch-site': 'same-origin', origin: 'https://kv.test' }, true],
    ['the address bar', 'GET', { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' }, true],
    ['a link elsewhere', 'GET', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }, true],
    ['a form elsewhere', 'POST', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }, false],
    ['a script elsewhere', 'POST', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, false],
    ['an image elsewhere', 'GET', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, false],
    ['another port of this machine', 'POST', { 'sec-fetch-site': 'same-site', origin: 'http://localhost:1' }, false],
    ['an older browser at home', 'POST', { origin: 'http://localhost:7400' }, true],
    ['an older browser elsewhere', 'POST', { origin: 'https://evil.test' }, false],
    ['a page of no origin', 'POST', { origin: 'null' }, false],
  ]
  test('lets no page of another site begin anything', async () => {
    const server = await start(loopback)
    for (const [who, method, headers, isAllowed] of pages) {
      const url = method === 'GET' ? '/v1/kv' : '/v1/txn/begin'
      const answer = await server.send(method, url, { host, ...headers })
      if (isAllowed) expect(answer.statusCode, who).toBeLessThan(300)
      else expectProblem(answer, 'forbidden')
    }
  })
})
