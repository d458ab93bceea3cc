import { expect, test } from 'vitest'
import { SLICE_ITEMS } from '../../src/limits.js'
import { expectProblem, type Json, listOf, okBody, pack, testServers } from './support.js'

const start = testServers()
/** Long enough to be validated, decoded, run and answered in slices, in both formats. */
const COUNT = 3 * SLICE_ITEMS + 7
const keys = Array.from({ length: COUNT }, (_, i) => `app/${String(i).padStart(6, '0')}`)
const ACCEPT = { accept: 'application/msgpack' }

test('a long transaction does what a short one does', { tags: ['long'] }, async () => {
  const server = await start()
  const ops = keys.map((key, i) => ({ op: i % 3 === 0 ? 'insert' : 'put', key, value: `${i}` }))
  const { results, commit_ts } = await server.txn({ ops })
  expect(results).toEqual(keys.map(() => ({})))
  const read = await server.txn({ ops: keys.map((key) => ({ op: 'get', key })) })
  expect(read['results']).toEqual(keys.map((_, i) => ({ found: true, value: `${i}`, commit_ts })))
  const sums = await server.txn({
    ops: [...keys.map((key) => ({ op: 'increment', key, by: 1 })), { op: 'get', key: keys[5] }],
  })
  expect(listOf(sums, 'results').slice(-1)).toEqual([{ found: true, value: '6' }])
  const scan = await server.txn({ ops: [{ op: 'scan', prefix: 'app/', limit: COUNT }] })
  expect(listOf(listOf(scan, 'results')[0] as Json, 'pairs').map(({ value }) => Number(value))).toEqual(
    keys.map((_, i) => i + 1),
  )
})

test('long answers are the same in MessagePack, and for a token that sees only some keys', {
  tags: ['long'],
}, async () => {
  const tokens = 'rw rw-token-0123456789\nrw app-token-0123456789 prefix=app/\n'
  const server = await start({ tokens })
  const all = { authorization: 'Bearer rw-token-0123456789' }
  const app = { authorization: 'Bearer app-token-0123456789' }
  const mutations = keys.map((key) => ({ op: 'put', key, value: key }))
  const locked = await server.post(
    '/v1/percolator/prewrite',
    {
      mutations,
      primary: 'hidden',
      start_ts: 10,
      lock_ttl: 1_000_000_000_000,
      use_async_commit: true,
      secondaries: keys,
    },
    all,
  )
  expect(locked.statusCode, locked.body).toBe(200)
  const asked = { keys, ts: 20 }
  const whole = await server.post('/v1/percolator/batch_get', asked, all)
  const problem = expectProblem(whole, 'key_locked')
  expect(listOf(problem, 'locks').map(({ key, primary }) => [key, primary])).toEqual(keys.map((key) => [key, 'hidden']))
  const scoped = expectProblem(await server.post('/v1/percolator/batch_get', asked, app), 'key_locked')
  expect(scoped).toEqual({ ...problem, locks: listOf(problem, 'locks').map((lock) => ({ ...lock, primary: '' })) })
  const packed = await server.postPacked('/v1/percolator/scan_lock', pack({ max_ts: 20 }), { ...all, ...ACCEPT })
  const inJson = await server.post('/v1/percolator/scan_lock', { max_ts: 20 }, all)
  const { unpack } = await import('./support.js')
  const fromPacked = JSON.parse(
    JSON.stringify(unpack(packed.rawPayload), (_, value) =>
      value?.type === 'Buffer' ? Buffer.from(value.data).toString() : value,
    ),
  ) as unknown
  expect(fromPacked).toEqual(okBody(inJson))
})

test('what is wrong in a long list is named as in a short one', { tags: ['long'] }, async () => {
  const server = await start()
  const long = (last: unknown) => ({ keys: [...keys, last] })
  const at = `keys[${COUNT}]`
  for (const [last, field, code] of [
    [5, at, 'invalid_argument'],
    ['', at, 'invalid_argument'],
    [{ base64: '!' }, at, 'invalid_argument'],
    ['k'.repeat(4097), at, 'payload_too_large'],
    [keys[3], 'keys', 'invalid_argument'],
  ] as const) {
    for (const url of ['/v1/percolator/batch_get', '/v1/percolator/commit']) {
      const body = url.endsWith('commit') ? { ...long(last), start_ts: 1, commit_ts: 2 } : long(last)
      expectProblem(await server.post(url, body), code, { field })
      expectProblem(await server.postPacked(url, pack(body)), code, { field })
    }
  }
  const ops = [...keys.map((key) => ({ op: 'get', key })), { op: 'get', kee: 'a' }]
  expectProblem(await server.post('/v1/txn', { ops }), 'invalid_argument', { field: `ops[${COUNT}].kee` })
  expectProblem(
    await server.post('/v1/txn', { ops: [...ops.slice(0, -1), { op: 'put', key: 'a' }] }),
    'invalid_argument',
    {
      field: `ops[${COUNT}].value`,
    },
  )
  expectProblem(await server.post('/v1/txn', { ops, nope: 1 }), 'invalid_argument', { field: 'nope' })
})

test('one request under one Idempotency-Key is one request, however long', { tags: ['long'] }, async () => {
  const server = await start()
  const body = { ops: keys.map((key) => ({ op: 'increment', key })) }
  const headers = { 'idempotency-key': 'once' }
  const first = await server.post('/v1/txn', body, headers)
  const again = await server.post('/v1/txn', body, headers)
  expect(again.headers['idempotency-replayed']).toBe('true')
  expect(again.body).toBe(first.body)
  expectProblem(await server.post('/v1/txn', { ops: body.ops.slice(1) }, headers), 'idempotency_mismatch')
})

test('a name that a client made up is not told back at full length', async () => {
  const server = await start()
  const answer = await server.post('/v1/txn', { ['x'.repeat(100_000)]: 1 })
  expectProblem(answer, 'invalid_argument')
  expect(answer.body.length).toBeLessThan(1000)
})
