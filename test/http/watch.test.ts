import { connect, type Socket } from 'node:net'
import { describe, expect, test, vi } from 'vitest'
import { Grant } from '../../src/access/grant.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import { openMemoryStore } from '../../src/store/leveldb/leveldb-store.js'
import { watch } from '../store/support.js'
import { Stream } from './streaming.js'
import { expectProblem, type Json, numberOf, okBody, serve, type TestServer, testServers, urlOf } from './support.js'

const start = testServers()

/** Longer than any test runs: what comes back earlier was woken. */
const LONG_MS = 60_000
const WAIT = `wait_ms=${LONG_MS}`
const tagOf = (commitTs: number) => ({ 'if-none-match': `"${commitTs}"` })

async function watches(server: TestServer): Promise<number> {
  return numberOf(okBody(await server.get('/v1/status')), 'watches')
}

async function untilWaiting(server: TestServer, count: number): Promise<void> {
  await vi.waitFor(async () => expect(await watches(server)).toBe(count), { interval: 5 })
}

describe('a GET with wait_ms', () => {
  test('that need not wait is answered at once', async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const plain = await server.get(`/v1/kv/k?${WAIT}`)
    expect([plain.statusCode, plain.body, plain.headers['etag']]).toEqual([200, 'one', `"${first}"`])
    expect((await server.get(`/v1/kv/k?${WAIT}`, tagOf(first - 1))).body).toBe('one')
    const deleted = await server.remove('k')
    expectProblem(await server.get(`/v1/kv/k?${WAIT}`, tagOf(first)), 'not_found', { key: 'k', commit_ts: deleted })
    expectProblem(await server.get(`/v1/kv/none?${WAIT}`, tagOf(first)), 'not_found', { key: 'none', commit_ts: 0 })
  })

  test('and If-None-Match waits for another version, or none', async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const second = server.get(`/v1/kv/k?${WAIT}`, tagOf(first))
    await untilWaiting(server, 1)
    await server.put('other', 'v')
    const commitTs = await server.put('k', 'two')
    const answer = await second
    expect([answer.statusCode, answer.body, answer.headers['etag']]).toEqual([200, 'two', `"${commitTs}"`])
    const gone = server.get(`/v1/kv/k?${WAIT}`, { 'if-none-match': `"7", W/"${commitTs}"` })
    await untilWaiting(server, 1)
    const deleted = await server.remove('k')
    expectProblem(await gone, 'not_found', { key: 'k', commit_ts: deleted })
    expect(await watches(server)).toBe(0)
  })

  test('and If-None-Match: * waits until there is none', async () => {
    const server = await start()
    await server.put('k', 'one')
    const gone = watch(server.get(`/v1/kv/k?${WAIT}`, { 'if-none-match': '*' }))
    await untilWaiting(server, 1)
    await server.put('k', 'two')
    const deleted = await server.remove('k')
    expectProblem(await gone.promise, 'not_found', { commit_ts: deleted })
  })

  test('and without a condition waits for a value', async () => {
    const server = await start()
    const waiting = server.get(`/v1/kv/k?${WAIT}`)
    await untilWaiting(server, 1)
    await server.remove('k')
    await server.put('k', 'one')
    expect((await waiting).body).toBe('one')
  })

  test('is answered as it stands when its time is over', async () => {
    const server = await start()
    expectProblem(await server.get('/v1/kv/k?wait_ms=1'), 'not_found', { commit_ts: 0 })
    const first = await server.put('k', 'one')
    for (const time of ['0', '1'])
      expect((await server.get(`/v1/kv/k?wait_ms=${time}`, tagOf(first))).statusCode).toBe(304)
  })

  test('of HEAD waits too', async () => {
    const server = await start()
    const waiting = server.send('HEAD', `/v1/kv/k?${WAIT}`)
    await untilWaiting(server, 1)
    const commitTs = await server.put('k', 'one')
    const answer = await waiting
    expect([answer.statusCode, answer.body, answer.headers['etag']]).toEqual([200, '', `"${commitTs}"`])
  })

  test.each([
    ['wait_ms=60001', {}, 'wait_ms'],
    ['wait_ms=-1', {}, 'wait_ms'],
    ['wait_ms=', {}, 'wait_ms'],
    ['wait_ms=1&wait_ms=2', {}, 'wait_ms'],
    ['wait_ms=1&ts=5', {}, 'wait_ms'],
    ['wait_ms=1&at=2026-01-31T12:00:00Z', {}, 'wait_ms'],
    ['wait_ms=1', { 'if-match': '*' }, 'if-match'],
    ['wait_ms=1', { 'if-none-match': 'x' }, 'if-none-match'],
    ['wait=1', {}, 'wait'],
  ])('%s %j is 400', async (query, headers, field) => {
    const server = await start()
    expectProblem(await server.get(`/v1/kv/k?${query}`, headers), 'invalid_argument', { field })
  })

  test('sees every way in which a key changes', async () => {
    const server = await start()
    const roads: Record<string, () => Promise<unknown>> = {
      txn: () => server.txn({ ops: [{ op: 'put', key: 'k', value: 'v' }] }),
      'two phases': async () => {
        const { ts } = await server.ok('tso', {})
        await server.lock(Number(ts), ['k', 'l'])
        const { ts: commitTs } = await server.ok('tso', {})
        await server.ok('commit', { keys: ['k'], start_ts: ts, commit_ts: commitTs })
      },
      'a resolved lock': async () => {
        const { ts } = await server.ok('tso', {})
        await server.lock(Number(ts), ['p', 'k'])
        const { ts: commitTs } = await server.ok('tso', {})
        await server.ok('commit', { keys: ['p'], start_ts: ts, commit_ts: commitTs })
        await server.ok('resolve_lock', { start_ts: ts, commit_ts: commitTs })
      },
      delete_range: () => server.ok('delete_range', { start: 'j', end: 'l' }),
    }
    for (const [road, change] of Object.entries(roads)) {
      const before = await server.put('k', `before ${road}`)
      const waiting = server.get(`/v1/kv/k?${WAIT}`, tagOf(before))
      await untilWaiting(server, 1)
      await change()
      expect((await waiting).statusCode, road).toBe(road === 'delete_range' ? 404 : 200)
    }
  })

  test('ends with its client, and when the server closes', { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    const socket = connect(port, '127.0.0.1', () => socket.write(`GET /v1/kv/k?${WAIT} HTTP/1.1\r\nHost: x\r\n\r\n`))
    await untilWaiting(server, 1)
    socket.destroy()
    await untilWaiting(server, 0)
    const waiting = server.get(`/v1/kv/k?${WAIT}`)
    await untilWaiting(server, 1)
    await server.app.close()
    expectProblem(await waiting, 'not_found', { commit_ts: 0 })
    expect((await waiting).headers['connection']).toBe('close')
  })

  test('waits for a lock that is in its way, and ends its transaction when it is over', async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const waiting = watch(server.get(`/v1/kv/k?${WAIT}`, tagOf(first)))
    await untilWaiting(server, 1)
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['primary', 'k'], { lock_ttl: 1 })
    const { ts: commitTs } = await server.ok('tso', {})
    await server.ok('commit', { keys: ['primary'], start_ts: ts, commit_ts: commitTs })
    expect(waiting.isSettled()).toBe(false) // Nobody has looked at the lock of k.
    await server.get('/v1/kv/k')
    expect((await waiting.promise).body).toBe(`k@${ts}`)
  })
})

