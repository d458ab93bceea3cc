import { describe, expect, test } from 'vitest'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { utf8 } from '../store/support.js'
import {
  expectProblem,
  type Json,
  listOf,
  Machine,
  numberOf,
  okBody,
  startServer,
  type TestServer,
  testServers,
} from './support.js'

/** A client can write at timestamps that it chooses, and nobody else must lose a key to that. */

const start = testServers()

async function started(): Promise<{ server: TestServer; machine: Machine }> {
  const machine = new Machine()
  return { server: await start({ now: machine.now, monotonicNow: machine.monotonicNow }), machine }
}

const KEYS = ['k', 'l', 'p', 's', 'x']
const put = (key: string) => ({ op: 'put', key, value: 'theirs' })

/**
 * Every field of every call at which a record or a lock is written, or a lock's min_commit_ts raised; with the rest of a
 * request that is fine.
 */
const WRITTEN: readonly [call: string, field: string, body: (ts: number, now: number) => Json][] = [
  ['prewrite', 'start_ts', (ts) => ({ mutations: [put('k')], primary: 'k', start_ts: ts, lock_ttl: 0 })],
  ['prewrite', 'start_ts', (ts) => ({ mutations: [put('k')], primary: 'k', start_ts: ts, try_one_pc: true })],
  [
    'prewrite',
    'start_ts',
    (ts) => ({
      mutations: [put('k')],
      primary: 'k',
      start_ts: ts,
      use_async_commit: true,
      secondaries: [],
      lock_ttl: 0,
    }),
  ],
  [
    'prewrite',
    'min_commit_ts',
    (ts, now) => ({ mutations: [put('k')], primary: 'k', start_ts: now - 5, min_commit_ts: ts, try_one_pc: true }),
  ],
  [
    'prewrite',
    'min_commit_ts',
    (ts, now) => ({ mutations: [put('l')], primary: 'l', start_ts: now - 5, min_commit_ts: ts, lock_ttl: 0 }),
  ],
  [
    'prewrite',
    'for_update_ts',
    (ts, now) => ({
      mutations: [put('k')],
      primary: 'k',
      start_ts: now - 5,
      for_update_ts: ts,
      pessimistic_actions: ['skip'],
      try_one_pc: true,
    }),
  ],
  ['commit', 'commit_ts', (ts, now) => ({ keys: ['p', 's'], start_ts: now - 9, commit_ts: ts })],
  ['commit', 'start_ts', (ts) => ({ keys: ['k'], start_ts: ts, commit_ts: ts + 1 })],
  ['rollback', 'start_ts', (ts) => ({ keys: ['k'], start_ts: ts })],
  ['cleanup', 'start_ts', (ts) => ({ key: 'k', start_ts: ts, current_ts: 0 })],
  [
    'check_txn_status',
    'lock_ts',
    (ts) => ({ primary: 'k', lock_ts: ts, caller_start_ts: 0, current_ts: 0, rollback_if_not_exist: true }),
  ],
  [
    'check_txn_status',
    'caller_start_ts',
    (ts, now) => ({ primary: 'p', lock_ts: now - 9, caller_start_ts: ts, current_ts: ts }),
  ],
  ['check_secondary_locks', 'start_ts', (ts) => ({ keys: ['k', 'l'], start_ts: ts })],
  [
    'txn_heart_beat',
    'min_commit_ts',
    (ts, now) => ({ primary: 'p', start_ts: now - 9, advise_lock_ttl: 1, min_commit_ts: ts }),
  ],
  [
    'acquire_pessimistic_lock',
    'for_update_ts',
    (ts, now) => ({ keys: ['k'], primary: 'k', start_ts: now - 5, for_update_ts: ts, lock_ttl: 0 }),
  ],
  [
    'acquire_pessimistic_lock',
    'start_ts',
    (ts) => ({ keys: ['k'], primary: 'k', start_ts: ts, for_update_ts: ts, lock_ttl: 0 }),
  ],
  ['resolve_lock', 'commit_ts', (ts, now) => ({ start_ts: now - 9, commit_ts: ts, keys: ['p', 's'] })],
  ['resolve_lock', 'commit_ts', (ts, now) => ({ start_ts: now - 9, commit_ts: ts })],
  ['resolve_lock', 'start_ts', (ts) => ({ start_ts: ts, commit_ts: 0, keys: ['k'] })],
  ['resolve_lock', 'txns[0].commit_ts', (ts, now) => ({ txns: [{ start_ts: now - 9, commit_ts: ts }] })],
  ['resolve_lock', 'txns[0].start_ts', (ts) => ({ txns: [{ start_ts: ts, commit_ts: 0 }] })],
]

