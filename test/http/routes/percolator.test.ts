import { describe, expect, test } from 'vitest'
import { reopenTestStore } from '../../store/test-store.js'
import { Clock, expectProblem, type Json, listOf, numberOf, type TestServer, testServers } from '../support.js'

const start = testServers()

const put = (key: string, value = `value of ${key}`): Json => ({ op: 'put', key, value })
const prewrite = (startTs: number, mutations: readonly Json[], rest: Json = {}): Json => ({
  mutations,
  primary: mutations[0]?.['key'],
  start_ts: startTs,
  ...rest,
})

describe('the paper’s transfer: 7 dollars from Bob to Joe', () => {
  async function accounts(): Promise<TestServer> {
    const server = await start()
    await server.ok('prewrite', prewrite(5, [put('bob', '10'), put('joe', '2')]))
    await server.ok('commit', { keys: ['bob', 'joe'], start_ts: 5, commit_ts: 6 })
    await server.ok('prewrite', prewrite(7, [put('bob', '3'), put('joe', '9')]))
    return server
  }
  const balances = async (server: TestServer, ts: number): Promise<unknown[]> =>
    listOf(await server.ok('batch_get', { keys: ['bob', 'joe'], ts }), 'pairs').map(({ value }) => value)

  test('committed: primary first, then the secondary', { tags: ['long'] }, async () => {
    const server = await accounts()
    expectProblem(await server.call('get', { key: 'bob', ts: 8 }), 'key_locked', {
      lock: {
        key: 'bob',
        primary: 'bob',
        start_ts: 7,
        ttl: 3000,
        type: 'put',
        txn_size: 0,
        for_update_ts: 0,
        min_commit_ts: 0,
        use_async_commit: false,
        secondaries: [],
      },
    })
    expect(await balances(server, 6)).toEqual(['10', '2'])
    expect(await server.ok('commit', { keys: ['bob'], start_ts: 7, commit_ts: 8 })).toEqual({ commit_ts: 8 })
    expect(await server.ok('get', { key: 'bob', ts: 8 })).toEqual({ found: true, value: '3', commit_ts: 8 })
    expectProblem(await server.call('get', { key: 'joe', ts: 8 }), 'key_locked')
    await server.ok('commit', { keys: ['joe'], start_ts: 7, commit_ts: 8 })
    expect(await balances(server, 8)).toEqual(['3', '9'])
    expect(await balances(server, 7)).toEqual(['10', '2'])
  })

  test('the coordinator dies before the primary’s commit: a reader rolls back', async () => {
    const server = await accounts()
    const clockTs = numberOf(await server.ok('tso', {}), 'ts')
    const status = { primary: 'bob', lock_ts: 7, caller_start_ts: 9, current_ts: clockTs, rollback_if_not_exist: true }
    expect(await server.ok('check_txn_status', status)).toEqual({
      status: 'rolled_back',
      lock_ttl: 0,
      commit_ts: 0,
      action: 'ttl_expire_rollback',
    })
    expect(await server.ok('resolve_lock', { start_ts: 7, commit_ts: 0 })).toEqual({ resolved: 1 })
    expect(await balances(server, 100)).toEqual(['10', '2'])
    expectProblem(await server.call('commit', { keys: ['bob'], start_ts: 7, commit_ts: 8 }), 'txn_lock_not_found', {
      key: 'bob',
      start_ts: 7,
      commit_ts: 8,
    })
  })

  test('the coordinator dies after it: a reader rolls forward', async () => {
    const server = await accounts()
    await server.ok('commit', { keys: ['bob'], start_ts: 7, commit_ts: 8 })
    const status = { primary: 'bob', lock_ts: 7, caller_start_ts: 9, current_ts: 2 ** 50 }
    expect(await server.ok('check_txn_status', status)).toEqual({
      status: 'committed',
      lock_ttl: 0,
      commit_ts: 8,
      action: 'no_action',
    })
    expect(await server.ok('resolve_lock', { start_ts: 7, commit_ts: 8, keys: ['joe'] })).toEqual({ resolved: 1 })
    expect(await server.ok('resolve_lock', { start_ts: 7, commit_ts: 8, keys: ['joe'] })).toEqual({ resolved: 0 })
    expect(await balances(server, 8)).toEqual(['3', '9'])
  })
})

