import { request as httpRequest } from 'node:http'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { reopenTestStore } from '../store/test-store.js'
import {
  expectProblem,
  type Json,
  listOf,
  numberOf,
  okBody,
  type Sent,
  serve,
  type TestServer,
  testServers,
} from './support.js'

const startPlain = testServers()

afterEach(() => {
  vi.useRealTimers()
})

/** `start_ts key` of every request for a lock that reached the store. */
const asked = new WeakMap<object, Set<string>>()

async function start(): Promise<TestServer> {
  const server = await startPlain()
  const seen = new Set<string>()
  const acquire = server.store.acquirePessimisticLock.bind(server.store)
  server.store.acquirePessimisticLock = (request) => {
    for (const key of request.keys) seen.add(`${request.startTs} ${Buffer.from(key)}`)
    return acquire(request)
  }
  asked.set(server, seen)
  return server
}

type Answer = Sent

// Requests are sent by async functions: an injected one waits until somebody asks for its answer.

/** As `expectProblem`, for the codes of waiting and locking too. */
function expectRefused(answer: Answer, status: number, code: string, fields: Json = {}): Json {
  expect(answer.headers['content-type'], answer.body).toMatch(/^application\/problem\+json/)
  const body = answer.json<Json>()
  expect(body, answer.body).toMatchObject({ code, status, ...fields })
  expect(answer.statusCode).toBe(status)
  return body
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setImmediate(resolve))
}

const locksOf = async (server: TestServer): Promise<Json[]> =>
  listOf(await server.ok('scan_lock', { max_ts: 2 ** 52 }), 'locks')
const lockedKeys = async (server: TestServer): Promise<unknown[]> => (await locksOf(server)).map(({ key }) => key)

const request = (startTs: number, keys: readonly string[], rest: Json = {}): Json => ({
  keys,
  primary: keys[0],
  start_ts: startTs,
  for_update_ts: startTs,
  wait_timeout: -1,
  ...rest,
})
const acquire = async (
  server: TestServer,
  startTs: number,
  keys: readonly string[],
  rest: Json = {},
): Promise<Answer> => server.call('acquire_pessimistic_lock', request(startTs, keys, rest))
const acquired = async (server: TestServer, startTs: number, keys: readonly string[], rest: Json = {}) =>
  listOf(okBody(await acquire(server, startTs, keys, rest)), 'results')
const release = (server: TestServer, startTs: number, keys: readonly string[], forUpdateTs = startTs): Promise<Json> =>
  server.ok('pessimistic_rollback', { keys, start_ts: startTs, for_update_ts: forUpdateTs })

/** Until the transaction at `startTs`, whose request for `key` is on its way, waits for it. */
async function waits(server: TestServer, startTs: number, key: string): Promise<void> {
  await until(async () => asked.get(server)?.has(`${startTs} ${key}`) === true)
  await server.mvcc(key) // It comes to the key after the request, which joined the queue then.
}

const lockOf = (key: string, startTs: number, rest: Json = {}): Json => ({
  key,
  primary: key,
  start_ts: startTs,
  ttl: expect.any(Number),
  type: 'pessimistic',
  txn_size: 0,
  for_update_ts: startTs,
  min_commit_ts: 0,
  use_async_commit: false,
  secondaries: [],
  ...rest,
})

interface Txn {
  readonly url: string
  readonly startTs: number
}
async function begin(server: TestServer, rest: Json = {}): Promise<Txn> {
  const answer = await server.post('/v1/txn/begin', { mode: 'pessimistic', ...rest })
  expect(answer.statusCode, answer.body).toBe(201)
  const body = answer.json<Json>()
  return { url: `/v1/txn/${body['txn']}`, startTs: numberOf(body, 'start_ts') }
}
const put = async (server: TestServer, { url }: Txn, key: string, value = 'v', query = ''): Promise<Answer> =>
  server.send('PUT', `${url}/kv/${key}${query}`, {}, value)
const get = async (server: TestServer, { url }: Txn, key: string, query = ''): Promise<Answer> =>
  server.get(`${url}/kv/${key}${query}`)
const end = async (server: TestServer, { url }: Txn, how: 'commit' | 'rollback'): Promise<Json> =>
  okBody(await server.post(`${url}/${how}`, {}))

