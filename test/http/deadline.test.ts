import { describe, expect, test } from 'vitest'
import { deferred, TappedEngine, WriteGate } from '../store/support.js'
import { expectProblem, type Json, numberOf, okBody, type Sent, type TestServer, testServers } from './support.js'

const start = testServers()

/** Time that no test waits for. */
const LONG = 'lock_wait_ms=60000'
const SHORT = 'timeout_ms=20'

const READS: Readonly<Record<string, (server: TestServer, query: string) => Promise<Sent>>> = {
  GET: (server, query) => server.get(`/v1/kv/b?${query}`),
  scan: (server, query) => server.get(`/v1/kv?start=b&${query}`),
  count: (server, query) => server.get(`/v1/kv?count_only&start=b&${query}`),
  NDJSON: (server, query) => server.get(`/v1/kv?start=b&${query}`, { accept: 'application/x-ndjson' }),
  batch_get: (server, query) => server.post(`/v1/kv/batch_get?${query}`, { keys: ['b'] }),
}
const WRITES: typeof READS = {
  PUT: (server, query) => server.send('PUT', `/v1/kv/b?${query}`, {}, 'mine'),
  'conditional PUT': (server, query) => server.send('PUT', `/v1/kv/b?${query}`, { 'if-match': '*' }, 'mine'),
  'PUT under an Idempotency-Key': (server, query) =>
    server.send('PUT', `/v1/kv/b?${query}`, { 'idempotency-key': 'once' }, 'mine'),
  DELETE: (server, query) => server.send('DELETE', `/v1/kv/b?${query}`),
}
const OTHERS: typeof READS = {
  'POST /v1/txn': (server, query) => server.post(`/v1/txn?${query}`, { ops: [{ op: 'put', key: 'b', value: 'mine' }] }),
  'Percolator get': (server, query) => server.post(`/v1/percolator/get?${query}`, { key: 'b' }),
  'Percolator lock': (server, query) =>
    server.post(`/v1/percolator/acquire_pessimistic_lock?${query}`, {
      ...{ keys: ['b'], primary: 'b', start_ts: 7, for_update_ts: 7, wait_timeout: 60_000 },
    }),
}

describe('timeout_ms', () => {
  for (const [name, send] of Object.entries({ ...READS, ...WRITES, ...OTHERS }))
    test(`${name}: from 1 to 600000, whole, and once`, async () => {
      const server = await start()
      for (const given of ['0', '601000', '1.5', '-1', '', 'soon'])
        expectProblem(await send(server, `timeout_ms=${given}`), 'invalid_argument', { field: 'timeout_ms' })
      const twice = await send(server, 'timeout_ms=5&timeout_ms=5')
      expectProblem(twice, 'invalid_argument', { field: 'timeout_ms' })
      for (const given of [600_000, 5000])
        expect((await send(server, `timeout_ms=${given}`)).statusCode).toBeLessThan(500)
    })

  test('does not go with waits for a change', async () => {
    const server = await start()
    const field = { field: 'timeout_ms' }
    expectProblem(await server.get('/v1/kv/b?wait_ms=10&timeout_ms=10'), 'invalid_argument', field)
    const events = await server.get('/v1/kv/b?timeout_ms=10', { accept: 'text/event-stream' })
    expectProblem(events, 'invalid_argument', field)
  })

  for (const [name, send] of Object.entries({ ...READS, ...WRITES }))
    test(`${name}: ends a wait for a lock, and leaves nothing`, async () => {
      const server = await start()
      const commitTs = await server.put('b', 'before')
      const ts = commitTs + 1
      await server.lock(ts, ['a', 'b'], { lock_ttl: 60_000 }) // A read of the latest version passes the lock of a primary.
      expectProblem(await send(server, `${LONG}&${SHORT}`), 'deadline_exceeded', { retryable: true })
      await server.ok('rollback', { keys: ['a', 'b'], start_ts: ts })
      expect((await server.get('/v1/kv/b')).headers['etag']).toBe(`"${commitTs}"`)
      await expect.poll(() => inFlight(server)).toBe(0) // What was given up ends at its next step.
    })
})

async function inFlight(server: TestServer): Promise<number> {
  return numberOf(okBody(await server.get('/v1/status'))['overload'] as Json, 'requests')
}

describe('of a write while the disk stands still', () => {
  test('waiting for the latch of its key: 504, and it is never written', async () => {
    const tapped = new TappedEngine()
    const server = await start({ openEngine: tapped.open })
    const gate = new WriteGate(tapped)
    const first = server.send('PUT', '/v1/kv/b', {}, 'first')
    for (const send of Object.values(WRITES)) expectProblem(await send(server, SHORT), 'deadline_exceeded')
    gate.open()
    const commitTs = numberOf(okBody(await first), 'commit_ts')
    expect((await server.send('PUT', '/v1/kv/b?timeout_ms=60000', {}, 'last')).statusCode).toBe(200)
    const { writes } = await server.mvcc('b')
    expect((writes as Json[]).map((write) => write['commit_ts'])).toContain(commitTs)
    expect(writes).toHaveLength(2) // Of the first and the last one.
    await expect.poll(() => inFlight(server)).toBe(0)
  })

  test('its own write is on its way: the answer is the outcome, whatever the time', async () => {
    const tapped = new TappedEngine()
    const server = await start({ openEngine: tapped.open })
    const gate = new WriteGate(tapped)
    const answer = server.send('PUT', '/v1/kv/b?timeout_ms=1', {}, 'mine')
    expectProblem(await server.send('PUT', `/v1/kv/b?${SHORT}`, {}, 'other'), 'deadline_exceeded') // 1 ms has passed.
    gate.open()
    okBody(await answer)
    expect((await server.get('/v1/kv/b')).body).toBe('mine')
  })
})

