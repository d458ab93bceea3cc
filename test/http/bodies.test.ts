import { EventEmitter, once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { connect as connectSocket, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { BodyReader } from '../../src/http/admission/body-reader.js'
import { InFlight } from '../../src/http/admission/in-flight.js'
import { type Json, okBody, rawRequest, rawText, type TestServer, testServers } from './support.js'

const start = testServers()
const KIB = 1024

const sockets: Socket[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})

async function open(port: number, text: string): Promise<Socket> {
  const socket = connectSocket(port, '127.0.0.1').on('error', () => {})
  sockets.push(socket)
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

async function overloadOf(server: TestServer): Promise<Json> {
  return okBody(await server.get('/v1/status'))['overload'] as Json
}

const JSON_TYPE = 'Content-Type: application/json'
const long = (bytes: number) => Buffer.alloc(bytes, 'v')

describe('bodies count as they arrive', () => {
  test.each([
    ['a transaction', `POST /v1/txn HTTP/1.1\r\nHost: x\r\n${JSON_TYPE}\r\nContent-Length: 33554432\r\n\r\n`],
    [
      'MessagePack',
      'POST /v1/txn HTTP/1.1\r\nHost: x\r\nContent-Type: application/msgpack\r\nContent-Length: 33554432\r\n\r\n',
    ],
    ['values', 'PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n'],
    ['a commit', `POST /v1/percolator/commit HTTP/1.1\r\nHost: x\r\n${JSON_TYPE}\r\nContent-Length: 33554432\r\n\r\n`],
    ['chunks', `POST /v1/txn HTTP/1.1\r\nHost: x\r\n${JSON_TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n`],
    ['a restore', 'POST /v1/admin/restore HTTP/1.1\r\nHost: x\r\nContent-Length: 33554432\r\n\r\n'],
  ])('%s: many that are announced and do not come refuse nobody', async (_, head) => {
    const server = await start({ limits: { requestsMax: 30, bodiesBytesMax: 64 * KIB * KIB } })
    const port = await server.listen()
    for (let i = 0; i < 40; i++) await open(port, head)
    await vi.waitFor(async () => expect(await overloadOf(server)).toMatchObject({ receiving: 40, requests: 0 }))
    okBody(await server.send('PUT', '/v1/kv/k', {}, 'v'))
    okBody(await server.send('PUT', '/v1/kv/k', {}, long(KIB * KIB)))
    okBody(await server.post('/v1/txn', { ops: [{ op: 'put', key: 'k', value: 'v'.repeat(500 * KIB) }] }))
    expect(await overloadOf(server)).toMatchObject({ receiving: 40, body_bytes: 0, shed: 0 })
  })

  test('where room is short those that stand still go first, and are told so; small requests always get through', {
    tags: ['long'],
  }, async () => {
    const limits = { bodiesBytesMax: 200 * KIB, valueBytesMax: 300 * KIB }
    const server = await start({ limits })
    const port = await server.listen()
    const head = rawText('PUT /v1/kv/slow', [`Content-Length: ${100 * KIB}`])
    const [first, second] = [await open(port, head), await open(port, head)]
    first.write(long(90 * KIB))
    await vi.waitFor(async () => expect(await overloadOf(server)).toMatchObject({ body_bytes: 90 * KIB }))
    second.write(long(90 * KIB))
    await vi.waitFor(async () => expect(await overloadOf(server)).toMatchObject({ body_bytes: 180 * KIB }))
    const told = once(first, 'data')
    // A trickle does not keep it.
    const trickle = setInterval(() => first.write('v'), 50)
    try {
      await vi.waitFor(
        async () => {
          okBody(await server.send('PUT', '/v1/kv/small', {}, long(16 * KIB)))
          okBody(await server.send('PUT', '/v1/kv/k', {}, long(100 * KIB)))
        },
        { interval: 100 },
      )
    } finally {
      clearInterval(trickle)
    }
    expect(String((await told)[0])).toMatch(/^HTTP\/1.1 503 [\s\S]*retry-after: 1\r\n/)
    second.write(long(10 * KIB))
    expect(String((await once(second, 'data'))[0])).toMatch(/^HTTP\/1.1 200 /)
    await vi.waitFor(async () =>
      expect(await overloadOf(server)).toMatchObject({ body_bytes: 0, receiving: 0, requests: 0 }),
    )
  })

  test('in chunks too: of those that move all the last one that does not fit is refused', async () => {
    const server = await start({ limits: { bodiesBytesMax: 100 * KIB, valueBytesMax: 300 * KIB } })
    const port = await server.listen()
    const chunk = `F000\r\n${long(60 * KIB)}\r\n`
    const head = rawText('PUT /v1/kv/b', ['Transfer-Encoding: chunked'])
    const first = await open(port, head + chunk)
    await vi.waitFor(async () => expect(await overloadOf(server)).toMatchObject({ body_bytes: 60 * KIB }))
    expect(await rawRequest(port, `${head}${chunk}0\r\n\r\n`)).toMatchObject({ status: 503 })
    expect(await rawRequest(port, `${head}3\r\nyes\r\n0\r\n\r\n`)).toMatchObject({ status: 200 })
    first.write('0\r\n\r\n')
    expect(String((await once(first, 'data'))[0])).toMatch(/^HTTP\/1.1 200 /)
  })

  test('a body that is too long in chunks is 413 and says the limit, and nothing of it is held', async () => {
    const server = await start({ limits: { valueBytesMax: 20 * KIB } })
    const port = await server.listen()
    const head = rawText('PUT /v1/kv/b', ['Transfer-Encoding: chunked'])
    const { status, body } = await rawRequest(port, `${head}F000\r\n${long(60 * KIB)}\r\n0\r\n\r\n`)
    expect([status, JSON.parse(body)]).toEqual([413, expect.objectContaining({ field: 'body', limit: 20 * KIB })])
    expect(await overloadOf(server)).toMatchObject({ body_bytes: 0, receiving: 0, requests: 0 })
  })
})

describe('a body in pieces', () => {
  function read(
    pieces: readonly Buffer[],
    end: 'end' | 'close',
  ): { body: Buffer | undefined; isRefused: boolean; counts: InFlight } {
    const counts = new InFlight()
    const message = Object.assign(new EventEmitter(), { headers: {}, destroyed: false, resume() {} })
    const room = { arrived() {}, gone() {}, refusal: () => new Error('refused') }
    let result: { body: Buffer | undefined; isRefused: boolean } = { body: undefined, isRefused: false }
    new BodyReader({
      message: message as unknown as IncomingMessage,
      bytesMax: 10 * KIB * KIB,
      work: 'writing',
      flight: counts.begin(true, undefined),
      room,
      done: (error, body) => {
        result = { body, isRefused: error !== null }
      },
    }).start()
    for (const piece of pieces) message.emit('data', piece)
    expect(counts.bodyBytes).toBe(Buffer.concat(pieces).length)
    message.emit(end)
    return { ...result, counts }
  }

  test.each([
    ['of one byte', Array.from({ length: 3000 }, (_, i) => Buffer.of(i % 256))],
    ['long and short', Array.from({ length: 900 }, (_, i) => Buffer.alloc(i % 7 === 0 ? 9000 : 3, i))],
    ['long', Array.from({ length: 300 }, (_, i) => Buffer.alloc(9000, i))],
    ['none', []],
  ])('%s: all of them, in order', (_, pieces) => {
    const { body, counts } = read(pieces, 'end')
    expect(body?.equals(Buffer.concat(pieces))).toBe(true)
    expect(counts).toMatchObject({ receiving: 0, requests: 1 })
  })

  test('whose connection breaks is refused, and nothing of it is held', () => {
    const { isRefused, counts } = read([Buffer.alloc(100_000)], 'close')
    expect(isRefused).toBe(true)
    expect(counts).toMatchObject({ receiving: 0, requests: 0, bodyBytes: 0 })
  })
})
