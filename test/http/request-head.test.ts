import { describe, expect, test } from 'vitest'
import { asked, RawClient, talk } from './raw-dialogue.js'
import { testServers } from './support.js'

const start = testServers()

describe.each([true, false])('with the fast lane: %s', (fastLane) => {
  const TOKEN = 'Authorization: Bearer token-0123456789'
  const LINES = ['GET /v1/kv/a', 'PUT /v1/kv/a', 'DELETE /v1/kv/a', 'POST /v1/txn', 'GET /v1/kv', 'GET /livez']
  const whole = (line: string, ...headers: string[]): string =>
    `${line} HTTP/1.1\r\n${['Content-Length: 2', 'Content-Type: application/json', ...headers].join('\r\n')}\r\n\r\n{}`

  test.each(LINES)('%s with an ambiguous head is 400, and does nothing', { tags: ['long'] }, async (line) => {
    const server = await start({ fastLane })
    const port = await server.listen()
    const without = whole(line)
    for (const [request, status] of [
      [without, 400],
      [without.replace('HTTP/1.1', 'HTTP/1.0'), undefined],
      [whole(line, 'Host: a'), undefined],
      [whole(line, 'Host: [::1]:7400'), undefined],
      [whole(line, 'Host: a', 'Host: a'), 400],
      [whole(line, 'Host: a', 'host: b'), 400],
      [whole(line, 'Host:'), 400],
      [whole(line, 'Host:   '), 400],
      [whole(line, 'Host: a', 'Host:'), 400],
      [whole(line, 'Host: a b'), 400],
      [whole(line, 'Host: a/b'), 400],
      [whole(line, 'Host: a', 'Host: a').replace('HTTP/1.1', 'HTTP/1.0'), 400],
      [whole(line, 'Host: a', TOKEN, TOKEN), 400],
      [whole(line, 'Host: a', 'Content-Type: text/plain'), 400],
      [whole(line, 'Host: a', 'Content-Length: 2'), 400],
    ] as const) {
      const [answer] = await talk(port, request)
      if (status === undefined) expect([200, 404, 415]).toContain(answer?.status)
      else expect([request, answer?.status]).toEqual([request, status])
      if (status === 400) expect((await server.get('/v1/kv/a')).statusCode).toBe(404)
      else await server.send('DELETE', '/v1/kv/a')
    }
  })

  test('every line counts, however many there are', async () => {
    const server = await start({ fastLane, browserGuard: { loopbackNamesOnly: true } })
    const port = await server.listen()
    const ts = await server.put('a', '1')
    const many = Array.from({ length: 3000 }, (_, i) => `a${i % 10}: b`)
    const send = async (line: string, ...headers: string[]) =>
      (await talk(port, asked(line, [...many, ...headers], line.startsWith('PUT') ? 'x' : undefined)))[0]
    expect((await send('PUT /v1/kv/a', 'If-None-Match: *'))?.status).toBe(412)
    expect((await send('GET /v1/kv/a', `If-None-Match: "${ts}"`))?.status).toBe(304)
    expect((await send('GET /v1/kv/a', 'Origin: http://evil.example'))?.status).toBe(403)
    expect((await send('GET /v1/kv/a', 'Sec-Fetch-Site: cross-site'))?.status).toBe(403)
    expect((await send('GET /v1/kv/a', 'Accept-Language: en'))?.status).toBe(403) // A browser, and `Host: test`.
    expect((await send('GET /v1/kv/a', 'Host: again'))?.status).toBe(400)
    expect((await send('PUT /v1/kv/b', 'Idempotency-Key: once'))?.status).toBe(200)
    expect((await send('PUT /v1/kv/b', 'Idempotency-Key: once'))?.head).toMatch(/idempotency-replayed: true/i)
    expect((await send('PUT /v1/kv/b', 'Idempotency-Key: a', 'Idempotency-Key: a'))?.status).toBe(400)
    expect((await send('PUT /v1/kv/b', 'If-Match: *', 'If-Match: *'))?.status).toBe(400)
    expect((await send('PUT /v1/kv/b', 'Transfer-Encoding: chunked'))?.status).toBe(400)
    const trailers = `3\r\nabc\r\n0\r\n${'a: b\r\n'.repeat(1500)}If-None-Match: *\r\n\r\n`
    const [put, get] = await talk(
      port,
      `${asked('PUT /v1/kv/a', ['Transfer-Encoding: chunked'])}${trailers}${asked('GET /v1/kv/a')}`,
    )
    expect([put?.status, get?.body]).toEqual([200, 'abc']) // Trailers mean nothing.
  })

  test.each(['PRI', 'DESCRIBE'])('%s, which the parser alone knows, is malformed', async (method) => {
    const server = await start({ fastLane })
    const [answer] = await talk(await server.listen(), `${method} /v1/kv/a\r\nHost: a\r\n\r\n`)
    expect(answer?.status).toBe(400)
    expect(answer?.head).toMatch(/x-content-type-options: nosniff/i)
    expect(JSON.parse(answer?.body ?? '')).toMatchObject({ code: 'invalid_argument', field: 'headers' })
  })

  test('codings that the server does not know store nothing', { tags: ['long'] }, async () => {
    const server = await start({ fastLane })
    const port = await server.listen()
    const put = (...headers: string[]): string => `${asked('PUT /v1/kv/a', headers)}1\r\nx\r\n0\r\n\r\n`
    for (const coding of ['gzip, chunked', 'chunked, chunked', 'identity, chunked', 'x, chunked', 'gzip,chunked'])
      expect((await talk(port, put(`Transfer-Encoding: ${coding}`)))[0]?.status, coding).toBe(400)
    expect((await talk(port, put('Transfer-Encoding: chunked').replace('HTTP/1.1', 'HTTP/1.0')))[0]?.status).toBe(400)
    for (const coding of ['gzip', 'br', 'deflate, identity', 'Gzip'])
      for (const line of [
        'PUT /v1/kv/a',
        'POST /v1/txn',
        'POST /v1/admin/restore',
        'PUT /v1/leases/a',
        'DELETE /v1/kv/a',
      ]) {
        const headers = [`Content-Encoding: ${coding}`, 'Content-Type: application/json']
        const [answer, next] = await talk(port, asked(line, headers, '{"ops":[]}') + asked('GET /livez'))
        expect([line, answer?.status, next?.status]).toEqual([line, 415, 200])
      }
    expect((await talk(port, put('Content-Encoding: gzip', 'Transfer-Encoding: chunked')))[0]?.status).toBe(415)
    expect((await server.get('/v1/kv/a')).statusCode).toBe(404)
    for (const headers of [
      ['Transfer-Encoding: CHUNKED'],
      ['Transfer-Encoding: chunked', 'Content-Encoding: identity'],
    ])
      expect((await talk(port, put(...headers)))[0]?.status).toBe(200)
  })

  describe('Expect: 100-continue', () => {
    const EXPECT = 'Expect: 100-continue'
    const head = (line: string, ...headers: string[]): string => asked(line, [EXPECT, 'Content-Length: 1', ...headers])

    test('asks for the body, once', async () => {
      const server = await start({ fastLane })
      const client = await RawClient.open(await server.listen())
      await client.write(asked('PUT /v1/kv/b', [], '1') + head('PUT /v1/kv/a', 'If-None-Match: *'))
      expect((await client.answered(2)).map(({ status }) => status)).toEqual([200, 100])
      await client.write('x')
      expect((await client.answered(3))[2]?.status).toBe(200)
      expect((await server.get('/v1/kv/a')).body).toBe('x')
      await client.write(asked('POST /v1/admin/restore', [EXPECT, 'Content-Length: 1']))
      expect((await client.answered(4))[3]?.status).toBe(100)
      client.socket.destroy()
    })

    test.each<[string, number, ...string[]]>([
      ['PUT /v1/kv/a', 401],
      ['PUT /v1/kv/a', 400, TOKEN, 'If-Match: x'],
      ['PUT /v1/kv/a', 400, TOKEN, 'Idempotency-Key:'],
      ['PUT /v1/kv/a?lock_wait_ms=x', 400, TOKEN],
      ['PUT /v1/kv/a?no_such=1', 400, TOKEN],
      ['PUT /v1/kv/a?ttl_ms=0', 400, TOKEN],
      ['PUT /v1/kv/%00%00perkv/x', 400, TOKEN],
      [`PUT /v1/kv/${'a'.repeat(5000)}`, 413, TOKEN],
      ['PUT /v1/kv/a', 413, TOKEN, 'Content-Length: 99999999'],
      ['PUT /v1/kv/a', 415, TOKEN, 'Content-Encoding: gzip'],
      ['PUT /v1/kv/z', 403, 'Authorization: Bearer scoped-0123456789'],
      ['POST /v1/txn', 415, TOKEN, 'Content-Type: text/plain'],
      ['POST /v1/txn', 413, TOKEN, 'Content-Type: application/json', 'Content-Length: 999999999'],
      ['POST /v1/none', 404, TOKEN],
      ['PATCH /v1/kv/a', 405, TOKEN],
      ['PUT /v1/kv/a', 400, TOKEN, 'Host: b'],
    ])('that ends by its head: %s %i %j', async (line, status, ...headers) => {
      const server = await start({ fastLane, tokens: 'rw token-0123456789\nrw scoped-0123456789 prefix=a\n' })
      const length = headers.some((text) => text.startsWith('Content-Length')) ? [] : ['Content-Length: 1']
      const client = await RawClient.open(await server.listen())
      await client.write(asked(line, [EXPECT, ...length, ...headers]))
      await client.answered(1)
      client.socket.end()
      expect((await client.closed()).map((answer) => answer.status)).toEqual([status])
    })

    test('any other expectation is 417', async () => {
      const server = await start({ fastLane })
      const port = await server.listen()
      for (const expectation of ['200-ok', '100-continue, x', 'x-100-continue', '"'])
        for (const line of ['GET /v1/kv/a', 'PUT /v1/kv/a', 'GET /livez']) {
          const [answer] = await talk(port, asked(line, [`Expect: ${expectation}`], 'x'))
          expect(answer).toMatchObject({ status: 417, body: expect.stringContaining('"code":"expectation_failed"') })
        }
      expect((await server.get('/v1/kv/a')).statusCode).toBe(404)
      const [old] = await talk(port, asked('PUT /v1/kv/a', ['Expect: 100-continue'], 'x').replace('1.1', '1.0'))
      expect(old?.status).toBe(200)
    })
  })
})