test('of a read while the disk stands still: 504 at once, and it is counted until it ends', async () => {
  const tapped = new TappedEngine()
  const server = await start({ openEngine: tapped.open })
  await server.put('b', 'before')
  const { promise, resolve } = deferred()
  const { get } = server.store
  Object.assign(server.store, { get: (request: never) => promise.then(() => get.call(server.store, request)) })
  expectProblem(await server.get(`/v1/kv/b?${SHORT}`), 'deadline_exceeded')
  expect(await inFlight(server)).toBe(1)
  resolve()
  await expect.poll(() => inFlight(server)).toBe(0)
  expect((await server.get('/v1/kv/b?timeout_ms=5000')).body).toBe('before')
})

describe('in an interactive transaction', () => {
  async function begin(server: TestServer, body: Json = {}): Promise<string> {
    return `/v1/txn/${(await server.post('/v1/txn/begin', body)).json<Json>()['txn']}`
  }

  test('ends waits for locks; the transaction goes on without the write', async () => {
    const server = await start()
    const holder = await begin(server, { mode: 'pessimistic' })
    const other = await begin(server, { mode: 'pessimistic' })
    okBody(await server.send('PUT', `${holder}/kv/b`, {}, 'holder'))
    const wait = `${LONG}&${SHORT}`
    expectProblem(await server.send('PUT', `${other}/kv/b?${wait}`, {}, 'other'), 'deadline_exceeded')
    expectProblem(await server.send('DELETE', `${other}/kv/b?${wait}`), 'deadline_exceeded')
    expectProblem(await server.get(`${other}/kv/b?for_update&${wait}`), 'deadline_exceeded')
    const ops = [
      { op: 'put', key: 'c', value: 'undone' },
      { op: 'put', key: 'b', value: 'other' },
    ]
    expectProblem(await server.post(`${other}/ops?${SHORT}`, { ops }), 'deadline_exceeded')
    okBody(await server.send('PUT', `${other}/kv/d?${SHORT}`, {}, 'other'))
    okBody(await server.post(`${other}/commit?timeout_ms=60000`, {}))
    okBody(await server.post(`${holder}/commit`, {}))
    const pairs = okBody(await server.get('/v1/kv'))['pairs'] as Json[]
    expect(pairs.map(({ key, value }) => [key, value])).toEqual([
      ['b', 'holder'],
      ['d', 'other'],
    ])
    await expect.poll(() => server.lockCount(), { timeout: 30_000 }).toBe(0)
  })

  test('of a commit: 504 where it has to wait, also when it is repeated, and the transaction is rolled back', async () => {
    const server = await start()
    const txn = await begin(server)
    okBody(await server.send('PUT', `${txn}/kv/b`, {}, 'mine'))
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['b'], { lock_ttl: 60_000 })
    expectProblem(await server.post(`${txn}/commit?${SHORT}`, {}), 'deadline_exceeded')
    expect(okBody(await server.get(txn))['state']).toBe('rolled_back')
    await server.ok('rollback', { keys: ['b'], start_ts: ts })
    expectProblem(await server.post(`${txn}/commit`, {}), 'deadline_exceeded')
    expect((await server.get('/v1/kv/b')).statusCode).toBe(404)
  })
})

test('a wait for a pessimistic lock over the protocol ends, and its place in the queue is free', async () => {
  const server = await start()
  const { ts } = await server.ok('tso', {})
  const acquire = (startTs: number, query = ''): Promise<Sent> =>
    server.post(`/v1/percolator/acquire_pessimistic_lock${query}`, {
      ...{ keys: ['b'], primary: 'b', start_ts: startTs, for_update_ts: startTs, wait_timeout: 60_000 },
    })
  okBody(await acquire(Number(ts)))
  expectProblem(await acquire(Number(ts) + 1, `?${SHORT}`), 'deadline_exceeded')
  await server.ok('pessimistic_rollback', { keys: ['b'], start_ts: ts, for_update_ts: ts })
  await expect.poll(() => server.lockCount(), { timeout: 30_000 }).toBe(0)
  okBody(await acquire(Number(ts) + 2))
})

test('a write that was answered with 504 is never seen, and one that was answered with 200 always', {
  tags: ['long'],
}, async () => {
  const tapped = new TappedEngine()
  const server = await start({ openEngine: tapped.open })
  let turns = 0
  tapped.onWrite = async (_, land) => {
    turns = (turns * 7 + 3) % 11
    await new Promise((resolve) => setTimeout(resolve, turns))
    await land()
  }
  const answers = await Promise.all(
    Array.from({ length: 120 }, async (_, i) => {
      const ops = [
        { op: 'increment', key: 'hot' },
        { op: 'put', key: `own/${i}`, value: 'x' },
      ]
      const query = `timeout_ms=${1 + ((i * 37) % 300)}`
      const answer = await server.post(`/v1/txn?${query}`, { ops }, i % 3 === 0 ? { 'idempotency-key': `${i}` } : {})
      if (answer.statusCode !== 200) expectProblem(answer, 'deadline_exceeded')
      return answer.statusCode
    }),
  )
  const committed = answers.flatMap((status, i) => (status === 200 ? [`own/${i}`] : []))
  expect(committed.length).toBeGreaterThan(0)
  expect(committed.length).toBeLessThan(answers.length)
  await expect.poll(() => inFlight(server)).toBe(0) // Nothing that was given up is left to do any more.
  const { pairs } = okBody(await server.get('/v1/kv?prefix=own/'))
  expect((pairs as Json[]).map(({ key }) => key).sort()).toEqual(committed.sort())
  expect((await server.get('/v1/kv/hot')).body).toBe(`${committed.length}`)
})
