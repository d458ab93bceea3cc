import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttps } from 'node:https'
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { HttpTransport, type TransportOptions } from '../../../src/client/http/http-transport.js'
import { nodeSender } from '../../../src/client/http/node-sender.js'
import { type ConnectOptions, connect } from '../../../src/client/index.js'
import { failureOf } from '../../coordinator/support.js'
import { certificate } from '../../http/fast-lane/variants.js'
import { testServers } from '../../http/support.js'

const start = testServers()
const toEnd: (() => unknown)[] = []

afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end()
})

type Answering = (socket: Socket, request: string, index: number) => void

interface RawServer {
  readonly port: number
  readonly requests: string[]
  readonly sockets: Set<Socket>
}

/** A server that answers with any bytes. A request is what arrives in one piece. */
async function raw(answer: Answering, host = '127.0.0.1'): Promise<RawServer> {
  const requests: string[] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {}).on('close', () => sockets.delete(socket))
    socket.on('data', (bytes) => answer(socket, bytes.toString('latin1'), requests.push(bytes.toString('latin1')) - 1))
  })
  server.listen(0, host)
  await once(server, 'listening')
  toEnd.push(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { port: (server.address() as AddressInfo).port, requests, sockets }
}

function answerOf(body: string, headers = '', status = '200 OK'): string {
  return `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`
}

/** It counts as one that may change something. */
const GET = { method: 'GET', path: '/v1/kv/a', isRead: false } as const
const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1')

