import { describe, expect, test } from 'vitest'
import { Clock, expectProblem, type Json, type TestServer, testServers } from './support.js'

/** Requests that choose no timestamp: no collection, however soon, may make them fail with `ts_below_safe_point`. */

const start = testServers()

const REQUESTS: readonly (readonly [name: string, send: (server: TestServer) => ReturnType<TestServer['get']>])[] = [
  ['GET of a key', (server) => server.get('/v1/kv/k')],
  ['a page', (server) => server.get('/v1/kv?limit=1')],
  ['a count', (server) => server.get('/v1/kv?count_only')],
  ['a stream', (server) => server.get('/v1/kv', { accept: 'application/x-ndjson' })],
  ['batch_get', (server) => server.post('/v1/kv/batch_get', { keys: ['k', 'nobody'] })],
  ['PUT', (server) => server.send('PUT', '/v1/kv/k', {}, 'v')],
  ['a conditional PUT', (server) => server.send('PUT', '/v1/kv/k', { 'if-match': '*' }, 'v')],
  [
    'a one-shot read',
    (server) =>
      server.post('/v1/txn', {
        ops: [
          { op: 'get', key: 'k' },
          { op: 'scan', prefix: '' },
        ],
      }),
  ],
  [
    'a one-shot write',
    (server) => server.post('/v1/txn', { max_retries: 0, ops: [{ op: 'increment', key: 'n', by: 1 }] }),
  ],
  [
    'a serializable one-shot',
    (server) =>
      server.post('/v1/txn', {
        isolation: 'serializable',
        ops: [
          { op: 'scan', prefix: '' },
          { op: 'delete', key: 'k' },
        ],
      }),
  ],
  [
    'an interactive transaction',
    async (server) => {
      const { txn } = (await server.post('/v1/txn/begin', {})).json<Json>()
      return server.get(`/v1/txn/${txn}/kv/k`)
    },
  ],
  ['a pin', (server) => server.post('/v1/admin/pins', {})],
  ['a backup', (server) => server.get('/v1/admin/backup')],
]

describe.each(REQUESTS)('%s', (_name, send) => {
  test('after a collection up to the newest moment', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    await server.put('k', 'v')
    for (let i = 0; i < 3; i++) {
      await server.ok('gc', { safe_point: server.store.time.clock() })
      const answer = await send(server)
      expect([200, 201], answer.body).toContain(answer.statusCode)
    }
  })

  test('beside collections that pass its timestamp before it is used', async () => {
    const server = await start()
    await server.put('k', 'v')
    passBy(server, 3)
    const answer = await send(server)
    expect([200, 201], answer.body).toContain(answer.statusCode)
  })
})

test('a server that does nothing but collect says so in the end', async () => {
  const server = await start()
  await server.put('k', 'v')
  passBy(server, Number.POSITIVE_INFINITY)
  for (const path of ['/v1/kv', '/v1/kv?count_only']) {
    const answer = await server.get(path)
    expectProblem(answer, 'overloaded')
    expect(answer.headers['retry-after']).toBe('1')
  }
  for (const body of [{ ops: [{ op: 'get', key: 'k' }] }, { ops: [{ op: 'put', key: 'k', value: 'v' }] }])
    expectProblem(await server.post('/v1/txn', body), 'overloaded')
  expectProblem(await server.post('/v1/txn/begin', {}), 'overloaded')
})

test('a timestamp that the request chose is refused as before', async () => {
  const server = await start()
  const ts = await server.put('k', 'v')
  await server.store.upkeep.raiseSafePoint(ts + 1)
  expectProblem(await server.get(`/v1/kv?ts=${ts}`), 'ts_below_safe_point')
  expectProblem(await server.post('/v1/kv/batch_get', { keys: ['k'], ts }), 'ts_below_safe_point')
  expectProblem(await server.post('/v1/admin/pins', { ts }), 'ts_below_safe_point')
})

test('a transaction that is being begun holds the collections of the server back', async () => {
  const clock = new Clock()
  const server = await start({ now: clock.now })
  await server.put('k', 'old')
  const { store } = server
  const tso = store.tso.bind(store)
  let collected: Json = {}
  store.tso = async (count) => {
    const ts = await tso(count)
    store.tso = tso
    await server.put('k', 'new')
    clock.ms += 1000
    collected = (await server.post('/v1/admin/gc', { life_time_ms: 0 })).json<Json>()
    return ts
  }
  const { txn } = (await server.post('/v1/txn/begin', {})).json<Json>()
  expect(collected).toMatchObject({ held_back_by: 'transaction', versions_removed: 0 })
  expect((await server.get(`/v1/txn/${txn}/kv/k`)).body).toBe('old')
})

/** The next timestamps are passed by the safe point before whoever asked for them gets them. */
function passBy(server: TestServer, times: number): void {
  const { store } = server
  let left = times
  const passed = async (given: number | Promise<number>) => {
    const ts = await given
    if (left-- > 0) await store.upkeep.raiseSafePoint(ts + 1)
    return ts
  }
  const tso = store.tso.bind(store)
  const readTs = store.readTs.bind(store)
  store.tso = (count) => passed(tso(count))
  store.readTs = () => passed(readTs())
}
