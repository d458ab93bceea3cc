import { expect, test } from 'vitest'
import { connect } from '../../src/client/index.js'
import { open } from '../../src/embedded/open.js'
import { failureOf } from '../coordinator/support.js'
import { expectProblem, type Headers, numberOf, type TestServer, testServers } from './support.js'

const start = testServers()
const TTL_MS = 600_000

/** A key that a transaction has locked for ten minutes, by a prewrite or by a pessimistic lock. */
async function locked(kind: 'prewritten' | 'pessimistic' = 'prewritten') {
  const server = await start()
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  if (kind === 'prewritten') await server.lock(startTs, ['p', 'k', 'l'], { lock_ttl: TTL_MS })
  else {
    const common = { keys: ['p', 'k', 'l'], primary: 'p', start_ts: startTs, for_update_ts: startTs }
    await server.ok('acquire_pessimistic_lock', { ...common, lock_ttl: TTL_MS })
  }
  const { ts } = await server.ok('tso', {})
  return { server, startTs, ts: Number(ts) }
}

/** Key, start_ts and time left. */
function expectDetail(detail: unknown, startTs: number): void {
  const [, key, ts, left] =
    /"(p|k|l)" is locked by the transaction at (\d+), with (\d+) ms left/.exec(`${detail}`) ?? []
  expect([key !== undefined, Number(ts), detail]).toEqual([true, startTs, detail])
  expect(Number(left)).toBeGreaterThan(TTL_MS / 2)
  expect(Number(left)).toBeLessThanOrEqual(TTL_MS)
}

const json = { 'content-type': 'application/json' }
const OF_PREWRITES: Record<string, (server: TestServer, ts: number, startTs: number) => ReturnType<TestServer['get']>> =
  {
    GET: (server, ts) => server.get(`/v1/kv/k?lock_wait_ms=0&ts=${ts}`),
    PUT: (server) => server.send('PUT', '/v1/kv/k?lock_wait_ms=0', {}, 'v'),
    DELETE: (server) => server.send('DELETE', '/v1/kv/k?lock_wait_ms=0'),
    'a page': (server) => server.get('/v1/kv?lock_wait_ms=0'),
    'a stream': (server, ts) => server.get(`/v1/kv?lock_wait_ms=0&ts=${ts}`, { accept: 'application/x-ndjson' }),
    'a count at a timestamp': (server, ts) => server.get(`/v1/kv?count_only&lock_wait_ms=0&ts=${ts}`),
    'a backup at a timestamp': (server, ts) => server.get(`/v1/admin/backup?lock_wait_ms=0&ts=${ts}`),
    batch_get: (server) => server.post('/v1/kv/batch_get?lock_wait_ms=0', { keys: ['a', 'k', 'l'] }),
    'GET of a transaction': async (server) => {
      const { txn } = (await server.post('/v1/txn/begin', {})).json()
      return server.get(`/v1/txn/${txn}/kv/k?lock_wait_ms=0`)
    },
    'percolator get': (server, ts) => server.call('get', { key: 'k', ts }),
    'percolator batch_get': (server, ts) => server.call('batch_get', { keys: ['k', 'l'], ts }),
    'percolator scan': (server, ts) => server.call('scan', { limit: 10, ts }),
    'percolator prewrite': (server, ts) =>
      server.call('prewrite', { mutations: [{ op: 'delete', key: 'k' }], primary: 'k', start_ts: ts }),
    'percolator cleanup': (server, ts, startTs) =>
      server.call('cleanup', { key: 'p', start_ts: startTs, current_ts: ts }),
  }

test.each(Object.entries(OF_PREWRITES))(
  '%s: the detail has the key, the start_ts and the time left',
  async (_, send) => {
    const { server, startTs, ts } = await locked()
    expectDetail(expectProblem(await send(server, ts, startTs), 'key_locked')['detail'], startTs)
  },
)

test.each(['prewritten', 'pessimistic'] as const)(
  'so has that of a wait for a key that is %s',
  { tags: ['long'] },
  async (kind) => {
    const { server, startTs, ts } = await locked(kind)
    const asked = { keys: ['k'], primary: 'k', start_ts: ts, for_update_ts: ts }
    for (const wait of [-1, 1]) {
      const answer = await server.call('acquire_pessimistic_lock', { ...asked, wait_timeout: wait })
      expectDetail(expectProblem(answer, wait === -1 ? 'key_locked' : 'lock_wait_timeout')['detail'], startTs)
    }
    const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' })).json()
    const headers: Headers = json
    const put = await server.send('PUT', `/v1/txn/${txn}/kv/k?lock_wait_ms=1`, headers, '1')
    expectDetail(expectProblem(put, 'lock_wait_timeout')['detail'], startTs)
  },
)

const LATE = { mode: 'pessimistic', lockWaitMs: 1, retries: 0 } as const

test('and the errors of the client, on a server', async () => {
  const { server, startTs } = await locked()
  const db = connect(`http://127.0.0.1:${await server.listen()}`)
  const scan = async (): Promise<void> => {
    for await (const _ of db.scan({ lockWaitMs: 0 }));
  }
  expectDetail((await failureOf(scan())).message, startTs)
  expectDetail((await failureOf(db.put('k', 'v', { lockWaitMs: 0 }))).message, startTs)
  expectDetail((await failureOf(db.transaction((txn) => txn.put('k', 'v'), LATE))).message, startTs)
  await db.close()
})

test('and in this process', async () => {
  const db = await open(':memory:')
  const holder = await db.begin({ mode: 'pessimistic' })
  await holder.put('k', 'v')
  const { message } = await failureOf(db.transaction((txn) => txn.put('k', 'v'), LATE))
  expect(message).toMatch(new RegExp(`"k" is locked by the transaction at ${holder.startTs}, with [1-9]\\d+ ms left$`))
  await holder.rollback()
  await db.close()
})