/** Locks at `now - 9`, which anybody may end. */
async function prepared(server: TestServer): Promise<number> {
  for (const key of KEYS) await server.put(key, 'before')
  const now = numberOf(await server.ok('tso', { count: 20 }), 'ts')
  await server.ok('prewrite', {
    mutations: [put('p'), put('s')],
    primary: 'p',
    start_ts: now - 9,
    lock_ttl: 1,
    min_commit_ts: now - 8,
  })
  return now
}

/** What everybody else does with a key works at once: writes are seen, in the order in which they came. */
async function expectUsable(server: TestServer, key: string): Promise<void> {
  const url = `/v1/kv/${key}`
  const get = async () => (await server.get(url)).body
  const commitTs = await server.put(key, '1')
  expect(await get()).toBe('1')
  const read = await server.txn({ ops: [{ op: 'get', key }] })
  expect(listOf(read, 'results')).toMatchObject([{ value: '1', commit_ts: commitTs }])
  await server.txn({ checks: [{ key, value: '1' }], ops: [{ op: 'increment', key, by: 1 }] })
  expect(await get()).toBe('2')
  const etag = String((await server.get(url)).headers['etag'])
  expect((await server.send('PUT', url, { 'if-match': etag }, '3')).statusCode).toBe(200)
  expectProblem(await server.send('PUT', url, { 'if-match': etag }, '4'), 'precondition_failed')
  expectProblem(await server.send('PUT', url, { 'if-none-match': '*' }, '4'), 'precondition_failed')
  const moved = await server.txn({
    ops: [
      { op: 'increment', key, by: 1 },
      { op: 'put', key: 'other', value: 'o' },
    ],
  })
  expect(listOf(moved, 'results')[0]).toEqual({ value: '4' })
  expect((await server.get('/v1/kv/other')).body).toBe('o')
  expect((await server.send('DELETE', url)).statusCode).toBe(200)
  expect((await server.get(url)).statusCode).toBe(404)
  await server.txn({ ops: [{ op: 'insert', key, value: '5' }] })
  expect(await get()).toBe('5')
}

test.each<[string, (now: number) => number]>([
  ['2^53 - 1', () => TIMESTAMP_MAX],
  ['2^53 - 2', () => TIMESTAMP_MAX - 1],
  ['61 s above the clock', (now) => now + 61_000 * 2048],
])('%s is refused wherever it would be written, and every key is as it was', { tags: ['long'] }, async (_, tsOf) => {
  const { server, machine } = await started()
  const now = await prepared(server)
  for (const [call, field, body] of WRITTEN) {
    const answer = await server.call(call, body(tsOf(now), now))
    const readsLatest = field === 'caller_start_ts' && tsOf(now) === TIMESTAMP_MAX
    if (readsLatest) expect(answer.statusCode).toBe(200)
    else expectProblem(answer, 'invalid_argument', { field })
  }
  machine.pass(10) // The locks that were there are over their TTL.
  for (const key of KEYS) expect((await server.get(`/v1/kv/${key}`)).body).toBe('before')
  for (const key of KEYS) await expectUsable(server, key)
  expect(numberOf(await server.ok('tso', {}), 'ts') - now).toBeLessThan(1000 * 2048)
})

