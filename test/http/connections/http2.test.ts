import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants, createServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { Http2Request } from '../../../src/http/connections/http2-messages.js'
import { receiveStream } from '../../../src/http/connections/streaming-requests.js'
import { openMemoryStore } from '../../../src/store/leveldb/leveldb-store.js'
import { certificate } from '../fast-lane/variants.js'
import { Http2Requests } from '../http2-requests.js'
import { asked, RawClient } from '../raw-dialogue.js'
import { expectProblem, type Json, okBody, serve, type TestServer, testServers } from '../support.js'

const start = testServers()
const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_REFUSED_STREAM } = constants
const TOKEN = 'rw-token-0123456789'

const sessions: ClientHttp2Session[] = []
afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy()
})

async function sessionWith(server: TestServer, settings = {}): Promise<ClientHttp2Session> {
  const session = connect(`http://127.0.0.1:${await server.listen()}`, { settings }).on('error', () => {})
  sessions.push(session)
  return session
}

/** A request, its text so far, and how it ended. */
class Exchange {
  status = 0
  text = ''
  code: number | undefined

  constructor(readonly stream: ClientHttp2Stream) {
    stream.setEncoding('utf8').on('error', () => {})
    stream.on('response', (head) => (this.status = head[':status'] ?? 0))
    stream.on('data', (text: string) => (this.text += text))
    stream.on('close', () => (this.code = stream.rstCode))
  }

  static of(session: ClientHttp2Session, path: string, headers = {}, options = {}): Exchange {
    return new Exchange(session.request({ ':path': path, ...headers }, options))
  }

  async ended(): Promise<this> {
    await expect.poll(() => this.code).toBeDefined()
    return this
  }
}

async function overload(server: TestServer): Promise<Json> {
  return okBody(await server.get('/v1/status'))['overload'] as Json
}

// ---- Frames

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
const [DATA, HEADERS, RST_STREAM, SETTINGS, PING] = [0, 1, 3, 4, 6]

function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head[3] = type
  head[4] = flags
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}
const text = (value: string): number[] => [value.length, ...Buffer.from(value)]
/** A head for the host `a`, over http. Names are indexed; values are not. */
const head = (method: string, path: string): Buffer =>
  Buffer.from([0x02, ...text(method), 0x86, 0x04, ...text(path), 0x01, ...text('a')])
const get = (path: string): Buffer => head('GET', path)
const END_STREAM = 1
const END_HEADERS = 4

async function rawSession(server: TestServer, ...frames: readonly Buffer[]): Promise<RawClient> {
  const client = await RawClient.open(await server.listen())
  await client.write(Buffer.concat([Buffer.from(PREFACE), frame(SETTINGS, 0, 0), ...frames]))
  return client
}

describe.each([true, false])('with the fast lane: %s, HTTP/2', (fastLane) => {
  test('is served on the port of HTTP/1.1, to clients that begin with it', async () => {
    const server = await start({ fastLane })
    const client = new Http2Requests(server)
    okBody(await client.send('PUT', '/v1/kv/key', {}, 'value'))
    expect(await client.send('GET', '/v1/kv/key')).toMatchObject({ statusCode: 200, body: 'value' })
    expectProblem(await client.send('GET', '/v1/kv/none'), 'not_found')
    expect((await fetch(`http://127.0.0.1:${await server.listen()}/v1/kv/key`)).status).toBe(200)
  })

  test('may arrive in pieces', async () => {
    const server = await start({ fastLane })
    const client = await RawClient.open(await server.listen())
    const bytes = Buffer.concat([
      Buffer.from(PREFACE),
      frame(SETTINGS, 0, 0),
      frame(HEADERS, END_HEADERS | END_STREAM, 1, get('/livez')),
    ])
    for (const byte of bytes) await client.write(Buffer.of(byte))
    await vi.waitFor(() => expect(client.text).toContain('ok'))
    client.socket.destroy()
  })

  test.each(['PRI * HTTP/1.1\r\nHost: a\r\n\r\n', `${asked('GET /livez')}${PREFACE}`])(
    'is not what begins like it, or comes later: %j',
    async (bytes) => {
      const server = await start({ fastLane })
      const client = await RawClient.open(await server.listen())
      await client.write(bytes)
      expect((await client.closed()).at(-1)?.status).toBe(400)
    },
  )

  test('that does not go on after its first letters gets the time of any head', async () => {
    const server = await start({ fastLane, limits: { headerMsMax: 100, requestMsMax: 100 } })
    const client = await RawClient.open(await server.listen())
    await client.write('PRI * HT')
    expect((await client.closed())[0]?.status).toBe(408)
  })
})