describe('each call', () => {
  test('tso: the last of count consecutive timestamps', { tags: ['long'] }, async () => {
    const server = await start()
    const one = numberOf(await server.ok('tso', {}), 'ts')
    const many = await server.ok('tso', { count: 1000 })
    expect(many).toMatchObject({ count: 1000 })
    expect(numberOf(many, 'ts')).toBeGreaterThanOrEqual(one + 1000)
    expect(await server.ok('tso', { count: 1_000_000 })).toMatchObject({ count: 1_000_000 })
    for (const count of [0, -1, 1.5, '1', 1_000_001, null])
      expectProblem(await server.call('tso', { count }), 'invalid_argument', { field: 'count' })
  })

  test('get: found or not, a deleted key, an empty value', async () => {
    const server = await start()
    await server.ok('prewrite', prewrite(5, [put('k', ''), put('gone')]))
    await server.ok('commit', { keys: ['k', 'gone'], start_ts: 5, commit_ts: 6 })
    await server.ok('prewrite', prewrite(7, [{ op: 'delete', key: 'gone' }]))
    await server.ok('commit', { keys: ['gone'], start_ts: 7, commit_ts: 8 })
    expect(await server.ok('get', { key: 'k', ts: 6 })).toEqual({ found: true, value: '', commit_ts: 6 })
    for (const body of [{ key: 'gone' }, { key: 'k', ts: 5 }, { key: 'nobody', ts: 0 }])
      expect(await server.ok('get', body)).toEqual({ found: false })
    expect(await server.ok('get', { key: 'gone', ts: 7 })).toMatchObject({ found: true, commit_ts: 6 })
  })

  test('rollback: twice, of a committed transaction, before the prewrite', { tags: ['long'] }, async () => {
    const server = await start()
    await server.lock(5, ['a'])
    for (let i = 0; i < 2; i++) expect(await server.ok('rollback', { keys: ['a'], start_ts: 5 })).toEqual({})
    await server.write(7, 8, ['a'])
    expectProblem(await server.call('rollback', { keys: ['a'], start_ts: 7 }), 'already_committed', {
      start_ts: 7,
      commit_ts: 8,
    })
    await server.ok('rollback', { keys: ['b'], start_ts: 9 })
    expectProblem(await server.call('prewrite', prewrite(9, [put('b')])), 'write_conflict', {
      key: 'b',
      start_ts: 9,
      conflict_start_ts: 9,
      conflict_commit_ts: 9,
      primary: 'b',
      reason: 'self_rolled_back',
    })
  })

  test('cleanup: a living lock, an expired one, whatever its age, a committed one', async () => {
    const server = await start()
    await server.lock(5, ['a', 'b'])
    expectProblem(await server.call('cleanup', { key: 'a', start_ts: 5, current_ts: 6 }), 'key_locked', {
      lock: expect.objectContaining({ key: 'a', start_ts: 5 }),
    })
    expect(await server.ok('cleanup', { key: 'a', start_ts: 5, current_ts: 2 ** 40 })).toEqual({})
    expect(await server.ok('cleanup', { key: 'b', start_ts: 5, current_ts: 0 })).toEqual({})
    expect(await server.ok('cleanup', { key: 'b', start_ts: 5, current_ts: 0 })).toEqual({})
    await server.write(7, 8, ['a'])
    expectProblem(await server.call('cleanup', { key: 'a', start_ts: 7, current_ts: 0 }), 'already_committed', {
      start_ts: 7,
      commit_ts: 8,
    })
  })

  test('check_txn_status: locked, min_commit_ts pushed, unknown, primary_mismatch', { tags: ['long'] }, async () => {
    const server = await start()
    await server.lock(5, ['a', 'b'], { min_commit_ts: 6 })
    const check = { primary: 'a', lock_ts: 5, caller_start_ts: 0, current_ts: 7 }
    expect(await server.ok('check_txn_status', check)).toMatchObject({
      status: 'locked',
      lock_ttl: 3000,
      commit_ts: 0,
      action: 'no_action',
      lock: { key: 'a', start_ts: 5, min_commit_ts: 6 },
    })
    expect(await server.ok('check_txn_status', { ...check, caller_start_ts: 10 })).toMatchObject({
      action: 'min_commit_ts_pushed',
      lock: { min_commit_ts: 11 },
    })
    expectProblem(await server.call('commit', { keys: ['a'], start_ts: 5, commit_ts: 10 }), 'commit_ts_expired', {
      key: 'a',
      attempted_commit_ts: 10,
      min_commit_ts: 11,
    })
    const mismatch = { ...check, primary: 'b', verify_is_primary: true }
    expectProblem(await server.call('check_txn_status', mismatch), 'primary_mismatch', {
      lock: expect.objectContaining({ key: 'b', primary: 'a' }),
    })
    expectProblem(await server.call('check_txn_status', { ...check, primary: 'c' }), 'txn_not_found', {
      start_ts: 5,
      primary: 'c',
    })
    const missing = { ...check, primary: 'c', rollback_if_not_exist: true }
    expect(await server.ok('check_txn_status', missing)).toMatchObject({ action: 'lock_not_exist_rollback' })
    expect(await server.ok('check_txn_status', missing)).toMatchObject({ status: 'rolled_back', action: 'no_action' })
  })

  test('txn_heart_beat raises the TTL and never lowers it', async () => {
    const server = await start()
    await server.lock(5, ['a'])
    const beat = { primary: 'a', start_ts: 5, advise_lock_ttl: 9000 }
    expect(await server.ok('txn_heart_beat', beat)).toEqual({ lock_ttl: 9000 })
    expect(await server.ok('txn_heart_beat', { ...beat, advise_lock_ttl: 1 })).toEqual({ lock_ttl: 9000 })
    expectProblem(await server.call('txn_heart_beat', { ...beat, start_ts: 6 }), 'txn_not_found', {
      start_ts: 6,
      primary: 'a',
    })
  })

  test('scan_lock: in key order, up to max_ts, in a range, up to a limit', async () => {
    const server = await start()
    await server.lock(5, ['c', 'a'])
    await server.lock(9, ['b'])
    const keys = async (body: Json): Promise<unknown[]> =>
      listOf(await server.ok('scan_lock', body), 'locks').map(({ key }) => key)
    expect(await keys({ max_ts: 8 })).toEqual(['a', 'c'])
    expect(await keys({ max_ts: 9 })).toEqual(['a', 'b', 'c'])
    expect(await keys({ max_ts: 4 })).toEqual([])
    expect(await keys({ max_ts: 9, start: 'b', end: 'c' })).toEqual(['b'])
    expect(await keys({ max_ts: 9, limit: 2 })).toEqual(['a', 'b'])
  })

  test('resolve_lock for several transactions', async () => {
    const server = await start()
    await server.lock(5, ['a', 'b'])
    await server.lock(6, ['c'])
    const txns = [
      { start_ts: 5, commit_ts: 10 },
      { start_ts: 6, commit_ts: 0 },
      { start_ts: 99, commit_ts: 0 },
    ]
    expect(await server.ok('resolve_lock', { txns })).toEqual({ resolved: 3 })
    expect(listOf(await server.ok('scan', { ts: 10, limit: 10 }), 'pairs').map(({ key }) => key)).toEqual(['a', 'b'])
  })

  test('mvcc_get_by_key shows all there is', async () => {
    const server = await start()
    expect(await server.mvcc('k')).toEqual({ lock: null, writes: [], values: [] })
    const long = 'x'.repeat(1000)
    await server.ok('prewrite', prewrite(5, [put('k', 'short')]))
    await server.ok('commit', { keys: ['k'], start_ts: 5, commit_ts: 6 })
    await server.ok('prewrite', prewrite(7, [put('k', long)]))
    await server.ok('commit', { keys: ['k'], start_ts: 7, commit_ts: 8 })
    await server.ok('prewrite', prewrite(9, [{ op: 'delete', key: 'k' }]))
    await server.ok('commit', { keys: ['k'], start_ts: 9, commit_ts: 10 })
    await server.ok('prewrite', prewrite(11, [{ op: 'lock', key: 'k' }]))
    await server.ok('cleanup', { key: 'k', start_ts: 11, current_ts: 0 })
    await server.lock(13, ['k'])
    expect(await server.mvcc('k')).toEqual({
      lock: expect.objectContaining({ key: 'k', start_ts: 13, type: 'put' }),
      writes: [
        { type: 'rollback', start_ts: 11, commit_ts: 11, protected: true },
        { type: 'delete', start_ts: 9, commit_ts: 10 },
        { type: 'put', start_ts: 7, commit_ts: 8 },
        { type: 'put', start_ts: 5, commit_ts: 6, short_value: 'short' },
      ],
      values: [{ start_ts: 7, value: long }],
    })
  })
})