describe.each(WRITTEN)('%s, %s', (call, field, body) => {
  test('59 s above the clock is taken, and every key can be used at once', { tags: ['long'] }, async () => {
    const { server, machine } = await started()
    const now = await prepared(server)
    const ahead = now + 59_000 * 2048
    const answer = await server.call(call, body(ahead, now))
    if (call !== 'commit' || field !== 'start_ts') okBody(answer) // There is no lock to commit.
    machine.pass(10) // The locks that were there are over their TTL.
    const locks = listOf(await server.ok('scan_lock', { max_ts: ahead }), 'locks')
    if (locks.some((lock) => lock['start_ts'] === ahead)) machine.pass(60_000) // A lock is there for its time.
    for (const key of KEYS) await expectUsable(server, key)
    const ts = numberOf(await server.ok('tso', {}), 'ts')
    expect(Math.abs(ts / 2048 - machine.wallMs)).toBeLessThan(100)
  })
})

/** Each ends the transaction at `ts` on the keys `k` and `l`, whether it has locks there or not. */
const ENDING: readonly (readonly [call: string, body: (ts: number, now: number) => Json])[] = [
  ['rollback', (ts) => ({ keys: ['k', 'l'], start_ts: ts })],
  ['cleanup', (ts) => ({ key: 'k', start_ts: ts, current_ts: 0 })],
  [
    'check_txn_status',
    (ts) => ({ primary: 'k', lock_ts: ts, caller_start_ts: 0, current_ts: TIMESTAMP_MAX, rollback_if_not_exist: true }),
  ],
  ['check_secondary_locks', (ts) => ({ keys: ['k', 'l'], start_ts: ts })],
  ['resolve_lock', (ts) => ({ start_ts: ts, commit_ts: 0, keys: ['k', 'l'] })],
  ['resolve_lock', (ts) => ({ txns: [{ start_ts: ts, commit_ts: 0 }] })],
  ['pessimistic_rollback', (ts) => ({ keys: ['k', 'l'], start_ts: ts, for_update_ts: ts })],
]

describe.each(ENDING)('%s of a transaction that begins 59 s above the clock', (call, body) => {
  test.each(['with', 'without'])('%s a lock: what is written next is seen by the next snapshot', async (has) => {
    const { server, machine } = await started()
    const now = await prepared(server)
    machine.pass(10) // The locks that are there are over their TTL.
    const ts = now + 59_000 * 2048
    const lock = { mutations: [put('k'), put('l')], primary: 'k', start_ts: ts }
    if (has === 'with') await server.ok('prewrite', lock)
    await server.call(call, body(ts, now))
    const ended = listOf(await server.ok('scan_lock', { max_ts: TIMESTAMP_MAX - 1 }), 'locks')
    const left = ended.flatMap(({ key, start_ts: startTs }) => (startTs === ts ? [String(key)] : []))
    for (const [i, key] of ['k', 'l'].filter((key) => !left.includes(key)).entries()) {
      expect(await server.put(key, '1')).toBeLessThan(machine.ts() + 1000 * 2048)
      const snapshot = numberOf(await server.ok('tso', {}), 'ts')
      expect((await server.get(`/v1/kv/${key}?ts=${snapshot}`)).body).toBe('1')
      for (const mode of ['optimistic', 'pessimistic']) {
        const { txn } = (await server.post('/v1/txn/begin', { mode })).json<{ txn: string }>()
        okBody(await server.send('PUT', `/v1/txn/${txn}/kv/${key}`, {}, mode))
        okBody(await server.post(`/v1/txn/${txn}/commit`, {}))
        expect((await server.get(`/v1/kv/${key}?ts=${numberOf(await server.ok('tso', {}), 'ts')}`)).body).toBe(mode)
      }
      const isolation = i === 0 ? 'serializable' : 'snapshot'
      await server.txn({
        isolation,
        max_retries: 0,
        ops: [
          { op: 'put', key, value: '2' },
          { op: 'scan', prefix: '' },
        ],
      })
    }
    // It stays ended, at once and when its time has come.
    const repeat = { ...lock, mutations: [put('k')] }
    const isSearching = call === 'pessimistic_rollback' || 'txns' in body(ts, now)
    if (!left.includes('k') && (has === 'with' || !isSearching)) {
      expectProblem(await server.call('prewrite', repeat), 'write_conflict', { reason: 'self_rolled_back' })
      machine.pass(60_000)
      await server.put('k', 'later')
      expectProblem(await server.call('prewrite', repeat), 'write_conflict', { reason: 'self_rolled_back' })
    }
  })
})

