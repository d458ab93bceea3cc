import { once } from 'node:events'
import { Agent, get, type IncomingMessage } from 'node:http'
import { connect as connectSocket, type Socket } from 'node:net'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { connect } from '../../../src/client/index.js'
import { TappedEngine } from '../../store/support.js'
import {
  Clock,
  expectProblem,
  type Json,
  okBody,
  rawRequest,
  rawText,
  type TestServer,
  testServers,
} from '../support.js'

const start = testServers()
const KIB = 1024

const sockets: { destroy(): void }[] = []
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})

async function open(port: number, text: string): Promise<Socket> {
  const socket = connectSocket(port, '127.0.0.1')
  socket.on('error', () => {})
  sockets.push(socket)
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

const eventually = (check: () => Promise<void>): Promise<void> => vi.waitFor(check, { timeout: 30_000 })

async function overloadOf(server: TestServer): Promise<Json> {
  return okBody(await server.get('/v1/status'))['overload'] as Json
}

/** Nothing is in flight and nothing is held. */
async function expectIdle(server: TestServer): Promise<void> {
  const idle = {
    requests: 0,
    receiving: 0,
    body_bytes: 0,
    answer_bytes: 0,
    queued_batches: 0,
    queued_bytes: 0,
    streams: 0,
    ...(server.store.traits.lockCount && { locks: 0 }),
  }
  await eventually(async () => expect(await overloadOf(server)).toMatchObject(idle))
}

function expectShed(answer: Awaited<ReturnType<TestServer['get']>>): void {
  expectProblem(answer, 'overloaded')
  expect(answer.headers['retry-after']).toBe('1')
}

/** An engine whose writes wait for `release`. */
function heldEngine() {
  const engine = new TappedEngine()
  let isHeld = false
  let held: (() => void)[] = []
  engine.onWrite = async (_, land) => {
    if (isHeld) await new Promise<void>((go) => held.push(go))
    return land()
  }
  return {
    engine,
    hold: () => {
      isHeld = true
    },
    release: () => {
      isHeld = false
      for (const go of held) go()
      held = []
    },
  }
}

describe('a write queue that is full', () => {
  test('sheds writes alone, loses nothing that was acknowledged, and is itself again', async () => {
    const { engine, hold, release } = heldEngine()
    const { now } = new Clock() // As time stands still, the oracle does not save its mark among the writes that are counted.
    const server = await start({ limits: { writeQueueMax: 3 }, openEngine: engine.open, now })
    await server.put('before', '1')
    const begun = await server.post('/v1/txn/begin', {})
    const txn = `/v1/txn/${begun.json<Json>()['txn']}`
    hold()
    const admitted = []
    for (const key of ['a', 'b', 'c']) {
      admitted.push(server.send('PUT', `/v1/kv/${key}`, {}, key))
      const n = admitted.length
      const isIn = { requests: n, queued_batches: n, body_bytes: n }
      await eventually(async () => expect(await overloadOf(server)).toMatchObject(isIn))
    }
    expectShed(await server.send('PUT', '/v1/kv/shed', {}, 'v'))
    expectShed(await server.post('/v1/txn', { ops: [{ op: 'put', key: 'shed', value: 'v' }] }))
    const mutations = [{ op: 'put', key: 'shed', value: 'v' }]
    expectShed(await server.call('prewrite', { mutations, primary: 'shed', start_ts: 5 }))

    expect((await server.get('/v1/kv/before')).body).toBe('1')
    okBody(await server.get('/v1/kv?prefix=before'))
    okBody(await server.get('/livez'))
    okBody(await server.get('/readyz'))
    okBody(await server.send('PUT', `${txn}/kv/in-txn`, {}, 'v'))
    const commit = server.post(`${txn}/commit`, {})
    await engine.quiet()

    release()
    for (const answer of await Promise.all([...admitted, commit])) okBody(answer)
    for (const key of ['a', 'b', 'c']) expect((await server.get(`/v1/kv/${key}`)).body).toBe(key)
    expect((await server.get('/v1/kv/in-txn')).body).toBe('v')
    expect((await server.get('/v1/kv/shed')).statusCode).toBe(404)
    await server.put('shed', 'now')
    await expectIdle(server)
    expect(await overloadOf(server)).toMatchObject({ shed: 3 })
  })

  test('a batch that fails leaves the queue too', async () => {
    const engine = new TappedEngine()
    const server = await start({ openEngine: engine.open })
    engine.onWrite = () => Promise.reject(Object.assign(new Error('no'), { code: 'LEVEL_IO_ERROR' }))
    expect((await server.send('PUT', '/v1/kv/a', {}, 'v')).statusCode).toBe(503)
    await expectIdle(server)
  })

  test('a client that coordinates its transaction gets through', { tags: ['long'] }, async () => {
    const { engine, hold, release } = heldEngine()
    const server = await start({ limits: { writeQueueMax: 1 }, openEngine: engine.open })
    const port = await server.listen()
    let shed = 0
    const fetchAndRelease: typeof fetch = async (url, init) => {
      const response = await fetch(url, init)
      if (response.status === 503 && shed++ === 0) release()
      return response
    }
    const db = connect(`http://127.0.0.1:${port}`, { fetch: fetchAndRelease as never })
    await db.put('seen', 'yes')
    hold()
    const blocking = server.send('PUT', '/v1/kv/slow', {}, 'v')
    await engine.quiet()
    await db.transaction(async (txn) => {
      await txn.put('a', '1')
      await txn.put('b', '2')
    })
    expect(shed).toBeGreaterThan(0)
    okBody(await blocking)
    expect((await server.get('/v1/kv/a')).body + (await server.get('/v1/kv/b')).body).toBe('12')
    await db.close()
    await expectIdle(server)
  })
})

test('requests that wait for a lock are bounded, and the commit that they wait for is not shed', async () => {
  const server = await start({ limits: { requestsMax: 3 } })
  const ts = Number((await server.ok('tso', {}))['ts'])
  await server.lock(ts, ['k'], { lock_ttl: 60_000 })
  const readAt = Number((await server.ok('tso', {}))['ts'])
  const waiting = Array.from({ length: 3 }, () => server.get(`/v1/kv/k?ts=${readAt}&lock_wait_ms=60000`))
  await eventually(async () => expect(await overloadOf(server)).toMatchObject({ requests: 3 }))
  expectShed(await server.get('/v1/kv/other'))
  expectShed(await server.call('tso', {}))
  okBody(await server.call('txn_heart_beat', { primary: 'k', start_ts: ts, advise_lock_ttl: 60_000 }))
  okBody(await server.call('commit', { keys: ['k'], start_ts: ts, commit_ts: ts + 1 }))
  for (const answer of await Promise.all(waiting)) expect(answer.body).toBe(`k@${ts}`)
  await expectIdle(server)
})

describe('bodies', () => {
  const limits = { bodiesBytesMax: 100 * KIB, bodyBytesMax: 300 * KIB, valueBytesMax: 300 * KIB }
  const long = (bytes: number) => Buffer.alloc(bytes, 'v')

  test('are bounded together before they are read; one alone always fits', async () => {
    const { engine, hold, release } = heldEngine()
    const server = await start({ limits, openEngine: engine.open })
    await server.put('alone', long(200 * KIB))
    const port = await server.listen()
    hold()
    const first = server.send('PUT', '/v1/kv/a', {}, long(60 * KIB))
    await engine.quiet()
    expectShed(await server.send('PUT', '/v1/kv/b', {}, long(60 * KIB)))
    // Its body does not come, and the answer does all the same.
    const early = await open(port, rawText('PUT /v1/kv/b', ['Content-Length: 61440']))
    expect(String((await once(early, 'data'))[0])).toMatch(/^HTTP\/1.1 503 [\s\S]*retry-after: 1\r\n/)
    const chunk = `F000\r\n${long(60 * KIB)}\r\n0\r\n\r\n`
    const chunked = `${rawText('PUT /v1/kv/b', ['Transfer-Encoding: chunked'])}${chunk}`
    expect(await rawRequest(port, chunked)).toMatchObject({ status: 503, body: expect.stringContaining('overloaded') })
    const small = server.send('PUT', '/v1/kv/c', {}, long(KIB))
    await engine.quiet()
    release()
    okBody(await first)
    okBody(await small)
    expect(await rawRequest(port, chunked)).toMatchObject({ status: 200 })
    await expectIdle(server)
  })

  test('that stop halfway are forgotten', async () => {
    const server = await start({ limits })
    const port = await server.listen()
    const announced = await open(port, `${rawText('PUT /v1/kv/a', ['Content-Length: 50000'])}half`)
    const chunked = await open(port, `${rawText('PUT /v1/kv/a', ['Transfer-Encoding: chunked'])}4\r\nhalf\r\n`)
    await eventually(async () =>
      expect(await overloadOf(server)).toMatchObject({ requests: 0, receiving: 2, body_bytes: 8 }),
    )
    announced.destroy()
    chunked.destroy()
    await expectIdle(server)
  })

  test('that were shed do not stand in the way of what follows on their connection', async () => {
    const { engine, hold, release } = heldEngine()
    const server = await start({ limits, openEngine: engine.open })
    const port = await server.listen()
    hold()
    const first = server.send('PUT', '/v1/kv/a', {}, long(60 * KIB))
    await engine.quiet()
    const shed = `PUT /v1/kv/b HTTP/1.1\r\nHost: x\r\nContent-Length: ${60 * KIB}\r\n\r\n${long(60 * KIB)}`
    const { body } = await rawRequest(port, shed + rawText('GET /livez'))
    expect(body).toContain('HTTP/1.1 200')
    release()
    okBody(await first)
    await expectIdle(server)
  })
})

describe('clients that do not read', () => {
  const MIB = 1024 * KIB
  /** More than the system takes off the server's hands for one connection. */
  const ANSWER = rawText('GET /v1/kv?limit=16')

  async function filled(limits: Parameters<typeof start>[0] extends infer O ? NonNullable<O> : never) {
    const server = await start({ ...limits, limits: { pageBytesMax: 16 * MIB, ...limits.limits } })
    for (let i = 0; i < 16; i++) await server.put(`k${i}`, Buffer.alloc(MIB, 'v'))
    return { server, port: await server.listen() }
  }

  test('are cut off, and until then what they were answered counts', { tags: ['long'] }, async () => {
    const { server, port } = await filled({ limits: { answersBytesMax: MIB, stalledMsMax: 500 } })
    const deaf = await open(port, ANSWER)
    deaf.pause()
    await eventually(async () => expect(Number((await overloadOf(server))['answer_bytes'])).toBeGreaterThan(MIB))
    expectShed(await server.get('/v1/kv?limit=16'))
    expectShed(await server.get('/v1/kv/k1'))
    await expectIdle(server)
    expect((await server.get('/v1/kv/k1')).statusCode).toBe(200)
  })

  test('behind an answer that they do not take, when they hang up', { tags: ['long'] }, async () => {
    const { server, port } = await filled({})
    const deaf = await open(port, `GET /v1/kv?limit=16 HTTP/1.1\r\nHost: x\r\n\r\n${ANSWER}`)
    deaf.pause()
    await eventually(async () => expect(Number((await overloadOf(server))['answer_bytes'])).toBeGreaterThan(30 * MIB))
    deaf.destroy()
    await expectIdle(server)
  })

  test('of streams behind an answer that waits, when they hang up: nothing is held, garbage neither', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    const port = await server.listen()
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['z'], { lock_ttl: 600_000 })
    const lines = [
      `GET /v1/kv/z?ts=${Number(ts) + 1}&lock_wait_ms=600000 HTTP/1.1\r\nHost: x\r\n\r\n`,
      'GET /v1/kv?end=z HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n',
      `GET /v1/admin/backup?ts=${Number(ts) - 1} HTTP/1.1\r\nHost: x\r\n\r\n`, // It can be sent at once.
      'GET /v1/admin/backup HTTP/1.1\r\nHost: x\r\n\r\n', // It waits for the lock, and is sent to nobody.
    ]
    const gone = await open(port, lines.join(''))
    await eventually(async () => expect(await overloadOf(server)).toMatchObject({ streams: 3, requests: 2 }))
    gone.destroy()
    await eventually(async () => expect(await overloadOf(server)).toMatchObject({ streams: 0 }))
    await server.ok('cleanup', { key: 'z', start_ts: ts, current_ts: 0 })
    await expectIdle(server)
    const collected = okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))
    expect(collected['held_back_by']).toBeUndefined()
  })

  test.each(['limit=5', 'count_only=true'])(
    'of %s, which are read when they hang up: no snapshot stays held',
    async (query) => {
      const server = await start()
      const port = await server.listen()
      const heard = new Promise<void>((resolve) => {
        server.app.server.once('request', (_request, answer) => answer.once('close', resolve))
      })
      await server.put('a', 'v')
      const scan = server.store.scan.bind(server.store)
      let goOn: () => void = () => {}
      const held = new Promise<void>((resolve) => {
        goOn = resolve
      })
      let isRead = false
      server.store.scan = async (request) => {
        isRead = true
        await held
        return scan(request)
      }
      const gone = await open(port, rawText(`GET /v1/kv?${query}`))
      await eventually(async () => expect(isRead).toBe(true))
      gone.resetAndDestroy() // A connection whose client only ends its side stays open for the answer.
      await heard
      goOn()
      await expectIdle(server)
      await eventually(async () => {
        const collected = okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))
        expect(collected['held_back_by']).toBeUndefined()
      })
    },
  )

  test('a connection keeps nothing of the long answers that it has brought', { tags: ['long'] }, async () => {
    const { server, port } = await filled({})
    const listeners: number[] = []
    server.app.server.on('request', ({ socket }) => listeners.push(socket.listenerCount('close')))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    sockets.push(agent)
    for (let i = 0; i < 5; i++) {
      const [answer] = await once(get({ port, path: '/v1/kv/k1', agent }), 'response')
      await once(answer.resume(), 'end')
    }
    expect(listeners[4]).toBe(listeners[1])
  })

  test('and break off in the middle of a stream: nothing is said within it, but behind it', {
    tags: ['long'],
  }, async () => {
    const { server, port } = await filled({})
    const odd = await open(port, rawText('GET /v1/kv', ['Accept: application/x-ndjson']).replace('close', 'keep-alive'))
    const chunks: Buffer[] = []
    odd.on('data', (chunk) => chunks.push(chunk))
    await once(odd, 'data')
    odd.pause()
    const malformed = once(server.app.server, 'clientError')
    odd.write('no HTTP\r\n\r\n')
    await malformed
    odd.resume()
    await once(odd, 'close')
    const text = Buffer.concat(chunks).toString('latin1')
    expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
    expect(text).toContain('\r\n0\r\n\r\nHTTP/1.1 400')
  })

  test('of streams: there are only so many, and a stream that ends makes room', { tags: ['long'] }, async () => {
    const { server, port } = await filled({ limits: { streamsMax: 1 } })
    const stream = (): Promise<IncomingMessage> =>
      new Promise((resolve, reject) => {
        const request = get(
          { port, path: '/v1/kv', headers: { accept: 'application/x-ndjson' }, agent: false },
          resolve,
        )
        sockets.push(request)
        request.on('error', reject)
      })
    const first = await stream()
    expect(first.statusCode).toBe(200)
    const second = await stream()
    expect([second.statusCode, second.headers['retry-after']]).toEqual([503, '1'])
    second.resume()
    first.on('error', () => {})
    first.destroy()
    await expectIdle(server)
    const third = await stream()
    expect(third.statusCode).toBe(200)
    third.resume()
    await once(third, 'end')
    await expectIdle(server)
  })
})

