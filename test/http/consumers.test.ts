import { describe, expect, test } from 'vitest'
import {
  expectProblem,
  type Headers,
  type Json,
  listOf,
  type Method,
  numberOf,
  okBody,
  pack,
  type Sent,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

/** One consumer of a server, and shorthands for its routes. */
class Consuming {
  constructor(
    readonly server: TestServer,
    readonly name = 'copy',
    readonly headers: Headers = {},
  ) {}

  static async of(server: TestServer, registration: Json = { prefix: 'doc/' }): Promise<Consuming> {
    const consuming = new Consuming(server)
    const answer = await consuming.put(registration)
    expect(answer.statusCode, answer.body).toBe(201)
    return consuming
  }

  send(method: Method, path: string, body?: Json): Promise<Sent> {
    const type = body === undefined ? {} : { 'content-type': 'application/json' }
    const payload = body === undefined ? undefined : JSON.stringify(body)
    return this.server.send(method, `/v1/consumers/${this.name}${path}`, { ...type, ...this.headers }, payload)
  }
  put(registration: Json): Promise<Sent> {
    return this.send('PUT', '', registration)
  }
  async state(): Promise<Json> {
    return okBody(await this.send('GET', ''))
  }
  async position(): Promise<number> {
    return numberOf(await this.state(), 'position')
  }
  moved(from: number, ts: number): Json {
    return { positions: [{ consumer: this.name, from, ts }] }
  }
}

describe('a registration', () => {
  test('is answered with its state, is listed, and is deleted', async () => {
    const server = await start()
    const copy = new Consuming(server)
    const before = numberOf(await server.ok('tso', {}), 'ts')
    const put = await copy.put({ prefix: 'doc/' })
    expect(put.statusCode).toBe(201)
    const state = put.json() as Json
    const lag = { lag_ms: expect.any(Number) }
    const shown = { name: 'copy', prefix: 'doc/', hold_ms: 86_400_000, is_lost: false }
    expect(state).toEqual({ ...shown, ...lag, position: expect.any(Number) })
    expect(numberOf(state, 'position')).toBeGreaterThan(before)
    const again = await copy.put({ prefix: 'doc/', hold_ms: 5000 })
    expect([again.statusCode, again.json()]).toEqual([200, { ...state, ...lag, hold_ms: 5000 }])
    expectProblem(await copy.put({ prefix: 'do' }), 'already_exists', { consumer: 'copy' })
    expect((await new Consuming(server, 'all').put({})).statusCode).toBe(201)
    const { consumers } = okBody(await server.get('/v1/consumers'))
    expect((consumers as Json[]).map(({ name }) => name)).toEqual(['all', 'copy'])
    expect(okBody(await server.get('/v1/status'))['consumers']).toEqual({ count: 2, lost: 0, ...lag })
    okBody(await copy.send('DELETE', ''))
    expectProblem(await copy.send('GET', ''), 'not_found')
    expectProblem(await copy.send('DELETE', ''), 'not_found')
  })

  test.each([
    [{ prefix: 'a', start: 'a' }, 'prefix'],
    [{ start: 'b', end: 'a' }, 'end'],
    [{ hold_ms: 999 }, 'hold_ms'],
    [{ hold_ms: 86_400_001 }, 'hold_ms'],
    [{ since_ts: Number.MAX_SAFE_INTEGER }, 'since_ts'],
    [{ since_ts: -1 }, 'since_ts'],
    [{ range: {} }, 'range'],
  ])('%j is refused', async (registration, field) => {
    const server = await start()
    expectProblem(await new Consuming(server).put(registration), 'invalid_argument', { field })
    expectProblem(await new Consuming(server, 'a%20b').put({}), 'invalid_argument', { field: 'name' })
    expectProblem(await new Consuming(server, 'n'.repeat(129)).put({}), 'invalid_argument', { field: 'name' })
    expect(okBody(await server.get('/v1/consumers'))).toEqual({ consumers: [] })
  })

  test('begins where it is asked to, and one too many is 503', async () => {
    const server = await start({ limits: { consumersMax: 1 } })
    const since = await server.beginFeed()
    const copy = await Consuming.of(server, { since_ts: since })
    expect(await copy.position()).toBe(since)
    expectProblem(await new Consuming(server, 'more').put({}), 'overloaded')
    expect((await copy.put({})).statusCode).toBe(200)
  })
})

test('an acknowledgement moves a position up, and a reset anywhere', async () => {
  const server = await start()
  const since = await server.beginFeed()
  const copy = await Consuming.of(server, { since_ts: since })
  const ts = await server.put('doc/1', 'one')
  await server.untilTold()
  expect(okBody(await copy.send('POST', '/ack', { ts }))['position']).toBe(ts)
  expect(okBody(await copy.send('POST', '/ack', { ts: 0 }))['position']).toBe(ts)
  // At most resolved_ts.
  expect(okBody(await copy.send('POST', '/ack', { ts: Number.MAX_SAFE_INTEGER }))['position']).toBeLessThan(
    Number.MAX_SAFE_INTEGER,
  )
  expectProblem(await copy.send('POST', '/ack', {}), 'invalid_argument', { field: 'ts' })
  expect(okBody(await copy.send('POST', '/reset', { since_ts: since }))['position']).toBe(since)
  expect(numberOf(okBody(await copy.send('POST', '/reset')), 'position')).toBeGreaterThan(ts)
  const none = new Consuming(server, 'none')
  expectProblem(await none.send('POST', '/ack', { ts: 1 }), 'not_found')
  expectProblem(await none.send('POST', '/reset'), 'not_found')
})

test('/v1/admin/gc leaves what a consumer has not read, until it lags by hold_ms; then it is lost', async () => {
  let passedMs = 0
  const server = await start({ now: () => Date.now() + passedMs })
  const copy = await Consuming.of(server, { prefix: 'doc/', hold_ms: 60_000 })
  const position = await copy.position()
  await server.put('doc/1', 'one')
  await server.put('doc/1', 'two')
  await server.untilTold()
  passedMs += 50_000
  const held = okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))
  expect(held).toMatchObject({ safe_point: position, held_back_by: 'consumer' })
  const state = await copy.state()
  expect(state).toMatchObject({ position, is_lost: false })
  expect(numberOf(state, 'lag_ms')).toBeGreaterThanOrEqual(50_000)
  expect(listOf(okBody(await copy.send('GET', '/changes')), 'txns')).toHaveLength(2)
  passedMs += 20_000
  expect(okBody(await server.post('/v1/admin/gc', { life_time_ms: 0 }))['held_back_by']).not.toBe('consumer')
  expect(await copy.state()).toMatchObject({ position, is_lost: true })
  expectProblem(await copy.send('GET', '/changes'), 'ts_below_safe_point')
  expect(okBody(await server.get('/v1/status'))['consumers']).toEqual({ count: 1, lost: 1, lag_ms: 0 })
  expectProblem(await copy.send('POST', '/reset', { since_ts: position }), 'ts_below_safe_point')
  expect(okBody(await copy.send('POST', '/reset'))).toMatchObject({ is_lost: false })
})