const LIVING = { lock_ttl: 60_000 }
const WATCHED = '/v1/kv/short?'
const EVENTS = { accept: 'text/event-stream' }
const REQUEST = END_HEADERS | END_STREAM

describe('a client of HTTP/2', () => {
  test('that sends nothing more is disconnected when its connection is idle, whatever it pings', {
    tags: ['long'],
  }, async () => {
    const server = await start({ limits: { idleMsMax: 100 } })
    const unused = [[], [frame(PING, 0, 0, Buffer.alloc(8))], [frame(HEADERS, END_STREAM, 1, get('/livez'))]]
    await Promise.all(unused.map(async (frames) => (await rawSession(server, ...frames)).closed()))
    const used = async () => {
      const session = await sessionWith(server)
      return [(await Exchange.of(session, '/livez').ended()).status, session] as const
    }
    let [status, session] = await used()
    while (status !== 200) [status, session] = await used() // On a busy machine it may have been idle before.
    await expect.poll(() => session.closed).toBe(true)
  })

  test('whose body does not come gets a 408', async () => {
    const server = await start({ limits: { requestMsMax: 100 } })
    const session = await sessionWith(server)
    const watch = Exchange.of(session, '/v1/kv/a', EVENTS)
    const put = Exchange.of(session, '/v1/kv/a', { ':method': 'PUT' }, { endStream: false })
    put.stream.write('v')
    expect((await put.ended()).status).toBe(408)
    expect([watch.status, watch.code]).toEqual([200, undefined])
    expect((await Exchange.of(session, '/livez').ended()).status).toBe(200)
    expect(await overload(server)).toMatchObject({ receiving: 0, body_bytes: 0 })
  })

  test('that takes nothing of its answers loses them, and not the connection', async () => {
    const server = await start({ limits: { stalledMsMax: 200 } })
    await server.put('long', 'v'.repeat(500_000))
    await server.put('short', 'v')
    const session = await sessionWith(server, { initialWindowSize: 0 })
    const exchanges = ['/v1/kv/long', '/v1/kv/short', '/v1/kv', WATCHED].map((path) =>
      Exchange.of(session, path, path === WATCHED ? EVENTS : {}),
    )
    for (const exchange of exchanges) {
      await exchange.ended()
      expect([exchange.status, exchange.code]).toEqual([200, NGHTTP2_INTERNAL_ERROR])
    }
    expect(session.closed).toBe(false)
    expect(server.store.answers.heldBytes).toBe(0)
    expect(await overload(server)).toMatchObject({ streams: 0, watches: 0 })
  })

  test('has long answers, taken slowly', async () => {
    const server = await start()
    const value = 'v'.repeat(900_000)
    await server.put('long', value)
    const session = await sessionWith(server)
    const slow = Exchange.of(session, '/v1/kv/long')
    slow.stream.on('data', () => {
      slow.stream.pause()
      setImmediate(() => slow.stream.resume())
    })
    expect((await slow.ended()).text).toBe(value)
  })

  test('has a bounded number of requests at once', async () => {
    const server = await start()
    const session = await sessionWith(server)
    await once(session, 'remoteSettings')
    expect(session.remoteSettings).toMatchObject({ maxConcurrentStreams: 100, maxHeaderListSize: 32 * 1024 })
    const watch = Buffer.concat([get('/v1/kv/a'), Buffer.from([0x0f, 0x04, ...text('text/event-stream')])])
    const client = await rawSession(
      server,
      ...Array.from({ length: 101 }, (_, i) => frame(HEADERS, REQUEST, 2 * i + 1, watch)),
    )
    const refused = frame(RST_STREAM, 0, 201, Buffer.from([0, 0, 0, NGHTTP2_REFUSED_STREAM]))
    await vi.waitFor(() => expect(client.text).toContain(refused.toString('latin1')))
    await expect.poll(() => overload(server)).toMatchObject({ watches: 100 })
    client.socket.destroy()
    await expect.poll(() => overload(server)).toMatchObject({ watches: 0 })
  })

  test('shares a number of requests with all others', async () => {
    const server = await start({ limits: { requestsMax: 2, watchesMax: 1 } })
    const one = await sessionWith(server, { initialWindowSize: 0 })
    const unread = [1, 2, 3].map(() => Exchange.of(one, '/v1/kv/none'))
    for (const exchange of unread) await expect.poll(() => exchange.status).toBe(404)
    const other = await sessionWith(server)
    expect((await Exchange.of(other, '/livez').ended()).code).toBe(NGHTTP2_REFUSED_STREAM)
    one.destroy()
    await expect.poll(async () => (await Exchange.of(other, '/livez').ended()).status).toBe(200)
  })

  test('cannot send long heads', async () => {
    const server = await start({ limits: { headerBytesMax: 1024 } })
    const session = await sessionWith(server)
    await once(session, 'remoteSettings')
    for (const headers of [
      { long: 'v'.repeat(2000) },
      Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`h${i}`, ''])),
    ])
      expect(await Exchange.of(session, '/livez', headers).ended()).toMatchObject({ status: 0, text: '' })
    expect((await Exchange.of(session, '/livez').ended()).status).toBe(200)
  })

  test.each([
    ['pings', () => frame(PING, 0, 0, Buffer.alloc(8))],
    ['settings', () => frame(SETTINGS, 0, 0)],
    [
      'requests that it resets',
      (i: number) =>
        Buffer.concat([
          frame(HEADERS, REQUEST, 2 * i + 1, get('/v1/kv/a')),
          frame(RST_STREAM, 0, 2 * i + 1, Buffer.from([0, 0, 0, NGHTTP2_CANCEL])),
        ]),
    ],
  ])('that floods the server with %s is disconnected', { tags: ['long'] }, async (_, flood) => {
    const server = await start({ limits: { idleMsMax: 300 } })
    let begun = 0
    server.app.server.prependListener('request', () => begun++)
    const client = await rawSession(server)
    client.socket.pause()
    for (let i = 0; i < 30; i++)
      await client.write(Buffer.concat(Array.from({ length: 100 }, (_, j) => flood(100 * i + j))))
    client.socket.resume()
    await client.closed()
    expect(begun).toBeLessThan(1500)
  })

  test('reads the feed beside other requests', async () => {
    const server = await start()
    const session = await sessionWith(server)
    const feed = Exchange.of(session, '/v1/changes', EVENTS)
    await expect.poll(() => feed.status).toBe(200)
    for (const value of ['1', '2']) {
      const put = Exchange.of(session, '/v1/kv/fed', { ':method': 'PUT' }, { endStream: false })
      put.stream.end(value)
      expect((await put.ended()).status).toBe(200)
    }
    await expect.poll(() => feed.text.match(/"fed"/g)?.length).toBe(2)
    feed.stream.close(NGHTTP2_CANCEL)
    await expect.poll(() => overload(server)).toMatchObject({ watches: 0 })
  })

  test('that resets a request, or has gone, is waited for no longer', async () => {
    const server = await start()
    await server.lock(await server.store.tso(1), ['primary', 'locked'], LIVING)
    const session = await sessionWith(server)
    const read = Exchange.of(session, '/v1/kv/locked?lock_wait_ms=60000')
    const watch = Exchange.of(session, '/v1/kv/a', EVENTS)
    await expect.poll(() => overload(server)).toMatchObject({ requests: 1, watches: 1 })
    for (const { stream } of [read, watch]) stream.close(NGHTTP2_CANCEL)
    await expect.poll(() => overload(server)).toMatchObject({ requests: 0, watches: 0 })
    Exchange.of(session, '/v1/kv/locked?lock_wait_ms=60000')
    await expect.poll(() => overload(server)).toMatchObject({ requests: 1 })
    const half = await rawSession(server, frame(HEADERS, REQUEST, 1, get('/v1/kv/locked?lock_wait_ms=60000')))
    await expect.poll(() => overload(server)).toMatchObject({ requests: 2 })
    half.socket.end() // Its other side stays open.
    session.destroy()
    await expect.poll(() => overload(server)).toMatchObject({ requests: 0 })
    await half.closed()
  })

  test.each(['resets it', 'disconnects'])(
    'that sends a part of a body, and %s, has changed nothing',
    { tags: ['long'] },
    async (end) => {
      const from = await start()
      await from.put('a', 'v'.repeat(10_000))
      const { rawPayload } = await from.get('/v1/admin/backup')
      const bodies: [string, string, Buffer][] = [
        ['PUT', '/v1/kv/b', Buffer.from('v')],
        ['PUT', '/v1/kv/b', Buffer.alloc(0)],
        ['POST', '/v1/admin/restore', rawPayload.subarray(0, 5000)],
        ['POST', '/v1/admin/restore', rawPayload],
      ]
      const server = await start()
      for (const [method, path, body] of bodies) {
        const client = await rawSession(
          server,
          frame(HEADERS, END_HEADERS, 1, head(method, path)),
          frame(DATA, 0, 1, body),
        )
        await expect.poll(() => overload(server)).toMatchObject({ receiving: 1 })
        if (end === 'disconnects') client.socket.destroy()
        else await client.write(frame(RST_STREAM, 0, 1, Buffer.from([0, 0, 0, NGHTTP2_CANCEL])))
        await expect.poll(() => overload(server)).toMatchObject({ requests: 0, receiving: 0, body_bytes: 0 })
        expect((await server.get('/v1/kv/a')).statusCode).not.toBe(200)
        expect((await server.get('/v1/kv/b')).statusCode).not.toBe(200)
        client.socket.destroy()
      }
    },
  )

  test('that broke off a body before it was read has sent no whole one', async () => {
    const server = createServer()
    const begun = new Promise<Http2Request>((resolve) => {
      const connection = { remoteAddress: '::1', remotePort: 1, encrypted: false, pause() {}, resume() {} }
      server.on('stream', (stream, headers) => resolve(new Http2Request(stream, headers, [], connection)))
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).on('error', () => {})
    const post = session.request({ ':method': 'POST' })
    post.on('error', () => {}).write('part')
    const request = await begun
    await new Promise((written) => setImmediate(written))
    session.destroy()
    await new Promise((closed) => request.on('close', closed))
    const body = receiveStream(request.asNodes, 1000)
    await expect(body.next()).rejects.toThrow('the connection broke')
    server.close()
  })

  test('has the checks of HTTP/1.1 for its heads', async () => {
    const server = await start({ browserGuard: { loopbackNamesOnly: true } })
    const session = await sessionWith(server)
    const status = async (headers: Record<string, string>) =>
      (await Exchange.of(session, '/livez', headers).ended()).status
    const browser = { 'accept-language': 'en' }
    expect(await status({ ':authority': 'localhost:7400', ...browser })).toBe(200)
    expect(await status({ ':authority': 'example.com', ...browser })).toBe(403)
    expect(await status({ ':authority': 'localhost', host: 'example.com' })).toBe(400)
    expect(await status({ ':path': '/v1/kv/é' })).toBe(400)
    expect(await status({ ':method': 'ANY' })).toBe(400)
    expect(await status({ expect: 'much' })).toBe(417)
    const tunnel = new Exchange(session.request({ ':method': 'CONNECT', ':authority': 'a:1' }))
    expect((await tunnel.ended()).status).toBe(404)
  })

  test('needs a token, and watches only as long as that is in force', async () => {
    const server = await start({ tokens: `rw ${TOKEN} prefix=k\n` })
    const session = await sessionWith(server)
    const authorization = `Bearer ${TOKEN}`
    expect((await Exchange.of(session, '/v1/kv/k').ended()).status).toBe(401)
    expect((await Exchange.of(session, '/v1/kv/other', { authorization }).ended()).status).toBe(403)
    expect((await Exchange.of(session, '/v1/kv/k', { authorization }).ended()).status).toBe(404)
  })
})

