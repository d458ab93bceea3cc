import { expect, test } from 'vitest'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { reopenTestStore } from '../store/test-store.js'
import { expectProblem, testServers } from './support.js'

const startServer = testServers()

test.each(['/v1/txn/%/commit', '/v1/admin/pins/%'])('a name of any length in %s is nobody’s', async (path) => {
  const server = await startServer()
  const url = path.replace('%', 'k'.repeat(5000))
  expect((await server.send(path.endsWith('commit') ? 'POST' : 'DELETE', url)).statusCode).toBe(404)
})

/** Requests that are legal one by one and once did harm that outlasted them. */

test('timestamps at the end of their range leave nothing that cannot be read, over a restart too', async () => {
  const server = await startServer()
  const mutations = [{ op: 'put', key: 'k', value: 'v' }]
  const ways = [
    { try_one_pc: true },
    { use_async_commit: true, secondaries: [] },
    { try_one_pc: true, min_commit_ts: TIMESTAMP_MAX - 1, start_ts: 5 },
    { for_update_ts: TIMESTAMP_MAX - 1, pessimistic_actions: ['skip'], try_one_pc: true, start_ts: 5 },
  ]
  for (const way of ways)
    for (const start_ts of [TIMESTAMP_MAX, TIMESTAMP_MAX - 1]) {
      const answer = await server.post('/v1/percolator/prewrite', { mutations, primary: 'k', start_ts, ...way })
      expect([200, 400]).toContain(answer.statusCode)
      const commit_ts = answer.json().one_pc_commit_ts ?? answer.json().min_commit_ts ?? 1
      expect(commit_ts).toBeLessThan(TIMESTAMP_MAX)
    }
  for (const call of ['commit', 'rollback'])
    for (const ts of [TIMESTAMP_MAX, TIMESTAMP_MAX - 1]) {
      const answer = await server.post(`/v1/percolator/${call}`, {
        keys: ['k2'],
        start_ts: ts - 1,
        ...(call === 'commit' && { commit_ts: ts }),
      })
      expect(answer.statusCode).toBeLessThan(500)
    }
  expect((await server.get('/v1/kv?limit=10')).statusCode).not.toBe(503)
  expect((await server.post('/v1/percolator/mvcc_get_by_key', { key: 'k' })).statusCode).toBe(200)
  await server.database.close()
  const again = await reopenTestStore(server.directory)
  expect(again.upkeep.probe()).toBe(true)
  await again.mvccGetByKey({ key: Buffer.from('k') })
  await again.close()
})

test('a secondary whose min_commit_ts lies above the commit_ts of its transaction is resolved all the same', {
  tags: ['long'],
}, async () => {
  const server = await startServer()
  const prewrite = (key: string, rest: object = {}) =>
    server.post('/v1/percolator/prewrite', {
      mutations: [{ op: 'put', key, value: key }],
      primary: 'p',
      start_ts: 100,
      lock_ttl: 1,
      ...rest,
    })
  await prewrite('p')
  await prewrite('s', { min_commit_ts: 500 })
  expect((await server.post('/v1/percolator/commit', { keys: ['p'], start_ts: 100, commit_ts: 200 })).statusCode).toBe(
    200,
  )
  const strict = await server.post('/v1/percolator/resolve_lock', { start_ts: 100, commit_ts: 200 })
  expect(strict.json()).toMatchObject({ code: 'commit_ts_expired' })
  expect((await server.get('/v1/kv/s')).body).toBe('s')
})

test('resolving many transactions at once walks the locks once', { tags: ['long'] }, async () => {
  const server = await startServer()
  const txns = Array.from({ length: 20_000 }, (_, i) => ({ start_ts: 1_000_000 + i, commit_ts: 0 }))
  const mutations = Array.from({ length: 2000 }, (_, i) => ({ op: 'lock', key: `k${i}` }))
  await server.post('/v1/percolator/prewrite', { mutations, primary: 'k0', start_ts: 1_000_007 })
  const answer = await server.post('/v1/percolator/resolve_lock', { txns })
  expect(answer.json()).toEqual({ resolved: 2000 })
})

test('a transaction whose answer would be too large writes nothing', { tags: ['long'] }, async () => {
  const server = await startServer()
  const value = 'v'.repeat(1024 * 1024)
  await server.post('/v1/txn', { ops: Array.from({ length: 8 }, (_, i) => ({ op: 'put', key: `big/${i}`, value })) })
  const scans = Array.from({ length: 9 }, () => ({ op: 'scan', prefix: 'big/' }))
  const answer = await server.post('/v1/txn', { ops: [{ op: 'put', key: 'small', value: '1' }, ...scans] })
  expect([answer.statusCode, answer.json().code]).toEqual([413, 'payload_too_large'])
  expect((await server.get('/v1/kv/small')).statusCode).toBe(404)
})

test('bodies that are nested a hundred thousand deep are refused like any other', async () => {
  const server = await startServer()
  const depth = 100_000
  const bodies: [string, string | Buffer][] = [
    ['json', '['.repeat(depth) + ']'.repeat(depth)],
    ['json', `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`],
    ['json', `${'{"__proto__":'.repeat(depth)}1${'}'.repeat(depth)}`],
    ['json', `{"keys":${'[{"base64":'.repeat(depth)}1${'}]'.repeat(depth)}}`],
    ['msgpack', Buffer.alloc(depth, 0x91)],
    ['msgpack', Buffer.concat([Buffer.alloc(depth, 0x91), Buffer.from([0xc0])])],
  ]
  for (const [type, body] of bodies)
    for (const url of ['/v1/kv/batch_get', '/v1/txn'])
      expectProblem(await server.send('POST', url, { 'content-type': `application/${type}` }, body), 'invalid_argument')
})

test('a read for update whose condition is malformed locks nothing', async () => {
  const server = await startServer()
  await server.put('k', 'v')
  const { txn } = (await server.post('/v1/txn/begin', { mode: 'pessimistic' })).json()
  const answer = await server.get(`/v1/txn/${txn}/kv/k?for_update`, { 'if-match': '5' })
  expectProblem(answer, 'invalid_argument')
  expect(await server.lockCount()).toBe(0)
  expect((await server.get(`/v1/txn/${txn}/kv/k?for_update`, { 'if-match': '*' })).statusCode).toBe(200)
  expect(await server.lockCount()).toBe(1)
})
