import { describe, expect, test } from 'vitest'
import { Observing } from './observing.js'
import { expectProblem, type Json, listOf, numberOf, okBody, pack, testServers, unpack } from './support.js'

const start = testServers()

/** Of an observer with nothing to do. */
const AT_REST = {
  max_attempts: 16,
  backoff_ms: 200,
  backoff_max_ms: 60_000,
  max_depth: 64,
  state: 'running',
  pending: 0,
  pending_is_exact: true,
  claimed: 0,
  delayed: 0,
  parked: 0,
  lag_ms: 0,
  acks: 0,
  conflicts: 0,
  workers: [],
}

describe('PUT', () => {
  test('registers a range, shows it as it was given, and is 200 where it exists', async () => {
    const server = await start()
    const words = new Observing(server, 'words')
    const first = await words.put({ prefix: 'doc/' })
    expect(first.statusCode).toBe(201)
    const state = first.json<Json>()
    expect(state).toEqual({ name: 'words', prefix: 'doc/', ...AT_REST, since_ts: expect.any(Number) })
    const again = await words.put({ prefix: 'doc/', max_attempts: 3, backoff_ms: 0, backoff_max_ms: 5, max_depth: 0 })
    expect(again.statusCode).toBe(200)
    const options = { max_attempts: 3, backoff_ms: 0, backoff_max_ms: 5, max_depth: 0 }
    expect(again.json()).toEqual({ ...state, ...options })
    expect(await words.state()).toEqual({ ...state, ...options })
    expect((await words.put({ prefix: 'doc/' })).json()).toEqual(state) // Options are replaced, not merged.
  })

  test.each<Json>([
    { prefix: '' },
    { prefix: { base64: '/wA=' } },
    { start: 'a' },
    { end: 'b' },
    { start: 'a', end: 'b' },
    { start: { base64: '/w==' } },
  ])('takes the range %j', async (range) => {
    const server = await start()
    const answer = await new Observing(server, 'o').put(range)
    expect(answer.statusCode).toBe(201)
    const { prefix, start: from, end } = answer.json<Json>()
    expect(JSON.parse(JSON.stringify({ prefix, start: from, end }))).toEqual(range)
    expect((await new Observing(server, 'o').put(range)).statusCode).toBe(200)
  })

  test('of another range is 409, whatever the range is called', async () => {
    const server = await start()
    const words = await Observing.of(server)
    for (const range of [{ prefix: 'doc' }, { prefix: '' }, { start: 'doc/' }, { start: 'doc/', end: 'doc1' }])
      expectProblem(await words.put(range), 'already_exists', { observer: 'words', retryable: false })
    expect(await words.state()).toMatchObject({ prefix: 'doc/' })
  })

  test.each<[Json, string]>([
    [{}, 'prefix'],
    [{ backfill: true }, 'prefix'],
    [{ start: '', end: '' }, 'prefix'],
    [{ prefix: 'a', start: 'a' }, 'prefix'],
    [{ prefix: '', end: 'a' }, 'prefix'],
    [{ start: 'b', end: 'b' }, 'end'],
    [{ start: 'b', end: 'a' }, 'end'],
    [{ prefix: 5 }, 'prefix'],
    [{ prefix: 'a', max_attempts: -1 }, 'max_attempts'],
    [{ prefix: 'a', max_attempts: 1.5 }, 'max_attempts'],
    [{ prefix: 'a', backoff_ms: 86_400_001 }, 'backoff_ms'],
    [{ prefix: 'a', backoff_max_ms: '5' }, 'backoff_max_ms'],
    [{ prefix: 'a', max_depth: 1e300 }, 'max_depth'],
    [{ prefix: 'a', backfill: 1 }, 'backfill'],
    [{ prefix: 'a', webhook: {} }, 'webhook'],
    [{ prefix: 'a', name: 'b' }, 'name'],
  ])('of %j is 400', async (body, field) => {
    const server = await start()
    expectProblem(await new Observing(server, 'o').put(body), 'invalid_argument', { field })
    expect(okBody(await server.get('/v1/observers'))).toEqual({ observers: [] })
  })

  test('of a bound over the limit of keys is 413', async () => {
    const server = await start()
    for (const name of ['prefix', 'start', 'end'])
      expectProblem(await new Observing(server, 'o').put({ [name]: 'k'.repeat(4097) }), 'payload_too_large')
  })

  test('of names: 1 to 128 letters, digits, dots, underscores and hyphens', async () => {
    const server = await start()
    for (const name of ['a', 'A-z_0.9', 'x'.repeat(128), '...'])
      expect((await new Observing(server, name).put({ prefix: 'a' })).statusCode).toBe(201)
    for (const name of ['x'.repeat(129), 'a%20b', 'a%2Fb', '%C3%A9', 'a:b', 'a%00', 'a%0A'])
      for (const method of ['PUT', 'GET', 'DELETE'] as const)
        expectProblem(
          await new Observing(server, name).send(method, '', method === 'PUT' ? { prefix: 'a' } : undefined),
          'invalid_argument',
          { field: 'name' },
        )
  })

  test('of more observers than there may be is 503, of those that are there not', { tags: ['long'] }, async () => {
    const server = await start({ limits: { observersMax: 2 } })
    const two = [await Observing.of(server, { prefix: 'a' }, 'a'), await Observing.of(server, { prefix: 'b' }, 'b')]
    const third = new Observing(server, 'c')
    expectProblem(await third.put({ prefix: 'c' }), 'overloaded')
    for (const { name } of two) expect((await new Observing(server, name).put({ prefix: name })).statusCode).toBe(200)
    await two[0]?.send('DELETE', '')
    expect((await third.put({ prefix: 'c' })).statusCode).toBe(201)
  })
})