const CUT: readonly { name: string; bytes: string }[] = [
  { name: 'before it begins', bytes: '' },
  { name: 'in its headers', bytes: 'HTTP/1.1 200 OK\r\nContent-Le' },
  { name: 'before its body', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n' },
  { name: 'in its body', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab' },
  { name: 'in its chunks', bytes: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n' },
  { name: 'by chunks that are none', bytes: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nxx\r\n' },
  { name: 'by what is no HTTP', bytes: 'SSH-2.0-OpenSSH_9.6\r\n' },
]

describe.each([
  { way: 'by node:http', given: {} },
  { way: 'by fetch', given: { fetch } },
] as { way: string; given: TransportOptions }[])('$way', ({ given }) => {
  const transportTo = (port: number, options: TransportOptions = {}): HttpTransport =>
    new HttpTransport(`http://127.0.0.1:${port}`, { ...given, ...options })

  test('headers and bytes arrive as they were sent, both ways', async () => {
    const created = Buffer.from(answerOf('\xff\x00\r\n', 'ETag: "7"\r\nX-A: b\r\n', '201 Created'), 'latin1')
    const server = await raw((socket) => socket.write(created))
    const transport = transportTo(server.port, { headers: { 'X-Name': 'Z\xfcrich, a' }, token: 't' })
    const body = new Uint8Array([0, 255, 13, 10])
    const sent = { method: 'PUT', path: '/v1/kv/%00?lock_wait_ms=1', headers: { 'if-match': '"6"' }, body } as const
    const { status, headers, body: got } = await transport.send(sent)
    expect([status, headers.get('etag'), headers.get('x-a'), headers.get('x-b'), got]).toEqual([
      ...[201, '"7"', 'b', null],
      new Uint8Array([255, 0, 13, 10]),
    ])
    const [request = ''] = server.requests
    expect(request).toMatch(/^PUT \/v1\/kv\/%00\?lock_wait_ms=1 HTTP\/1.1\r\n/)
    expect(request.endsWith('\r\n\r\n\x00\xff\r\n')).toBe(true)
    for (const line of [`host: 127.0.0.1:${server.port}`, 'x-name: Z\xfcrich, a', 'content-length: 4', 'if-match: "6"'])
      expect(request.toLowerCase()).toContain(`\r\n${line.toLowerCase()}\r\n`)
    expect(request.toLowerCase()).toContain('\r\nauthorization: bearer t\r\n')
  })

  test('a body of no bytes, and none', async () => {
    const server = await raw((socket) => socket.write(answerOf('')))
    const transport = transportTo(server.port)
    await transport.send({ method: 'PUT', path: '/', body: new Uint8Array() })
    expect((await transport.send(GET)).body).toEqual(new Uint8Array())
    expect(server.requests[0]?.toLowerCase()).toContain('content-length: 0')
    expect(server.requests[1]?.toLowerCase()).not.toContain('content-length')
  })

  for (const { name, bytes } of CUT) {
    test(`an answer that ends ${name} is an error; the request may have taken effect, and is repeated`, async () => {
      const server = await raw((socket, _, index) => {
        if (index < 3) socket.end(Buffer.from(bytes, 'latin1'))
        else socket.write(answerOf('whole'))
      })
      const once = transportTo(server.port, { retryMs: 0 })
      expect(await failureOf(once.send(GET))).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: true })
      expect(await failureOf(once.send({ ...GET, isRead: true }))).toMatchObject({ mayHaveTakenEffect: false })
      expect(text((await transportTo(server.port).send(GET)).body)).toBe('whole')
      expect(server.requests).toHaveLength(4)
    })
  }

  test('a connection that is closed under a request, after others: it may have taken effect, and is repeated', async () => {
    const server = await raw((socket, _, index) => {
      if (index === 1 || index === 3) socket.resetAndDestroy()
      else socket.write(answerOf('whole'))
    })
    const transport = transportTo(server.port)
    await transport.send(GET)
    await transport.send(GET)
    expect(server.requests).toHaveLength(3)
    const impatient = transportTo(server.port, { retryMs: 0 })
    expect(await failureOf(impatient.send(GET))).toMatchObject({ mayHaveTakenEffect: true })
  })

  test('nobody listening, and a name that is none: nothing can have taken effect', async () => {
    const { port } = await raw(() => {})
    await toEnd.pop()?.()
    const refused = await failureOf(transportTo(port, { retryMs: 0 }).send(GET))
    expect(refused).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: false })
    expect(refused.message).toContain(`ECONNREFUSED 127.0.0.1:${port}`)
    const nameless = new HttpTransport('http://none.invalid', { ...given, retryMs: 0 })
    expect(await failureOf(nameless.send(GET))).toMatchObject({ mayHaveTakenEffect: false })
  })

  test('an abort ends a request before it is sent, before its answer, and within it; its connection is not used again', async () => {
    const server = await raw((socket, _, index) => {
      if (index === 1) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab')
      if (index > 1) socket.write(answerOf('whole'))
    })
    const transport = transportTo(server.port, { connectTimeoutMs: 60_000 })
    for (const requests of [0, 1, 2]) {
      const controller = new AbortController()
      const reason = new Error(`enough ${requests}`)
      const failure = failureOf(transport.send({ ...GET, signal: controller.signal }))
      if (requests > 0) await vi.waitUntil(() => server.requests.length === requests)
      controller.abort(reason)
      expect(await failure).toBe(reason)
    }
    expect(text((await transport.send(GET)).body)).toBe('whole')
  })

  test('a signal’s reason may be no Error', async () => {
    const server = await raw(() => {})
    const controller = new AbortController()
    const sent = transportTo(server.port).send({ ...GET, signal: controller.signal })
    const failure = sent.catch((reason: unknown) => [reason])
    await vi.waitUntil(() => server.requests.length === 1)
    controller.abort('enough')
    expect(await failure).toEqual(['enough'])
  })

  test('time runs out for the first byte, and for the last', async () => {
    const server = await raw((socket, _, index) => {
      if (index === 1) socket.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab')
    })
    const transport = transportTo(server.port, { requestTimeoutMs: 200, connectTimeoutMs: 60_000, retryMs: 0 })
    for (const at of ['no server was reached at', 'GET http']) {
      const error = await failureOf(transport.send(GET))
      expect(error).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: true })
      expect(error.message).toMatch(new RegExp(`^${at}.*: no answer within 200 ms$`))
    }
  })

  test('a redirect is not followed', async () => {
    const server = await raw((socket) => socket.write(answerOf('', 'Location: /other\r\n', '307 Temporary Redirect')))
    expect(await failureOf(transportTo(server.port).send(GET))).toMatchObject({
      code: 'unexpected_answer',
      status: 307,
    })
    expect(server.requests).toHaveLength(1)
  })

  test('a path before that of the call, an IPv6 address, a name in Unicode', async () => {
    const server = await raw((socket) => socket.write(answerOf('')), '::1')
    const db = connect(`http://[::1]:${server.port}/Zürich/`, given)
    await db.get('é').catch(() => {}) // An answer without an ETag.
    expect(server.requests[0]).toMatch(/^GET \/Z%C3%BCrich\/v1\/kv\/%C3%A9\?/)
    expect(server.requests[0]?.toLowerCase()).toContain(`host: [::1]:${server.port}\r\n`)
    const error = await failureOf(connect('http://zürich.invalid', { ...given, retryMs: 0 }).get('a'))
    expect(error.message).toContain('xn--zrich-kva.invalid')
  })

  test('a long body and a long answer', async () => {
    const db = connect(`http://127.0.0.1:${await (await start()).listen()}`, given)
    const value = new Uint8Array(900_000).map((_, i) => i * 7)
    const keys = Array.from({ length: 12 }, (_, i) => `k${i}`)
    for (const key of keys) await db.put(key, value)
    const got = await db.batchGet(keys, { as: 'bytes' })
    expect(got.every((bytes) => bytes !== undefined && Buffer.compare(bytes, value) === 0)).toBe(true)
    const single = await db.get('k0', { as: 'bytes' })
    expect(single?.constructor).toBe(Uint8Array)
    expect(Buffer.compare(single ?? new Uint8Array(), value)).toBe(0)
  })

  test('requests that wait hold up no others, however many they are', async () => {
    const waiting: Socket[] = []
    const server = await raw((socket, request) => {
      if (request.includes('/wait')) waiting.push(socket)
      else socket.write(answerOf('now'))
    })
    const transport = transportTo(server.port)
    await transport.send(GET)
    const polls = Array.from({ length: 400 }, () => transport.send({ ...GET, path: '/wait' }))
    await vi.waitUntil(() => waiting.length === 400)
    expect(text((await transport.send(GET)).body)).toBe('now')
    for (const socket of waiting) socket.write(answerOf('late'))
    expect(new Set((await Promise.all(polls)).map(({ body }) => text(body)))).toEqual(new Set(['late']))
  })

  test('through a network that cuts connections anywhere, each write takes effect once', async () => {
    const server = await start()
    const port = await server.listen()
    let cuts = 0
    const proxy = createServer((near) => {
      const far = connectSocket(port, '127.0.0.1')
      let left = (++cuts * 611) % 2500 // Bytes of both directions.
      const end = (): void => {
        near.destroy()
        far.destroy()
      }
      for (const [from, to] of [[near, far] as const, [far, near] as const]) {
        from.on('error', end).on('close', end)
        from.on('data', (bytes) => {
          to.write(bytes.subarray(0, left))
          left -= bytes.length
          if (left < 0) to.end()
        })
      }
    }).listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    toEnd.push(() => proxy.close())
    const options: ConnectOptions = { ...given, retryMs: 30_000 }
    const db = connect(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, options)
    await Promise.all(
      Array.from({ length: 40 }, (_, i) => db.transaction((txn) => txn.increment(`n${i % 8}`), { retries: 100 })),
    )
    expect(await db.batchGet(Array.from({ length: 8 }, (_, i) => `n${i}`))).toEqual(Array(8).fill('5'))
    expect(cuts).toBeGreaterThan(20)
    await db.close()
  })
})

