import { once } from 'node:events'
import { connect } from 'node:net'
import { afterEach, expect, test, vi } from 'vitest'
import { Grant } from '../../../src/access/grant.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { openMemoryStore } from '../../../src/store/leveldb/leveldb-store.js'
import { expectProblem, type Json, numberOf, okBody, type Sent, sendTo, serve, type TestServer } from '../support.js'

const PATIENT = { timeout: 30_000, interval: 5 }
const ADMIN = { authorization: 'Bearer admin' }
const APP = { authorization: 'Bearer app' }
const WAIT = 'lock_wait_ms=60000'

const running: TestServer[] = []
afterEach(async () => {
  for (const { app, database } of running.splice(0)) {
    await app.close()
    await database.close()
  }
})

/** A server that knows the tokens `admin` and `app`, and on which `z` is locked. */
async function start() {
  const limits = { ...DEFAULT_LIMITS, loopDelayMsMax: 0 }
  const grants = new Map(['admin', 'app'].map((token) => [token, new Grant({ mayWrite: true, identity: token })]))
  let changed = (): void => {}
  const server = await serve(await openMemoryStore({ answers: new AnswerBudget(limits) }), '', {
    limits,
    authenticate: (token) => grants.get(token),
    onTokens: (listener) => {
      changed = listener
    },
  })
  running.push(server)
  const ask = async (url: string, body: unknown, headers = ADMIN): Promise<Json> =>
    okBody(await server.post(url, body, headers))
  const ts = numberOf(await ask('/v1/percolator/tso', {}), 'ts')
  const mutations = [{ op: 'put', key: 'z', value: 'old' }]
  await ask('/v1/percolator/prewrite', { mutations, primary: 'z', start_ts: ts, lock_ttl: 600_000 })
  return {
    server,
    ts,
    ask,
    port: await server.listen(),
    unlock: () => ask('/v1/percolator/rollback', { keys: ['z'], start_ts: ts }),
    change(grant: Grant | undefined): void {
      if (grant === undefined) grants.delete('app')
      else grants.set('app', grant)
      changed()
    },
    async untilWaiting(requests: Json): Promise<void> {
      const overload = async () => okBody(await server.get('/v1/status', ADMIN))['overload']
      await vi.waitFor(async () => expect(await overload()).toMatchObject(requests), PATIENT)
    },
  }
}

type Started = Awaited<ReturnType<typeof start>>
const read = (grant: Grant | undefined): string => (grant === undefined ? 'unauthorized' : 'forbidden')

const WAITS: Record<string, (started: Started) => Promise<Pick<Sent, 'statusCode' | 'body'>>> = {
  'a PUT': ({ server }) => server.send('PUT', `/v1/kv/z?${WAIT}`, APP, 'v'),
  'a PUT in the fast lane': async ({ port }) => {
    const { status, body } = await sendTo({ port }, 'PUT', '/v1/kv/z', { ...APP, connection: 'keep-alive' }, 'v')
    return { statusCode: status, body }
  },
  'a PUT with a deadline': ({ server }) => server.send('PUT', `/v1/kv/z?${WAIT}&timeout_ms=60000`, APP, 'v'),
  'a GET': ({ server, ts }) => server.get(`/v1/kv/z?ts=${ts + 1}&${WAIT}`, APP),
  'a scan': ({ server, ts }) => server.get(`/v1/kv?ts=${ts + 1}&${WAIT}`, APP),
  'a count': ({ server, ts }) => server.get(`/v1/kv?count_only=true&ts=${ts + 1}&${WAIT}`, APP),
  'a range delete': ({ server }) => server.send('DELETE', `/v1/kv?prefix=z&${WAIT}`, APP),
  batch_get: ({ server, ts }) => server.post(`/v1/kv/batch_get?${WAIT}`, { keys: ['z'], ts: ts + 1 }, APP),
  'a one-shot transaction': ({ server }) => server.post('/v1/txn', { ops: [{ op: 'put', key: 'z', value: 'v' }] }, APP),
  'a read for update': async ({ server, ask }) => {
    const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' }, APP)).json<Json>()
    await ask(`/v1/txn/${txn}/ops`, { ops: [] }, APP)
    return server.get(`/v1/txn/${txn}/kv/z?for_update=true&${WAIT}`, APP)
  },
  'a PUT of a transaction': async ({ server }) => {
    const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' }, APP)).json<Json>()
    return server.send('PUT', `/v1/txn/${txn}/kv/z?${WAIT}`, APP, 'v')
  },
}

for (const grant of [undefined, new Grant({ mayWrite: false, identity: 'less' })])
  test.each(Object.entries(WAITS))(`%s that waits ends with its token: ${read(grant)}`, async (_, wait) => {
    const started = await start()
    const { server, ask, unlock, change, untilWaiting } = started
    const waiting = wait(started)
    await untilWaiting({ requests: 1 })
    change(grant)
    const { statusCode, body } = await waiting
    expect([statusCode, (JSON.parse(body) as Json)['code']]).toEqual([grant === undefined ? 401 : 403, read(grant)])
    await unlock()
    await untilWaiting({ requests: 0 })
    const { writes, lock } = await ask('/v1/percolator/mvcc_get_by_key', { key: 'z' })
    expect({ writes, lock }).toMatchObject({ writes: [{ type: 'rollback' }], lock: null })
    await server.put('z', 'new', ADMIN)
  })