test('a reader from the future pushes no min_commit_ts: nobody has to commit behind it', async () => {
  const { server } = await started()
  const now = await prepared(server)
  const pushed = await server.ok('check_txn_status', {
    ...{ primary: 'p', lock_ts: now - 9, caller_start_ts: now + 59_000 * 2048, current_ts: 0 },
  })
  expect(pushed).toMatchObject({ status: 'locked', action: 'no_action', lock: { min_commit_ts: now - 8 } })
  const real = { primary: 'p', lock_ts: now - 9, caller_start_ts: now, current_ts: 0 }
  expect(await server.ok('check_txn_status', real)).toMatchObject({ action: 'min_commit_ts_pushed' })
})

test('a commit at just the timestamp of such a rollback keeps it', async () => {
  const { server } = await started()
  const now = await prepared(server)
  const ts = now + 59_000 * 2048
  await server.ok('rollback', { keys: ['k'], start_ts: ts })
  const startTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.ok('prewrite', { mutations: [put('k')], primary: 'k', start_ts: startTs })
  await server.ok('commit', { keys: ['k'], start_ts: startTs, commit_ts: ts })
  const again = await server.call('prewrite', { mutations: [put('k')], primary: 'k', start_ts: ts })
  expectProblem(again, 'write_conflict', { reason: 'self_rolled_back' })
})

test('over a restart too', async () => {
  const machine = new Machine()
  const first = await startServer(machine)
  const now = await prepared(first)
  const ts = machine.ts() + 59_000 * 2048
  await first.ok('rollback', { keys: ['k'], start_ts: ts })
  await first.app.close()
  await first.store.close()
  const server = await start({ ...machine, directory: first.directory })
  expect(await server.put('k', '1')).toBeLessThan(now + 30_000 * 2048)
  const repeat = await server.call('prewrite', { mutations: [put('k')], primary: 'k', start_ts: ts })
  expectProblem(repeat, 'write_conflict', { reason: 'self_rolled_back' })
})