test('an answer that a proxy compressed unasked is an error, and not a value', async () => {
  const server = await raw((socket) => socket.write(answerOf('xxx', 'ETag: "1"\r\nContent-Encoding: gzip\r\n')))
  const db = connect(`http://127.0.0.1:${server.port}`, { retryMs: 0, headers: { 'Accept-Encoding': 'gzip' } })
  expect((await failureOf(db.get('a'))).message).toContain('the answer is compressed by gzip')
  expect(server.requests[0]?.toLowerCase().match(/accept-encoding: \w+/g)).toEqual(['accept-encoding: identity'])
})

test('close closes the connections that nothing uses, and later those that something does', async () => {
  let held: Socket | undefined
  const server = await raw((socket, request) => {
    if (request.includes('/v1/kv/held')) held = socket
    else socket.write(answerOf('', 'ETag: "1"\r\n'))
  })
  const db = connect(`http://127.0.0.1:${server.port}`)
  const reading = db.get('held')
  await Promise.all([db.get('a'), db.get('b')])
  await vi.waitUntil(() => held !== undefined)
  expect(server.sockets.size).toBeGreaterThan(1)
  await db.close()
  await vi.waitUntil(() => server.sockets.size === 1)
  held?.write(answerOf('v', 'ETag: "1"\r\n'))
  expect(await reading).toBe('v')
  await vi.waitUntil(() => server.sockets.size === 0)
})