describe('open transactions', () => {
  const begin = async (server: TestServer): Promise<string> => {
    const answer = await server.post('/v1/txn/begin', {})
    expect(answer.statusCode, answer.body).toBe(201)
    return `/v1/txn/${answer.json<Json>()['txn']}`
  }

  test('so many, begun at once too', async () => {
    const server = await start({ limits: { txnsMax: 2 } })
    const begun = await Promise.all([1, 2, 3].map(() => server.post('/v1/txn/begin', {})))
    expect(begun.map(({ statusCode }) => statusCode).sort()).toEqual([201, 201, 503])
    const [txn] = begun.flatMap((answer) => (answer.statusCode === 201 ? [answer.json<Json>()['txn']] : []))
    expectShed(await server.post('/v1/txn/begin', {}))
    okBody(await server.post(`/v1/txn/${txn}/rollback`, {}))
    await begin(server)
  })

  test('so many bytes each, and in all', async () => {
    const server = await start({ limits: { txnBytesMax: 800, txnsBytesMax: 1000 } })
    const [one, two] = [await begin(server), await begin(server)]
    okBody(await server.send('PUT', `${one}/kv/a`, {}, 'v'.repeat(600)))
    expectProblem(await server.send('PUT', `${one}/kv/b`, {}, 'v'.repeat(600)), 'payload_too_large', { limit: 800 })
    okBody(await server.send('PUT', `${two}/kv/b`, {}, 'v'.repeat(600)))
    expectShed(await server.send('PUT', `${two}/kv/c`, {}, 'v'))
    expectShed(await server.post('/v1/txn/begin', {}))
    okBody(await server.post(`${one}/commit`, {}))
    okBody(await server.send('PUT', `${two}/kv/c`, {}, 'v'))
    okBody(await server.post(`${two}/rollback`, {}))
    expect(await overloadOf(server)).toMatchObject({ transaction_bytes: 0 })
  })
})