describe('fine print', () => {
  test('1: scans', async () => {
    const server = await start()
    await server.write(5, 6, ['a', 'b', 'c', 'd'])
    const scan = async (body: Json): Promise<unknown[]> =>
      listOf(await server.ok('scan', { ts: 10, limit: 10, ...body }), 'pairs').map(({ key }) => key)
    expect(await scan({ start: 'b', end: 'd' })).toEqual(['b', 'c'])
    expect(await scan({ start: 'b', end: 'd', reverse: true })).toEqual(['c', 'b'])
    expect(await scan({ reverse: true, limit: 2 })).toEqual(['d', 'c'])
    expect(await scan({ start: 'd', end: 'b' })).toEqual([])
    expect(await server.ok('scan', { ts: 10, limit: 1, key_only: true })).toEqual({
      pairs: [{ key: 'a', commit_ts: 6 }],
    })
    await server.lock(7, ['c', 'e'])
    expect(await scan({ limit: 2 })).toEqual(['a', 'b'])
    expect(await scan({ limit: 1, reverse: true, end: 'e' })).toEqual(['d'])
    for (const reverse of [false, true]) {
      const body = expectProblem(await server.call('scan', { ts: 10, limit: 10, reverse }), 'key_locked')
      expect(listOf(body, 'locks').map(({ key }) => key)).toEqual(['c', 'e'])
    }
    const first = expectProblem(await server.call('scan', { ts: 10, limit: 3 }), 'key_locked')
    expect(listOf(first, 'locks').map(({ key }) => key)).toEqual(['c'])
    const keys = expectProblem(await server.call('batch_get', { keys: ['e', 'a', 'c'], ts: 10 }), 'key_locked')
    expect(listOf(keys, 'locks').map(({ key }) => key)).toEqual(['c', 'e'])
  })

  test('2: get without ts', async () => {
    const server = await start()
    await server.write(5, 6, ['a', 'b'])
    await server.lock(7, ['a', 'b'])
    expect(await server.ok('get', { key: 'a' })).toMatchObject({ commit_ts: 6 })
    expectProblem(await server.call('get', { key: 'b' }), 'key_locked')
    expectProblem(await server.call('get', { key: 'a', ts: 7 }), 'key_locked')
    await server.lock(8, ['async'], { use_async_commit: true })
    expectProblem(await server.call('get', { key: 'async' }), 'key_locked')
    await server.ok('prewrite', prewrite(9, [put('p'), { op: 'lock', key: 'l' }]))
    expect(await server.ok('get', { key: 'l' })).toEqual({ found: false })
  })

  test('3: locks met are collected, another failure ends the request, assertions come last', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    await server.write(20, 21, ['new'])
    await server.lock(5, ['l1', 'l2'])
    const locks = expectProblem(
      await server.call('prewrite', prewrite(9, [put('l1'), put('x'), put('l2')])),
      'key_locked',
    )
    expect(listOf(locks, 'errors')).toEqual([
      expect.objectContaining({ code: 'key_locked', key: 'l1', lock: expect.objectContaining({ key: 'l1' }) }),
      expect.objectContaining({ code: 'key_locked', key: 'l2', lock: expect.objectContaining({ key: 'l2' }) }),
    ])
    const conflict = expectProblem(
      await server.call('prewrite', prewrite(9, [put('l1'), put('new')])),
      'write_conflict',
    )
    expect(listOf(conflict, 'errors')).toEqual([
      {
        code: 'write_conflict',
        key: 'new',
        start_ts: 9,
        conflict_start_ts: 20,
        conflict_commit_ts: 21,
        primary: 'l1',
        reason: 'optimistic',
      },
    ])
    const asserted = prewrite(30, [{ ...put('new'), assertion: 'not_exist' }])
    expectProblem(await server.call('prewrite', asserted), 'assertion_failed', {
      key: 'new',
      assertion: 'not_exist',
      existing_start_ts: 20,
      existing_commit_ts: 21,
      errors: [expect.objectContaining({ code: 'assertion_failed', key: 'new' })],
    })
    const both = prewrite(30, [
      { ...put('none'), assertion: 'exist' },
      { op: 'insert', key: 'new', value: '' },
    ])
    expectProblem(await server.call('prewrite', both), 'already_exists', { key: 'new' })
    for (const key of ['x', 'none']) expect(await server.mvcc(key)).toMatchObject({ lock: null, writes: [] })
  })

  test('4: repeats after the commit', async () => {
    const server = await start()
    await server.write(5, 8, ['a'])
    expect(await server.ok('prewrite', prewrite(5, [put('a')]))).toEqual({ min_commit_ts: 8 })
    expect(await server.ok('prewrite', prewrite(5, [put('a')], { try_one_pc: true }))).toEqual({ one_pc_commit_ts: 8 })
    expect((await server.mvcc('a'))['lock']).toBeNull()
    expect(await server.ok('commit', { keys: ['a'], start_ts: 5, commit_ts: 99 })).toEqual({ commit_ts: 8 })
  })

  const refused: readonly (readonly [call: string, body: Json, field?: string])[] = [
    ['commit', { keys: ['a'], start_ts: 5, commit_ts: 5 }, 'commit_ts'],
    ['commit', { keys: ['a'], start_ts: 5, commit_ts: 4 }, 'commit_ts'],
    ['commit', { keys: [], start_ts: 5, commit_ts: 6 }, 'keys'],
    ['commit', { keys: ['a', { base64: 'YQ==' }], start_ts: 5, commit_ts: 6 }, 'keys'],
    ['commit', { keys: ['a'], start_ts: 0, commit_ts: 6 }, 'start_ts'],
    ['commit', { keys: ['a'], commit_ts: 6 }, 'start_ts'],
    ['resolve_lock', { start_ts: 5, commit_ts: 5 }, 'commit_ts'],
    ['resolve_lock', { txns: [{ start_ts: 5, commit_ts: 3 }] }],
    ['resolve_lock', { txns: [] }, 'txns'],
    ['resolve_lock', { start_ts: 5, commit_ts: 0, keys: [] }, 'keys'],
    ['resolve_lock', { start_ts: 5, commit_ts: 0, keys: ['a', 'a'] }, 'keys'],
    ['resolve_lock', { start_ts: 5 }, 'commit_ts'],
    ['resolve_lock', { start_ts: 5, commit_ts: 0, txns: [{ start_ts: 5, commit_ts: 0 }] }],
    ['rollback', { keys: [], start_ts: 5 }, 'keys'],
    ['rollback', { keys: ['a', 'a'], start_ts: 5 }, 'keys'],
    ['batch_get', { keys: [], ts: 5 }, 'keys'],
    ['batch_get', { keys: ['a', 'a'], ts: 5 }, 'keys'],
    ['check_secondary_locks', { keys: ['a', 'a'], start_ts: 5 }, 'keys'],
    ['prewrite', prewrite(5, [], { primary: 'a' }), 'mutations'],
    ['prewrite', prewrite(5, [put('a'), put('a')]), 'mutations'],
    ['prewrite', prewrite(5, [{ op: 'put', key: 'a' }])],
    ['prewrite', prewrite(5, [{ op: 'insert', key: 'a' }])],
    ['prewrite', { mutations: [put('a')], start_ts: 5 }, 'primary'],
    ['prewrite', prewrite(5, [put('')], { primary: 'a' })],
    ['prewrite', prewrite(5, [put('a')], { primary: '' }), 'primary'],
    ['prewrite', prewrite(5, [put('a')], { for_update_ts: 6 }), 'pessimistic_actions'],
    ['prewrite', prewrite(5, [put('a')], { for_update_ts: 6, pessimistic_actions: [] }), 'pessimistic_actions'],
    ['prewrite', prewrite(5, [put('a')], { for_update_ts: 6, pessimistic_actions: ['do', 'do'] })],
    [
      'prewrite',
      prewrite(5, [{ op: 'check_not_exists', key: 'a' }], { for_update_ts: 6, pessimistic_actions: ['skip'] }),
    ],
    ['prewrite', prewrite(5, [put('a')], { try_one_pc: true, primary: 'b' }), 'primary'],
    ['scan', { ts: 0, limit: 1 }, 'ts'],
    ['scan', { limit: 1 }, 'ts'],
    ['scan', { ts: 5 }, 'limit'],
    ['cleanup', { key: 'a', start_ts: 5 }, 'current_ts'],
    ['check_txn_status', { primary: 'a', lock_ts: 5, caller_start_ts: 0 }, 'current_ts'],
    ['txn_heart_beat', { primary: 'a', start_ts: 5 }, 'advise_lock_ttl'],
    ['scan_lock', {}, 'max_ts'],
    ['delete_range', { start: 'a' }, 'end'],
    ['mvcc_get_by_key', { key: '' }, 'key'],
  ]
  test('5: what is refused', { tags: ['long'] }, async () => {
    const server = await start()
    for (const [call, body, field] of refused) {
      const problem = expectProblem(
        await server.call(call, body),
        'invalid_argument',
        field === undefined ? {} : { field },
      )
      expect(typeof problem['field'], JSON.stringify(body)).toBe('string')
    }
    const key = 'k'.repeat(4097)
    for (const [call, body] of [
      ['get', { key }],
      ['prewrite', prewrite(5, [put('a')], { primary: key })],
      ['prewrite', prewrite(5, [put('a')], { use_async_commit: true, secondaries: [key] })],
      ['prewrite', prewrite(5, [put('a', 'v'.repeat(1024 * 1024 + 1))])],
      ['scan', { ts: 5, limit: 1, start: key }],
    ] as const)
      expectProblem(await server.call(call, body), 'payload_too_large')
    expect(await server.ok('scan_lock', { max_ts: 2 ** 50 })).toEqual({ locks: [] })
  })

  test('5: 0 for an optional timestamp means not given', async () => {
    const server = await start()
    const zeros = { min_commit_ts: 0, max_commit_ts: 0, for_update_ts: 0 }
    expect(await server.ok('prewrite', prewrite(5, [put('a')], zeros))).toEqual({})
    expect((await server.mvcc('a'))['lock']).toMatchObject({ min_commit_ts: 0, for_update_ts: 0 })
    await server.ok('txn_heart_beat', { primary: 'a', start_ts: 5, advise_lock_ttl: 1, min_commit_ts: 0 })
    await server.ok('commit', { keys: ['a'], start_ts: 5, commit_ts: 6 })
    expect(await server.ok('get', { key: 'a', ts: 0 })).toMatchObject({ found: true })
  })

  test('6: one-phase commit, and its fallback to plain 2PC', async () => {
    const server = await start()
    const flags = { use_async_commit: true, try_one_pc: true }
    const answer = await server.ok('prewrite', prewrite(5, [put('a'), put('b')], { ...flags, secondaries: ['b'] }))
    expect(numberOf(answer, 'one_pc_commit_ts')).toBeGreaterThan(5)
    expect(answer).not.toHaveProperty('min_commit_ts')
    expect(await server.mvcc('a')).toMatchObject({ lock: null, writes: [{ type: 'put', start_ts: 5 }] })
    expect(await server.ok('prewrite', prewrite(5, [put('a')], flags))).toEqual(answer)
    await server.ok('get', { key: 'c', ts: 50 })
    const fallen = await server.ok('prewrite', prewrite(7, [put('c')], { ...flags, max_commit_ts: 20 }))
    expect(fallen['one_pc_commit_ts'] ?? 0).toBe(0)
    expect((await server.mvcc('c'))['lock']).toMatchObject({ use_async_commit: false, secondaries: [] })
  })

  test('8: check_secondary_locks and heartbeats', async () => {
    const server = await start()
    await server.lock(5, ['a', 'b', 'c'], { use_async_commit: true, secondaries: ['b', 'c'] })
    const all = await server.ok('check_secondary_locks', { keys: ['b', 'c'], start_ts: 5 })
    expect(all).toMatchObject({ commit_ts: 0, locks: [{ key: 'b', use_async_commit: true }, { key: 'c' }] })
    const missing = { keys: ['b', 'missing', 'c'], start_ts: 5 }
    expect(await server.ok('check_secondary_locks', missing)).toEqual({ locks: [], commit_ts: 0 })
    expect(await server.mvcc('missing')).toMatchObject({ writes: [{ type: 'rollback', start_ts: 5, protected: true }] })
    await server.write(7, 9, ['x'])
    expect(await server.ok('check_secondary_locks', { keys: ['x'], start_ts: 7 })).toEqual({ locks: [], commit_ts: 9 })
    await server.lock(20, ['p'])
    await server.ok('txn_heart_beat', { primary: 'p', start_ts: 20, advise_lock_ttl: 1, min_commit_ts: 40 })
    await server.ok('txn_heart_beat', { primary: 'p', start_ts: 20, advise_lock_ttl: 1, min_commit_ts: 30 })
    expect((await server.mvcc('p'))['lock']).toMatchObject({ min_commit_ts: 40 })
  })

  test('9: mvcc_get_by_start_ts, resolved, delete_range', async () => {
    const server = await start()
    expect(await server.ok('mvcc_get_by_start_ts', { start_ts: 5 })).not.toHaveProperty('key')
    await server.write(5, 6, ['b', 'c'])
    await server.lock(7, ['a'])
    expect(await server.ok('mvcc_get_by_start_ts', { start_ts: 5 })).toMatchObject({ key: 'b', lock: null })
    expect(await server.ok('mvcc_get_by_start_ts', { start_ts: 5, start: 'c' })).toMatchObject({ key: 'c' })
    expect(await server.ok('mvcc_get_by_start_ts', { start_ts: 7 })).toMatchObject({ key: 'a', lock: { start_ts: 7 } })
    expect(await server.ok('delete_range', { start: 'a', end: 'c' })).toEqual({})
    for (const key of ['a', 'b']) expect(await server.mvcc(key)).toEqual({ lock: null, writes: [], values: [] })
    expect(await server.ok('get', { key: 'c' })).toMatchObject({ found: true })
    expect(await server.ok('delete_range', { start: 'z', end: 'a' })).toEqual({})
  })

  test('10: gc', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    for (const [startTs, commitTs] of [
      [5, 6],
      [7, 8],
      [9, 10],
    ] as const)
      await server.write(startTs, commitTs, ['k'])
    await server.lock(15, ['locked', 'locked2'])
    await server.ok('commit', { keys: ['locked'], start_ts: 15, commit_ts: 16 })
    const collected = await server.ok('gc', { safe_point: 20 })
    expect(collected).toEqual({ safe_point: 20, versions_removed: 2 })
    expect(await server.ok('get', { key: 'locked2', ts: 20 })).toMatchObject({ commit_ts: 16 })
    expect(await server.ok('gc', { safe_point: 10 })).toEqual({ safe_point: 20, versions_removed: 0 })
    expectProblem(await server.call('gc', { safe_point: clock.ts(2048 * 10) }), 'invalid_argument', {
      field: 'safe_point',
    })
    expectProblem(await server.call('prewrite', prewrite(19, [put('x')])), 'ts_below_safe_point', { safe_point: 20 })
    expectProblem(await server.call('commit', { keys: ['x'], start_ts: 19, commit_ts: 30 }), 'ts_below_safe_point')
    expectProblem(await server.call('get', { key: 'k', ts: 19 }), 'ts_below_safe_point')
    expect(await server.ok('get', { key: 'k', ts: 20 })).toMatchObject({ commit_ts: 10 })
    expect(okCounts(await server.ok('scan_lock', { max_ts: 20 }))).toBe(0)
  })
})