test('acquire_pessimistic_lock, which waits for another such lock', async () => {
  const { server, ask, unlock, change, untilWaiting } = await start()
  await unlock()
  const acquire = async (headers: typeof APP) => {
    const start_ts = numberOf(await ask('/v1/percolator/tso', {}), 'ts')
    const request = {
      keys: ['z'],
      primary: 'z',
      start_ts,
      for_update_ts: start_ts,
      wait_timeout: 60_000,
      lock_ttl: 600_000,
    }
    return [server.post('/v1/percolator/acquire_pessimistic_lock', request, headers), start_ts] as const
  }
  const [held, first] = await acquire(ADMIN)
  okBody(await held)
  const [waiting] = await acquire(APP)
  await untilWaiting({ requests: 1 })
  change(undefined)
  expectProblem(await waiting, 'unauthorized')
  await ask('/v1/percolator/pessimistic_rollback', { keys: ['z'], start_ts: first, for_update_ts: first })
  expect(await ask('/v1/percolator/mvcc_get_by_key', { key: 'z' })).toMatchObject({ lock: null })
})

test('a claim, which is given nothing that is written after', async () => {
  const { server, ask, change, untilWaiting } = await start()
  const put = { ...ADMIN, 'content-type': 'application/json' }
  expect((await server.send('PUT', '/v1/observers/o', put, '{"prefix":"o"}')).statusCode).toBe(201)
  const waiting = server.post('/v1/observers/o/claim', { worker: 'w', lease_ms: 60_000, wait_ms: 60_000 }, APP)
  await untilWaiting({ watches: 1 })
  change(new Grant({ mayWrite: true, prefixes: [Buffer.from('app/')], identity: 'less' }))
  expectProblem(await waiting, 'forbidden')
  await server.put('o1', 'v', ADMIN)
  await vi.waitFor(async () => {
    const claim = await ask('/v1/observers/o/claim', { worker: 'w2', lease_ms: 60_000 })
    expect(claim['notifications']).toMatchObject([{ key: 'o1', attempt: 1 }])
  }, PATIENT)
})

test('a repeat that waits for the first request with its Idempotency-Key, whose answer it does not get', async () => {
  const { server, change, untilWaiting, unlock } = await start()
  const put = (headers: typeof APP) =>
    server.send('PUT', `/v1/kv/z?${WAIT}`, { ...headers, 'idempotency-key': 'once' }, 'v')
  change(new Grant({ mayWrite: true, identity: 'admin' })) // Both have the same outcomes.
  const first = put(ADMIN)
  await untilWaiting({ requests: 1 })
  const repeat = put(APP)
  await untilWaiting({ requests: 2 })
  change(undefined)
  await unlock()
  okBody(await first)
  expectProblem(await repeat, 'unauthorized')
  expect((await put(ADMIN)).headers['idempotency-replayed']).toBe('true')
})

test('a body that arrives slowly', async () => {
  const { server, port, change, untilWaiting } = await start()
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(`PUT /v1/kv/b?${WAIT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer app\r\ncontent-length: 2\r\n\r\nv`)
  await untilWaiting({ receiving: 1 })
  change(undefined)
  socket.write('v')
  const [answer] = await once(socket, 'data')
  expect(String(answer)).toMatch(/^HTTP\/1.1 401 /)
  socket.destroy()
  expectProblem(await server.get('/v1/kv/b', ADMIN), 'not_found')
})

test('a restore, in the middle of its body', async () => {
  const { server, port, change, untilWaiting, unlock } = await start()
  await unlock()
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  const head =
    'POST /v1/admin/restore HTTP/1.1\r\nhost: x\r\nauthorization: Bearer app\r\ntransfer-encoding: chunked\r\n\r\n'
  socket.write(`${head}3\r\nper\r\n`)
  await untilWaiting({ receiving: 1 })
  change(undefined)
  socket.write('5\r\nkv...\r\n0\r\n\r\n')
  const [answer] = await once(socket, 'data')
  expect(String(answer)).toMatch(/^HTTP\/1.1 401 /)
  socket.destroy()
  expect((await server.get('/readyz')).statusCode).toBe(200)
})

test('who keeps all rights waits on, and so does who gets more', async () => {
  const started = await start()
  const { change, unlock, untilWaiting, server } = started
  change(new Grant({ mayWrite: true, prefixes: [Buffer.from('z')], identity: 'few' }))
  const waiting = server.send('PUT', `/v1/kv/z?${WAIT}`, APP, 'v')
  await untilWaiting({ requests: 1 })
  change(new Grant({ mayWrite: true, identity: 'all' }))
  await unlock()
  okBody(await waiting)
})
