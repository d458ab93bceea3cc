import { describe, expect, test } from 'vitest'
import { expectProblem, type Json, listOf, numberOf, type TestServer, testServers } from '../support.js'

const start = testServers()

const run = (server: TestServer, ops: readonly Json[], rest: Json = {}) => server.post('/v1/txn', { ops, ...rest })
const results = async (server: TestServer, ops: readonly Json[]): Promise<Json[]> =>
  listOf(await server.txn({ ops }), 'results')

describe('ops', () => {
  test('the example of the contract', async () => {
    const server = await start()
    await server.txn({ ops: [{ op: 'put', key: 'a', value: '1' }] })
    const b = await server.put('b', '2')
    const c = await server.put('c', 'x')
    const body = await server.txn({
      checks: [
        { key: 'a', exists: true },
        { key: 'b', value: '2' },
        { key: 'c', commit_ts: c },
        { key: 'b', exists: true, value: '2', commit_ts: b },
      ],
      ops: [
        { op: 'get', key: 'a' },
        { op: 'put', key: 'b', value: '3' },
        { op: 'delete', key: 'c' },
        { op: 'insert', key: 'd', value: '1' },
        { op: 'scan', prefix: 'x/', limit: 10 },
        { op: 'increment', key: 'n', by: 1 },
      ],
    })
    expect(body).toEqual({
      start_ts: expect.any(Number),
      commit_ts: expect.any(Number),
      results: [{ found: true, value: '1', commit_ts: expect.any(Number) }, {}, {}, {}, { pairs: [] }, { value: '1' }],
    })
    expect(numberOf(body, 'commit_ts')).toBeGreaterThan(numberOf(body, 'start_ts'))
    for (const [key, value] of [
      ['b', '3'],
      ['d', '1'],
      ['n', '1'],
    ] as const)
      expect((await server.get(`/v1/kv/${key}`)).headers.etag, value).toBe(`"${body['commit_ts']}"`)
    expectProblem(await server.get('/v1/kv/c'), 'not_found')
  })

  test('own writes are visible, without a commit_ts', async () => {
    const server = await start()
    await server.put('old', '0')
    expect(
      await results(server, [
        { op: 'put', key: 'k', value: '' },
        { op: 'get', key: 'k' },
        { op: 'delete', key: 'old' },
        { op: 'get', key: 'old' },
        { op: 'insert', key: 'old', value: 'again' },
        { op: 'get', key: 'old' },
        { op: 'increment', key: 'n', by: 5 },
        { op: 'increment', key: 'n' },
        { op: 'get', key: 'n' },
      ]),
    ).toEqual([
      {},
      { found: true, value: '' },
      {},
      { found: false },
      {},
      { found: true, value: 'again' },
      { value: '5' },
      { value: '6' },
      { found: true, value: '6' },
    ])
  })

  test('a scan merges the snapshot with own writes, in both directions, within its limit', async () => {
    const server = await start()
    const commitTs = await server.put('b', 'old')
    for (const key of ['a', 'c', 'd', 'f']) await server.put(key, 'old')
    const writes = [
      { op: 'put', key: 'b', value: 'new' },
      { op: 'delete', key: 'c' },
      { op: 'put', key: 'e', value: 'new' },
      { op: 'delete', key: 'nobody' },
    ]
    const scan = async (request: Json): Promise<unknown[]> => {
      const answers = await results(server, [...writes, { op: 'scan', ...request }, { op: 'put', key: 'z', value: '' }])
      const pairs = listOf(answers[writes.length] ?? {}, 'pairs')
      return pairs.map(({ key, value, commit_ts }) => `${key}=${value}${commit_ts === undefined ? '!' : ''}`)
    }
    expect(numberOf(await server.txn({ ops: [] }), 'start_ts')).toBeGreaterThan(commitTs)
    expect(await scan({ start: 'a', end: 'g' })).toEqual(['a=old', 'b=new!', 'd=old', 'e=new!', 'f=old'])
    for (const [key, value] of [
      ['b', 'old'],
      ['c', 'old'],
    ] as const)
      await server.put(key, value)
    await server.remove('e')
    expect(await scan({ start: 'a', end: 'g', limit: 2 })).toEqual(['a=old', 'b=new!'])
    await server.put('c', 'old')
    expect(await scan({ start: 'a', end: 'g', limit: 3, reverse: true })).toEqual(['f=old', 'e=new!', 'd=old'])
    await server.put('c', 'old')
    expect(await scan({ start: 'b', end: 'd', keys_only: true })).toEqual(['b=undefined!'])
    expect(await scan({ start: 'g', end: 'a' })).toEqual([])
  })

  test('nothing written: no commit_ts', async () => {
    const server = await start()
    for (const body of [{}, { ops: [] }, { ops: [{ op: 'get', key: 'a' }] }, { checks: [{ key: 'a', exists: false }] }])
      expect(await server.txn(body)).not.toHaveProperty('commit_ts')
  })

  test('insert: absent, present, put before, deleted before', async () => {
    const server = await start()
    await server.put('k', 'v')
    expectProblem(await run(server, [{ op: 'insert', key: 'k', value: 'x' }]), 'already_exists', { key: 'k' })
    const put = { op: 'put', key: 'n', value: '1' }
    expectProblem(await run(server, [put, { op: 'insert', key: 'n', value: 'x' }]), 'already_exists', { key: 'n' })
    expectProblem(await server.get('/v1/kv/n'), 'not_found')
    await results(server, [
      { op: 'delete', key: 'k' },
      { op: 'insert', key: 'k', value: 'x' },
    ])
    expect((await server.get('/v1/kv/k')).body).toBe('x')
  })

  test('all or nothing, also at the last op', async () => {
    const server = await start()
    await server.put('text', 'x')
    const ops = [
      { op: 'put', key: 'a', value: '1' },
      { op: 'delete', key: 'text' },
      { op: 'increment', key: 'text2' },
    ]
    expectProblem(await run(server, [...ops, { op: 'insert', key: 'a', value: '' }]), 'already_exists')
    expect(await server.mvcc('a')).toEqual({ lock: null, writes: [], values: [] })
    expect((await server.get('/v1/kv/text')).body).toBe('x')
  })
})

