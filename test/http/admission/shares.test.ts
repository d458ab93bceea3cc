import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { expectProblem, type Headers, type Json, okBody, type Sent, type TestServer, testServers } from '../support.js'

const KIB = 1024
const MIB = 1024 * KIB
const PATIENT = { timeout: 30_000 }
const TOKENS = 'rw aaaaaaaaaaaaaaaaaaaa\nrw bbbbbbbbbbbbbbbbbbbb\nro cccccccccccccccccccc\n'
const A: Headers = { authorization: 'Bearer aaaaaaaaaaaaaaaaaaaa' }
const B: Headers = { authorization: 'Bearer bbbbbbbbbbbbbbbbbbbb' }

const start = testServers()
const sockets: Socket[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})

/** Sends requests and reads nothing. */
async function deaf(port: number, text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.pause()
  socket.write(text)
  return socket
}

function requestText(path: string, headers: Headers = {}): string {
  const lines = Object.entries({ host: 'x', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
  return `GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`
}

async function overloadOf(server: TestServer, headers: Headers = {}): Promise<Json> {
  return okBody(await server.get('/v1/status', headers))['overload'] as Json
}

const post = (server: TestServer, url: string, body: unknown, headers: Headers): Promise<Sent> =>
  server.post(url, body, headers)
const put = (server: TestServer, url: string, body: unknown, headers: Headers): Promise<Sent> =>
  server.send('PUT', url, { 'content-type': 'application/json', ...headers }, JSON.stringify(body))

describe('a client that asks much on one connection and reads nothing', () => {
  test('of what is made once for all, holds nothing, and the others are served', { tags: ['long'] }, async () => {
    const server = await start({ tokens: TOKENS, limits: { answersBytesMax: MIB } })
    await server.get('/openapi.json')
    const socket = await deaf(await server.listen(), requestText('/openapi.json').repeat(1500))
    await vi.waitFor(() => expect(socket.readableLength).toBeGreaterThan(0), PATIENT)
    expect(await overloadOf(server, A)).toMatchObject({ answer_bytes: 0 })
    expect((await server.get('/v1/kv/absent', A)).statusCode).toBe(404)
  })

  test('of values, holds a few of them, and gets all when it reads', { tags: ['long'] }, async () => {
    const server = await start()
    await server.put('k', Buffer.alloc(60 * KIB, 'v'))
    const socket = await deaf(await server.listen(), requestText('/v1/kv/k?lock_wait_ms=0').repeat(1500))
    await vi.waitFor(
      async () => expect(Number((await overloadOf(server))['answer_bytes'])).toBeGreaterThan(100 * KIB),
      PATIENT,
    )
    expect(await overloadOf(server)).toMatchObject({ requests: 0 })
    for (let i = 0; i < 50; i++) expect(Number((await overloadOf(server))['answer_bytes'])).toBeLessThan(64 * 61 * KIB)
    let bytes = 0
    socket.on('data', (piece) => {
      bytes += piece.length
    })
    socket.resume()
    await vi.waitFor(() => expect(bytes).toBeGreaterThan(1500 * 60 * KIB), PATIENT)
    await vi.waitFor(async () => expect(await overloadOf(server)).toMatchObject({ answer_bytes: 0 }), PATIENT)
  })
})

describe('no caller has more than half of what all share', () => {
  test.each(['/v1/kv/k?lock_wait_ms=0', '/v1/kv/k'])(
    'of the memory for answers: %s',
    { tags: ['long'] },
    async (path) => {
      const server = await start({ tokens: TOKENS, limits: { answersBytesMax: 8 * MIB } })
      await server.put('k', Buffer.alloc(MIB, 'v'), A)
      const port = await server.listen()
      for (let i = 0; i < 20; i++) await deaf(port, requestText(path, A).repeat(20)) // The system takes some of them.
      await vi.waitFor(async () => expect((await server.get(path, A)).statusCode).toBe(503), PATIENT)
      expect(Number((await overloadOf(server, B))['answer_bytes'])).toBeLessThan(6 * MIB)
      expect((await server.get(path, B)).statusCode).toBe(200)
    },
  )

  test('of leases', async () => {
    const server = await start({ tokens: TOKENS, limits: { leasesMax: 4 } })
    const grant = { holder: 'h', ttl_ms: 60_000 }
    for (const name of ['a/1', 'a/2']) okBody(await put(server, `/v1/leases/${name}`, grant, A))
    expectProblem(await put(server, '/v1/leases/a/3', grant, A), 'overloaded')
    okBody(await put(server, '/v1/leases/a/2', { ...grant, ttl_ms: 50_000 }, A))
    for (const name of ['b/1', 'b/2']) okBody(await put(server, `/v1/leases/${name}`, grant, B))
    okBody(await server.send('DELETE', '/v1/leases/a/1?holder=h', A))
    okBody(await put(server, '/v1/leases/a/3', grant, A))
  })

  test.each([
    ['observers', 'observersMax'],
    ['consumers', 'consumersMax'],
  ])('of %s', async (what, limit) => {
    const server = await start({ tokens: TOKENS, limits: { [limit]: 4 } })
    if (!server.store.traits.onePhaseCommit) return
    const make = (name: string, headers: Headers) => put(server, `/v1/${what}/${name}`, { prefix: name }, headers)
    for (const name of ['a1', 'a2']) expect((await make(name, A)).statusCode).toBe(201)
    expectProblem(await make('a3', A), 'overloaded')
    expect((await make('a2', A)).statusCode).toBe(200)
    for (const name of ['b1', 'b2']) expect((await make(name, B)).statusCode).toBe(201)
    okBody(await server.send('DELETE', `/v1/${what}/a1`, A))
    expect((await make('a3', A)).statusCode).toBe(201)
  })

  test('of open transactions', async () => {
    const server = await start({ tokens: TOKENS, limits: { txnsMax: 4 } })
    const begin = (headers: Headers): Promise<Sent> => post(server, '/v1/txn/begin', {}, headers)
    const { txn } = (await begin(A)).json<Json>()
    expect((await begin(A)).statusCode).toBe(201)
    expectProblem(await begin(A), 'overloaded')
    for (let i = 0; i < 2; i++) expect((await begin(B)).statusCode).toBe(201)
    okBody(await post(server, `/v1/txn/${txn}/rollback`, {}, A))
    expect((await begin(A)).statusCode).toBe(201)
  })

  test('of requests that wait for a change, and of those that wait for a lock', async () => {
    const server = await start({ tokens: TOKENS, limits: { watchesMax: 4, requestsMax: 4 } })
    const port = await server.listen()
    for (let i = 0; i < 2; i++) await deaf(port, requestText('/v1/kv/k?wait_ms=60000', A))
    await vi.waitFor(async () => expect(await overloadOf(server, B)).toMatchObject({ watches: 2 }), PATIENT)
    expectProblem(await server.get('/v1/kv/k?wait_ms=60000', A), 'overloaded')
    expectProblem(await server.get('/v1/kv/k?wait_ms=1', B), 'not_found')

    const { ts } = okBody(await post(server, '/v1/percolator/tso', {}, A))
    const mutations = [{ op: 'put', key: 'z', value: '' }]
    const lock = { mutations, primary: 'z', start_ts: ts, lock_ttl: 600_000 }
    okBody(await post(server, '/v1/percolator/prewrite', lock, A))
    for (let i = 0; i < 2; i++) await deaf(port, requestText(`/v1/kv/z?ts=${Number(ts) + 1}&lock_wait_ms=60000`, A))
    await vi.waitFor(async () => expect(await overloadOf(server, B)).toMatchObject({ requests: 2 }), PATIENT)
    expectProblem(await server.get('/v1/kv/k', A), 'overloaded')
    expectProblem(await server.get('/v1/kv/k', B), 'not_found')
    okBody(await post(server, '/v1/percolator/rollback', { keys: ['z'], start_ts: ts }, A))
  })
})