test('the list is in order of names, and has what GET answers', async () => {
  const server = await start()
  expect(okBody(await server.get('/v1/observers'))).toEqual({ observers: [] })
  const all = []
  for (const name of ['b', 'a', 'B']) all.push(await Observing.of(server, { prefix: name }, name))
  const states = await Promise.all(all.map((one) => one.state()))
  const [b, a, B] = states
  expect(okBody(await server.get('/v1/observers'))).toEqual({ observers: [B, a, b] })
})

test('an observer that is not there is 404 in every call', async () => {
  const server = await start()
  const nobody = new Observing(server, 'nobody')
  for (const method of ['GET', 'DELETE'] as const) expectProblem(await nobody.send(method, ''), 'not_found')
  expectProblem(await nobody.send('GET', '/parked'), 'not_found')
  for (const [call, body] of Object.entries({
    claim: { worker: 'w' },
    extend: { claims: [] },
    release: { claims: [] },
    notify: { keys: ['a'] },
    backfill: {},
    pause: {},
    resume: {},
    retry: {},
    skip: { keys: ['a'] },
  }))
    expectProblem(await nobody.post(call, body), 'not_found')
})

test('DELETE forgets the observer, with all that it had to run', async () => {
  const server = await start()
  const words = await Observing.of(server)
  await server.put('doc/1', 'a')
  const claimed = await words.claimOne()
  expect(okBody(await words.send('DELETE', ''))).toEqual({})
  expectProblem(await words.send('DELETE', ''), 'not_found')
  expectProblem(await words.ack(claimed), 'not_found')
  const again = await Observing.of(server)
  expect(await again.claim()).toEqual([])
  expectProblem(await again.ack(claimed), 'write_conflict', { reason: 'acknowledged', retryable: false })
})

test('notify marks keys without writing them, each once, and refuses those outside of the range', async () => {
  const server = await start()
  const words = await Observing.of(server)
  const { notified, ts } = okBody(await words.post('notify', { keys: ['doc/1', 'doc/2', 'doc/1'] }))
  expect(notified).toBe(2)
  const claimed = await words.claim({ limit: 5, values: true })
  expect(claimed.map(({ key, kind, commit_ts, found }) => ({ key, kind, commit_ts, found })).sort(byKey)).toEqual(
    ['doc/1', 'doc/2'].map((key) => ({ key, kind: 'notified', commit_ts: ts, found: false })),
  )
  expect((await server.mvcc('doc/1'))['writes']).toEqual([])
  expectProblem(await words.post('notify', { keys: ['doc/3', 'other'] }), 'invalid_argument', { field: 'keys[1]' })
  expectProblem(await words.post('notify', { keys: [] }), 'invalid_argument', { field: 'keys' })
  expectProblem(await words.post('notify', {}), 'invalid_argument', { field: 'keys' })
  expect(await words.claim()).toEqual([])
})

const byKey = (one: { readonly key: string }, other: { readonly key: string }): number => (one.key < other.key ? -1 : 1)