describe('limits of one request', () => {
  test('its keys', async () => {
    const server = await start({ limits: { requestKeysMax: 3 } })
    const keys = ['a', 'b', 'c', 'd']
    const field = { field: 'keys', limit: 3 }
    expectProblem(await server.post('/v1/kv/batch_get', { keys }), 'payload_too_large', field)
    okBody(await server.post('/v1/kv/batch_get', { keys: keys.slice(1) }))
    expectProblem(await server.call('rollback', { keys, start_ts: 5 }), 'payload_too_large', field)
    const ops = keys.map((key) => ({ op: 'get', key }))
    expectProblem(await server.post('/v1/txn', { ops }), 'payload_too_large', { field: 'ops', limit: 3 })
  })

  test('the pairs of a scan', async () => {
    const server = await start({ limits: { scanLimitMax: 3 } })
    expectProblem(await server.get('/v1/kv?limit=4'), 'invalid_argument', { field: 'limit' })
    okBody(await server.get('/v1/kv?limit=3'))
    const ops = [{ op: 'scan', limit: 4 }]
    expectProblem(await server.post('/v1/txn', { ops }), 'invalid_argument', { field: 'ops[0].limit' })
  })

  test('the bytes of an answer, of one key’s history and of locks too', async () => {
    const server = await start({ limits: { answerBytesMax: 5000, pageBytesMax: 2000 } })
    for (let i = 0; i < 3; i++) await server.put('k', 'v'.repeat(1600))
    for (const key of ['a', 'b', 'c']) await server.put(key, 'v'.repeat(1600))
    const ts = Number((await server.ok('tso', {}))['ts'])
    expectProblem(await server.call('scan', { limit: 10, ts }), 'payload_too_large', { limit: 5000 })
    expectProblem(await server.call('batch_get', { keys: ['a', 'b', 'c'], ts }), 'payload_too_large')
    expectProblem(await server.call('mvcc_get_by_key', { key: 'k' }), 'payload_too_large')
    expect(okBody(await server.get('/v1/kv'))['pairs']).toHaveLength(2)
    await server.lock(
      ts,
      Array.from({ length: 40 }, (_, i) => `lock${i}`),
    )
    expectProblem(await server.call('scan_lock', { max_ts: ts }), 'payload_too_large')
    expect((await server.ok('scan_lock', { max_ts: ts, limit: 10 }))['locks']).toHaveLength(10)
  })
})

