import { describe, expect, test } from 'vitest'
import { routesOf } from '../../../src/http/routes/route-list.js'
import {
  expectProblem,
  type Headers,
  type Json,
  type Method,
  okBody,
  type Sent,
  type TestServer,
  testServers,
} from '../support.js'

const start = testServers()

const RW = 'rw-token-0123456789'
const RO = 'ro-token-0123456789'
const APP = 'app-token-0123456789'
const APP_NEXT = 'app-token-after-its-rotation'
const APP_RO = 'app-ro-token-0123456789'
const TOKENS = `rw ${RW} name=all
ro ${RO}
rw ${APP} prefix=app/ name=app
rw ${APP_NEXT} prefix=app/ name=app
ro ${APP_RO} prefix=app/
`
const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })

/** A server with a key within the scope and one outside of it. */
async function startGuarded(): Promise<TestServer> {
  const server = await start({ tokens: TOKENS })
  for (const key of ['app/a', 'else/b']) await server.put(key, `value of ${key}`, as(RW))
  return server
}

describe('every route', () => {
  test('declares what it asks of its caller', async () => {
    const routes = routesOf((await start()).app)
    expect(routes.length).toBeGreaterThan(30)
    for (const { method, url, config } of routes) {
      expect(config?.access, `${method} ${url}`).toBeDefined()
      if (config?.access === 'open' && !config.isOfPage)
        expect(['/livez', '/readyz', '/openapi.json', '/docs']).toContain(url)
      if (url.startsWith('/v1/admin/')) expect(['admin', 'read_all']).toContain(config?.access)
    }
  })

  test('asks for a token, before it looks at the body; only probes do not', { tags: ['long'] }, async () => {
    const server = await startGuarded()
    const wrong: Headers[] = [
      {},
      as('wrong-token-0123456789'),
      as(''),
      { authorization: RW },
      { authorization: `Basic ${RW}` },
      { authorization: `Bearer ${RW} x` },
      { authorization: `Bearer "${RW}"` },
    ]
    for (const { method, url, config } of routesOf(server.app)) {
      if (config?.access === 'open') {
        // A page that was not built is 404.
        expect([200, ...(config.isOfPage || url === '/docs' ? [404] : [])]).toContain(
          (await server.send('GET', url)).statusCode,
        )
        continue
      }
      for (const headers of wrong) {
        const type = { 'content-type': 'text/html', ...headers }
        const answer = await server.send(method as Method, url.replace(/:\w+/, 'x'), type, 'not a body')
        expect(answer.headers['www-authenticate']).toBe('Bearer')
        if (method === 'HEAD') expect(answer.statusCode).toBe(401)
        else expectProblem(answer, 'unauthorized')
        expect(answer.body).not.toContain('token-0123')
      }
    }
    expectProblem(await server.get('/nope'), 'unauthorized')
    expectProblem(await server.get('/nope', as(RO)), 'not_found')
    expect((await server.get('/v1/status', { authorization: `bEARER  ${RO} ` })).statusCode).toBe(200)
  })

  test('a token in a query is none', async () => {
    const server = await startGuarded()
    expectProblem(await server.get(`/v1/status?access_token=${RW}`), 'unauthorized')
  })
})