test('backfill runs the keys that are there already, on request or from the beginning', async () => {
  const server = await start()
  for (const key of ['doc/1', 'doc/2', 'else']) await server.put(key, key)
  await server.remove('doc/2')
  await server.put('doc/3', 'c')
  const words = await Observing.of(server, { prefix: 'doc/', backfill: true })
  const [first] = await words.claim({ wait_ms: 10_000, values: true })
  const others = await words.claim({ wait_ms: 10_000, values: true, limit: 10 })
  const claimed = [first, ...others].map((one) => ({ key: one?.key, kind: one?.kind, value: one?.value }))
  expect(claimed).toEqual([
    { key: 'doc/1', kind: 'backfill', value: 'doc/1' },
    { key: 'doc/3', kind: 'backfill', value: 'c' },
  ])
  for (const one of [first, ...others]) if (one !== undefined) await words.acked(one)
  const begun = await words.post('backfill')
  expect(begun.statusCode).toBe(202)
  expect(begun.json()).toMatchObject({ name: 'words', state: expect.stringMatching(/backfilling|running/) })
  expect(await words.claim({ wait_ms: 10_000 })).toMatchObject([{ key: 'doc/1', kind: 'backfill', attempt: 1 }])
  expect((await words.put({ prefix: 'doc/', backfill: true })).statusCode).toBe(200)
})

test('a paused observer hands nothing out, and forgets nothing', async () => {
  const server = await start()
  const words = await Observing.of(server)
  await server.put('doc/1', 'a')
  expect(okBody(await words.post('pause'))).toMatchObject({ name: 'words', state: 'paused', pending: 1 })
  await server.put('doc/2', 'b')
  expect(await words.claim({ wait_ms: 60_000 })).toEqual([])
  expect(await words.state()).toMatchObject({ state: 'paused', pending: 2 })
  expect(okBody(await words.post('pause'))).toMatchObject({ state: 'paused' })
  expect(okBody(await words.post('resume'))).toMatchObject({ state: 'running', pending: 2 })
  expect(await words.claim({ limit: 5 })).toHaveLength(2)
})

test('a call that takes no body takes none, and no field', async () => {
  const server = await start()
  const words = await Observing.of(server)
  for (const call of ['pause', 'resume', 'backfill', 'retry']) {
    expect((await words.send('POST', `/${call}`)).statusCode).toBeLessThan(300)
    expectProblem(await words.post(call, { nope: 1 }), 'invalid_argument', { field: 'nope' })
  }
})

describe('parked cells', () => {
  async function startParked(count: number): Promise<Observing> {
    const server = await start()
    const words = await Observing.of(server, { prefix: 'doc/', max_attempts: 1 })
    const ops = Array.from({ length: count }, (_, i) => ({ op: 'put', key: `doc/${i}`, value: 'v' }))
    await server.txn({ ops })
    const claims = await words.claim({ limit: 1000 })
    expect(claims).toHaveLength(count)
    const { released, parked } = await words.release(claims, { error: 'it has no title' })
    expect(released).toBe(count)
    expect((parked as string[]).sort()).toEqual(ops.map(({ key }) => key))
    return words
  }

  test('are listed with their errors, in pages', async () => {
    const words = await startParked(5)
    await expect.poll(() => words.state()).toMatchObject({ pending: 0, parked: 5 })
    expect(await words.claim()).toEqual([])
    const whole = okBody(await words.send('GET', '/parked'))
    expect(Object.keys(whole)).toEqual(['parked'])
    const all = listOf(whole, 'parked')
    expect(all.map(({ key }) => key)).toEqual(['doc/0', 'doc/1', 'doc/2', 'doc/3', 'doc/4'])
    for (const one of all) {
      expect(one).toMatchObject({ attempts: 1, error: 'it has no title', commit_ts: expect.any(Number) })
      expect(one['parked_at']).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    }
    const pages = []
    let query = '?limit=2'
    for (;;) {
      const page = okBody(await words.send('GET', `/parked${query}`))
      pages.push(listOf(page, 'parked'))
      if (page['cursor'] === undefined) break
      query = `?cursor=${page['cursor']}` // The limit is in it.
    }
    expect(pages).toEqual([all.slice(0, 2), all.slice(2, 4), all.slice(4)])
  })

  test('a cursor is that of one observer, and of no other call', async () => {
    const words = await startParked(2)
    const { server } = words
    const { cursor } = okBody(await words.send('GET', '/parked?limit=1'))
    const others = await Observing.of(server, { prefix: 'o' }, 'others')
    expectProblem(await others.send('GET', `/parked?cursor=${cursor}`), 'invalid_argument', { field: 'cursor' })
    expectProblem(await server.get(`/v1/kv?cursor=${cursor}`), 'invalid_argument', { field: 'cursor' })
    const scan = okBody(await server.get('/v1/kv?limit=1'))
    for (const wrong of [scan['cursor'], 'nope', '', '%00', `${cursor}A`])
      expectProblem(await words.send('GET', `/parked?cursor=${wrong}`), 'invalid_argument', { field: 'cursor' })
    for (const limit of ['0', '10001', 'x', '-1'])
      expectProblem(await words.send('GET', `/parked?limit=${limit}`), 'invalid_argument', { field: 'limit' })
    expectProblem(await words.send('GET', '/parked?after=a'), 'invalid_argument', { field: 'after' })
  })

  test('are run again by retry, all or some, as if they had never failed', async () => {
    const words = await startParked(3)
    expect(okBody(await words.post('retry', { keys: ['doc/1', 'doc/1', 'doc/9'] }))).toEqual({ retried: 1 })
    expect(await words.claim({ limit: 9 })).toMatchObject([{ key: 'doc/1', attempt: 1 }])
    expect(okBody(await words.post('retry'))).toEqual({ retried: 2 })
    expect(okBody(await words.post('retry'))).toEqual({ retried: 0 })
    expect(await words.claim({ limit: 9 })).toHaveLength(2)
    expectProblem(await words.post('retry', { keys: [] }), 'invalid_argument', { field: 'keys' })
  })

  test('are given up by skip, those that are named', async () => {
    const words = await startParked(3)
    await words.server.put('doc/9', 'not parked')
    expect(okBody(await words.post('skip', { keys: ['doc/1', 'doc/9', 'doc/8'] }))).toEqual({ skipped: 1 })
    expectProblem(await words.post('skip', {}), 'invalid_argument', { field: 'keys' })
    expect(await words.state()).toMatchObject({ parked: 2, pending: 1 })
    expect(await words.claim({ limit: 9 })).toMatchObject([{ key: 'doc/9' }])
  })

  test('are ready for one try after a change', async () => {
    const words = await startParked(1)
    await words.server.put('doc/0', 'with a title')
    const claimed = await words.claimOne()
    expect(claimed).toMatchObject({ attempt: 2, kind: 'put' })
    await words.release([claimed], { error: 'still none' })
    expect(okBody(await words.send('GET', '/parked'))).toMatchObject({ parked: [{ attempts: 2, error: 'still none' }] })
  })
})

