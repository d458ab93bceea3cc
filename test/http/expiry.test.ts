import { describe, expect, test, vi } from 'vitest'
import { Clock, expectProblem, type Json, listOf, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()
const TTL_MS_MAX = 2 ** 41

async function startAt(): Promise<{ readonly server: TestServer; readonly clock: Clock }> {
  const clock = new Clock()
  return { server: await start({ now: clock.now }), clock }
}

function put(server: TestServer, key: string, query: string, headers = {}) {
  return server.send('PUT', `/v1/kv/${key}?${query}`, { 'content-type': 'text/plain', ...headers }, 'v')
}

describe('a PUT', () => {
  test('with ttl_ms is there for so long, and absent for every read from then on', async () => {
    const { server, clock } = await startAt()
    const commitTs = numberOf(okBody(await put(server, 'k', 'ttl_ms=1000')), 'commit_ts')
    const found = await server.get('/v1/kv/k')
    const expireTs = Number(found.headers['expire-ts'])
    expect([found.statusCode, found.body, found.headers['etag']]).toEqual([200, 'v', `"${commitTs}"`])
    // It counts from the start of the transaction, which is just below its commit.
    expect(commitTs + 1000 * 2048 - expireTs).toBeGreaterThan(0)
    expect(commitTs + 1000 * 2048 - expireTs).toBeLessThan(10)
    const head = await server.send('HEAD', '/v1/kv/k')
    expect([head.statusCode, head.headers['expire-ts']]).toEqual([200, String(expireTs)])
    expect((await server.get('/v1/kv/k', { 'if-none-match': `"${commitTs}"` })).statusCode).toBe(304)
    const pair = { key: 'k', value: 'v', commit_ts: commitTs, expire_ts: expireTs }
    expect(listOf(okBody(await server.get('/v1/kv?prefix=k')), 'pairs')).toEqual([pair])
    const lines = await server.get('/v1/kv?prefix=k', { accept: 'application/x-ndjson' })
    expect(JSON.parse(lines.body)).toEqual(pair)
    expect(listOf(okBody(await server.post('/v1/kv/batch_get', { keys: ['k'] })), 'pairs')).toEqual([pair])
    expect(await server.ok('get', { key: 'k' })).toEqual({ found: true, ...pair, key: undefined })
    clock.ms += 1001
    expectProblem(await server.get('/v1/kv/k'), 'not_found')
    expect(listOf(okBody(await server.get('/v1/kv?prefix=k')), 'pairs')).toEqual([])
    expect(okBody(await server.get('/v1/kv?prefix=k&count_only'))).toMatchObject({ count: 0 })
    expect(listOf(okBody(await server.post('/v1/kv/batch_get', { keys: ['k'] })), 'pairs')).toEqual([])
    expect(await server.ok('get', { key: 'k' })).toEqual({ found: false })
    // The past stays what it was, up to the last timestamp.
    expect((await server.get(`/v1/kv/k?ts=${expireTs - 1}`)).body).toBe('v')
    expect((await server.get(`/v1/kv/k?ts=${expireTs}`)).statusCode).toBe(404)
    expect(okBody(await server.get(`/v1/kv?prefix=k&count_only&ts=${expireTs - 1}`))).toMatchObject({ count: 1 })
  })

  test('without one ends it, and conditions see an expired key as absent', async () => {
    const { server, clock } = await startAt()
    const first = numberOf(okBody(await put(server, 'k', 'ttl_ms=1000')), 'commit_ts')
    clock.ms += 1001
    const condition = { 'if-match': `"${first}"` }
    expectProblem(await put(server, 'k', 'ttl_ms=1000', condition), 'precondition_failed', { key: 'k', commit_ts: 0 })
    const failed = { index: 0, key: 'k', exists: false, commit_ts: 0 }
    const checked = await server.post('/v1/txn', { checks: [{ key: 'k', commit_ts: first }] })
    expectProblem(checked, 'precondition_failed', { failed_checks: [failed] })
    expect((await put(server, 'k', 'ttl_ms=1000', { 'if-none-match': '*' })).statusCode).toBe(200)
    await server.put('k', 'for ever')
    clock.ms += 5000
    const found = await server.get('/v1/kv/k')
    expect([found.body, found.headers['expire-ts']]).toEqual(['for ever', undefined])
  })

  test('takes an expire_ts of the past: the version is never visible', async () => {
    const { server } = await startAt()
    await server.put('k', 'before')
    okBody(await put(server, 'k', 'expire_ts=1'))
    expectProblem(await server.get('/v1/kv/k'), 'not_found')
  })

  test.each([
    ['ttl_ms=0', 'ttl_ms'],
    ['ttl_ms=-1', 'ttl_ms'],
    ['ttl_ms=1.5', 'ttl_ms'],
    ['ttl_ms=', 'ttl_ms'],
    [`ttl_ms=${TTL_MS_MAX + 1}`, 'ttl_ms'],
    ['ttl_ms=99999999999999999', 'ttl_ms'],
    ['expire_ts=0', 'expire_ts'],
    [`expire_ts=${2 ** 53}`, 'expire_ts'],
    ['ttl_ms=5&expire_ts=5', 'expire_ts'],
    ['ttl_ms=5&ttl_ms=5', 'ttl_ms'],
    ['ttl=5', 'ttl'],
  ])('with %s is refused, and changes nothing', async (query, field) => {
    const { server } = await startAt()
    expectProblem(await put(server, 'k', query), 'invalid_argument', { field })
    expect((await server.get('/v1/kv/k')).statusCode).toBe(404)
  })

  test('takes the longest ttl_ms and the highest expire_ts', async () => {
    const { server } = await startAt()
    for (const query of [`ttl_ms=${TTL_MS_MAX}`, `expire_ts=${Number.MAX_SAFE_INTEGER}`]) {
      okBody(await put(server, 'k', query))
      const found = await server.get('/v1/kv/k')
      expect([found.body, Number.isSafeInteger(Number(found.headers['expire-ts']))]).toEqual(['v', true])
    }
  })

  test('under an Idempotency-Key is not the same request with another expiry', async () => {
    const { server } = await startAt()
    const once = { 'idempotency-key': 'once' }
    okBody(await put(server, 'k', 'ttl_ms=1000', once))
    expect((await put(server, 'k', 'ttl_ms=1000', once)).headers['idempotency-replayed']).toBe('true')
    expectProblem(await put(server, 'k', 'ttl_ms=1001', once), 'idempotency_mismatch')
  })
})

describe('ops', () => {
  test('put, insert and counters take an expiry, counters keep one, and touch gives another', async () => {
    const { server, clock } = await startAt()
    const ops = [
      { op: 'insert', key: 'i', value: '1', ttl_ms: 1000 },
      { op: 'increment', key: 'n', ttl_ms: 1000 },
      { op: 'increment', key: 'n' },
      { op: 'max', key: 'n', by: 5 },
      { op: 'min', key: 'n', by: 2 },
      { op: 'max', key: 'i', by: 1, ttl_ms: 2000 },
      { op: 'put', key: 'p', value: '1', expire_ts: clock.ts() + 1000 * 2048 },
      { op: 'touch', key: 'p', ttl_ms: 5000 },
      { op: 'touch', key: 'absent', ttl_ms: 5000 },
      { op: 'get', key: 'n' },
    ]
    const { start_ts, results } = await server.txn({ ops })
    const startTs = Number(start_ts)
    expect(results).toEqual([
      {},
      { value: '1' },
      { value: '2' },
      { value: '5' },
      { value: '2' },
      { value: '1' },
      {},
      { found: true },
      { found: false },
      { found: true, value: '2', expire_ts: startTs + 1000 * 2048 },
    ])
    const expiries = async () =>
      listOf(okBody(await server.get('/v1/kv')), 'pairs').map(({ key, expire_ts }) => [key, expire_ts])
    const inMs = (ms: number) => startTs + ms * 2048
    expect(await expiries()).toEqual([
      ['i', inMs(2000)],
      ['n', inMs(1000)],
      ['p', inMs(5000)],
    ])
    await server.txn({
      ops: [
        { op: 'increment', key: 'n' },
        { op: 'touch', key: 'i', persist: true },
      ],
    })
    expect(await expiries()).toEqual([
      ['i', undefined],
      ['n', inMs(1000)],
      ['p', inMs(5000)],
    ])
    clock.ms += 1001
    expect(await expiries()).toEqual([
      ['i', undefined],
      ['p', inMs(5000)],
    ])
    expect((await server.txn({ ops: [{ op: 'increment', key: 'n' }] }))['results']).toEqual([{ value: '1' }])
    const touched = await server.txn({
      ops: [
        { op: 'touch', key: 'n', ttl_ms: 1 },
        { op: 'touch', key: 'x', persist: true },
      ],
    })
    expect(touched['results']).toEqual([{ found: true }, { found: false }])
  })

  test('a transaction that touches nothing has no commit_ts, and answers so again under its Idempotency-Key', async () => {
    const { server } = await startAt()
    const body = { ops: [{ op: 'touch', key: 'k', ttl_ms: 1000 }] }
    const send = () => server.post('/v1/txn', body, { 'idempotency-key': 'touch' })
    const first = okBody(await send())
    expect(first).toEqual({ start_ts: first['start_ts'], results: [{ found: false }] })
    await server.put('k', 'v')
    const again = await send()
    expect([again.headers['idempotency-replayed'], again.json<Json>()]).toEqual(['true', first])
    expect((await server.get('/v1/kv/k')).headers['expire-ts']).toBeUndefined()
  })

  test('own writes that have expired already are absent in the transaction too', async () => {
    const { server } = await startAt()
    const ops = [
      { op: 'put', key: 'k', value: '1', expire_ts: 1 },
      { op: 'get', key: 'k' },
      { op: 'scan', prefix: 'k' },
      { op: 'touch', key: 'k', persist: true },
      { op: 'insert', key: 'k', value: '2' },
      { op: 'get', key: 'k' },
    ]
    for (const isolation of ['snapshot', 'serializable']) {
      const { results } = await server.txn({ ops, isolation })
      expect(results).toEqual([{}, { found: false }, { pairs: [] }, { found: false }, {}, { found: true, value: '2' }])
      await server.remove('k')
    }
  })

  test.each<[Json, string]>([
    [{ op: 'put', key: 'k', value: '1', ttl_ms: 5, expire_ts: 5 }, 'ops[0].expire_ts'],
    [{ op: 'put', key: 'k', value: '1', persist: true }, 'ops[0].persist'],
    [{ op: 'delete', key: 'k', ttl_ms: 5 }, 'ops[0].ttl_ms'],
    [{ op: 'touch', key: 'k' }, 'ops[0].ttl_ms'],
    [{ op: 'touch', key: 'k', persist: false }, 'ops[0].persist'],
    [{ op: 'touch', key: 'k', persist: true, ttl_ms: 5 }, 'ops[0].persist'],
    [{ op: 'touch', key: 'k', ttl_ms: 0 }, 'ops[0].ttl_ms'],
    [{ op: 'touch', key: 'k', value: '1', ttl_ms: 5 }, 'ops[0].value'],
    [{ op: 'touch', ttl_ms: 5 }, 'ops[0].key'],
  ])('%j is refused', async (op, field) => {
    const { server } = await startAt()
    expectProblem(await server.post('/v1/txn', { ops: [op] }), 'invalid_argument', { field })
  })

  test('a serializable transaction whose reads expire before its commit is refused', async () => {
    const { server, clock } = await startAt()
    await put(server, 'read', 'ttl_ms=1000')
    for (const op of [
      { op: 'get', key: 'read' },
      { op: 'scan', prefix: 'rea' },
      { op: 'increment', key: 'n' },
    ]) {
      const isRead = op.op !== 'increment'
      const { txn } = (await server.post('/v1/txn/begin', { isolation: 'serializable' })).json<Json>()
      okBody(await server.post(`/v1/txn/${txn}/ops`, { ops: [op, { op: 'put', key: 'other', value: '1' }] }))
      clock.ms += isRead ? 1001 : 0
      await server.ok('tso', {}) // A commit takes the next timestamp, and not the time of the clock.
      const committed = await server.post(`/v1/txn/${txn}/commit`, {})
      if (isRead) expectProblem(committed, 'write_conflict', { reason: 'serializable_read', key: 'read' })
      else okBody(committed)
      await put(server, 'read', 'ttl_ms=1000')
    }
    // It writes the key that it has read, so that the prewrite checks it.
    await server.txn({ ops: [{ op: 'put', key: 'n', value: '1', ttl_ms: 1000 }] })
    const { txn } = (await server.post('/v1/txn/begin', { isolation: 'serializable' })).json<Json>()
    okBody(await server.post(`/v1/txn/${txn}/ops`, { ops: [{ op: 'increment', key: 'n', ttl_ms: 9000 }] }))
    clock.ms += 1001
    await server.ok('tso', {})
    expectProblem(await server.post(`/v1/txn/${txn}/commit`, {}), 'write_conflict', { reason: 'serializable_read' })
  })
})

describe('in an interactive transaction', () => {
  test.each(['optimistic', 'pessimistic'])('%s, a time to live counts from the op', async (mode) => {
    const { server, clock } = await startAt()
    const { txn } = (await server.post('/v1/txn/begin', { mode })).json<Json>()
    clock.ms += 10_000
    okBody(await server.send('PUT', `/v1/txn/${txn}/kv/k?ttl_ms=1000`, {}, 'v'))
    const own = await server.get(`/v1/txn/${txn}/kv/k`)
    const expireTs = Number(own.headers['expire-ts'])
    expect([own.body, Math.round((expireTs - clock.ts()) / 2048 / 10)]).toEqual(['v', 100])
    okBody(await server.post(`/v1/txn/${txn}/commit`, {}))
    expect((await server.get('/v1/kv/k')).headers['expire-ts']).toBe(String(expireTs))
    expectProblem(await server.send('DELETE', `/v1/txn/${txn}/kv/k?ttl_ms=1000`), 'invalid_argument', {
      field: 'ttl_ms',
    })
  })

  test('a locking read is judged at its for_update_ts', async () => {
    const { server, clock } = await startAt()
    await put(server, 'k', 'ttl_ms=1000')
    const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' })).json<Json>()
    expect((await server.get(`/v1/txn/${txn}/kv/k`)).body).toBe('v')
    clock.ms += 1001
    expect((await server.get(`/v1/txn/${txn}/kv/k`)).body).toBe('v')
    await server.put('bump', 'v')
    expect((await server.get(`/v1/txn/${txn}/kv/k?for_update=true`)).statusCode).toBe(200)
    okBody(await server.post(`/v1/txn/${txn}/rollback`, {}))
  })
})

describe('a prewrite', () => {
  test('carries expire_ts through its lock to its version', async () => {
    const { server, clock } = await startAt()
    const expireTs = clock.ts() + 1000 * 2048
    const mutations = [{ op: 'put', key: 'k', value: 'v', expire_ts: expireTs }]
    await server.ok('prewrite', { mutations, primary: 'k', start_ts: 10 })
    expect((await server.mvcc('k'))['lock']).toMatchObject({ expire_ts: expireTs })
    await server.ok('commit', { keys: ['k'], start_ts: 10, commit_ts: 20 })
    expect(await server.ok('get', { key: 'k', ts: 25 })).toMatchObject({ found: true, expire_ts: expireTs })
    expect((await server.mvcc('k'))['writes']).toMatchObject([{ type: 'put', expire_ts: expireTs }])
    const asked = { keys: ['k'], primary: 'k', start_ts: 30, for_update_ts: 30, return_values: true }
    const locked = await server.ok('acquire_pessimistic_lock', asked)
    expect(locked['results']).toEqual([{ found: true, value: 'v', expire_ts: expireTs }])
  })

  test.each([
    [{ op: 'delete', key: 'k', expire_ts: 5 }, 'mutations[0].expire_ts'],
    [{ op: 'lock', key: 'k', expire_ts: 5 }, 'mutations[0].expire_ts'],
    [{ op: 'put', key: 'k', value: 'v', expire_ts: -1 }, 'mutations[0].expire_ts'],
    [{ op: 'put', key: 'k', value: 'v', ttl_ms: 5 }, 'mutations[0].ttl_ms'],
  ])('of %j is refused', async (mutation, field) => {
    const { server } = await startAt()
    const refused = await server.call('prewrite', { mutations: [mutation], primary: 'k', start_ts: 10 })
    expectProblem(refused, 'invalid_argument', { field })
  })
})

describe('those who follow', () => {
  test('a page of the feed has the expiry at its timestamp, with the version before', async () => {
    let passedMs = 0
    const server = await start({ now: () => Date.now() + passedMs })
    await server.beginFeed()
    const commitTs = numberOf(okBody(await put(server, 'k', 'ttl_ms=60000')), 'commit_ts')
    const expireTs = Number((await server.get('/v1/kv/k')).headers['expire-ts'])
    passedMs += 60_000
    await server.untilTold()
    const page = okBody(await server.get(`/v1/changes?since_ts=${commitTs}&old_values`))
    const old = { value: 'v', commit_ts: commitTs, expire_ts: expireTs }
    expect(page['txns']).toEqual([
      { commit_ts: expireTs, start_ts: expireTs, changes: [{ key: 'k', op: 'expire', old, expire_ts: expireTs }] },
    ])
    const all = listOf(okBody(await server.get(`/v1/changes?since_ts=${commitTs - 1}`)), 'txns')
    expect(all[0]).toMatchObject({ changes: [{ op: 'put', expire_ts: expireTs }] })
    const snapshot = await server.get('/v1/changes?snapshot&wait_ms=0', { accept: 'application/x-ndjson' })
    expect(snapshot.body).not.toContain('"type":"pair"')
  })

  test('a long poll of the key is answered when it expires', async () => {
    const server = await start()
    const commitTs = numberOf(okBody(await put(server, 'k', 'ttl_ms=300')), 'commit_ts')
    const expireTs = Number((await server.get('/v1/kv/k')).headers['expire-ts'])
    const gone = await server.get('/v1/kv/k?wait_ms=60000', { 'if-none-match': `"${commitTs}"` })
    expectProblem(gone, 'not_found', { key: 'k', commit_ts: expireTs })
  })

  test('a long poll that is told of a value sees its expiry too, also where the clock is set ahead', {
    tags: ['long'],
  }, async () => {
    const { server, clock } = await startAt()
    const waiting = server.get('/v1/kv/k?wait_ms=60000')
    const watching = async () => numberOf(okBody(await server.get('/v1/status')), 'watches')
    await vi.waitFor(async () => expect(await watching()).toBe(1))
    const commitTs = numberOf(okBody(await put(server, 'k', 'ttl_ms=3600000')), 'commit_ts')
    const found = await waiting
    expect([found.body, found.headers['expire-ts'] !== undefined]).toEqual(['v', true])
    const gone = server.get('/v1/kv/k?wait_ms=60000', { 'if-none-match': `"${commitTs}"` })
    await vi.waitFor(async () => expect(await watching()).toBe(1))
    clock.ms += 3_600_001
    expectProblem(await gone, 'not_found', { commit_ts: Number(found.headers['expire-ts']) })
  })
})