test('a read-only token reads all and writes nothing', async () => {
  const server = await startGuarded()
  const reads: [Method, string, Json?][] = [
    ['GET', '/v1/kv/app/a'],
    ['HEAD', '/v1/kv/app/a'],
    ['GET', '/v1/kv?prefix=else/'],
    ['POST', '/v1/kv/batch_get', { keys: ['app/a', 'else/b'] }],
    ['POST', '/v1/txn', { checks: [{ key: 'app/a', exists: true }], ops: [{ op: 'get', key: 'a' }, { op: 'scan' }] }],
    ['POST', '/v1/percolator/tso'],
    ['POST', '/v1/percolator/scan', { limit: 5, ts: 2 ** 52 }],
    ['POST', '/v1/percolator/scan_lock', { max_ts: 5 }],
    ['POST', '/v1/percolator/mvcc_get_by_key', { key: 'a' }],
    ['GET', '/v1/status'],
  ]
  for (const [method, url, body] of reads)
    expect((await sendAs(server, RO, method, url, body)).statusCode, `${method} ${url}`).toBe(200)

  const before = await server.store.mvccGetByKey({ key: Buffer.from('app/a') })
  const writes: [Method, string, Json?][] = [
    ['PUT', '/v1/kv/app/a'],
    ['DELETE', '/v1/kv/app/a'],
    ...['put', 'delete', 'insert', 'increment', 'min', 'max'].map((op): [Method, string, Json] => [
      'POST',
      '/v1/txn',
      {
        ops: [
          { op: 'get', key: 'app/a' },
          { op, key: 'app/a', value: '1' },
        ],
      },
    ]),
    ['POST', '/v1/txn/begin', { mode: 'pessimistic' }],
    ['POST', '/v1/percolator/rollback', { keys: ['app/a'], start_ts: 5 }],
    ['POST', '/v1/percolator/check_txn_status', {}],
    ['POST', '/v1/percolator/gc', { safe_point: 1 }],
    ['POST', '/v1/percolator/delete_range', { start: 'a', end: 'b' }],
  ]
  for (const [method, url, body] of writes) expectProblem(await sendAs(server, RO, method, url, body), 'forbidden')
  expect(await server.store.mvccGetByKey({ key: Buffer.from('app/a') })).toEqual(before)

  const begun = await sendAs(server, RO, 'POST', '/v1/txn/begin')
  const txn = `/v1/txn/${begun.json<Json>()['txn']}`
  expect((await server.get(`${txn}/kv/app/a`, as(RO))).body).toBe('value of app/a')
  expectProblem(await server.get(`${txn}/kv/app/a?for_update`, as(RO)), 'forbidden')
  expectProblem(
    await sendAs(server, RO, 'POST', `${txn}/ops`, { ops: [{ op: 'put', key: 'a', value: '' }] }),
    'forbidden',
  )
  expectProblem(await sendAs(server, RO, 'PUT', `${txn}/kv/app/a`), 'forbidden')
  expect((await sendAs(server, RO, 'POST', `${txn}/ops`, { ops: [{ op: 'get', key: 'a' }] })).statusCode).toBe(200)
  expect((await sendAs(server, RO, 'POST', `${txn}/commit`)).statusCode).toBe(200)
})