describe('increment', () => {
  const cases: readonly (readonly [value: string, by: number | undefined, want: string | 400])[] = [
    ['5', undefined, '6'],
    ['5', 0, '5'],
    ['-5', 3, '-2'],
    ['1', -2, '-1'],
    ['9007199254740993', 1, '9007199254740994'],
    ['0', Number.MAX_SAFE_INTEGER, '9007199254740991'],
    ['0', Number.MIN_SAFE_INTEGER, '-9007199254740991'],
    ['9223372036854775806', 1, '9223372036854775807'],
    ['9223372036854775807', 1, 400],
    ['9223372036854775808', -1, 400],
    ['-9223372036854775808', -1, 400],
    ['', 1, 400],
    [' 5', 1, 400],
    ['5\n', 1, 400],
    ['5x', 1, 400],
    ['0x10', 1, 400],
    ['1e3', 1, 400],
    ['1.5', 1, 400],
    ['٣', 1, 400],
    ['--1', 1, 400],
  ]
  for (const [value, by, want] of cases)
    test(`${JSON.stringify(value)} by ${by} is ${want}`, async () => {
      const server = await start()
      await server.put('n', value)
      const answer = await run(server, [{ op: 'increment', key: 'n', ...(by === undefined ? {} : { by }) }])
      if (want === 400) expectProblem(answer, 'invalid_argument')
      else expect(answer.json<Json>()).toMatchObject({ results: [{ value: want }] })
      expect((await server.get('/v1/kv/n')).body).toBe(want === 400 ? value : want)
    })

  type Marks = readonly (readonly [value: string, by: number, min: string, max: string])[]
  const marks: Marks = [
    ['5', 7, '5', '7'],
    ['5', 5, '5', '5'],
    ['5', -7, '-7', '5'],
    ['-5', -7, '-7', '-5'],
    ['007', 7, '7', '7'],
    ['9', 10, '9', '10'], // As numbers, not as text.
    ['9223372036854775807', Number.MAX_SAFE_INTEGER, '9007199254740991', '9223372036854775807'],
    ['-9223372036854775808', Number.MIN_SAFE_INTEGER, '-9223372036854775808', '-9007199254740991'],
    ['absent', 0, '0', '0'],
    ['absent', -7, '-7', '-7'],
    ['absent', 7, '7', '7'],
  ]
  for (const [value, by, min, max] of marks)
    test(`the min of ${value} and ${by} is ${min}, the max ${max}`, async () => {
      const server = await start()
      for (const [op, want] of Object.entries({ min, max })) {
        if (value !== 'absent') await server.put(op, value)
        expect(await results(server, [{ op, key: op, by }])).toEqual([{ value: want }])
        expect((await server.get(`/v1/kv/${op}`)).body).toBe(want)
      }
    })

  test.each(['min', 'max'])('%s of text, of more than 64 bits, or with nothing, is refused', async (op) => {
    const server = await start()
    for (const value of ['text', '1.5', '9223372036854775808', '-9223372036854775809']) {
      await server.put('n', value)
      expectProblem(await run(server, [{ op, key: 'n', by: 1 }]), 'invalid_argument', { field: 'ops[0].key' })
      expect((await server.get('/v1/kv/n')).body).toBe(value)
    }
    for (const wrong of [{}, { by: '1' }, { by: 2 ** 53 }])
      expectProblem(await run(server, [{ op, key: 'm', ...wrong }]), 'invalid_argument', { field: 'ops[0].by' })
    for (const name of ['value', 'limit'])
      expectProblem(await run(server, [{ op, key: 'm', by: 1, [name]: 1 }]), 'invalid_argument', {
        field: `ops[0].${name}`,
      })
  })

  for (const by of [1.5, '1', 2 ** 53, null])
    test(`by ${JSON.stringify(by)} is refused`, async () => {
      const server = await start()
      expectProblem(await run(server, [{ op: 'increment', key: 'n', by }]), 'invalid_argument', { field: 'ops[0].by' })
    })

  test('many at once lose none', async () => {
    const server = await start()
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => results(server, [{ op: 'increment', key: 'n', by: 1 }])),
    )
    expect(new Set(answers.map(([first]) => first?.['value'])).size).toBe(50)
    expect((await server.get('/v1/kv/n')).body).toBe('50')
  })

  test('min and max of many at once leave the least and the most', async () => {
    const server = await start()
    const numbers = Array.from({ length: 50 }, (_, i) => ((i * 17) % 50) + 1)
    await Promise.all(numbers.flatMap((by) => ['min', 'max'].map((op) => results(server, [{ op, key: op, by }]))))
    expect((await server.get('/v1/kv/min')).body).toBe('1')
    expect((await server.get('/v1/kv/max')).body).toBe('50')
  })
})