describe('interactive', () => {
  for (const how of ['commit', 'rollback'] as const)
    test(`PUT locks at once; another waits for the ${how}`, { tags: ['long'] }, async () => {
      const server = await start()
      const [first, second] = [await begin(server), await begin(server)]
      okBody(await put(server, first, 'k', 'first'))
      expect(await locksOf(server)).toEqual([lockOf('k', first.startTs, { for_update_ts: expect.any(Number) })])
      const waiting = put(server, second, 'k', 'second', '?lock_wait_ms=30000')
      await waits(server, second.startTs, 'k')
      expectProblem(await server.get('/v1/kv/k'), 'not_found')
      await end(server, first, how)
      okBody(await waiting)
      const { commit_ts: commitTs } = await end(server, second, 'commit')
      expect((await server.get('/v1/kv/k')).headers.etag).toBe(`"${commitTs}"`)
      expect((await server.get('/v1/kv/k')).body).toBe('second')
      expect(listOf(await server.mvcc('k'), 'writes').filter(({ type }) => type === 'put')).toHaveLength(
        how === 'commit' ? 2 : 1,
      )
      expect(await locksOf(server)).toEqual([])
    })

  test('lock_wait_timeout with the lock, for PUT, DELETE, for_update and conditions; the transaction goes on', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    const [first, second] = [await begin(server), await begin(server)]
    okBody(await put(server, first, 'k', 'first'))
    const lock = lockOf('k', first.startTs, { for_update_ts: expect.any(Number) })
    for (const ms of [0, 20]) {
      const query = `?lock_wait_ms=${ms}`
      expectRefused(await put(server, second, 'k', 'v', query), 423, 'lock_wait_timeout', { lock })
      expectRefused(await server.send('DELETE', `${second.url}/kv/k${query}`), 423, 'lock_wait_timeout', { lock })
      expectRefused(await get(server, second, 'k', `${query}&for_update=true`), 423, 'lock_wait_timeout', { lock })
      const conditional = await server.send('PUT', `${second.url}/kv/k${query}`, { 'if-none-match': '*' }, 'v')
      expectRefused(conditional, 423, 'lock_wait_timeout', { lock })
    }
    expectProblem(await get(server, second, 'k'), 'not_found')
    okBody(await put(server, second, 'other'))
    expect(await lockedKeys(server)).toEqual(['k', 'other'])
    await end(server, second, 'commit')
    await end(server, first, 'commit')
    expect((await server.get('/v1/kv/k')).body).toBe('first')
  })

  test('for_update locks and reads the latest; plain reads see the snapshot; writes on it are no conflict', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    await server.put('k', 'old')
    const txn = await begin(server)
    const newer = await server.put('k', 'newer')
    await server.put('late', 'x')
    expect((await get(server, txn, 'k')).body).toBe('old')
    const latest = await get(server, txn, 'k', '?for_update=true')
    expect([latest.body, latest.headers.etag]).toEqual(['newer', `"${newer}"`])
    expect((await get(server, txn, 'k')).body).toBe('old')
    expectProblem(await get(server, txn, 'late'), 'not_found')
    expect((await get(server, txn, 'late', '?for_update')).body).toBe('x')
    expectProblem(await get(server, txn, 'absent', '?for_update=1'), 'not_found')
    expect(await lockedKeys(server)).toEqual(['absent', 'k', 'late'])
    okBody(await put(server, txn, 'k', 'own'))
    expect((await get(server, txn, 'k', '?for_update=true')).body).toBe('own')
    okBody(await server.send('DELETE', `${txn.url}/kv/late`))
    await end(server, txn, 'commit')
    expect((await server.get('/v1/kv/k')).body).toBe('own')
    expectProblem(await server.get('/v1/kv/late'), 'not_found')
    expect(await locksOf(server)).toEqual([])
  })

  test('counters by for_update lose nothing; ops count on the latest too', { tags: ['long'] }, async () => {
    const server = await start()
    const increment = async (i: number): Promise<void> => {
      const txn = await begin(server)
      if (i % 2 === 0) {
        const found = await get(server, txn, 'n', '?for_update=true&lock_wait_ms=60000')
        okBody(await put(server, txn, 'n', `${Number(found.statusCode === 200 ? found.body : 0) + 1}`))
      } else {
        okBody(
          await get(server, txn, 'n', '?for_update=true&lock_wait_ms=60000').then(
            (answer) => ({ ...answer, statusCode: 200, json: () => ({}) }) as Answer,
          ),
        )
        okBody(await server.post(`${txn.url}/ops`, { ops: [{ op: 'increment', key: 'n' }] }))
      }
      await end(server, txn, 'commit')
    }
    await Promise.all(Array.from({ length: 30 }, (_, i) => increment(i)))
    expect((await server.get('/v1/kv/n')).body).toBe('30')
    expect(await locksOf(server)).toEqual([])
  })

  test('deadlock: the requester that closes the cycle; it stays open; the other proceeds once it is rolled back', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    const [a, b] = [await begin(server), await begin(server)]
    okBody(await put(server, a, 'ka', 'a'))
    okBody(await put(server, b, 'kb', 'b'))
    const waiting = put(server, a, 'kb', 'a', '?lock_wait_ms=60000')
    await waits(server, a.startTs, 'kb')
    expectRefused(await put(server, b, 'ka', 'b', '?lock_wait_ms=60000'), 409, 'deadlock', {
      lock_ts: a.startTs,
      lock_key: 'ka',
      wait_chain: [
        { txn: a.startTs, wait_for_txn: b.startTs, key: 'kb' },
        { txn: b.startTs, wait_for_txn: a.startTs, key: 'ka' },
      ],
    })
    expect(okBody(await server.get(b.url))).toMatchObject({ start_ts: b.startTs, writes: 1 })
    expect((await get(server, b, 'kb')).body).toBe('b')
    expect(await lockedKeys(server)).toEqual(['ka', 'kb'])
    expect(await end(server, b, 'rollback')).toEqual({})
    okBody(await waiting)
    await end(server, a, 'commit')
    expect([(await server.get('/v1/kv/ka')).body, (await server.get('/v1/kv/kb')).body]).toEqual(['a', 'a'])
    expect(await locksOf(server)).toEqual([])
  })

  test('rollback while a PUT waits: the PUT ends at once without a lock', { tags: ['long'] }, async () => {
    const server = await start()
    const [first, second] = [await begin(server), await begin(server)]
    okBody(await put(server, first, 'k', 'first'))
    const waiting = put(server, second, 'k', 'second', '?lock_wait_ms=60000')
    await waits(server, second.startTs, 'k')
    expect(await end(server, second, 'rollback')).toEqual({})
    expectProblem(await waiting, 'txn_not_found')
    await end(server, first, 'commit')
    okBody(await server.send('PUT', '/v1/kv/k?lock_wait_ms=0', {}, 'free'))
    expect(await locksOf(server)).toEqual([])
  })

  test('a conflict that others see: optimistic transactions lose to it, autocommit waits for it', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    await server.put('k', 'old')
    const txn = await begin(server)
    okBody(await put(server, txn, 'k', 'own'))
    for (const url of ['/v1/kv/k?lock_wait_ms=0', `/v1/kv/k?lock_wait_ms=0&ts=${2 ** 52}`])
      expect((await server.get(url)).body).toBe('old')
    expect(okBody(await server.get('/v1/kv?lock_wait_ms=0&count_only'))['count']).toBe(1)
    const lock = lockOf('k', txn.startTs, { for_update_ts: expect.any(Number) })
    for (const ms of [0, 20]) {
      const query = `?lock_wait_ms=${ms}`
      expectRefused(await server.send('PUT', `/v1/kv/k${query}`, {}, 'x'), 423, 'key_locked', { lock })
      expectRefused(await server.send('DELETE', `/v1/kv/k${query}`), 423, 'key_locked', { lock })
    }
    const waiting = Promise.resolve(server.send('PUT', '/v1/kv/k?lock_wait_ms=60000', {}, 'after'))
    await end(server, txn, 'commit')
    okBody(await waiting)
    expect((await server.get('/v1/kv/k')).body).toBe('after')
  })

  test('an idle one frees its locks; whoever waits for them gets them', { tags: ['long'] }, async () => {
    const server = await start()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    const [idle, next] = [await begin(server, { ttl_ms: 1000 }), await begin(server)]
    okBody(await put(server, idle, 'k', 'idle'))
    const waiting = put(server, next, 'k', 'next', '?lock_wait_ms=60000')
    await waits(server, next.startTs, 'k')
    vi.advanceTimersByTime(1000)
    okBody(await waiting)
    expectProblem(await get(server, idle, 'k'), 'txn_not_found')
    await end(server, next, 'commit')
    expect((await server.get('/v1/kv/k')).body).toBe('next')
  })

  test('a failed list of ops keeps no writes, and the end frees every lock', { tags: ['long'] }, async () => {
    const server = await start()
    await server.put('k', 'text')
    for (const how of ['commit', 'rollback'] as const) {
      const txn = await begin(server)
      const ops = [
        { op: 'put', key: 'a', value: '1' },
        { op: 'insert', key: 'k', value: '1' },
      ]
      expectProblem(await server.post(`${txn.url}/ops`, { ops }), 'already_exists')
      expectProblem(await server.post(`${txn.url}/ops`, { ops: [{ op: 'increment', key: 'k' }] }), 'invalid_argument')
      expect(okBody(await server.get(txn.url))['writes']).toBe(0)
      okBody(await put(server, txn, 'b'))
      await end(server, txn, how)
      // In two phases the other keys of a commit follow its answer.
      await vi.waitFor(async () => expect(await locksOf(server)).toEqual([]), { interval: 5 })
      expectProblem(await server.get('/v1/kv/a'), 'not_found')
    }
  })

  test('random transfers between accounts: deadlocks are found, money is kept', { tags: ['long'] }, async () => {
    const server = await start()
    const keys = ['a', 'b', 'c', 'd']
    await server.txn({ ops: keys.map((key) => ({ op: 'put', key, value: '100' })) })
    let deadlocks = 0
    const transfer = async (from: string, to: string): Promise<void> => {
      for (;;) {
        const txn = await begin(server)
        const read = (key: string) => get(server, txn, key, '?for_update=true&lock_wait_ms=60000')
        const first = await read(from)
        const second = await read(to)
        if (second.statusCode === 409) {
          expectRefused(second, 409, 'deadlock')
          deadlocks++
          await end(server, txn, 'rollback')
          continue
        }
        okBody(await put(server, txn, from, `${Number(first.body) - 1}`))
        okBody(await put(server, txn, to, `${Number(second.body) + 1}`))
        await end(server, txn, 'commit')
        return
      }
    }
    const pairs = keys.flatMap((from) => keys.filter((to) => to !== from).map((to) => [from, to] as const))
    await Promise.all([...pairs, ...pairs, ...pairs].map(([from, to]) => transfer(from, to)))
    const balances = listOf(okBody(await server.get('/v1/kv')), 'pairs').map(({ value }) => value)
    expect(balances).toEqual(['100', '100', '100', '100'])
    expect(deadlocks).toBeGreaterThan(0)
    expect(await locksOf(server)).toEqual([])
  })
})