const okCounts = (body: Json): number => listOf(body, 'locks').length

describe('a prewrite that comes again, or late', () => {
  const check = (key: string): Json => ({ op: 'check_not_exists', key })

  test('async commit: what writes nothing does not raise the answer above the locks', async () => {
    const server = await start()
    const request = prewrite(10, [put('p'), put('s'), check('q')], { use_async_commit: true, secondaries: ['s'] })
    expect(await server.ok('prewrite', request)).toEqual({ min_commit_ts: 11 })
    expect(await server.ok('get', { key: 'other', ts: 1000 })).toEqual({ found: false })
    expect(await server.ok('prewrite', request)).toEqual({ min_commit_ts: 11 })
    for (const key of ['p', 's']) expect((await server.mvcc(key))['lock']).toMatchObject({ min_commit_ts: 11 })
  })

  test('async commit: above max_commit_ts the answer is still what the locks say', async () => {
    const server = await start()
    const request = prewrite(10, [put('p'), put('s')], { use_async_commit: true, secondaries: ['s'] })
    expect(await server.ok('prewrite', { ...request, max_commit_ts: 20 })).toEqual({ min_commit_ts: 11 })
    expect(await server.ok('prewrite', { ...request, max_commit_ts: 10 })).toEqual({ min_commit_ts: 11 })
    const pushed = { primary: 'p', lock_ts: 10, caller_start_ts: 1000, current_ts: 1001, force_sync_commit: true }
    expect(await server.ok('check_txn_status', pushed)).toMatchObject({ action: 'min_commit_ts_pushed' })
    expect(await server.ok('prewrite', { ...request, max_commit_ts: 20 })).toEqual({ min_commit_ts: 1001 })
  })

  test('1PC: it has succeeded, whatever others wrote since to what it only checked', async () => {
    const server = await start()
    const request = prewrite(10, [check('q'), put('p')], { primary: 'p', try_one_pc: true })
    const first = await server.ok('prewrite', request)
    await server.put('q', 'there now')
    expect(await server.ok('prewrite', request)).toEqual(first)
  })

  const skipping: [string, Json][] = [
    ['action skip', { for_update_ts: 40, pessimistic_actions: ['skip'] }],
    ['action skip, 1PC', { for_update_ts: 40, pessimistic_actions: ['skip'], try_one_pc: true }],
    ['action skip, async commit', { for_update_ts: 40, pessimistic_actions: ['skip'], use_async_commit: true }],
    ['skip_constraint_check', { skip_constraint_check: true }],
    ['skip_constraint_check, 1PC', { skip_constraint_check: true, try_one_pc: true }],
  ]
  for (const [name, rest] of skipping)
    test(`the own Rollback below a newer record stops it: ${name}`, async () => {
      const server = await start()
      await server.write(20, 30, ['k'])
      expect(await server.ok('check_secondary_locks', { keys: ['k'], start_ts: 10 })).toMatchObject({ commit_ts: 0 })
      const late = await server.call('prewrite', prewrite(10, [put('k', 'late')], rest))
      expectProblem(late, 'write_conflict', { reason: 'self_rolled_back' })
      expect((await server.mvcc('k'))['lock']).toBeNull()
    })
})