describe('versionstamp', () => {
  /** Never UTF-8 with the bytes that follow, so it is always shown as Base64. */
  const LOG = Buffer.from('log\xff', 'latin1')
  const asWire = (key: Buffer): Json => ({ base64: key.toString('base64') })
  const append = (value: string, rest: Json = {}): Json => ({
    op: 'put',
    key: asWire(LOG),
    value,
    versionstamp: true,
    ...rest,
  })
  const stampedAt = (commitTs: number, counter: number): Json => {
    const stamp = Buffer.alloc(10)
    stamp.writeBigUInt64BE(BigInt(commitTs))
    stamp.writeUInt16BE(counter, 8)
    return asWire(Buffer.concat([LOG, stamp]))
  }

  test('the answer names the key, which ends in the commit_ts', async () => {
    const server = await start()
    const body = await server.txn({
      ops: [append('a'), { op: 'put', key: 'k', value: '' }, append('b', { ttl_ms: 60_000 })],
    })
    const commitTs = numberOf(body, 'commit_ts')
    expect(body['results']).toEqual([{ key: stampedAt(commitTs, 0) }, {}, { key: stampedAt(commitTs, 1) }])
    const { pairs } = (await server.get('/v1/kv?prefix=log%ff')).json()
    expect(pairs).toEqual([
      { key: stampedAt(commitTs, 0), value: 'a', commit_ts: commitTs },
      { key: stampedAt(commitTs, 1), value: 'b', commit_ts: commitTs, expire_ts: expect.any(Number) },
    ])
  })

  test('a repeat under an Idempotency-Key writes nothing, and names the same keys', async () => {
    const server = await start()
    const headers = { 'idempotency-key': 'once' }
    const send = () => server.post('/v1/txn', { ops: [append('a')] }, headers)
    const first = (await send()).json()
    expect((await send()).json()).toEqual(first)
    expect(first.results).toEqual([{ key: stampedAt(first.commit_ts, 0) }])
    expect((await server.get('/v1/kv?prefix=log%ff')).json().pairs).toHaveLength(1)
    expectProblem(await server.post('/v1/txn', { ops: [append('b')] }, headers), 'idempotency_mismatch')
    expectProblem(
      await server.post('/v1/txn', { ops: [append('a', { versionstamp: false })] }, headers),
      'idempotency_mismatch',
    )
  })

  test('many at once are all there', async () => {
    const server = await start()
    const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => server.txn({ ops: [append(`${i}`)] })))
    const { pairs } = (await server.get('/v1/kv?prefix=log%ff&limit=1000')).json()
    expect(pairs).toHaveLength(100)
    const keys = answers.map((answer) => JSON.stringify(listOf(answer, 'results')[0]?.['key']))
    expect(new Set(keys)).toEqual(new Set(pairs.map(({ key }: Json) => JSON.stringify(key))))
  })

  test('what is refused', async () => {
    const server = await start({ limits: { keyBytesMax: 20 } })
    for (const op of ['insert', 'delete', 'increment'])
      expectProblem(await run(server, [{ op, key: 'k', versionstamp: true }]), 'invalid_argument', {
        field: 'ops[0].versionstamp',
      })
    expectProblem(await run(server, [append('', { lease: 'l' })]), 'invalid_argument', { field: 'ops[0].versionstamp' })
    expectProblem(await run(server, [append('', { versionstamp: 1 })]), 'invalid_argument')
    expectProblem(await run(server, [append('', { key: 'k'.repeat(11) })]), 'payload_too_large', {
      field: 'ops[0].key',
    })
    expect((await results(server, [append('', { key: 'k'.repeat(10) })]))[0]).toHaveProperty('key')
  })
})

