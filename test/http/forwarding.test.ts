import { Agent, createServer, type Server } from 'node:http'
import { connect, createServer as createNetServer, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { encodeServer } from '../../src/cluster/server-record.js'
import { registryRowsOf } from '../../src/store/table/records/registry-table.js'
import type { MemoryTable } from '../store/table/memory-table.js'
import { type OneOfSeveral, type SeveralServers, severalServers } from './several-servers.js'
import { type Answer, type Json, rawAnswer, sendTo } from './support.js'

const start = severalServers()

async function two(
  options?: Parameters<typeof start>[1],
): Promise<SeveralServers & { a: OneOfSeveral; b: OneOfSeveral }> {
  const started = await start(2, options)
  const [a, b] = started.servers as [OneOfSeveral, OneOfSeveral]
  return { ...started, a, b }
}

const jsonOf = ({ body }: Answer): Json => JSON.parse(body) as Json
async function begin(server: OneOfSeveral, body: Json = {}, headers = {}): Promise<string> {
  const answer = await server.post('/v1/txn/begin', body, headers)
  expect(answer.status, answer.body).toBe(201)
  return String(jsonOf(answer)['txn'])
}
const expectGone = (answer: Answer, server: string): void => {
  expect(answer.status, answer.body).toBe(404)
  expect(jsonOf(answer)).toMatchObject({ code: 'txn_not_found', server })
  expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
}

describe('every call of a transaction', () => {
  test.each([true, false])('goes through another server (fast lane: %s)', { tags: ['long'] }, async (fastLane) => {
    const { a, b } = await two({ fastLane })
    await a.send('PUT', '/v1/kv/other', {}, 'there')
    const txn = await begin(a)
    expect(txn).toMatch(/^server-of-0\.[\w-]{22}$/)
    const path = `/v1/txn/${txn}`
    const one = new Agent({ keepAlive: true, maxSockets: 1 })
    expect(await sendTo({ port: b.port, agent: one }, 'GET', '/v1/kv/other')).toMatchObject({ body: 'there' })
    const state = await sendTo({ port: b.port, agent: one }, 'GET', path) // On a connection that was in the fast lane.
    expect(jsonOf(state)).toMatchObject({ txn, state: 'open', writes: 0 })
    one.destroy()
    expect(await b.send('PUT', `${path}/kv/k`, { 'content-type': 'text/plain' }, 'value')).toMatchObject({
      status: 200,
      body: '{}\n',
    })
    expect(jsonOf(await b.send('GET', path))).toMatchObject({ txn, state: 'open', writes: 1 })
    const read = await b.send('GET', `${path}/kv/k`)
    expect(read).toMatchObject({ status: 200, body: 'value' })
    const direct = await a.send('GET', `${path}/kv/k`)
    for (const name of Object.keys(direct.headers).filter((name) => name !== 'date'))
      expect(read.headers[name], name).toBe(direct.headers[name])
    const head = await b.send('HEAD', `${path}/kv/k`)
    expect(head).toMatchObject({ status: 200, body: '' })
    expect(head.headers['content-length']).toBe(direct.headers['content-length'])
    expect(jsonOf(await b.post(`${path}/ops`, { ops: [{ op: 'put', key: 'n', value: '1' }] }))).toHaveProperty(
      'results',
    )
    expect(jsonOf(await b.send('GET', `${path}/kv?prefix=`))).toMatchObject({
      pairs: [{ key: 'k' }, { key: 'n' }, { key: 'other' }],
    })
    const lines = await b.send('GET', `${path}/kv?prefix=`, { accept: 'application/x-ndjson' })
    expect(lines.body.trim().split('\n')).toHaveLength(3)
    expect(await b.send('DELETE', `${path}/kv/n`)).toMatchObject({ status: 200 })
    const commit = await b.post(`${path}/commit`)
    expect(commit.status, commit.body).toBe(200)
    expect(jsonOf(await a.post(`${path}/commit`))).toEqual(jsonOf(commit))
    expect(jsonOf(await b.post(`${path}/commit`))).toEqual(jsonOf(commit))
    expect((await b.send('GET', '/v1/kv/k')).body).toBe('value')
    expect((await b.send('GET', '/v1/kv/n')).status).toBe(404)
    const other = await begin(b)
    expect(await a.post(`/v1/txn/${other}/rollback`)).toMatchObject({ status: 200, body: '{}\n' })
    expect(jsonOf(await b.send('GET', `/v1/txn/${other}`))).toMatchObject({ state: 'rolled_back' })
  })

  test('keeps keys, bodies and refusals as they are', { tags: ['long'] }, async () => {
    const { a, b } = await two()
    const path = `/v1/txn/${await begin(a)}`
    for (const key of ['..', '.', 'a/../b', '%2e%2e', 'x%2Fy', '%00%ff', 'q%3Fr', '~']) {
      const value = Buffer.from([...Array(256).keys()])
      expect((await b.send('PUT', `${path}/kv/${key}`, {}, value)).status, key).toBe(200)
      const [here, there] = [await b.send('GET', `${path}/kv/${key}`), await a.send('GET', `${path}/kv/${key}`)]
      expect([here.status, here.body], key).toEqual([there.status, there.body])
    }
    const big = Buffer.alloc(900_000, 'x')
    expect((await b.send('PUT', `${path}/kv/big`, {}, big)).status).toBe(200)
    expect((await b.send('GET', `${path}/kv/big`)).body).toHaveLength(900_000)
    for (const [method, rest, headers, body] of [
      ['PUT', '/kv/too-big', {}, Buffer.alloc(2_000_000)],
      ['GET', '/kv/none', {}, undefined],
      ['GET', '/kv/k?timeout_ms=no', {}, undefined],
      ['GET', '/kv?limit=x', {}, undefined],
      ['PUT', '/kv/big', { 'if-none-match': '*' }, 'x'],
      ['POST', '/ops', { 'content-type': 'application/json' }, '{"ops":5}'],
      ['POST', '/ops', { 'content-type': 'text/plain' }, 'x'],
      ['POST', '/commit?strange=1', {}, undefined],
    ] as const) {
      const [here, there] = [
        await b.send(method, path + rest, headers, body),
        await a.send(method, path + rest, headers, body),
      ]
      expect(here.status, rest).toBeGreaterThan(399)
      expect([here.status, jsonOf(here), here.headers['content-type']], rest).toEqual([
        there.status,
        jsonOf(there),
        there.headers['content-type'],
      ])
    }
  })

  test('needs the token of the caller that began it, at both servers', async () => {
    const tokens = 'rw one.0123456789abcdef\nrw two.0123456789abcdef\n'
    const { a, b } = await two({ tokens })
    const as = (name: string) => ({ authorization: `Bearer ${name}.0123456789abcdef` })
    const txn = await begin(a, {}, as('one'))
    const path = `/v1/txn/${txn}`
    expect((await b.send('GET', path)).status).toBe(401)
    expect((await b.send('GET', path, { authorization: 'Bearer nobody.0123456789abc' })).status).toBe(401)
    expect((await a.send('GET', path, { 'perkv-forwarded': '1' })).status).toBe(401)
    expect((await b.send('GET', path, as('two'))).status).toBe(404)
    expect(jsonOf(await b.send('GET', path, as('one')))).toMatchObject({ txn, state: 'open' })
  })
})

test('what a server knows of the others is in its status and metrics', async () => {
  const { a, b, time } = await two()
  await time.pass(5000)
  const { server, servers } = jsonOf(await a.send('GET', '/v1/status')) as { server?: string; servers: Json[] }
  expect(server).toBeUndefined() // That of a `Member`, which these have not.
  expect(servers).toMatchObject([
    { id: a.id, url: `http://127.0.0.1:${a.port}` },
    { id: b.id, url: `http://127.0.0.1:${b.port}` },
  ])
  expect((await a.send('GET', '/metrics')).body).toContain('\nperkv_servers 2\n')
})

describe('a transaction that is not reached', () => {
  test('of a server that was killed: 404 with its id, and a commit leaves its outcome to its Idempotency-Key', async () => {
    const { a, b } = await two()
    const key = { 'idempotency-key': 'once' }
    const done = await begin(a)
    await b.send('PUT', `/v1/txn/${done}/kv/k`, {}, 'v')
    const committed = await b.post(`/v1/txn/${done}/commit`, {}, key)
    expect(committed.status, committed.body).toBe(200)
    const open = await begin(a)
    await a.kill()
    for (const answer of [
      await b.send('GET', `/v1/txn/${open}`),
      await b.send('HEAD', `/v1/txn/${open}/kv/k`),
      await b.send('GET', `/v1/txn/${open}/kv/k`),
      await b.send('PUT', `/v1/txn/${open}/kv/k`, {}, 'v'),
      await b.post(`/v1/txn/${open}/ops`, { ops: [] }),
      await b.post(`/v1/txn/${open}/commit`),
      await b.post(`/v1/txn/${open}/rollback`),
    ])
      if (answer.body === '') expect(answer.status).toBe(404)
      else expectGone(answer, a.id)
    const again = await b.post(`/v1/txn/${done}/commit`, {}, key)
    expect(again.headers['idempotency-replayed']).toBe('true')
    expect(jsonOf(again)).toEqual(jsonOf(committed))
    expectGone(await b.post(`/v1/txn/${done}/commit`), a.id)
  })

  test('of no server at all, of this one, or with a name that no server makes', async () => {
    const { a, b } = await two()
    const secret = 'x'.repeat(22)
    expectGone(await a.send('GET', `/v1/txn/nobody-at-all.${secret}`), 'nobody-at-all')
    const { registry } = a.database
    const looked: string[] = []
    const find = registry.find.bind(registry)
    registry.find = (id) => {
      looked.push(id)
      return find(id)
    }
    for (const txn of [
      `${a.id}.${secret}`,
      secret,
      `${'s'.repeat(3000)}.${secret}`,
      'a%2Fb.c',
      `%00%c3%bf.${secret}`,
      `..${secret}`,
      `${b.id}.short`,
    ]) {
      const answer = await a.send('GET', `/v1/txn/${txn}`)
      expect(answer.status, txn).toBe(404)
      expect(jsonOf(answer), txn).not.toHaveProperty('server')
    }
    expect(looked).toEqual([])
    const far = await sendTo({ port: a.port }, 'GET', `/v1/txn/${'s'.repeat(40_000)}.${secret}`)
    expect(far.status).toBe(413)
  })

  test('is not forwarded a second time: no client and no row can make servers send it around', async () => {
    const { a, b, table } = await two()
    const txn = await begin(a)
    expectGone(await b.send('GET', `/v1/txn/${txn}`, { 'perkv-forwarded': '1' }), a.id)
    expect(jsonOf(await a.send('GET', `/v1/txn/${txn}`, { 'perkv-forwarded': '1' }))).toMatchObject({ txn })
    // A row that leads back here.
    await addServer(table, 'loops-here', `http://127.0.0.1:${b.port}`)
    expectGone(await b.send('GET', `/v1/txn/loops-here.${'x'.repeat(22)}`), 'loops-here')
    expectGone(await a.post(`/v1/txn/loops-here.${'x'.repeat(22)}/commit`), 'loops-here')
  })
})

async function addServer(table: MemoryTable, id: string, url: string): Promise<void> {
  const row = encodeServer({
    ...{ url, oldest: Number.MAX_SAFE_INTEGER, safePoint: 0, unreachedEpoch: 0, knowsTime: false },
    ...{ format: 1, beat: 1 },
  })
  expect(await registryRowsOf(table).swap(`server/${id}`, undefined, row)).toBe('done')
}

describe('a server that takes the request and', () => {
  const SILENT = 'silent-server'
  const txn = `${SILENT}.${'x'.repeat(22)}`
  const ends: (() => void)[] = []
  afterEach(() => {
    for (const end of ends.splice(0)) end()
  })

  /** Its row says that it is there. @returns what it has got so far. */
  async function besides(
    table: MemoryTable,
    onData: (socket: Socket, all: string) => void,
  ): Promise<{ got: string; open: Set<Socket> }> {
    const seen = { got: '', open: new Set<Socket>() }
    const server = createNetServer((socket) => {
      seen.open.add(socket)
      socket.on('close', () => seen.open.delete(socket))
      socket.on('error', () => {})
      socket.on('data', (bytes) => {
        seen.got += bytes.toString('latin1')
        onData(socket, seen.got)
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    ends.push(() => {
      server.close()
      for (const socket of seen.open) socket.destroy()
    })
    const { port } = server.address() as { port: number }
    await addServer(table, SILENT, `http://127.0.0.1:${port}`)
    return seen
  }
  const until = async (is: () => boolean): Promise<void> => {
    while (!is()) await new Promise((later) => setTimeout(later, 5))
  }

  test('does not answer: timeout_ms ends it', async () => {
    const { a, table } = await two({ besideOthers: true })
    await besides(table, () => {})
    const late = await a.send('GET', `/v1/txn/${txn}/kv/k?timeout_ms=50`)
    expect(late.status).toBe(504)
    expect(jsonOf(late)).toMatchObject({ code: 'deadline_exceeded' })
  })

  test('is gone before it answers: 404, but 503 of a commit', async () => {
    const { a, table, time } = await two({ besideOthers: true })
    const silent = await besides(table, () => {})
    const read = a.send('GET', `/v1/txn/${txn}/kv/k`)
    const commit = a.post(`/v1/txn/${txn}/commit`)
    await until(() => silent.got.includes('commit') && silent.got.includes('/kv/k'))
    await time.pass(30_000)
    expectGone(await read, SILENT)
    const answer = await commit
    expect(answer.status).toBe(503)
    expect(jsonOf(answer)).toMatchObject({ code: 'storage_unavailable' })
    expectGone(await a.post(`/v1/txn/${txn}/commit`), SILENT) // By now it is known to be gone.
  })

  test('is asked by many at once, and gone: all are told', { tags: ['long'] }, async () => {
    const { a, table, time } = await two({ besideOthers: true })
    const silent = await besides(table, () => {})
    const warnings: unknown[] = []
    const warned = (warning: unknown): void => void warnings.push(warning)
    process.on('warning', warned)
    const all = Array.from({ length: 50 }, () => a.send('GET', `/v1/txn/${txn}/kv/k`))
    await until(() => silent.open.size === 50)
    await time.pass(30_000)
    for (const answer of await Promise.all(all)) expectGone(answer, SILENT)
    process.off('warning', warned)
    expect(warnings).toEqual([])
    expect(a.database.status().openTransactions).toBe(0)
  })

  test('breaks the connection: 404, but 503 of a commit', async () => {
    const { a, table } = await two({ besideOthers: true })
    await besides(table, (socket, all) => {
      if (all.endsWith('{}') || all.startsWith('GET')) socket.destroy()
    })
    expectGone(await a.send('GET', `/v1/txn/${txn}`), SILENT)
    expect((await a.post(`/v1/txn/${txn}/commit`)).status).toBe(503)
  })

  test('breaks off its answer: the client’s is broken off too', async () => {
    const { a, table } = await two({ besideOthers: true })
    await besides(table, (socket) => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nhalf', () =>
        socket.destroy(),
      )
    })
    const { head, body } = await rawAnswer(a.port, `GET /v1/txn/${txn} HTTP/1.1\r\nHost: x\r\n\r\n`)
    expect([head.split('\r\n')[0], body]).toEqual(['HTTP/1.1 200 OK', 'half'])
  })

  test('speaks no HTTP: 404', async () => {
    const { a, table } = await two({ besideOthers: true })
    await besides(table, (socket) => void socket.write('hello?\r\n\r\n'))
    expectGone(await a.send('GET', `/v1/txn/${txn}`), SILENT)
  })

  test('still works when the client hangs up: the request to it ends too', { tags: ['long'] }, async () => {
    const { a, table } = await two({ besideOthers: true })
    const silent = await besides(table, () => {})
    const socket = connect(a.port, '127.0.0.1')
    socket.write(`GET /v1/txn/${txn}/kv/k HTTP/1.1\r\nHost: x\r\n\r\n`)
    await until(() => silent.got.includes('/kv/k'))
    expect(silent.open.size).toBe(1)
    socket.destroy()
    await until(() => silent.open.size === 0)
  })

  test('gets only the headers that it needs, and the mark', async () => {
    const { a, table } = await two({ besideOthers: true })
    const silent = await besides(table, (socket, all) => {
      if (all.includes('\r\n\r\n')) socket.end('HTTP/1.1 204 No Content\r\n\r\n')
    })
    const headers = {
      cookie: 'c=1',
      origin: 'http://elsewhere',
      'x-more': '1',
      accept: 'application/msgpack',
      connection: 'close',
      te: 'trailers',
    }
    expect((await a.send('GET', `/v1/txn/${txn}/kv/k?lock_wait_ms=5`, headers)).status).toBe(204)
    expect(silent.got.split('\r\n')[0]).toBe(`GET /v1/txn/${txn}/kv/k?lock_wait_ms=5 HTTP/1.1`)
    const names = silent.got
      .split('\r\n')
      .slice(1)
      .map((line) => line.split(':')[0]?.toLowerCase())
      .filter(Boolean)
    expect(names.sort()).toEqual(['accept', 'connection', 'host', 'perkv-forwarded'])
  })

  test('answers before the body has come: the client’s connection goes on', async () => {
    const { a, table } = await two({ besideOthers: true })
    await besides(table, (socket, all) => {
      if (!all.includes('\r\n\r\n') || socket.writableEnded) return
      socket.end('HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}')
    })
    const socket = connect(a.port, '127.0.0.1')
    let got = ''
    socket.on('data', (bytes) => {
      got += bytes.toString('latin1')
    })
    const half = 'x'.repeat(300_000)
    socket.write(`PUT /v1/txn/${txn}/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: ${2 * half.length}\r\n\r\n${half}`)
    await until(() => got.includes('413'))
    socket.write(`${half}GET /livez HTTP/1.1\r\nHost: x\r\n\r\n`)
    await until(() => got.includes('{"status":"ok"}'))
    socket.destroy()
  })

  test('uses a path of its own, and connections again', async () => {
    const { a, table } = await two({ besideOthers: true })
    const paths: string[] = []
    let connections = 0
    const server: Server = createServer((request, answer) => {
      paths.push(`${request.method} ${request.url}`)
      request.resume().on('end', () => answer.end('{}'))
    })
    server.on('connection', () => connections++)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    ends.push(() => {
      server.close()
      server.closeAllConnections()
    })
    await addServer(table, SILENT, `http://127.0.0.1:${(server.address() as { port: number }).port}/perkv/`)
    for (let i = 0; i < 3; i++) expect((await a.post(`/v1/txn/${txn}/rollback`)).status).toBe(200)
    expect(new Set(paths)).toEqual(new Set([`POST /perkv/v1/txn/${txn}/rollback`]))
    expect(connections).toBe(1)
  })
})