test('everything goes in MessagePack too', async () => {
  const server = await start()
  const accept = { accept: 'application/msgpack' }
  const send = async (method: 'PUT' | 'POST', url: string, body: unknown) => {
    const answer = await server.send(method, url, { 'content-type': 'application/msgpack', ...accept }, pack(body))
    expect(answer.statusCode, String(answer.rawPayload)).toBeLessThan(300)
    return unpack(answer.rawPayload) as Json
  }
  const url = '/v1/observers/words'
  const prefix = Buffer.from([0xff])
  const state = await send('PUT', url, { prefix })
  expect(state).toMatchObject({ prefix, ...AT_REST })
  const key = Buffer.from([0xff, 0])
  await send('POST', '/v1/txn', { ops: [{ op: 'put', key, value: Buffer.from([1]) }] })
  const claimed = listOf(await send('POST', `${url}/claim`, { worker: 'w', values: true }), 'notifications')
  expect(claimed).toMatchObject([{ key, kind: 'put', found: true, value: Buffer.from([1]) }])
  const fence = numberOf(claimed[0] as Json, 'fence')
  expect(await send('POST', `${url}/extend`, { claims: [{ key, fence: BigInt(fence) }] })).toEqual({ lost: [] })
  const acks = [{ observer: 'words', key, fence: BigInt(fence) }]
  const { commit_ts } = await send('POST', '/v1/txn', { acks, notify: [{ observer: 'words', keys: [key] }] })
  expect(commit_ts).toBeGreaterThan(fence)
  expect((await send('POST', `${url}/claim`, { worker: 'w' }))['notifications']).toMatchObject([{ kind: 'notified' }])
})

test('/v1/status sums up what there is to run', async () => {
  const server = await start()
  const none = okBody(await server.get('/v1/status'))
  expect(none['observers']).toEqual({ count: 0, pending: 0, parked: 0, lag_ms: 0 })
  const words = await Observing.of(server, { prefix: 'doc/', max_attempts: 1 })
  await Observing.of(server, { prefix: '' }, 'all')
  await server.put('doc/1', 'a')
  await words.release([await words.claimOne()], { error: 'no' })
  await server.put('doc/2', 'b')
  const { observers } = okBody(await server.get('/v1/status'))
  expect(observers).toEqual({ count: 2, pending: 3, parked: 1, lag_ms: expect.any(Number) })
})
