import { expect, test } from 'vitest'
import { expectProblem, testServers } from './support.js'

const start = testServers()

const KEY = { base64: Buffer.from('\0\0perkv/ack/').toString('base64') }

test('keys of the server itself are refused wherever a key is named', async () => {
  const server = await start()
  const named = { key: KEY, value: 'v' }
  expectProblem(await server.get('/v1/kv/%00%00perkv%2Fack'), 'invalid_argument', { field: 'key' })
  expectProblem(await server.post('/v1/txn', { ops: [{ op: 'put', ...named }] }), 'invalid_argument')
  const prewrite = { mutations: [{ op: 'put', ...named }], primary: KEY, start_ts: 5 }
  expectProblem(await server.call('prewrite', prewrite), 'invalid_argument')
  expectProblem(await server.call('commit', { keys: [KEY], start_ts: 5, commit_ts: 6 }), 'invalid_argument')
  expectProblem(
    await server.call('resolve_lock', { txns: [{ start_ts: 5, commit_ts: 0 }], keys: [KEY] }),
    'invalid_argument',
  )
  const status = { primary: KEY, lock_ts: 5, caller_start_ts: 0, current_ts: 0 }
  expectProblem(await server.call('check_txn_status', status), 'invalid_argument')
})

test('keys beside them are keys of users', async () => {
  const server = await start()
  expect(await server.put('\0\0perkv', 'v')).toBeGreaterThan(0)
  expect((await server.get('/v1/kv/%00%00perkv')).body).toBe('v')
})