test('transactions that scan under latches, and mvcc calls that wait for those, do not wait for each other for ever', async () => {
  const server = await start()
  const both = Array.from({ length: 30 }, (_, i) => [
    server.post('/v1/txn', { ops: [{ op: 'scan' }, { op: 'put', key: 'k', value: `${i}` }] }),
    server.call('mvcc_get_by_key', { key: 'k' }),
  ])
  for (const answer of await Promise.all(both.flat())) okBody(answer)
  await expectIdle(server)
})

describe('connections', () => {
  test('there are only so many', async () => {
    const server = await start({ limits: { connectionsMax: 1 } })
    const port = await server.listen()
    await open(port, '')
    const turnedAway = await open(port, 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n')
    await once(turnedAway, 'close')
  })

  const slow: readonly (readonly [name: string, text: string, limits: Json])[] = [
    ['headers', 'GET /livez HTTP/1.1\r\nHost: x\r\n', { headerMsMax: 200 }],
    ['a body', rawText('PUT /v1/kv/a', ['Content-Length: 10']), { headerMsMax: 200, requestMsMax: 200 }],
  ]
  for (const [name, text, limits] of slow) {
    test(`${name} without an end`, { tags: ['long'] }, async () => {
      const server = await start({ limits })
      const port = await server.listen()
      expect((await rawRequest(port, text)).status).toBe(408)
      await expectIdle(server)
    })
  }

  const RESTORE = 'POST /v1/admin/restore HTTP/1.1\r\nHost: x\r\nConnection: close\r\n'

  test('a restore takes its time where another body may not', { tags: ['long'] }, async () => {
    const server = await start({ limits: { requestMsMax: 200 } })
    const port = await server.listen()
    const { rawPayload: backup } = await server.get('/v1/admin/backup')
    const slow = await open(port, `${RESTORE}Content-Length: ${backup.length}\r\n\r\n`)
    const late = await open(port, 'PUT /v1/kv/k HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n')
    const [refused] = await once(late, 'data')
    expect(String(refused)).toMatch(/^HTTP\/1.1 408 .*nosniff/s)
    slow.write(backup)
    const [answered] = await once(slow, 'data')
    expect(String(answered)).toMatch(/^HTTP\/1.1 200 /)
  })

  test('a restore that stops is cut off', async () => {
    const server = await start({ limits: { stalledMsMax: 200 } })
    const stopped = await open(await server.listen(), `${RESTORE}Content-Length: 1000\r\n\r\nPERKV`)
    await once(stopped.resume(), 'close')
    await expectIdle(server)
  })

  test('idle between requests', { tags: ['long'] }, async () => {
    const server = await start({ limits: { idleMsMax: 100 } })
    const port = await server.listen()
    expect((await rawRequest(port, 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n')).status).toBe(200)
  })
})