describe('acquire_pessimistic_lock', () => {
  test('results: what was asked for, and nothing else', async () => {
    const server = await start()
    await server.write(5, 6, ['a', 'gone'])
    await server.ok('prewrite', { mutations: [{ op: 'delete', key: 'gone' }], primary: 'gone', start_ts: 7 })
    await server.ok('commit', { keys: ['gone'], start_ts: 7, commit_ts: 8 })
    const keys = ['gone', 'a', 'none']
    const value = 'a@5'
    const wants: readonly (readonly [options: Json, results: Json[]])[] = [
      [{}, [{}, {}, {}]],
      [{ is_first_lock: true }, [{}, {}, {}]],
      [{ check_existence: true }, [{ found: false }, { found: true }, { found: false }]],
      [{ return_values: true }, [{ found: false }, { found: true, value }, { found: false }]],
      [
        { return_values: true, check_existence: true, is_first_lock: true },
        [{ found: false }, { found: true, value }, { found: false }],
      ],
    ]
    for (const [i, [options, results]] of wants.entries()) {
      const startTs = 10 + i
      // Twice: a repeat answers the same.
      for (let repeat = 0; repeat < 2; repeat++)
        expect(okBody(await acquire(server, startTs, keys, { primary: 'a', ...options }))).toEqual({ results })
      expect(await locksOf(server)).toEqual(
        ['a', 'gone', 'none'].map((key) => lockOf(key, startTs, { primary: 'a', ttl: 3000 })),
      )
      expect(await release(server, startTs, keys)).toEqual({})
      expect(await locksOf(server)).toEqual([])
    }
    expect(await acquired(server, 20, keys, { return_values: true, lock_only_if_exists: true, primary: 'a' })).toEqual([
      { found: false },
      { found: true, value },
      { found: false },
    ])
    expect(await lockedKeys(server)).toEqual(['a'])
    expectProblem(await acquire(server, 20, ['a'], { insert: true }), 'already_exists', { key: 'a' })
    expect(await acquired(server, 20, ['gone', 'none'], { insert: true, lock_ttl: 77 })).toEqual([{}, {}])
    expect(await locksOf(server)).toMatchObject([{ key: 'a' }, { key: 'gone', ttl: 77 }, { key: 'none', ttl: 77 }])
    expect(await server.ok('get', { key: 'a' })).toMatchObject({ found: true })
    expect(await server.ok('get', { key: 'a', ts: 100 })).toMatchObject({ found: true })
    expect(listOf(await server.ok('scan', { ts: 100, limit: 10 }), 'pairs')).toHaveLength(1)
  })

  test('all or nothing: a locked, newer or existing key in the list', { tags: ['long'] }, async () => {
    const server = await start()
    await server.write(5, 50, ['new'])
    await server.write(5, 6, ['old'])
    await acquired(server, 10, ['held'])
    const lock = lockOf('held', 10)
    expectRefused(await acquire(server, 20, ['x', 'held', 'y']), 423, 'key_locked', { lock })
    const timeout = await acquire(server, 20, ['x', 'held', 'y'], { wait_timeout: 5 })
    expectRefused(timeout, 423, 'lock_wait_timeout', { lock })
    expectRefused(
      await acquire(server, 20, ['x', 'held']).then(() => acquire(server, 20, ['held', 'x'], { wait_timeout: 0 })),
      423,
      'lock_wait_timeout',
      { lock },
    )
    expectProblem(await acquire(server, 20, ['x', 'new']), 'write_conflict', {
      key: 'new',
      start_ts: 20,
      conflict_start_ts: 5,
      conflict_commit_ts: 50,
      primary: 'x',
      reason: 'pessimistic_retry',
    })
    expectProblem(await acquire(server, 20, ['x', 'old'], { insert: true }), 'already_exists', { key: 'old' })
    expect(await lockedKeys(server)).toEqual(['held'])
    await acquired(server, 20, ['x', 'new'], { for_update_ts: 50 })
    expect(await lockedKeys(server)).toEqual(['held', 'new', 'x'])
    await release(server, 20, ['x', 'new'], 49)
    expect(await lockedKeys(server)).toEqual(['held', 'new', 'x'])
    await release(server, 21, ['x', 'new', 'held'], 99)
    await release(server, 20, ['x', 'new', 'held', 'nobody'], 50)
    expect(await lockedKeys(server)).toEqual(['held'])
  })

  test('a prewrite lock is waited for as well, and what is refused', { tags: ['long'] }, async () => {
    const server = await start()
    await server.lock(5, ['k'])
    expectRefused(await acquire(server, 20, ['k']), 423, 'key_locked', { lock: { type: 'put', start_ts: 5 } })
    const waiting = acquire(server, 20, ['k'], { wait_timeout: 60_000, return_values: true })
    await waits(server, 20, 'k')
    await server.ok('commit', { keys: ['k'], start_ts: 5, commit_ts: 6 })
    expect(okBody(await waiting)).toEqual({ results: [{ found: true, value: 'k@5' }] })
    await server.ok('rollback', { keys: ['dead'], start_ts: 20 })
    expectRefused(await acquire(server, 20, ['dead']), 409, 'pessimistic_lock_rolled_back', {
      key: 'dead',
      start_ts: 20,
    })
    await server.lock(30, ['mine'])
    const mutation = { op: 'put', key: 'k', value: '' }
    const refused: readonly (readonly [call: string, body: Json])[] = [
      ['acquire_pessimistic_lock', request(30, ['mine'])],
      ['acquire_pessimistic_lock', request(30, [], { primary: 'a' })],
      ['acquire_pessimistic_lock', request(30, ['a', 'a'])],
      ['acquire_pessimistic_lock', request(30, [''], { primary: 'a' })],
      ['acquire_pessimistic_lock', request(30, ['a'], { primary: '' })],
      ['acquire_pessimistic_lock', request(30, ['a'], { for_update_ts: undefined })],
      ['acquire_pessimistic_lock', request(30, ['a'], { for_update_ts: 0 })],
      ['acquire_pessimistic_lock', request(30, ['a'], { lock_only_if_exists: true })],
      ['acquire_pessimistic_lock', request(30, ['a'], { lock_only_if_exists: true, check_existence: true })],
      ['acquire_pessimistic_lock', request(30, ['a'], { wait_timeout: -2 })],
      ['acquire_pessimistic_lock', request(30, ['a'], { wait_timeout: 1.5 })],
      ['acquire_pessimistic_lock', request(30, ['a'], { return_value: true })],
      ['pessimistic_rollback', { keys: [], start_ts: 5, for_update_ts: 5 }],
      ['pessimistic_rollback', { keys: ['a', 'a'], start_ts: 5, for_update_ts: 5 }],
      ['pessimistic_rollback', { keys: ['a'], start_ts: 5 }],
      ['pessimistic_rollback', { keys: ['a'], start_ts: 5, for_update_ts: 0 }],
      ['prewrite', { mutations: [mutation], primary: 'k', start_ts: 20 }],
      ['prewrite', { mutations: [mutation], primary: 'k', start_ts: 20, pessimistic_actions: ['do'] }],
    ]
    for (const [call, body] of refused) {
      const problem = expectProblem(await server.call(call, body), 'invalid_argument')
      expect(typeof problem['field'], JSON.stringify(body)).toBe('string')
    }
    expectProblem(await acquire(server, 30, ['k'.repeat(4097)]), 'payload_too_large')
  })

  test('waiters are served by start_ts, each with the lock or pessimistic_retry', async () => {
    const server = await start()
    await acquired(server, 10, ['k'])
    const served: number[] = []
    const starts = [50, 20, 40, 30, 60]
    const all = starts.map(async (startTs) => {
      // 30 will have seen less than what 20 commits; the others ask for enough.
      const forUpdateTs = startTs === 30 ? 30 : 1000
      const answer = acquire(server, startTs, ['k'], {
        wait_timeout: 60_000,
        for_update_ts: forUpdateTs,
        return_values: true,
      })
      const got = await answer
      served.push(startTs)
      if (startTs === 30) {
        const conflict = { key: 'k', start_ts: 30, conflict_start_ts: 20, conflict_commit_ts: 100 }
        return void expectProblem(got, 'write_conflict', { ...conflict, reason: 'pessimistic_retry' })
      }
      const value = startTs === 20 ? { found: false } : { found: true, value: 'from 20' }
      expect(okBody(got)).toEqual({ results: [value] })
      expect(await locksOf(server)).toContainEqual(lockOf('k', startTs, { for_update_ts: 1000 }))
      if (startTs !== 20) return void (await release(server, startTs, ['k'], 1000))
      const mutations = [{ op: 'put', key: 'k', value: 'from 20' }]
      const pessimistic = { for_update_ts: 1000, pessimistic_actions: ['do'] }
      await server.ok('prewrite', { mutations, primary: 'k', start_ts: 20, ...pessimistic })
      await server.ok('commit', { keys: ['k'], start_ts: 20, commit_ts: 100 })
    })
    for (const startTs of starts) await waits(server, startTs, 'k')
    await release(server, 10, ['k'])
    await Promise.all(all)
    expect(served).toEqual([20, 30, 40, 50, 60])
    expect(await locksOf(server)).toEqual([])
  })

  test('a queue of 200 drains, whatever happens to its waiters', { tags: ['long'] }, async () => {
    const server = await start()
    await acquired(server, 10, ['k'])
    const all = Array.from({ length: 200 }, async (_, i) => {
      const startTs = 1000 - i
      const answer = await acquire(server, startTs, ['k'], { wait_timeout: i % 10 === 0 ? 1 : 60_000 })
      if (answer.statusCode !== 200) return void expectRefused(answer, 423, 'lock_wait_timeout')
      expect((await locksOf(server)).map(({ start_ts }) => start_ts)).toEqual([startTs])
      if (i % 2 === 0) await release(server, startTs, ['k'])
      else await server.ok('rollback', { keys: ['k'], start_ts: startTs })
    })
    await server.mvcc('k')
    await release(server, 10, ['k'])
    await Promise.all(all)
    expect(await locksOf(server)).toEqual([])
  })

  test('a cycle of three; a waiter whose client went away gets nothing', { tags: ['long'] }, async () => {
    const server = await start()
    for (const startTs of [10, 20, 30]) await acquired(server, startTs, [`k${startTs}`])
    const waiting = [
      acquire(server, 10, ['k20'], { wait_timeout: 60_000 }),
      acquire(server, 20, ['k30'], { wait_timeout: 60_000 }),
    ]
    await waits(server, 20, 'k30')
    await waits(server, 10, 'k20')
    expectRefused(await acquire(server, 30, ['k10'], { wait_timeout: 60_000 }), 409, 'deadlock', {
      lock_ts: 10,
      lock_key: 'k10',
      wait_chain: [
        { txn: 10, wait_for_txn: 20, key: 'k20' },
        { txn: 20, wait_for_txn: 30, key: 'k30' },
        { txn: 30, wait_for_txn: 10, key: 'k10' },
      ],
    })
    await release(server, 30, ['k30'])
    expect((await waiting[1])?.statusCode).toBe(200)
    await release(server, 20, ['k20', 'k30'])
    expect((await waiting[0])?.statusCode).toBe(200)

    const port = await server.listen()
    await acquired(server, 5, ['mark'])
    const path = '/v1/percolator/acquire_pessimistic_lock'
    const headers = { 'content-type': 'application/json' }
    const gone = httpRequest({ port, host: '127.0.0.1', path, method: 'POST', headers })
    gone.on('error', () => {})
    gone.end(JSON.stringify(request(5, ['k10'], { wait_timeout: 60_000 })))
    await waits(server, 5, 'k10')
    gone.socket?.resetAndDestroy() // One that only ends its side is waited for.
    // It waits no more once this is no deadlock.
    await until(
      async () => (await acquire(server, 10, ['mark'], { wait_timeout: 1 })).json<Json>()['code'] !== 'deadlock',
    )
    await release(server, 10, ['k10', 'k20'])
    await acquired(server, 40, ['k10'])
    expect(await locksOf(server)).toMatchObject([{ key: 'k10', start_ts: 40 }, { key: 'mark' }])
  })
})

