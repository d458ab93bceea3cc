import { describe, expect, test, vi } from 'vitest'
import { Clock, expectProblem, type Json, listOf, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()

interface Scene {
  readonly server: TestServer
  readonly clock: Clock
  /** What the next one-shot transaction begins at. */
  readonly startTs: number
  /** The timestamps that the server took for itself since. */
  readonly taken: number[]
}

/**
 * A clock that stands still: the next timestamp is known beforehand.
 * @param count of timestamps that were handed out: more than 2048 a millisecond run ahead of the clock.
 */
async function scene(count: number, stepMs = 0): Promise<Scene> {
  const clock = new Clock()
  const server = await start({ now: clock.now })
  const startTs = numberOf(await server.ok('tso', { count }), 'ts') + 1
  const taken: number[] = []
  const tso = server.store.tso.bind(server.store)
  vi.spyOn(server.store, 'tso').mockImplementation(async (wanted) => {
    const ts = await tso(wanted)
    taken.push(ts)
    clock.ms += stepMs
    return ts
  })
  return { server, clock, startTs, taken }
}

async function expectUsable(server: TestServer, key: string): Promise<void> {
  await server.put(key, 'later')
  expect((await server.get(`/v1/kv/${key}`)).body).toBe('later')
  await server.remove(key)
  expect((await server.get(`/v1/kv/${key}`)).statusCode).toBe(404)
  expect(listOf(await server.ok('scan_lock', { max_ts: 2 ** 52 }), 'locks')).toEqual([])
}

// What waits for itself waits for ever.
describe.each([1, 1_000_000])(
  'a client locks a key at the next start_ts (%i timestamps taken)',
  { timeout: 30_000 },
  (count) => {
    const writes: readonly (readonly [name: string, run: (server: TestServer, query: string) => Promise<Response>])[] =
      [
        ['PUT', (server, query) => server.send('PUT', `/v1/kv/k${query}`, { 'content-type': 'text/plain' }, 'new')],
        ['DELETE', (server, query) => server.send('DELETE', `/v1/kv/k${query}`)],
        [
          'a conditional PUT',
          (server, query) =>
            server.send('PUT', `/v1/kv/k${query}`, { 'if-none-match': '*', 'idempotency-key': 'once' }, 'new'),
        ],
        ['a transaction', (server) => server.post('/v1/txn', { ops: [{ op: 'put', key: 'k', value: 'new' }] })],
      ]

    test.each(writes.slice(0, 3))(
      '%s ends with key_locked while the lock lives',
      { tags: ['long'] },
      async (_, write) => {
        const { server, startTs, taken } = await scene(count)
        await server.lock(startTs, ['k'])
        expectProblem(await write(server, '?lock_wait_ms=30'), 'key_locked', { retryable: true })
        expect(taken[0]).toBe(startTs)
        await server.ok('commit', {
          keys: ['k'],
          start_ts: startTs,
          commit_ts: numberOf(await server.ok('tso', {}), 'ts'),
        })
        expect((await server.get('/v1/kv/k')).body).toBe(`k@${startTs}`)
        await expectUsable(server, 'k')
      },
    )

    test.each(writes)('%s takes its turn once the lock has expired', async (name, write) => {
      const { server, startTs, taken } = await scene(count, 1000)
      await server.lock(startTs, ['k'])
      const commitTs = numberOf(okBody(await write(server, '')), 'commit_ts')
      expect(taken[0]).toBe(startTs)
      expect(commitTs).toBeGreaterThan(startTs)
      const found = await server.get('/v1/kv/k')
      if (name === 'DELETE') expect(found.statusCode).toBe(404)
      else expect(found.body).toBe('new')
      // The client's transaction is over.
      const late = await server.call('commit', { keys: ['k'], start_ts: startTs, commit_ts: commitTs + 1 })
      expect(late.statusCode).toBe(409)
      await expectUsable(server, 'k')
    })

    test('PUT takes its turn once the client has committed, or rolled back', async () => {
      for (const end of ['commit', 'rollback']) {
        const { server, startTs, taken } = await scene(count)
        await server.lock(startTs, ['k'])
        const writing = server.put('k', 'new')
        await vi.waitUntil(() => taken.length > 1, { interval: 1 })
        const ts = numberOf(await server.ok('tso', {}), 'ts')
        await server.ok(end, { keys: ['k'], start_ts: startTs, ...(end === 'commit' && { commit_ts: ts }) })
        await writing
        expect([taken[0], (await server.get('/v1/kv/k')).body]).toEqual([startTs, 'new'])
        await expectUsable(server, 'k')
      }
    })

    test('a key that the client locked as a secondary, and leaves to others to commit', async () => {
      const { server, startTs, taken } = await scene(count)
      await server.lock(startTs, ['primary', 'k'])
      const writing = server.put('k', 'new')
      await vi.waitUntil(() => taken.length > 1, { interval: 1 })
      const commitTs = numberOf(await server.ok('tso', {}), 'ts')
      await server.ok('commit', { keys: ['primary'], start_ts: startTs, commit_ts: commitTs })
      await writing
      expect([taken[0], (await server.get('/v1/kv/k')).body]).toEqual([startTs, 'new'])
      expect((await server.get(`/v1/kv/k?ts=${commitTs}`)).body).toBe(`k@${startTs}`)
      await expectUsable(server, 'k')
    })

    test('without retries the conflict is told', async () => {
      const { server, startTs } = await scene(count)
      await server.lock(startTs, ['k'])
      const body: Json = { ops: [{ op: 'put', key: 'k', value: 'new' }], max_retries: 0 }
      expectProblem(await server.post('/v1/txn', body), 'write_conflict', { retryable: true, start_ts: startTs })
      await server.ok('rollback', { keys: ['k'], start_ts: startTs })
      await expectUsable(server, 'k')
    })

    test('many writers of the key: all of them end, and none for nothing', async () => {
      const { server, startTs } = await scene(count, 500)
      await server.lock(startTs, ['k'])
      const increments = Array.from({ length: 20 }, () => server.txn({ ops: [{ op: 'increment', key: 'k' }] }))
      await Promise.all(increments)
      expect((await server.get('/v1/kv/k')).body).toBe('20')
      await expectUsable(server, 'k')
    })
  },
)

type Response = Awaited<ReturnType<TestServer['get']>>

// Long values make batches of their own where a request is not one atomic write.
test.each([
  ['ab', 3],
  ['ba', 3],
  ['ab', 20_000],
  ['ba', 20_000],
  ['acb', 20_000],
] as const)('what is refused for it has written nothing: puts of %s, %i bytes each', async (order, bytes) => {
  const { server, startTs } = await scene(1)
  await server.lock(startTs, ['b'])
  const ops = [...order].map((key) => ({ op: 'put', key, value: 'n'.repeat(bytes) }))
  expectProblem(await server.post('/v1/txn', { ops, max_retries: 0 }), 'write_conflict', { start_ts: startTs })
  const lockedKeys = async () =>
    listOf(await server.ok('scan_lock', { max_ts: 2 ** 52 }), 'locks').map(({ key }) => key)
  await expect.poll(lockedKeys, { timeout: 30_000 }).toEqual(['b'])
  const commitTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.ok('commit', { keys: ['b'], start_ts: startTs, commit_ts: commitTs })
})

test.each([1, 1_000_000])('a commit at the next start_ts is not taken for the own one (%i taken)', async (count) => {
  const { server, startTs } = await scene(count)
  await server.write(startTs, startTs + 5, ['k'])
  await server.put('k', 'new')
  expect((await server.get('/v1/kv/k')).body).toBe('new')
})