describe('a position in a transaction', () => {
  type Commit = (server: TestServer, riders: Json, write: Json | undefined) => Promise<Sent>
  const oneShot: Commit = (server, riders, write) =>
    server.post('/v1/txn', { ...riders, ops: write === undefined ? [] : [{ op: 'put', ...write }] })
  const interactive: Commit = async (server, riders, write) => {
    const begun = await server.post('/v1/txn/begin', {})
    const url = `/v1/txn/${(begun.json() as Json)['txn']}`
    if (write !== undefined) okBody(await server.post(`${url}/ops`, { ops: [{ op: 'put', ...write }] }))
    return server.post(`${url}/commit`, riders)
  }
  const prewrite: Commit = async (server, riders, write) => {
    const { ts } = await server.ok('tso', {})
    const mutations = write === undefined ? [] : [{ op: 'put', ...write }]
    return server.call('prewrite', { start_ts: ts, primary: write?.['key'], mutations, try_one_pc: true, riders })
  }

  describe.each([
    ['a one-shot', oneShot],
    ['an interactive one', interactive],
    ['a prewrite', prewrite],
  ])('%s', (_, commit) => {
    test.each([[{ key: 'copy/1', value: '1' }], [undefined]])('commits once, with the write %j', async (write) => {
      const server = await start()
      const copy = await Consuming.of(server)
      const from = await copy.position()
      const ts = await server.put('doc/1', 'one')
      await server.untilTold()
      okBody(await commit(server, copy.moved(from, ts), write))
      expect(await copy.position()).toBe(ts)
      const refused = await commit(server, copy.moved(from, ts), write)
      expectProblem(refused, 'write_conflict', {
        reason: 'acknowledged',
        consumer: 'copy',
        position: ts,
        retryable: false,
      })
      expect(await copy.position()).toBe(ts)
      if (write !== undefined)
        expect(listOf(await server.mvcc(write.key), 'writes').filter(({ type }) => type === 'put')).toHaveLength(1)
    })

    test('is refused for what cannot be', async () => {
      const server = await start()
      const copy = await Consuming.of(server, {})
      const position = await copy.position()
      const write = { key: 'copy/1', value: '1' }
      const twice = [0, 0].map((from) => ({ consumer: 'copy', from, ts: 0 }))
      const all = Array.from({ length: 101 }, (_, i) => ({ consumer: `c${i}`, from: 0, ts: 0 }))
      for (const positions of [twice, [{ consumer: 'a b', from: 0, ts: 0 }], [{ consumer: 'copy', ts: 0 }], {}])
        expectProblem(await commit(server, { positions }, write), 'invalid_argument')
      expectProblem(await commit(server, { positions: all }, write), 'payload_too_large', { limit: 100 })
      expectProblem(await commit(server, copy.moved(1, 0), write), 'invalid_argument')
      for (const ts of [Number.MAX_SAFE_INTEGER, numberOf(await server.ok('tso', {}), 'ts') * 2])
        expectProblem(await commit(server, copy.moved(position, ts), write), 'invalid_argument')
      expectProblem(await commit(server, new Consuming(server, 'none').moved(0, 0), write), 'not_found')
      expect((await server.get('/v1/kv/copy%2F1')).statusCode).toBe(404)
      expect(await copy.position()).toBe(position)
    })
  })

  test('above resolved_ts is refused, and the open transaction stays open', async () => {
    const server = await start()
    const copy = await Consuming.of(server, {})
    const from = await copy.position()
    await server.lock(numberOf(await server.ok('tso', {}), 'ts'), ['doc/1'])
    const { txn, start_ts: ts } = (await server.post('/v1/txn/begin', {})).json() as Json
    const committed = await server.post(`/v1/txn/${txn}/commit`, copy.moved(from, Number(ts)))
    expectProblem(committed, 'invalid_argument', { field: 'positions[0].ts' })
    expect(okBody(await server.get(`/v1/txn/${txn}`))['state']).toBe('open')
    okBody(await server.post(`/v1/txn/${txn}/commit`, copy.moved(from, from)))
  })

  test('with an Idempotency-Key is answered again, even when the consumer is gone', async () => {
    const server = await start()
    const copy = await Consuming.of(server, {})
    const from = await copy.position()
    const ts = await server.put('doc/1', 'one')
    await server.untilTold()
    const headers = { 'idempotency-key': 'k1' }
    const send = () => server.post('/v1/txn', copy.moved(from, ts), headers)
    const first = okBody(await send())
    expect(okBody(await send())).toEqual(first)
    okBody(await copy.send('DELETE', ''))
    expect(okBody(await send())).toEqual(first)
  })

  test('of 100 consumers at once commits as MessagePack too', async () => {
    const server = await start()
    const from = await server.beginFeed()
    const names = Array.from({ length: 100 }, (_, i) => `c${i}`)
    for (const name of names) expect((await new Consuming(server, name).put({ since_ts: from })).statusCode).toBe(201)
    const ts = await server.put('doc/1', 'one')
    await server.untilTold()
    const positions = names.map((consumer) => ({ consumer, from, ts }))
    okBody(await server.postPacked('/v1/txn', pack({ positions })))
    for (const name of names) expect(await new Consuming(server, name).position()).toBe(ts)
  })
})