test('too many locks: nobody gets another one, whichever way it is asked for, until one goes', {
  tags: ['long'],
}, async () => {
  const server = await startPlain({ limits: { locksMax: 2 } })
  await server.put('k', 'v')
  const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' })).json<Json>()
  const lock = (key: string) => {
    const held = { primary: 'a', start_ts: 10, for_update_ts: 10, lock_ttl: 60_000 }
    return server.call('acquire_pessimistic_lock', { ...held, keys: [key] })
  }
  okBody(await lock('a'))
  okBody(await lock('b'))
  const inside = `/v1/txn/${txn}/kv/k`
  for (const refused of [
    await lock('c'),
    await server.send('PUT', inside, {}, 'v'),
    await server.get(`${inside}?for_update=true`),
    await server.post(`/v1/txn/${txn}/ops`, { ops: [{ op: 'increment', key: 'n', by: 1 }] }),
  ])
    expectRefused(refused, 503, 'overloaded')
  expect((await server.get(inside)).body).toBe('v')
  await server.ok('pessimistic_rollback', { keys: ['a'], start_ts: 10, for_update_ts: 10 })
  okBody(await server.send('PUT', inside, {}, 'new'))
  okBody(await server.post(`/v1/txn/${txn}/commit`, {}))
})

describe('what becomes of pessimistic locks', () => {
  const put = (key: string): Json => ({ op: 'put', key, value: `value of ${key}` })
  const prewrite = (server: TestServer, startTs: number, mutations: Json[], actions: string[], rest: Json = {}) =>
    server.call('prewrite', {
      mutations,
      primary: mutations[0]?.['key'],
      start_ts: startTs,
      for_update_ts: startTs,
      pessimistic_actions: actions,
      ...rest,
    })

  test('prewrite and commit; one-phase commit; skip and constraint', { tags: ['long'] }, async () => {
    const server = await start()
    await acquired(server, 10, ['a', 'b'], { primary: 'a', lock_ttl: 9000 })
    expect(okBody(await prewrite(server, 10, [put('a'), put('b'), put('free')], ['do', 'do', 'skip']))).toEqual({})
    expect(await locksOf(server)).toMatchObject([
      { key: 'a', type: 'put', ttl: 9000, for_update_ts: 10 },
      { key: 'b', type: 'put', primary: 'a' },
      { key: 'free', type: 'put' },
    ])
    await server.ok('commit', { keys: ['a', 'b', 'free'], start_ts: 10, commit_ts: 11 })
    await acquired(server, 20, ['a'])
    const onePc = okBody(await prewrite(server, 20, [put('a')], ['do'], { try_one_pc: true }))
    expect(numberOf(onePc, 'one_pc_commit_ts')).toBeGreaterThan(20)
    expect(await locksOf(server)).toEqual([])
    const lazy = await prewrite(server, 5, [put('b')], ['constraint'])
    expectProblem(lazy, 'write_conflict', { key: 'b', reason: 'lazy_uniqueness_check' })
    await acquired(server, 30, ['held'])
    expectProblem(await prewrite(server, 40, [put('held')], ['do']), 'pessimistic_lock_not_found', { key: 'held' })
    expectProblem(await prewrite(server, 40, [put('held')], ['skip']), 'key_locked', { lock: { start_ts: 30 } })
  })

  test('a lost lock is amended when nobody wrote the key since, over a restart too', async () => {
    const first = await start()
    await first.write(5, 6, ['a', 'b'])
    await acquired(first, 10, ['a', 'b'])
    await release(first, 10, ['b'])
    await first.write(20, 21, ['b'])
    await first.app.close()
    await first.store.close()
    const store = await reopenTestStore(first.directory)
    const server = await serve(store, first.directory)
    try {
      expect(await locksOf(server)).toEqual([])
      const lost = await prewrite(server, 10, [put('a'), put('b')], ['do', 'do'])
      expectProblem(lost, 'pessimistic_lock_not_found', { key: 'b' })
      expect(await locksOf(server)).toEqual([])
      okBody(await prewrite(server, 10, [put('a')], ['do']))
      expect(await server.ok('commit', { keys: ['a'], start_ts: 10, commit_ts: 30 })).toEqual({ commit_ts: 30 })
    } finally {
      await server.app.close()
      await store.close()
    }
  })

  test('heartbeats, check_txn_status, resolve_lock, rollback, gc', { tags: ['long'] }, async () => {
    const server = await start()
    const locked = (startTs: number, keys: string[]) => acquired(server, startTs, keys, { lock_ttl: 1000 })
    await locked(10, ['p', 's'])
    const beat = { primary: 'p', start_ts: 10, advise_lock_ttl: 9000 }
    expect(await server.ok('txn_heart_beat', beat)).toEqual({ lock_ttl: 9000 })
    expect(await server.ok('txn_heart_beat', { ...beat, advise_lock_ttl: 5 })).toEqual({ lock_ttl: 9000 })
    const check = { primary: 'p', lock_ts: 10, caller_start_ts: 99, current_ts: 2048 * 5000 }
    expect(await server.ok('check_txn_status', check)).toEqual({
      status: 'locked',
      lock_ttl: 9000,
      commit_ts: 0,
      action: 'no_action',
      lock: lockOf('p', 10, { ttl: 9000 }),
    })
    expectProblem(
      await server.call('check_txn_status', {
        ...check,
        primary: 's',
        verify_is_primary: true,
        resolving_pessimistic_lock: true,
      }),
      'primary_mismatch',
      { lock: lockOf('s', 10, { primary: 'p', ttl: 1000 }) },
    )
    const late = { ...check, current_ts: 2048 * 10_000, resolving_pessimistic_lock: true, rollback_if_not_exist: true }
    const gone = { status: 'rolled_back', lock_ttl: 0, commit_ts: 0 }
    expect(await server.ok('check_txn_status', late)).toEqual({ ...gone, action: 'ttl_expire_pessimistic_rollback' })
    expect(await server.ok('check_txn_status', late)).toEqual({ ...gone, action: 'lock_not_exist_do_nothing' })
    expectProblem(await server.call('check_txn_status', { ...late, rollback_if_not_exist: false }), 'txn_not_found')
    expect(await server.mvcc('p')).toEqual({ lock: null, writes: [], values: [] })
    expect(await locked(10, ['p'])).toEqual([{}])
    const expire = { ...check, current_ts: 2048 * 10_000 }
    expect(await server.ok('check_txn_status', expire)).toEqual({ ...gone, action: 'ttl_expire_rollback' })
    expectRefused(await acquire(server, 10, ['p']), 409, 'pessimistic_lock_rolled_back', { key: 'p', start_ts: 10 })
    expect(await server.ok('resolve_lock', { start_ts: 10, commit_ts: 0 })).toEqual({ resolved: 1 })
    await locked(20, ['x', 'y'])
    expect(await server.ok('rollback', { keys: ['x', 'y'], start_ts: 20 })).toEqual({})
    await locked(30, ['x', 'y'])
    expect(await server.ok('gc', { safe_point: 100 })).toMatchObject({ safe_point: 100 })
    expect(await locksOf(server)).toEqual([])
    expectProblem(await acquire(server, 50, ['z']), 'ts_below_safe_point', { safe_point: 100 })
  })

  test('an expired lock is no obstacle to autocommit, and a living one no obstacle to reads', async () => {
    const server = await start()
    await acquired(server, 10, ['p', 's'], { lock_ttl: 1 })
    for (const key of ['s', 'p']) okBody(await server.send('PUT', `/v1/kv/${key}?lock_wait_ms=0`, {}, 'mine'))
    expect(await locksOf(server)).toEqual([])
    const now = numberOf(await server.ok('tso', {}), 'ts')
    await acquired(server, now, ['p'], { lock_ttl: 60_000 })
    expect((await server.get('/v1/kv/p?lock_wait_ms=0')).body).toBe('mine')
    expectProblem(await server.send('PUT', '/v1/kv/p?lock_wait_ms=0', {}, 'x'), 'key_locked', {
      lock: lockOf('p', now, { ttl: 60_000 }),
    })
  })
})