describe('a token with prefixes', () => {
  test('reaches what is within them', async () => {
    const server = await startGuarded()
    expect((await server.get('/v1/kv/app/a', as(APP))).body).toBe('value of app/a')
    const page = await server.get('/v1/kv?prefix=app/&limit=1', as(APP))
    expect(page.statusCode).toBe(200)
    await server.put('app/c', '1', as(APP))
    okBody(await sendAs(server, APP, 'POST', '/v1/txn', { ops: [{ op: 'increment', key: 'app/c' }] }))
    okBody(await sendAs(server, APP, 'POST', '/v1/txn', { ops: [{ op: 'scan', prefix: 'app/' }] }))
    okBody(await sendAs(server, APP, 'POST', '/v1/percolator/scan', { start: 'app/', end: 'app0', limit: 9, ts: 9 }))
    expectProblem(await sendAs(server, APP_RO, 'PUT', '/v1/kv/app/a'), 'forbidden')
  })

  const outside: [Method, string, Json | undefined, string?][] = [
    ['GET', '/v1/kv/else/b', undefined, 'key'],
    ['GET', '/v1/kv/app', undefined, 'key'],
    ['GET', '/v1/kv/app%2e', undefined, 'key'],
    ['PUT', '/v1/kv/else/b', undefined, 'key'],
    ['DELETE', '/v1/kv/else/b', undefined, 'key'],
    ['GET', '/v1/kv', undefined, 'prefix'],
    ['GET', '/v1/kv?prefix=ap', undefined, 'prefix'],
    ['GET', '/v1/kv?start=app/', undefined, 'prefix'],
    ['GET', '/v1/kv?start=app/&end=app1&count_only', undefined, 'prefix'],
    ['POST', '/v1/kv/batch_get', { keys: ['app/a', 'else/b'] }, 'keys[1]'],
    ['POST', '/v1/txn', { checks: [{ key: 'else/b', exists: true }] }, 'checks[0].key'],
    [
      'POST',
      '/v1/txn',
      {
        ops: [
          { op: 'get', key: 'app/a' },
          { op: 'get', key: 'else/b' },
        ],
      },
      'ops[1].key',
    ],
    ['POST', '/v1/txn', { ops: [{ op: 'scan' }] }, 'ops[0]'],
    ['POST', '/v1/txn', { ops: [{ op: 'scan', start: 'app/' }] }, 'ops[0]'],
    ['POST', '/v1/percolator/scan', { limit: 1, ts: 9 }, 'start'],
    ['POST', '/v1/percolator/scan_lock', { max_ts: 9 }, 'start'],
    ['POST', '/v1/percolator/mvcc_get_by_start_ts', { start_ts: 9 }, 'start'],
    ['POST', '/v1/percolator/validate_reads', { start_ts: 8, commit_ts: 9, ranges: [{}] }, 'ranges[0]'],
    ['POST', '/v1/percolator/validate_reads', { start_ts: 8, commit_ts: 9, keys: ['b'] }, 'keys[0]'],
    ['POST', '/v1/percolator/rollback', { keys: ['else/b'], start_ts: 5 }, 'keys[0]'],
    [
      'POST',
      '/v1/percolator/commit',
      { keys: ['app/a'], txn_keys: ['else/b'], start_ts: 5, commit_ts: 6 },
      'txn_keys[0]',
    ],
    [
      'POST',
      '/v1/percolator/check_txn_status',
      { primary: 'b', lock_ts: 5, caller_start_ts: 0, current_ts: 0 },
      'primary',
    ],
    ['POST', '/v1/percolator/resolve_lock', { start_ts: 5, commit_ts: 0 }],
    ['POST', '/v1/percolator/resolve_lock', { txns: [{ start_ts: 5, commit_ts: 0 }] }],
    ['POST', '/v1/percolator/gc', { safe_point: 1 }],
    ['POST', '/v1/percolator/delete_range', { start: 'app/a', end: 'app/b' }],
  ]
  test('and nothing else', async () => {
    const server = await startGuarded()
    for (const [method, url, body, field] of outside) {
      const answer = await sendAs(server, APP, method, url, body)
      const { detail } = expectProblem(answer, 'forbidden', field ? { field } : {})
      expect(detail).not.toContain('value of')
    }
    for (const key of ['app/a', 'else/b'])
      expect((await server.get(`/v1/kv/${key}`, as(RW))).body).toBe(`value of ${key}`)
  })

  const primaries: Json[] = [
    { primary: 'else/p' },
    { primary: 'app/k', use_async_commit: true, secondaries: ['else/s'] },
    { primary: 'app/k', try_one_pc: true, reads: { keys: ['else/b'] } },
    { primary: 'app/k', try_one_pc: true, reads: { ranges: [{ start: 'a', end: 'z' }] } },
  ]
  test('names no other key in a prewrite', async () => {
    const server = await startGuarded()
    for (const rest of primaries) {
      const body = { mutations: [{ op: 'put', key: 'app/k', value: '1' }], start_ts: 5, ...rest }
      expectProblem(await sendAs(server, APP, 'POST', '/v1/percolator/prewrite', body), 'forbidden')
    }
    expect(await server.lockCount()).toBe(0)
  })

  test('goes no further by a cursor of another', async () => {
    const server = await startGuarded()
    const { cursor } = okBody(await server.get('/v1/kv?limit=1', as(RW)))
    expectProblem(await server.get(`/v1/kv?cursor=${cursor}`, as(APP)), 'forbidden', { field: 'cursor' })
  })

  test('is not told keys outside of it, by others’ locks', async () => {
    const server = await startGuarded()
    const mutations = [
      { op: 'put', key: 'else/p', value: '1' },
      { op: 'put', key: 'app/s', value: '1' },
    ]
    const lock = { mutations, primary: 'else/p', start_ts: await server.store.tso(1), lock_ttl: 60_000 }
    const secondaries = { use_async_commit: true, secondaries: ['app/s', 'else/t'] }
    okBody(await sendAs(server, RW, 'POST', '/v1/percolator/prewrite', { ...lock, ...secondaries }))
    const answers = [
      await sendAs(server, APP, 'POST', '/v1/percolator/get', { key: 'app/s', ts: 2 ** 52 }),
      await sendAs(server, APP, 'POST', '/v1/percolator/scan_lock', { max_ts: 2 ** 52, start: 'app/', end: 'app0' }),
      await sendAs(server, APP, 'POST', '/v1/percolator/mvcc_get_by_key', { key: 'app/s' }),
      await server.get('/v1/kv/app/s?lock_wait_ms=0', as(APP)),
    ]
    for (const answer of answers) {
      expect(answer.body).toContain('"primary":""')
      expect(answer.body).not.toContain('else/')
    }
  })
})