describe('access', () => {
  const [RW, RO, APP, APP_RO] = ['rw', 'ro', 'app', 'app-ro'].map((name) => `${name}-token-0123456789`)
  const TOKENS = `rw ${RW}\nro ${RO}\nrw ${APP} prefix=app/\nro ${APP_RO} prefix=app/\n`
  const as = (token = ''): Headers => ({ authorization: `Bearer ${token}` })

  /** @returns where its consumers begin, too. */
  async function startGuarded(): Promise<{ readonly server: TestServer; readonly since: number }> {
    const server = await start({ tokens: TOKENS })
    const since = await server.beginFeed()
    for (const [name, prefix] of Object.entries({ within: 'app/w', beyond: 'ap', outside: 'else/' }))
      expect((await new Consuming(server, name, as(RW)).put({ prefix, since_ts: since })).statusCode).toBe(201)
    await server.put('app/w1', 'one', as(RW))
    return { server, since }
  }

  function changesOf(server: TestServer, name: string, token = ''): Promise<Sent>[] {
    const consuming = new Consuming(server, name, as(token))
    const headers = as(token)
    return [
      consuming.send('POST', '/ack', { ts: 0 }),
      server.post('/v1/txn', consuming.moved(0, 0), headers),
      server.post(
        '/v1/percolator/prewrite',
        { start_ts: 5, mutations: [], try_one_pc: true, riders: consuming.moved(0, 0) },
        headers,
      ),
      consuming.send('POST', '/reset', {}),
      consuming.send('DELETE', ''),
    ]
  }

  test('a token does everything with a consumer whose range it reaches', async () => {
    const { server, since } = await startGuarded()
    const within = new Consuming(server, 'within', as(APP))
    expect((await within.state())['name']).toBe('within')
    expect((await new Consuming(server, 'mine', as(APP)).put({ prefix: 'app/' })).statusCode).toBe(201)
    expectProblem(await new Consuming(server, 'all', as(APP)).put({}), 'forbidden')
    const { consumers } = okBody(await server.get('/v1/consumers', as(APP)))
    expect((consumers as Json[]).map(({ name }) => name)).toEqual(['mine', 'within'])
    const ts = numberOf(okBody(await server.get('/v1/consumers/within/changes', as(APP))), 'next_ts')
    okBody(await server.post('/v1/txn', within.moved(since, ts), as(APP)))
    // Positions alone: nobody needs to name a key for them.
    const start_ts = numberOf(okBody(await server.post('/v1/percolator/tso', {}, as(APP))), 'ts')
    const alone = { start_ts, mutations: [], try_one_pc: true, riders: within.moved(ts, ts) }
    const first = okBody(await server.post('/v1/percolator/prewrite', alone, as(APP)))
    expect(okBody(await server.post('/v1/percolator/prewrite', alone, as(APP)))).toEqual(first)
    const named = { ...alone, primary: 'else/1' }
    expectProblem(await server.post('/v1/percolator/prewrite', named, as(APP)), 'forbidden')
    const noRiders = { start_ts, mutations: [{ op: 'delete', key: 'app/1' }] }
    const missing = await server.post('/v1/percolator/prewrite', noRiders, as(APP))
    expectProblem(missing, 'invalid_argument', { field: 'primary' })
    const refused = await server.post('/v1/txn', within.moved(since, ts), as(APP))
    expectProblem(refused, 'write_conflict', { consumer: 'within', position: ts })
    for (const answer of [await within.send('POST', '/ack', { ts }), await within.send('POST', '/reset')])
      okBody(answer)
    okBody(await within.send('DELETE', ''))
  })

  test('a read-only one sees it, and changes nothing', async () => {
    const { server, since } = await startGuarded()
    for (const token of [RO, APP_RO]) {
      okBody(await server.get('/v1/consumers/within', as(token)))
      okBody(await server.get('/v1/consumers/within/changes', as(token)))
      for (const answer of changesOf(server, 'within', token)) expectProblem(await answer, 'forbidden')
      expectProblem(await new Consuming(server, 'new', as(token)).put({ prefix: 'app/' }), 'forbidden')
    }
    expect(await new Consuming(server, 'within', as(RW)).position()).toBe(since)
  })

  test('others look as if they did not exist', async () => {
    const { server, since } = await startGuarded()
    for (const name of ['beyond', 'outside', 'none']) {
      const answers = [...changesOf(server, name, APP), server.get(`/v1/consumers/${name}`, as(APP))]
      for (const answer of answers) {
        const { detail } = expectProblem(await answer, 'not_found')
        expect(detail).toBe(`there is no consumer ${name}`)
      }
    }
    for (const name of ['beyond', 'outside']) expect(await new Consuming(server, name, as(RW)).position()).toBe(since)
  })
})

test('positions are where they were after a restart', async () => {
  const server = await start()
  const copy = await Consuming.of(server, { prefix: 'doc/', hold_ms: 5000 })
  const from = await copy.position()
  const ts = await server.put('doc/1', 'one')
  await server.untilTold()
  await server.txn({ ...copy.moved(from, ts), ops: [{ op: 'put', key: 'copy/1', value: 'one' }] })
  await server.put('doc/2', 'two')
  await server.app.close()
  await server.database.close()
  const again = await start({ directory: server.directory })
  const consuming = new Consuming(again)
  expect(await consuming.state()).toMatchObject({ prefix: 'doc/', position: ts, hold_ms: 5000 })
  expectProblem(await again.post('/v1/txn', consuming.moved(from, ts)), 'write_conflict', { position: ts })
  expect(listOf(okBody(await consuming.send('GET', '/changes')), 'txns')).toHaveLength(1)
})