describe('a stream of a key', () => {
  test('begins with the present state, and goes on with the latest', async () => {
    const server = await start()
    const stream = await Stream.open(server, '/v1/kv/a%2Fb')
    expect(stream.status).toBe(200)
    expect(stream.headers).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
      'x-content-type-options': 'nosniff',
    })
    const absent = await stream.expect('absent', { key: 'a/b', commit_ts: 0 })
    expect([absent.id, stream.retry]).toEqual(['0', '1000'])
    const first = await server.put('a/b', 'one')
    expect((await stream.expect('value', { key: 'a/b', value: 'one', commit_ts: first })).id).toBe(`${first}`)
    const binary = await server.put('a/b', Buffer.from([0xff, 0]))
    await stream.expect('value', { value: { base64: '/wA=' }, commit_ts: binary })
    const gone = await server.remove('a/b')
    expect((await stream.expect('absent', { commit_ts: gone })).id).toBe(`${gone}`)
    await server.remove('a/b') // Absent as before.
    const last = await server.put('a/b', '')
    await stream.expect('value', { value: '', commit_ts: last })
    const late = await Stream.open(server, '/v1/kv/a%2Fb')
    await late.expect('value', { value: '', commit_ts: last })
    expect(await watches(server)).toBe(2)
    stream.close()
    late.close()
    await untilWaiting(server, 0)
  })

  test('does not show again what Last-Event-ID names', async () => {
    const server = await start()
    const first = await server.put('k', 'one')
    const accept = 'text/event-stream'
    const same = await Stream.open(server, '/v1/kv/k', { accept, 'last-event-id': `${first}` })
    const other = await Stream.open(server, '/v1/kv/k', { accept, 'last-event-id': `${first - 1}` })
    const later = await Stream.open(server, '/v1/kv/k', { accept, 'last-event-id': `${first + 2 ** 40}` })
    const none = await Stream.open(server, '/v1/kv/k', { accept, 'last-event-id': '' })
    for (const stream of [other, later, none]) await stream.expect('value', { commit_ts: first })
    const second = await server.put('k', 'two')
    for (const stream of [same, other, later, none]) {
      await stream.expect('value', { commit_ts: second })
      stream.close()
    }
    await server.remove('k')
    await untilWaiting(server, 0)
  })

  test.each([
    ['/v1/kv/k?ts=5', {}, 'ts'],
    ['/v1/kv/k?at=2026-01-31T12:00:00Z', {}, 'at'],
    ['/v1/kv/k?wait_ms=5', {}, 'wait_ms'],
    ['/v1/kv/k?lock_wait_ms=5', {}, 'lock_wait_ms'],
    ['/v1/kv/k', { 'if-match': '*' }, 'if-match'],
    ...['x', '-1', '1.5', '1e3', '0x10', '1 2', '99999999999999999', `s.5.${'a'.repeat(8)}`, '1, 2'].map(
      (id): [string, Json, string] => ['/v1/kv/k', { 'last-event-id': id }, 'last-event-id'],
    ),
  ])('%s with %j is 400', async (url, headers, field) => {
    const server = await start()
    const answer = await server.get(url, { accept: 'text/event-stream', ...(headers as Record<string, string>) })
    expectProblem(answer, 'invalid_argument', { field })
  })

  test('is preferred where it is accepted first', async () => {
    const server = await start()
    await server.put('k', 'one')
    for (const accept of ['*/*', 'application/json, text/event-stream', 'text/event-stream;q=0.1, */*'])
      expect((await server.get('/v1/kv/k', { accept })).body).toBe('one')
    for (const accept of ['text/event-stream, */*;q=0.1', 'TEXT/Event-Stream']) {
      const stream = await Stream.open(server, '/v1/kv/k', { accept })
      await stream.expect('value', { value: 'one' })
      stream.close()
    }
  })

  test('of HEAD is its head alone', async () => {
    const server = await start()
    const answer = await server.send('HEAD', '/v1/kv/k', { accept: 'text/event-stream' })
    expect([answer.statusCode, answer.body, answer.headers['content-type']]).toEqual([200, '', 'text/event-stream'])
    expect(await watches(server)).toBe(0)
  })

  test('is no request in flight, and there are so many at most', async () => {
    const server = await start({ limits: { requestsMax: 2, watchesMax: 3 } })
    const streams = [await Stream.open(server, '/v1/kv/a'), await Stream.open(server, '/v1/kv/a')]
    const waiting = server.get(`/v1/kv/b?${WAIT}`)
    await untilWaiting(server, 3)
    const { requests } = okBody(await server.get('/v1/status'))['overload'] as Json
    expect(requests).toBe(0)
    const refused = await server.get('/v1/kv/c', { accept: 'text/event-stream' })
    expectProblem(refused, 'overloaded')
    expect(refused.headers['retry-after']).toBe('1')
    expectProblem(await server.get(`/v1/kv/c?${WAIT}`), 'overloaded')
    expectProblem(await server.get('/v1/kv/c?wait_ms=0'), 'not_found')
    await server.put('b', 'v')
    expect((await waiting).body).toBe('v')
    for (const stream of streams) stream.close()
    await untilWaiting(server, 0)
  })

  test('ends with an error when the server closes', async () => {
    const server = await start()
    const stream = await Stream.open(server, '/v1/kv/k')
    await stream.expect('absent')
    await server.app.close()
    const error = await stream.expect('error', { code: 'overloaded', status: 503 })
    expect(error.id).toBeUndefined()
    expect(await stream.next()).toBeUndefined()
    expect(stream.answer.complete).toBe(true)
  })

  test('of a client that reads nothing holds one state at most, and is cut off', { tags: ['long'] }, async () => {
    const server = await start({ limits: { stalledMsMax: 300 } })
    const port = await server.listen()
    const socket = connect(port, '127.0.0.1')
    socket.pause()
    socket.write('GET /v1/kv/k HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n')
    await untilWaiting(server, 1)
    let held = 0
    for (let i = 0; i < 40; i++) {
      await server.put('k', Buffer.alloc(1_000_000, 0x61 + (i % 26)))
      held = Math.max(held, server.store.answers.heldBytes)
    }
    expect(held).toBeGreaterThan(0)
    expect(held).toBeLessThan(3_000_000)
    await untilWaiting(server, 0)
    expect(server.store.answers.heldBytes).toBe(0)
    socket.destroy()
  })

  test('of a client that reads late shows the latest', { tags: ['long'] }, async () => {
    const server = await start()
    const port = await server.listen()
    const socket = connect(port, '127.0.0.1')
    socket.pause()
    socket.write('GET /v1/kv/k HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n')
    await untilWaiting(server, 1)
    let last = 0
    for (let i = 0; i < 40; i++) last = await server.put('k', Buffer.alloc(1_000_000, 0x61 + (i % 26)))
    const text = await textUntil(socket, `id: ${last}\n\n`)
    const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
    expect(ids.length).toBeLessThan(30)
    expect([...ids].sort((a, b) => a - b)).toEqual(ids)
    socket.destroy()
  })
})