describe('a key that a client has written 59 s above the clock', () => {
  async function written() {
    const { server, machine } = await started()
    const ahead = machine.ts() + 59_000 * 2048
    await server.put('k', 'now')
    await server.write(ahead - 1, ahead, ['k'])
    return { server, machine, ahead }
  }

  test('goes on from there: versions are above it, and snapshots of before see none of them', async () => {
    const { server, machine, ahead } = await written()
    const before = numberOf(await server.ok('tso', {}), 'ts')
    const commitTs = await server.put('k', 'later')
    expect(commitTs).toBeGreaterThan(ahead)
    expect(await server.put('other', 'now')).toBeLessThan(before + 1000 * 2048)
    expect((await server.get('/v1/kv/k')).body).toBe('later')
    expect((await server.get(`/v1/kv/k?ts=${before}`)).body).toBe('now')
    machine.pass(60_000)
    expect((await server.get(`/v1/kv/k?ts=${numberOf(await server.ok('tso', {}), 'ts')}`)).body).toBe('later')
    expect(await server.put('k', 'last')).toBeLessThan(machine.ts() + 100 * 2048)
  })

  test('over a restart too', async () => {
    const machine = new Machine()
    const first = await startServer(machine)
    const ahead = machine.ts() + 59_000 * 2048
    await first.write(ahead - 1, ahead, ['k'])
    await first.app.close()
    await first.store.close()
    const server = await start({ ...machine, directory: first.directory })
    await expectUsable(server, 'k')
  })

  test('is lost to open transactions and serializable ones, until the clock is there', async () => {
    const { server, machine } = await written()
    const ops = [{ op: 'put', key: 'k', value: 'theirs' }]
    const serializable = { ops, isolation: 'serializable', max_retries: 0 }
    const scanning = { ops: [...ops, { op: 'scan', prefix: '' }], max_retries: 0 }
    const open = async () => {
      const { txn } = (await server.post('/v1/txn/begin', {})).json<{ txn: string }>()
      okBody(await server.post(`/v1/txn/${txn}/ops`, { ops }))
      return server.post(`/v1/txn/${txn}/commit`, {})
    }
    expectProblem(await server.post('/v1/txn', serializable), 'write_conflict')
    expectProblem(await server.post('/v1/txn', scanning), 'write_conflict') // Each scan would be of another moment.
    expectProblem(await open(), 'write_conflict')
    machine.pass(60_000)
    for (const body of [serializable, scanning]) expect((await server.post('/v1/txn', body)).statusCode).toBe(200)
    expect((await open()).statusCode).toBe(200)
  })

  test('by an older version, years above it: it can be written all the same', { tags: ['long'] }, async () => {
    const { server, machine } = await started()
    const { store } = server
    const key = utf8('k')
    for (const commitTs of [machine.ts() + 1e14, TIMESTAMP_MAX - 3]) {
      const mutations = [{ op: 'put', key, value: utf8('theirs') } as const]
      await store.prewrite({ mutations, primary: key, startTs: commitTs - 1, lockTtl: 1, skipConstraintCheck: true })
      await store.commit({ keys: [key], startTs: commitTs - 1, commitTs })
      expect(await server.put('k', 'ours')).toBeGreaterThan(commitTs)
      expect((await server.get('/v1/kv/k')).body).toBe('ours')
    }
    // Where no timestamp is left there is only one way out.
    expectProblem(await server.send('PUT', '/v1/kv/k', {}, '2'), 'write_conflict')
    await server.ok('delete_range', { start: 'k', end: 'l' })
    await expectUsable(server, 'k')
  })
})

test('reads of the future move nothing', async () => {
  const { server, machine } = await started()
  await server.put('k', 'v')
  for (const ts of [TIMESTAMP_MAX, TIMESTAMP_MAX - 1, machine.ts() + 1e12]) {
    expect((await server.get(`/v1/kv/k?ts=${ts}`)).body).toBe('v')
    await server.ok('get', { key: 'k', ts })
    await server.ok('scan', { limit: 10, ts })
    await server.ok('batch_get', { keys: ['k'], ts })
    await server.ok('scan_lock', { max_ts: ts })
  }
  expect((await server.get('/v1/kv/k?at=2050-01-01T00:00:00Z')).body).toBe('v')
  expect(numberOf(await server.ok('tso', {}), 'ts') / 2048 - machine.wallMs).toBeLessThan(5)
  expect((await server.put('k', 'w')) / 2048 - machine.wallMs).toBeLessThan(5)
})

test('a lock cannot be made uncommittable by who asks after it', async () => {
  const { server, machine } = await started()
  const startTs = numberOf(await server.ok('tso', { count: 10 }), 'ts')
  await server.lock(startTs, ['a'], { min_commit_ts: startTs + 1 })
  const check = { primary: 'a', lock_ts: startTs, caller_start_ts: startTs + 5 }
  await server.ok('check_txn_status', { ...check, current_ts: TIMESTAMP_MAX - 1 })
  machine.pass(1)
  const commitTs = numberOf(await server.ok('tso', {}), 'ts')
  await server.ok('commit', { keys: ['a'], start_ts: startTs, commit_ts: commitTs })
})
