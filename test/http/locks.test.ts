import { describe, expect, test } from 'vitest'
import { Clock, expectProblem, type Json, listOf, numberOf, type TestServer, testServers } from './support.js'

const start = testServers()

interface Call {
  readonly name: string
  readonly send: (server: TestServer, waitMs: number) => ReturnType<TestServer['get']>
  readonly writes: boolean
  /** Reads a whole range, just below the locks of transactions that live: below-locks.test.ts. */
  readonly passesBelow?: true
}
/** All calls of section 2, on the key `b`. */
const CALLS: readonly Call[] = [
  { name: 'GET', writes: false, send: (server, ms) => server.get(`/v1/kv/b?lock_wait_ms=${ms}`) },
  { name: 'scan', writes: false, send: (server, ms) => server.get(`/v1/kv?start=b&lock_wait_ms=${ms}`) },
  {
    name: 'count',
    writes: false,
    passesBelow: true,
    send: (server, ms) => server.get(`/v1/kv?count_only&start=b&lock_wait_ms=${ms}`),
  },
  {
    name: 'NDJSON',
    writes: false,
    passesBelow: true,
    send: (server, ms) => server.get(`/v1/kv?start=b&lock_wait_ms=${ms}`, { accept: 'application/x-ndjson' }),
  },
  {
    name: 'batch_get',
    writes: false,
    send: (server, ms) => server.post(`/v1/kv/batch_get?lock_wait_ms=${ms}`, { keys: ['b'] }),
  },
  { name: 'PUT', writes: true, send: (server, ms) => server.send('PUT', `/v1/kv/b?lock_wait_ms=${ms}`, {}, 'mine') },
  {
    name: 'conditional PUT',
    writes: true,
    send: (server, ms) => server.send('PUT', `/v1/kv/b?lock_wait_ms=${ms}`, { 'if-match': '*' }, 'mine'),
  },
  { name: 'DELETE', writes: true, send: (server, ms) => server.send('DELETE', `/v1/kv/b?lock_wait_ms=${ms}`) },
]

/** A transaction at the clock's now on `a` (its primary) and `b`, over committed values. */
async function prepare(rest: Json = {}): Promise<{ server: TestServer; clock: Clock; startTs: number }> {
  const clock = new Clock()
  const server = await start({ now: clock.now })
  await server.put('a', 'a0')
  await server.put('b', 'b0')
  clock.ms++
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.lock(startTs, ['a', 'b'], { lock_ttl: 1000, ...rest })
  return { server, clock, startTs }
}