describe('more than one read of the engine', () => {
  const keys = Array.from({ length: 1500 }, (_, i) => `k${String(i).padStart(40, '0')}`)

  test('a scan answers every pair', { tags: ['long'] }, async () => {
    const server = await start()
    await server.write(5, 6, keys)
    for (const reverse of [false, true]) {
      const pairs = listOf(await server.ok('scan', { ts: 10, limit: 10_000, reverse }), 'pairs')
      expect(pairs).toHaveLength(keys.length)
      expect(pairs.map(({ key }) => key)).toEqual(reverse ? keys.toReversed() : keys)
    }
  })

  test('the whole history of a long key', async () => {
    const server = await start()
    const key = 'k'.repeat(4096)
    for (let i = 1; i <= 12; i++) await server.write(i * 10, i * 10 + 1, [key])
    expect(listOf(await server.mvcc(key), 'writes')).toHaveLength(12)
    expectProblem(await server.call('rollback', { keys: [key], start_ts: 10 }), 'already_committed')
    expect(await server.ok('commit', { keys: [key], start_ts: 10, commit_ts: 99 })).toEqual({ commit_ts: 11 })
  })

  test('delete_range and gc reach every key', { tags: ['long'] }, async () => {
    const server = await start()
    const long = Array.from({ length: 40 }, (_, i) => `${i}`.padStart(4000, 'l'))
    await server.write(5, 6, long)
    await server.write(7, 8, long)
    expect(await server.ok('gc', { safe_point: 9 })).toEqual({ safe_point: 9, versions_removed: 40 })
    await server.ok('delete_range', { start: 'l', end: 'm' })
    for (const key of long) expect(await server.mvcc(key)).toEqual({ lock: null, writes: [], values: [] })
  })

  test('every lock is there after a restart', async () => {
    const server = await start()
    await server.lock(5, keys)
    await server.store.close()
    const reopened = await reopenTestStore(server.directory)
    expect(reopened.locks.count).toBe(keys.length)
    await reopened.close()
  })
})