function textUntil(socket: Socket, end: string): Promise<string> {
  return new Promise((resolve) => {
    const pieces: string[] = []
    let tail = ''
    socket.setEncoding('latin1')
    socket.on('data', (piece: string) => {
      pieces.push(piece)
      tail = (tail + piece).slice(-200 - end.length)
      if (tail.includes(end)) resolve(pieces.join(''))
    })
    socket.resume()
  })
}

describe('with tokens', () => {
  const RW = 'rw-token-0123456789'
  const APP = 'app-token-0123456789'
  const as = (token: string) => ({ authorization: `Bearer ${token}` })
  const everything = new Grant({ mayWrite: true })

  test('a key is watched by those who reach it', async () => {
    const server = await start({ tokens: `rw ${RW}\nro ${APP} prefix=app/\n` })
    for (const headers of [{}, { accept: 'text/event-stream' }]) {
      const url = 'accept' in headers ? '' : `?wait_ms=1`
      expectProblem(await server.get(`/v1/kv/app%2Fk${url}`, headers), 'unauthorized')
      expectProblem(await server.get(`/v1/kv/else${url}`, { ...headers, ...as(APP) }), 'forbidden', { field: 'key' })
    }
    const stream = await Stream.open(server, '/v1/kv/app%2Fk', { accept: 'text/event-stream', ...as(APP) })
    await stream.expect('absent', { key: 'app/k' })
    stream.close()
  })

  test('a watch ends when its token is not known any more, or does not reach the key any more', async () => {
    const limits = { ...DEFAULT_LIMITS, loopDelayMsMax: 0 }
    const grants = new Map([RW, APP, 'both'].map((token) => [token, everything]))
    let changed = (): void => {}
    const server = await serve(await openMemoryStore({ answers: new AnswerBudget(limits) }), '', {
      limits,
      authenticate: (token) => grants.get(token),
      onTokens: (listener) => {
        changed = listener
      },
    })
    try {
      const open = (token: string) => Stream.open(server, '/v1/kv/k', { accept: 'text/event-stream', ...as(token) })
      const [kept, unknown, narrowed] = [await open('both'), await open(RW), await open(APP)]
      for (const stream of [kept, unknown, narrowed]) await stream.expect('absent')
      const polls = [RW, APP].map((token) => server.get(`/v1/kv/k?${WAIT}`, as(token)))
      await untilWaitingAs(server, 5, as('both'))
      grants.delete(RW)
      grants.set(APP, new Grant({ mayWrite: true, prefixes: [Buffer.from('app/')] }))
      changed()
      await unknown.expect('error', { code: 'unauthorized' })
      await narrowed.expect('error', { code: 'forbidden', field: 'key' })
      expect([await unknown.next(), await narrowed.next()]).toEqual([undefined, undefined])
      const [lost, outside] = await Promise.all(polls)
      expectProblem(lost as never, 'unauthorized')
      expectProblem(outside as never, 'forbidden')
      const commitTs = await server.put('k', 'v', as('both'))
      await kept.expect('value', { commit_ts: commitTs })
      kept.close()
    } finally {
      await server.app.close()
      await server.database.close()
    }
  })

  async function untilWaitingAs(server: TestServer, count: number, headers: Record<string, string>): Promise<void> {
    await vi.waitFor(
      async () => expect(numberOf(okBody(await server.get('/v1/status', headers)), 'watches')).toBe(count),
      { interval: 5 },
    )
  }
})

test('many watchers of one key are told by one read, in slices', { tags: ['long'] }, async () => {
  const server = await start()
  const streams = await Promise.all(Array.from({ length: 100 }, () => Stream.open(server, urlOf('k'))))
  for (const stream of streams) await stream.expect('absent')
  const commitTs = await server.put('k', 'v')
  for (const stream of streams) {
    await stream.expect('value', { commit_ts: commitTs })
    stream.close()
  }
})