const DIST = new URL('../../../dist/client/index.js', import.meta.url).href

function run(program: string, env: Record<string, string> = {}): Promise<{ stdout: string }> {
  const flags = ['--input-type=module', '--eval', `import { connect } from ${JSON.stringify(DIST)}\n${program}`]
  return promisify(execFile)(process.execPath, flags, { timeout: 30_000, env: { ...process.env, ...env } })
}

test('open connections do not keep a process alive', async () => {
  const server = await raw((socket) => socket.write(answerOf('v', 'ETag: "1"\r\n')))
  const { stdout } = await run(`
    console.log(await connect('http://127.0.0.1:${server.port}').get('a'))
    setTimeout(() => console.log('kept alive'), 3000).unref()`)
  expect(stdout).toBe('v\n')
})

test('without process.getBuiltinModule the global fetch is used, as it is at the time of the call', async () => {
  const { stdout } = await run(`
    process.getBuiltinModule = undefined
    const db = connect('http://kv.test')
    globalThis.fetch = async (url, { cache, redirect }) => {
      console.log(new URL(url).pathname, cache, redirect)
      return new Response('v', { headers: { etag: '"1"' } })
    }
    console.log(await db.get('a'))`)
  expect(stdout).toBe('/v1/kv/a no-store manual\nv\n')
  vi.stubGlobal('process', undefined)
  expect(nodeSender('http://kv.test')).toBeUndefined()
  vi.unstubAllGlobals()
})

test('https: by the certificates of the system and of NODE_EXTRA_CA_CERTS', async () => {
  const tls = certificate()
  const server = createHttps(tls, (_, answer) => answer.writeHead(200, { etag: '"1"' }).end('v')).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const directory = await mkdtemp(join(tmpdir(), 'perkv-ca-'))
  toEnd.push(
    () => rm(directory, { recursive: true, force: true }),
    () => server.close(),
  )
  await writeFile(join(directory, 'ca.pem'), tls.cert)
  const program = (options: string): string => `
    const db = connect('https://localhost:${(server.address() as AddressInfo).port}', { retryMs: 0, ${options} })
    console.log(await db.get('a').catch(({ code, message }) => code + message.replace(/.*:/, '')))`
  for (const options of ['', 'fetch']) {
    const { stdout: alone } = await run(program(options))
    const { stdout: extra } = await run(program(options), { NODE_EXTRA_CA_CERTS: join(directory, 'ca.pem') })
    expect(alone).toMatch(/^connection_failed self[- ]signed certificate/)
    expect(extra).toBe('v\n')
  }
})