describe('checks', () => {
  test('every check that failed is listed, the first one leads', async () => {
    const server = await start()
    const commitTs = await server.put('here', 'v')
    const checks = [
      { key: 'here', exists: true },
      { key: 'here', exists: false },
      { key: 'here', commit_ts: 0 },
      { key: 'here', commit_ts: commitTs - 1 },
      { key: 'here', value: 'w' },
      { key: 'gone', exists: true },
      { key: 'gone', value: '' },
      { key: 'gone', commit_ts: 5 },
      { key: 'gone', commit_ts: 0 },
      { key: 'gone', exists: false },
      { key: 'here', value: 'v', exists: false },
    ]
    const body = expectProblem(
      await run(server, [{ op: 'put', key: 'k', value: 'v' }], { checks }),
      'precondition_failed',
      {
        index: 1,
        key: 'here',
        commit_ts: commitTs,
      },
    )
    const here = (index: number) => ({ index, key: 'here', exists: true, commit_ts: commitTs })
    const gone = (index: number) => ({ index, key: 'gone', exists: false, commit_ts: 0 })
    expect(body['failed_checks']).toEqual([here(1), here(2), here(3), here(4), gone(5), gone(6), gone(7), here(10)])
    expect(await server.mvcc('k')).toEqual({ lock: null, writes: [], values: [] })
  })

  test('checks come before ops', async () => {
    const server = await start()
    const ops = [{ op: 'increment', key: 'n' }]
    await server.put('n', 'text')
    expectProblem(await run(server, ops, { checks: [{ key: 'n', exists: false }] }), 'precondition_failed')
  })
})

