import { describe, expect, test } from 'vitest'
import {
  expectProblem,
  type Json,
  listOf,
  numberOf,
  okBody,
  type Sent,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

type Answer = Sent
type Check = (server: TestServer, key: string, reads: Json) => Promise<Answer>

const OWN = 10
/** Reads made at 10, validated at 100 or above, for a write of `w <key>`. */
const CHECKS: readonly (readonly [name: string, check: Check])[] = [
  [
    'validate_reads',
    async (server, _key, reads) => server.call('validate_reads', { start_ts: OWN, commit_ts: 100, ...reads }),
  ],
  [
    'prewrite',
    async (server, key, reads) => {
      const mutations = [{ op: 'put', key: `w ${key}`, value: 'v' }]
      const onePc = { try_one_pc: true, min_commit_ts: 100 }
      return server.call('prewrite', { mutations, primary: `w ${key}`, start_ts: OWN, ...onePc, reads })
    },
  ],
]
/** Each covers the key, and nothing else that the tests write. */
const READS: readonly (readonly [name: string, readsOf: (key: string) => Json])[] = [
  ['a key', (key) => ({ keys: [`no ${key}`, key] })],
  [
    'a range',
    (key) => ({
      ranges: [
        { start: 'a', end: 'b' },
        { start: key, end: `${key}!` },
      ],
    }),
  ],
  ['both', (key) => ({ keys: [key], ranges: [{ start: key, end: `${key}!` }] })],
]

for (const [name, check] of CHECKS)
  for (const [what, readsOf] of READS)
    describe(`${name} of ${what}`, () => {
      let keys = 0
      /** A key of its own for each case. */
      const newKey = (): string => `k${String(keys++).padStart(3, '0')}`
      const ask = (server: TestServer, key: string): Promise<Answer> => check(server, key, readsOf(key))
      const remove = async (server: TestServer, key: string, startTs: number, commitTs: number): Promise<void> => {
        await server.ok('prewrite', { mutations: [{ op: 'delete', key }], primary: key, start_ts: startTs })
        await server.ok('commit', { keys: [key], start_ts: startTs, commit_ts: commitTs })
      }
      const expectValid = async (server: TestServer, key: string): Promise<void> => {
        const body = okBody(await ask(server, key))
        if (name === 'validate_reads') expect(body).toEqual({})
        else expect(numberOf(body, 'one_pc_commit_ts')).toBeGreaterThanOrEqual(100)
      }
      const expectNothing = async (server: TestServer, key: string): Promise<void> => {
        expect(await server.mvcc(`w ${key}`)).toEqual({ lock: null, writes: [], values: [] })
        expectProblem(await server.get(`/v1/kv/w%20${key}?lock_wait_ms=0`), 'not_found')
      }
      const expectChanged = async (server: TestServer, key: string, startTs: number, commitTs: number) => {
        const conflict = { key, start_ts: OWN, conflict_start_ts: startTs, conflict_commit_ts: commitTs }
        const problem = expectProblem(await ask(server, key), 'write_conflict', conflict)
        expect(problem).toMatchObject({ reason: 'serializable_read', primary: expect.anything() })
        await expectNothing(server, key)
      }

      test('unchanged: never there, old, deleted before, rolled back, only locked, or changed later', async () => {
        const server = await start()
        await expectValid(server, newKey())
        const key = newKey()
        await server.write(5, 6, [key])
        await server.write(20, 21, [`${key}!`, `j${key}`])
        await server.ok('rollback', { keys: [key], start_ts: 30 })
        await server.ok('prewrite', { mutations: [{ op: 'lock', key }], primary: key, start_ts: 40 })
        await server.ok('commit', { keys: [key], start_ts: 40, commit_ts: 41 })
        await expectValid(server, key)
        await server.write(150, 151, [key])
        if (name === 'validate_reads') await expectValid(server, key)
        const deleted = newKey()
        await server.write(5, 6, [deleted])
        await remove(server, deleted, 7, 8)
        await expectValid(server, deleted)
      })

      test('changed, deleted, inserted: at the last moment too', { tags: ['long'] }, async () => {
        const server = await start()
        for (const [startTs, commitTs] of [
          [20, 21],
          [5, 11],
          [20, 100],
        ] as const) {
          const [inserted, changed, deleted] = [newKey(), newKey(), newKey()]
          for (const key of [changed, deleted]) await server.write(2, 3, [key])
          for (const key of [inserted, changed]) await server.write(startTs, commitTs, [key])
          await remove(server, deleted, startTs, commitTs)
          for (const key of [inserted, changed, deleted]) await expectChanged(server, key, startTs, commitTs)
        }
      })

      test('another’s lock: an older one may still commit, a younger one is in the way', async () => {
        const server = await start()
        const older = newKey()
        await server.lock(8, [older])
        await expectChanged(server, older, 8, 0)
        await server.ok('rollback', { keys: [older], start_ts: 8 })
        await expectValid(server, older)
        const younger = newKey()
        await server.lock(50, [younger])
        const body = expectProblem(await ask(server, younger), 'key_locked')
        expect(body['locks'] ?? [body['lock']]).toEqual([expect.objectContaining({ key: younger, start_ts: 50 })])
        await expectNothing(server, younger)
        await server.ok('commit', { keys: [younger], start_ts: 50, commit_ts: 60 })
        await expectChanged(server, younger, 50, 60)
      })

      test('locks that change nothing up to the commit_ts, and own ones, are not in the way', async () => {
        const server = await start()
        const primary = newKey()
        const locks: ((key: string) => Promise<Json>)[] = [
          (key) => server.lock(50, [key], { min_commit_ts: (Date.now() + 30_000) * 2048 }),
          (key) => server.ok('prewrite', { mutations: [{ op: 'lock', key }], primary: key, start_ts: 8 }),
          (key) => server.ok('acquire_pessimistic_lock', { keys: [key], primary: key, start_ts: 8, for_update_ts: 8 }),
          (key) => server.lock(8, [`j${key}`, `${key}!`]),
          (key) => server.lock(OWN, [key]),
          (key) => server.lock(OWN, [key], { primary }),
        ]
        if (name === 'validate_reads') locks.push((key) => server.lock(200, [key]))
        for (const lock of locks) {
          const key = newKey()
          await lock(key)
          await expectValid(server, key)
        }
      })
    })

describe('requests', () => {
  test('nothing read is valid; a read holds off commits below it', async () => {
    const server = await start()
    for (const reads of [{}, { keys: [] }, { ranges: [] }, { keys: [], ranges: [] }])
      expect(await server.ok('validate_reads', { start_ts: 10, commit_ts: 20, ...reads })).toEqual({})
    const commitTs = numberOf(await server.ok('tso', {}), 'ts')
    await server.ok('validate_reads', { start_ts: 10, commit_ts: commitTs, ranges: [{}] })
    const mutations = [{ op: 'put', key: 'k', value: 'v' }]
    const late = { mutations, primary: 'k', start_ts: 11, try_one_pc: true }
    expect(numberOf(await server.ok('prewrite', late), 'one_pc_commit_ts')).toBeGreaterThan(commitTs)
  })

  test('an open range covers every key; an inverted one none', async () => {
    const server = await start()
    await server.write(20, 21, ['k'])
    const asked = (ranges: Json[]): Promise<Answer> =>
      Promise.resolve(server.call('validate_reads', { start_ts: 10, commit_ts: 100, ranges }))
    for (const range of [{}, { start: 'k' }, { end: 'k\u0000' }, { start: 'a', end: 'z' }])
      expectProblem(await asked([range]), 'write_conflict', { key: 'k' })
    for (const range of [{ start: 'k\u0000' }, { end: 'k' }, { start: 'z', end: 'a' }])
      expect(okBody(await asked([range]))).toEqual({})
    expectProblem(await asked([{ end: 'k' }, { start: 'l' }, { start: 'j' }]), 'write_conflict', { key: 'k' })
  })

  test('many keys and a long history', { tags: ['long'] }, async () => {
    const server = await start()
    const keys = Array.from({ length: 1000 }, (_, i) => `k${String(i).padStart(4, '0')}`)
    await server.write(5, 6, keys)
    const body = { start_ts: 10, commit_ts: 100, keys, ranges: [{ start: 'k', end: 'l' }] }
    expect(await server.ok('validate_reads', body)).toEqual({})
    await server.write(20, 21, ['k0999'])
    for (let i = 0; i < 20; i++) await server.write(200 + 2 * i, 201 + 2 * i, ['k0999'])
    for (const one of [{ keys: undefined }, { ranges: undefined }])
      expectProblem(await server.call('validate_reads', { ...body, ...one }), 'write_conflict', {
        key: 'k0999',
        conflict_commit_ts: 21,
      })
  })

  test('what is refused', { tags: ['long'] }, async () => {
    const server = await start()
    const valid = { start_ts: 10, commit_ts: 20 }
    const prewrite = { mutations: [{ op: 'put', key: 'k', value: 'v' }], primary: 'k', start_ts: 10 }
    const refused: readonly (readonly [call: string, body: Json])[] = [
      ['validate_reads', { start_ts: 10 }],
      ['validate_reads', { commit_ts: 10 }],
      ['validate_reads', { start_ts: 10, commit_ts: 10 }],
      ['validate_reads', { start_ts: 10, commit_ts: 9 }],
      ['validate_reads', { ...valid, start_ts: 0 }],
      ['validate_reads', { ...valid, keys: [''] }],
      ['validate_reads', { ...valid, keys: 'k' }],
      ['validate_reads', { ...valid, ranges: ['k'] }],
      ['validate_reads', { ...valid, ranges: [{ prefix: 'k' }] }],
      ['validate_reads', { ...valid, reads: { keys: ['k'] } }],
      ['prewrite', { ...prewrite, reads: { keys: ['a'] } }],
      ['prewrite', { ...prewrite, use_async_commit: true, reads: { keys: ['a'] } }],
      ['prewrite', { ...prewrite, try_one_pc: true, reads: { key: ['a'] } }],
      ['prewrite', { ...prewrite, try_one_pc: true, reads: ['a'] }],
    ]
    for (const [call, body] of refused) {
      const problem = expectProblem(await server.call(call, body), 'invalid_argument')
      expect(typeof problem['field'], JSON.stringify(body)).toBe('string')
    }
    expectProblem(await server.call('validate_reads', { ...valid, keys: ['k'.repeat(4097)] }), 'payload_too_large')
    await server.ok('gc', { safe_point: 50 })
    expectProblem(await server.call('validate_reads', valid), 'ts_below_safe_point', { safe_point: 50 })
  })

  test('a prewrite repeated after its commit is not validated again', async () => {
    const server = await start()
    const mutations = [{ op: 'put', key: 'w', value: 'v' }]
    const body = { mutations, primary: 'w', start_ts: 10, try_one_pc: true, reads: { keys: ['k', 'w'], ranges: [{}] } }
    const first = await server.ok('prewrite', body)
    await server.put('k', 'changed')
    expect(await server.ok('prewrite', body)).toEqual(first)
  })
})

describe('serializable transactions', () => {
  interface Txn {
    readonly url: string
  }
  const begin = async (server: TestServer, mode: string): Promise<Txn> => {
    const answer = await server.post('/v1/txn/begin', { mode, isolation: 'serializable' })
    return { url: `/v1/txn/${answer.json<Json>()['txn']}` }
  }
  const commit = async (server: TestServer, { url }: Txn): Promise<Answer> => server.post(`${url}/commit`, {})
  const put = async (server: TestServer, { url }: Txn, key: string, value = 'v'): Promise<void> =>
    void okBody(await server.send('PUT', `${url}/kv/${key}`, {}, value))
  const expectConflict = (answer: Answer): void =>
    void expectProblem(answer, 'write_conflict', { reason: 'serializable_read' })

  for (const mode of ['optimistic', 'pessimistic'])
    describe(mode, () => {
      test('write skew, by keys: never both commit', { tags: ['long'] }, async () => {
        const server = await start()
        let commits = 0
        for (let round = 0; round < 40; round++) {
          const [x, y] = [`x${round}`, `y${round}`]
          if (round % 2 === 0) await server.txn({ ops: [x, y].map((key) => ({ op: 'put', key, value: 'on' })) })
          const [a, b] = await Promise.all([begin(server, mode), begin(server, mode)])
          for (const { url } of [a, b]) for (const key of [x, y]) await server.get(`${url}/kv/${key}`)
          await Promise.all([put(server, a, x, 'off'), put(server, b, y, 'off')])
          const answers = await Promise.all(
            round % 3 === 0 ? [commit(server, a), commit(server, b)] : [commit(server, b), commit(server, a)],
          )
          const committed = answers.filter(({ statusCode }) => statusCode === 200)
          expect(committed.length).toBeLessThanOrEqual(1)
          for (const answer of answers) if (!committed.includes(answer)) expectConflict(answer)
          commits += committed.length
        }
        expect(commits).toBeGreaterThan(0)
      })

      test('phantoms: of transactions that count a range and insert into it, one commits', {
        tags: ['long'],
      }, async () => {
        const server = await start()
        for (const query of [
          '?prefix=p/',
          '?prefix=p/&count_only',
          '?prefix=p/&limit=3&reverse',
          '?start=p/&keys_only',
        ]) {
          const before = numberOf(okBody(await server.get('/v1/kv?prefix=p/&count_only')), 'count')
          const txns = await Promise.all(Array.from({ length: 6 }, () => begin(server, mode)))
          await Promise.all(
            txns.map(async (txn, i) => {
              okBody(await server.get(`${txn.url}/kv${query}`))
              await put(server, txn, `p/${before}/${i}`)
            }),
          )
          const answers = await Promise.all(txns.map((txn) => commit(server, txn)))
          const committed = answers.filter(({ statusCode }) => statusCode === 200).length
          for (const answer of answers) if (answer.statusCode !== 200) expectConflict(answer)
          const after = numberOf(okBody(await server.get('/v1/kv?prefix=p/&count_only')), 'count')
          expect([committed, after]).toEqual([1, before + 1])
        }
      })

      test('reads by ops and HEAD count; what was not read does not', async () => {
        const server = await start()
        await server.txn({ ops: ['k', 'p/1', 'p/2', 'p/3'].map((key) => ({ op: 'put', key, value: '1' })) })
        const reads: readonly ((txn: Txn) => Promise<Answer>)[] = [
          async ({ url }) => server.send('HEAD', `${url}/kv/k`),
          async ({ url }) => server.post(`${url}/ops`, { ops: [{ op: 'get', key: 'k' }] }),
          async ({ url }) => server.post(`${url}/ops`, { ops: [{ op: 'scan', start: 'k', end: 'l', limit: 1 }] }),
          async ({ url }) => server.get(`${url}/kv?start=a&end=z&limit=1`),
          async ({ url }) => server.get(`${url}/kv?end=p&reverse&limit=1`),
          async ({ url }) => server.get(`${url}/kv?prefix=k`, { accept: 'application/x-ndjson' }),
        ]
        for (const read of reads) {
          const [hit, miss] = await Promise.all([begin(server, mode), begin(server, mode)])
          for (const txn of [hit, miss]) expect((await read(txn)).statusCode).toBe(200)
          await put(server, miss, 'miss')
          await server.put('p/3', '2')
          okBody(await commit(server, miss))
          await put(server, hit, 'hit')
          await server.put('k', '2')
          expectConflict(await commit(server, hit))
        }
      })
    })

  test('POST /v1/txn beside interactive ones: the sum that each saw is the sum at its place in the order', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    const value = (body: Json): number => Number(body['value'] ?? 0)
    interface Seen {
      commitTs: number
      sum: number
    }
    const seen: Seen[] = []
    const sumOf = (pairs: Json[]): number => pairs.reduce((sum, pair) => sum + value(pair), 0)
    const oneShot = async (i: number): Promise<void> => {
      const ops = [
        { op: 'scan', prefix: 's/' },
        { op: 'put', key: `s/one/${i}`, value: '1' },
      ]
      const body = await server.txn({ ops, isolation: 'serializable', max_retries: 1000 })
      const [scanned = {}] = listOf(body, 'results')
      seen.push({ commitTs: numberOf(body, 'commit_ts'), sum: sumOf(listOf(scanned, 'pairs')) })
    }
    const interactive = async (i: number): Promise<void> => {
      for (;;) {
        const txn = await begin(server, i % 2 === 0 ? 'optimistic' : 'pessimistic')
        const sum = sumOf(listOf(okBody(await server.get(`${txn.url}/kv?prefix=s/`)), 'pairs'))
        await put(server, txn, `s/many/${i}`, '1')
        const answer = await commit(server, txn)
        if (answer.statusCode === 200) return void seen.push({ commitTs: numberOf(answer.json(), 'commit_ts'), sum })
        expectConflict(answer)
      }
    }
    await Promise.all(Array.from({ length: 20 }, (_, i) => (i % 3 === 0 ? oneShot(i) : interactive(i))))
    const sums = seen.sort((a, b) => a.commitTs - b.commitTs).map(({ sum }) => sum)
    expect(sums).toEqual(Array.from({ length: 20 }, (_, i) => i))
    await expect.poll(() => server.lockCount(), { timeout: 30_000 }).toBe(0)
  })

  test('a read-only one needs nothing; a snapshot transaction may skew', async () => {
    const server = await start()
    const reader = await begin(server, 'optimistic')
    await server.get(`${reader.url}/kv/k`)
    await server.put('k', '2')
    expect([200, 409]).toContain((await commit(server, reader)).statusCode)
    const { txn } = (await server.post('/v1/txn/begin', {})).json<Json>()
    await server.get(`/v1/txn/${txn}/kv/k`)
    await put(server, { url: `/v1/txn/${txn}` }, 'other')
    await server.put('k', '3')
    okBody(await commit(server, { url: `/v1/txn/${txn}` }))
  })
})