for (const { name, send, writes, passesBelow = false } of CALLS)
  describe(name, () => {
    if (!passesBelow)
      test('a live lock: 423 with the lock once the wait is over', async () => {
        const { server, startTs } = await prepare()
        for (const ms of [0, 30]) {
          const body = expectProblem(await send(server, ms), 'key_locked')
          const lock = body['lock'] ?? listOf(body, 'locks')[0]
          expect(lock).toEqual({
            key: 'b',
            primary: 'a',
            start_ts: startTs,
            ttl: 1000,
            type: 'put',
            txn_size: 0,
            for_update_ts: 0,
            min_commit_ts: 0,
            use_async_commit: false,
            secondaries: [],
          })
        }
        expect((await server.mvcc('b'))['lock']).not.toBeNull()
      })

    test('an expired lock is rolled back', async () => {
      const { server, clock, startTs } = await prepare()
      clock.ms += 1002
      expect((await send(server, 0)).statusCode).toBe(200)
      for (const key of ['a', 'b'])
        expect(
          (await server.call('commit', { keys: [key], start_ts: startTs, commit_ts: clock.ts() })).statusCode,
        ).toBe(409)
      if (!writes) expect((await server.get('/v1/kv/b')).body).toBe('b0')
      expect((await server.get('/v1/kv/a')).body).toBe('a0')
    })

    test('a lock whose primary is committed is rolled forward', async () => {
      const { server, startTs } = await prepare()
      const commitTs = numberOf(await server.ok('tso', {}), 'ts')
      await server.ok('commit', { keys: ['a'], start_ts: startTs, commit_ts: commitTs })
      expect((await send(server, 0)).statusCode).toBe(200)
      expect(listOf(await server.mvcc('b'), 'writes')).toContainEqual(
        expect.objectContaining({ type: 'put', start_ts: startTs, commit_ts: commitTs }),
      )
      if (!writes) expect((await server.get('/v1/kv/b')).body).toBe(`b@${startTs}`)
    })

    test('a lock whose primary was rolled back is rolled back', async () => {
      const { server, startTs } = await prepare()
      await server.ok('rollback', { keys: ['a'], start_ts: startTs })
      expect((await send(server, 0)).statusCode).toBe(200)
    })

    test('a lock released during the wait lets the call through', async () => {
      const { server, startTs } = await prepare()
      let checks = 0
      const checkTxnStatus = server.store.checkTxnStatus.bind(server.store)
      server.store.checkTxnStatus = async (request) => {
        if (++checks === 2) await server.ok('rollback', { keys: ['a', 'b'], start_ts: startTs })
        return checkTxnStatus(request)
      }
      expect((await send(server, 60_000)).statusCode).toBe(200)
    })

    test('async commit, all keys prewritten: committed, though the primary still stands', async () => {
      const { server, clock, startTs } = await prepare({ use_async_commit: true, secondaries: ['b'] })
      const before = await send(server, 0)
      if (passesBelow) expect(before.statusCode).toBe(200)
      else expectProblem(before, 'key_locked')
      clock.ms += 1002
      expect((await send(server, 0)).statusCode).toBe(200)
      expect((await server.get('/v1/kv/a')).body).toBe(`a@${startTs}`)
      if (!writes) expect((await server.get('/v1/kv/b')).body).toBe(`b@${startTs}`)
    })

    test('async commit, a secondary missing: rolled back', async () => {
      const { server, clock, startTs } = await prepare({ use_async_commit: true, secondaries: ['b', 'c'] })
      clock.ms += 1002
      expect((await send(server, 0)).statusCode).toBe(200)
      expect((await server.get('/v1/kv/a')).body).toBe('a0')
      const late = { mutations: [{ op: 'put', key: 'c', value: '' }], primary: 'a', start_ts: startTs }
      expect((await server.call('prewrite', { ...late, use_async_commit: true })).statusCode).toBe(409)
    })
  })

test('GET without ts passes over a primary lock; below the lock nothing is in the way', async () => {
  const { server, startTs } = await prepare()
  expect((await server.get('/v1/kv/a?lock_wait_ms=0')).body).toBe('a0')
  expect((await server.get(`/v1/kv/b?lock_wait_ms=0&ts=${startTs - 1}`)).body).toBe('b0')
  expectProblem(await server.get(`/v1/kv/a?lock_wait_ms=0&ts=${startTs + 1}`), 'key_locked')
})

test('POST /v1/txn meets locks as well', async () => {
  const { server, clock } = await prepare()
  clock.ms += 1002
  const ops = [
    { op: 'get', key: 'b' },
    { op: 'put', key: 'a', value: 'mine' },
  ]
  expect(listOf(await server.txn({ ops }), 'results')[0]).toMatchObject({ value: 'b0' })
})

test('an expired secondary whose primary was never prewritten is rolled back; a living one is waited for', async () => {
  const clock = new Clock()
  const server = await start({ now: clock.now })
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  const mutations = [{ op: 'put', key: 'b', value: 'v' }]
  await server.ok('prewrite', { mutations, primary: 'a', start_ts: startTs, lock_ttl: 1000 })
  expectProblem(await server.get('/v1/kv/b?lock_wait_ms=0'), 'key_locked')
  expect(await server.mvcc('a')).toMatchObject({ writes: [] })
  clock.ms += 1002
  expectProblem(await server.get('/v1/kv/b?lock_wait_ms=0'), 'not_found')
  const late = { mutations: [{ op: 'put', key: 'a', value: 'v' }], primary: 'a', start_ts: startTs }
  expectProblem(await server.call('prewrite', late), 'write_conflict', { reason: 'self_rolled_back' })
  expect(await server.ok('scan_lock', { max_ts: clock.ts() })).toEqual({ locks: [] })
})