describe('conflicts', () => {
  test('write_conflict once the retries are used up', async () => {
    const server = await start()
    const ahead = (Date.now() + 30_000) * 2048
    await server.write(5, ahead, ['k']) // Committed beyond the clock: every serializable transaction of now conflicts.
    for (const retries of [0, 2])
      expectProblem(
        await run(server, [{ op: 'put', key: 'k', value: 'x' }], { max_retries: retries, isolation: 'serializable' }),
        'write_conflict',
        {
          key: 'k',
          conflict_start_ts: 5,
          conflict_commit_ts: ahead,
          primary: 'k',
          reason: 'optimistic',
          start_ts: expect.any(Number),
        },
      )
  })

  test('a conflict that goes away is not seen', async () => {
    const server = await start()
    await server.put('n', '0')
    const writes = Array.from({ length: 30 }, async (_, i) => {
      if (i % 3 === 0)
        return run(server, [
          { op: 'put', key: 'other', value: `${i}` },
          { op: 'increment', key: 'n' },
        ])
      const { ts } = await server.ok('tso', {})
      await server.call('prewrite', { mutations: [{ op: 'lock', key: 'n' }], primary: 'n', start_ts: ts, lock_ttl: 1 })
      return run(server, [{ op: 'increment', key: 'n' }])
    })
    for (const { statusCode, body } of await Promise.all(writes)) expect(statusCode, body).toBe(200)
    expect((await server.get('/v1/kv/n')).body).toBe('30')
  })
})

describe('refused', () => {
  const bodies: readonly (readonly [body: unknown, field: string])[] = [
    [{ op: [] }, 'op'],
    [{ ops: {} }, 'ops'],
    [{ ops: [{}] }, 'ops[0].op'],
    [{ ops: [{ op: 'frobnicate', key: 'a' }] }, 'ops[0].op'],
    [{ ops: [{ op: 'get' }] }, 'ops[0].key'],
    [{ ops: [{ op: 'put', key: 'a' }] }, 'ops[0].value'],
    [{ ops: [{ op: 'insert', key: 'a' }] }, 'ops[0].value'],
    [{ ops: [{ op: 'get', key: 'a', value: 'x' }] }, 'ops[0].value'],
    [{ ops: [{ op: 'put', key: 'a', value: 'x', by: 1 }] }, 'ops[0].by'],
    [{ ops: [{ op: 'scan', key: 'a' }] }, 'ops[0].key'],
    [{ ops: [{ op: 'scan', limit: 0 }] }, 'ops[0].limit'],
    [{ ops: [{ op: 'scan', limit: 10_001 }] }, 'ops[0].limit'],
    [{ ops: [{ op: 'get', key: '' }] }, 'ops[0].key'],
    [{ ops: [{ op: 'get', key: 'a', extra: 1 }] }, 'ops[0].extra'],
    [{ checks: [{ key: 'a' }] }, 'checks[0]'],
    [{ checks: [{ exists: true }] }, 'checks[0].key'],
    [{ checks: [{ key: 'a', exists: 'true' }] }, 'checks[0].exists'],
    [{ checks: [{ key: 'a', commit_ts: -1 }] }, 'checks[0].commit_ts'],
    [{ max_retries: -1 }, 'max_retries'],
    [{ max_retries: 1001 }, 'max_retries'],
    [{ max_retry: 1 }, 'max_retry'],
  ]
  for (const [body, field] of bodies)
    test(JSON.stringify(body), async () => {
      const server = await start()
      expectProblem(await server.post('/v1/txn', body), 'invalid_argument', { field })
    })
})