describe('a transaction belongs to who began it', () => {
  async function begin(server: TestServer, token: string): Promise<string> {
    return `/v1/txn/${(await sendAs(server, token, 'POST', '/v1/txn/begin')).json<Json>()['txn']}`
  }

  test('others do not find it, open or ended; another token of the same name and rights does', async () => {
    const server = await startGuarded()
    const txn = await begin(server, RW)
    expect((await sendAs(server, RW, 'PUT', `${txn}/kv/else/b`)).statusCode).toBe(200)
    const tries: [Method, string, Json?][] = [
      ['GET', txn],
      ['GET', `${txn}/kv/app/a`],
      ['GET', `${txn}/kv?prefix=app/`],
      ['PUT', `${txn}/kv/app/a`],
      ['POST', `${txn}/ops`, { ops: [] }],
      ['POST', `${txn}/commit`],
      ['POST', `${txn}/rollback`],
    ]
    for (const [method, url, body] of tries)
      expectProblem(await sendAs(server, APP, method, url, body), 'txn_not_found')
    expect((await sendAs(server, RW, 'POST', `${txn}/rollback`)).statusCode).toBe(200)
    for (const [method, url, body] of tries)
      expectProblem(await sendAs(server, APP, method, url, body), 'txn_not_found')

    const rotated = await begin(server, APP)
    expect((await sendAs(server, APP_NEXT, 'POST', `${rotated}/commit`)).statusCode).toBe(200)
  })

  test('a scope holds inside of it', async () => {
    const server = await startGuarded()
    const txn = await begin(server, APP)
    expectProblem(await server.get(`${txn}/kv/else/b`, as(APP)), 'forbidden')
    expectProblem(await server.get(`${txn}/kv`, as(APP)), 'forbidden')
    expectProblem(await sendAs(server, APP, 'POST', `${txn}/ops`, { ops: [{ op: 'scan' }] }), 'forbidden')
  })
})

test('an Idempotency-Key is its caller’s own, over a rotation too', async () => {
  const server = await startGuarded()
  const ask = (token: string) =>
    server.send('PUT', '/v1/kv/app/once', { ...as(token), 'idempotency-key': 'k1' }, 'the same')
  const first = await ask(APP)
  const replayed = await ask(APP_NEXT)
  expect(replayed.headers['idempotency-replayed']).toBe('true')
  expect(replayed.body).toBe(first.body)
  const others = await ask(RW)
  expect(others.headers['idempotency-replayed']).toBeUndefined()
  expect(others.body).not.toBe(first.body)
})

function sendAs(server: TestServer, token: string, method: Method, url: string, body?: Json): Promise<Sent> {
  if (method === 'POST') return server.post(url, body ?? {}, as(token))
  return server.send(method, url, as(token))
}