describe('a server that closes', () => {
  test('answers the requests of HTTP/2 that have arrived, and ends its streams', async () => {
    const server = await start()
    const startTs = await server.store.tso(1)
    await server.lock(startTs, ['primary', 'locked'], LIVING)
    const session = await sessionWith(server)
    const read = Exchange.of(session, '/v1/kv/locked?lock_wait_ms=60000')
    const watch = Exchange.of(session, '/v1/kv/a', EVENTS)
    await expect.poll(() => overload(server)).toMatchObject({ requests: 1, watches: 1 })
    await expect.poll(() => watch.text).toContain('event:')
    const idle = await sessionWith(server)
    await once(idle, 'remoteSettings')
    const unread = await sessionWith(server, { initialWindowSize: 0 })
    const pending = Exchange.of(unread, '/v1/kv/none')
    await expect.poll(() => pending.status).toBe(404)
    const closing = server.app.close()
    await expect.poll(() => idle.closed && session.closed).toBe(true)
    await server.store.rollback({ startTs, keys: ['primary', 'locked'].map((key) => Buffer.from(key)) })
    expect((await read.ended()).status).toBe(404)
    expect((await watch.ended()).text).toContain('overloaded')
    server.app.server.closeAllConnections() // As when the time for that is over.
    await closing
  })
})

test('over TLS the handshake says whether a connection has HTTP/2', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'perkv-tls-'))
  const server = await serve(await openMemoryStore(), directory, { tls: certificate() })
  const port = await server.listen()
  const session = connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false })
  sessions.push(session)
  const put = Exchange.of(session, '/v1/kv/a', { ':method': 'PUT' }, { endStream: false })
  put.stream.end('value')
  expect((await put.ended()).status).toBe(200)
  expect(session.alpnProtocol).toBe('h2')
  for (const ALPNProtocols of [['http/1.1'], undefined]) {
    const socket = connectTls({
      port,
      host: '127.0.0.1',
      rejectUnauthorized: false,
      ...(ALPNProtocols && { ALPNProtocols }),
    })
    socket.end(asked('GET /v1/kv/a', ['Connection: close']))
    let received = ''
    socket.setEncoding('utf8').on('data', (piece) => (received += piece))
    await once(socket, 'close')
    expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n.*\r\n\r\nvalue$/s)
  }
  await server.close()
  await rm(directory, { recursive: true, force: true })
})
