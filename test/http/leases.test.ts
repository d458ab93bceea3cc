import { describe, expect, test } from 'vitest'
import { physicalMs } from '../../src/timestamp.js'
import {
  expectProblem,
  type Headers,
  type Json,
  listOf,
  Machine,
  numberOf,
  okBody,
  type Sent,
  type StartOptions,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

/** A server whose time the test lets pass, and shorthands for its leases. */
class Leasing {
  constructor(
    readonly server: TestServer,
    readonly machine: Machine,
    readonly headers: Headers = {},
  ) {}

  static async start(options: StartOptions = {}): Promise<Leasing> {
    const machine = new Machine()
    const { now, monotonicNow } = machine
    return new Leasing(await start({ ...options, now, monotonicNow }), machine)
  }

  as(token: string): Leasing {
    return new Leasing(this.server, this.machine, { authorization: `Bearer ${token}` })
  }

  pass(ms: number): void {
    this.machine.pass(ms)
    this.server.database.leases.look()
  }

  put(name: string, holder: string, rest: Json = {}): Promise<Sent> {
    const headers = { 'content-type': 'application/json', ...this.headers }
    const body = JSON.stringify({ holder, ttl_ms: 1000, ...rest })
    return this.server.send('PUT', `/v1/leases/${name}`, headers, body)
  }
  /** @returns the lease as it was granted or renewed. */
  async hold(name: string, holder: string, rest: Json = {}): Promise<Json> {
    return okBody(await this.put(name, holder, rest))
  }
  async fence(name: string, holder: string, rest: Json = {}): Promise<number> {
    return numberOf(await this.hold(name, holder, rest), 'fence')
  }
  get(path: string): Promise<Sent> {
    return this.server.get(`/v1/leases${path}`, this.headers)
  }
  remove(name: string, query: string): Promise<Sent> {
    return this.server.send('DELETE', `/v1/leases/${name}?${query}`, this.headers)
  }
  txn(body: Json): Promise<Sent> {
    return this.server.post('/v1/txn', body, this.headers)
  }
  write(lease: string, fence: number, value = 'x'): Promise<Sent> {
    return this.txn({ checks: [{ lease, fence }], ops: [{ op: 'put', key: 'k', value }] })
  }
  /** Fulfilled once so many requests wait. */
  async waiting(count: number): Promise<void> {
    while (this.server.database.leases.summary().waiting !== count) await new Promise(setImmediate)
  }
}

describe('a lease', () => {
  test('is granted, shown, renewed under its fence, and released', { tags: ['long'] }, async () => {
    const leasing = await Leasing.start()
    const lease = await leasing.hold('leader', 'a')
    const fence = numberOf(lease, 'fence')
    expect(lease).toEqual({
      name: 'leader',
      holder: 'a',
      fence,
      ttl_ms: 1000,
      expires_at: new Date(leasing.machine.wallMs + 1000).toISOString(),
    })
    expect(physicalMs(fence)).toBe(leasing.machine.wallMs)
    expect(okBody(await leasing.get('/leader'))).toEqual(lease)
    expect(okBody(await leasing.get(''))).toEqual({ leases: [lease] })
    leasing.pass(600)
    const renewed = await leasing.hold('leader', 'a')
    expect(renewed).toEqual({ ...lease, expires_at: new Date(leasing.machine.wallMs + 1000).toISOString() })
    leasing.pass(999)
    expect(okBody(await leasing.get('/leader'))).toMatchObject({ holder: 'a' })
    expect(okBody(await leasing.remove('leader', `holder=a&fence=${fence}`))).toEqual({})
    expectProblem(await leasing.get('/leader'), 'not_found')
    expect(okBody(await leasing.get(''))).toEqual({ leases: [] })
    expect(okBody(await leasing.remove('leader', `holder=a&fence=${fence}`))).toEqual({})
    expect(await leasing.fence('leader', 'a')).toBeGreaterThan(fence)
  })

  test('of another holder is refused, until it has run out', { tags: ['long'] }, async () => {
    const leasing = await Leasing.start()
    const { fence, expires_at } = await leasing.hold('leader', 'a')
    const refused = expectProblem(await leasing.put('leader', 'b'), 'lease_held', { lease: 'leader', holder: 'a' })
    expect(refused).toMatchObject({ expires_at, retryable: true })
    leasing.machine.pass(999)
    expectProblem(await leasing.put('leader', 'b'), 'lease_held')
    leasing.machine.pass(1) // Before any timer has noticed.
    expectProblem(await leasing.get('/leader'), 'not_found')
    expect(await leasing.fence('leader', 'b')).toBeGreaterThan(fence as number)
    expectProblem(await leasing.put('leader', 'a', { fence: fence as number }), 'precondition_failed', { holder: 'b' })
  })

  test('that has run out is granted anew to its old holder', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    leasing.machine.pass(1000)
    expectProblem(await leasing.put('leader', 'a', { fence }), 'precondition_failed', { lease: 'leader', fence: 0 })
    expect(await leasing.fence('leader', 'a')).toBeGreaterThan(fence)
  })

  test('is waited for in the order of arrival', async () => {
    const leasing = await Leasing.start()
    await leasing.hold('leader', 'a')
    const order: string[] = []
    const asked = []
    for (const holder of ['b', 'c', 'd']) {
      asked.push(
        leasing.put('leader', holder, { wait_ms: 60_000 }).then((sent) => order.push(okBody(sent)['holder'] as string)),
      )
      await leasing.waiting(asked.length)
    }
    expect(okBody(await leasing.server.get('/v1/status'))['leases']).toEqual({ held: 1, waiting: 3 })
    okBody(await leasing.remove('leader', 'holder=a'))
    await asked[0]
    leasing.pass(1000)
    await asked[1]
    okBody(await leasing.remove('leader', 'holder=c'))
    await asked[2]
    expect(order).toEqual(['b', 'c', 'd'])
  })

  test('is waited for as long as was asked', async () => {
    const leasing = await Leasing.start()
    await leasing.hold('leader', 'a', { ttl_ms: 60_000 })
    const asked = leasing.put('leader', 'b', { wait_ms: 500 })
    await leasing.waiting(1)
    leasing.pass(499)
    await leasing.waiting(1)
    leasing.pass(1)
    expectProblem(await asked, 'lease_held', { holder: 'a' })
    await leasing.waiting(0)
  })

  test('is everybody’s who waits under the name of its holder', async () => {
    const leasing = await Leasing.start()
    await leasing.hold('leader', 'a')
    const asked = [1, 2, 3].map(() => leasing.fence('leader', 'b', { wait_ms: 60_000 }))
    await leasing.waiting(3)
    leasing.pass(1000)
    const [first, ...others] = await Promise.all(asked)
    expect(others).toEqual([first, first])
  })

  test('has another TTL from a renewal on that asks for it', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a', { ttl_ms: 10_000 })
    expect(await leasing.hold('leader', 'a', { ttl_ms: 300 })).toMatchObject({ fence, ttl_ms: 300 })
    leasing.pass(299)
    expect(await leasing.hold('leader', 'a', { ttl_ms: 5000 })).toMatchObject({ fence, ttl_ms: 5000 })
    leasing.pass(4999)
    expect(okBody(await leasing.get('/leader'))).toMatchObject({ fence })
    leasing.pass(1)
    expectProblem(await leasing.get('/leader'), 'not_found')
  })

  test('with a fence that is not in force is refused at once, and tells the one that is', async () => {
    const leasing = await Leasing.start()
    expectProblem(await leasing.put('leader', 'a', { fence: 5, wait_ms: 60_000 }), 'precondition_failed', {
      fence: 0,
    })
    const lease = await leasing.hold('leader', 'a')
    const { holder, fence, expires_at } = lease
    const other = { fence: (fence as number) - 1, wait_ms: 60_000 }
    for (const asking of ['a', 'b'])
      expectProblem(await leasing.put('leader', asking, other), 'precondition_failed', {
        holder,
        fence,
        expires_at,
      } as Json)
    expectProblem(await leasing.put('leader', 'b', { fence: fence as number, wait_ms: 60_000 }), 'lease_held', {
      holder: 'a',
    })
    expect(await leasing.hold('leader', 'a', { fence: fence as number })).toEqual(lease)
  })

  test('is released by its holder only, and not by an older fence', async () => {
    const leasing = await Leasing.start()
    const old = await leasing.fence('leader', 'a')
    leasing.pass(1000)
    const fence = await leasing.fence('leader', 'a')
    expectProblem(await leasing.remove('leader', `holder=a&fence=${old}`), 'precondition_failed', { fence })
    expectProblem(await leasing.remove('leader', `holder=b&fence=${fence}`), 'precondition_failed', {
      holder: 'a',
      fence,
    })
    expectProblem(await leasing.remove('leader', `fence=${fence}`), 'invalid_argument', { field: 'holder' })
    expect(okBody(await leasing.get('/leader'))).toMatchObject({ fence })
    okBody(await leasing.remove('leader', 'holder=a'))
  })

  test('keeps its time when the wall clock is set', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    leasing.machine.step(3_600_000)
    leasing.pass(900)
    expect(okBody(await leasing.write('leader', fence))).toHaveProperty('commit_ts')
    expect(await leasing.fence('leader', 'a')).toBe(fence)
    leasing.machine.step(-7_200_000)
    leasing.pass(999)
    expect(okBody(await leasing.get('/leader'))).toMatchObject({ fence })
    leasing.pass(1)
    expect(await leasing.fence('leader', 'b')).toBeGreaterThan(fence)
  })
})

describe('names and fields', () => {
  test.each(['a', 'a/b', 'a%2Fb', 'A.b_c-9/x', 'x'.repeat(128)])('%s is the name of a lease', async (name) => {
    const leasing = await Leasing.start()
    const lease = await leasing.hold(name, 'a')
    expect(lease['name']).toBe(decodeURIComponent(name))
    expect(okBody(await leasing.get(`/${name}`))).toEqual(lease)
    okBody(await leasing.remove(name, 'holder=a'))
  })

  test.each(['%20', 'a%00', '%C3%A4', 'x'.repeat(129), '%zz', ''])('%j is none', async (name) => {
    const leasing = await Leasing.start()
    expectProblem(await leasing.put(name, 'a'), 'invalid_argument')
    expectProblem(await leasing.remove(name, 'holder=a'), 'invalid_argument')
    if (name !== '') expectProblem(await leasing.get(`/${name}`), 'invalid_argument')
  })

  test.each([
    ['holder', { holder: '' }],
    ['holder', { holder: 'x'.repeat(256) }],
    ['holder', { holder: 'a\nb' }],
    ['holder', { holder: 5 }],
    ['ttl_ms', { ttl_ms: 99 }],
    ['ttl_ms', { ttl_ms: 3_600_001 }],
    ['ttl_ms', { ttl_ms: 100.5 }],
    ['wait_ms', { wait_ms: -1 }],
    ['wait_ms', { wait_ms: 60_001 }],
    ['fence', { fence: 0 }],
    ['ttl', { ttl: 1000 }],
  ])('a bad %s is refused, and changes nothing: %j', async (field, rest) => {
    const leasing = await Leasing.start()
    expectProblem(await leasing.put('leader', 'a', rest), 'invalid_argument', { field })
    expect(okBody(await leasing.get(''))).toEqual({ leases: [] })
  })

  test('the list takes a prefix', async () => {
    const leasing = await Leasing.start()
    for (const name of ['b/2', 'a/1', 'b/1', 'c']) await leasing.hold(name, 'h')
    const names = async (path: string) => listOf(okBody(await leasing.get(path)), 'leases').map(({ name }) => name)
    expect(await names('')).toEqual(['a/1', 'b/1', 'b/2', 'c'])
    expect(await names('?prefix=b%2F')).toEqual(['b/1', 'b/2'])
  })

  test('there are no more leases than the limit says', async () => {
    const leasing = await Leasing.start({ limits: { leasesMax: 2 } })
    await leasing.hold('a', 'h')
    await leasing.hold('b', 'h')
    expectProblem(await leasing.put('c', 'h'), 'overloaded')
    expectProblem(await leasing.put('c', 'h', { fence: 1 }), 'precondition_failed')
    await leasing.hold('a', 'h')
    okBody(await leasing.remove('a', 'holder=h'))
    await leasing.hold('c', 'h')
  })

  test('no more requests wait than the limit says', async () => {
    const leasing = await Leasing.start({ limits: { watchesMax: 1 } })
    await leasing.hold('a', 'h')
    const asked = leasing.put('a', 'b', { wait_ms: 60_000 })
    await leasing.waiting(1)
    expectProblem(await leasing.put('a', 'c', { wait_ms: 60_000 }), 'overloaded')
    await leasing.waiting(1)
    okBody(await leasing.remove('a', 'holder=h'))
    okBody(await asked)
  })
})

describe('a transaction', () => {
  test('commits only under the fence that is in force', async () => {
    const leasing = await Leasing.start()
    const first = await leasing.fence('leader', 'a')
    expect(numberOf(okBody(await leasing.write('leader', first)), 'commit_ts')).toBeGreaterThan(first)
    leasing.machine.pass(1000)
    const lost = expectProblem(await leasing.write('leader', first, 'late'), 'precondition_failed', {
      failed_checks: [{ index: 0, lease: 'leader', fence: 0 }],
    })
    expect(lost).toMatchObject({ index: 0, lease: 'leader', fence: 0, retryable: false })
    expect(lost).not.toHaveProperty('errors')
    const second = await leasing.fence('leader', 'b')
    expectProblem(await leasing.write('leader', first, 'late'), 'precondition_failed', {
      failed_checks: [{ index: 0, lease: 'leader', fence: second }],
    })
    expect((await leasing.server.get('/v1/kv/k')).body).toBe('x')
    okBody(await leasing.write('leader', second))
  })

  test('that writes nothing is refused too', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    for (const ops of [[], [{ op: 'get', key: 'k' }], [{ op: 'scan', prefix: 'k' }]]) {
      expect(okBody(await leasing.txn({ checks: [{ lease: 'leader', fence }], ops }))).not.toHaveProperty('commit_ts')
      expectProblem(
        await leasing.txn({ checks: [{ lease: 'leader', fence: fence + 1 }], ops }),
        'precondition_failed',
        {
          failed_checks: [{ index: 0, lease: 'leader', fence }],
        },
      )
    }
  })

  test('tells all its checks that fail, of keys and of leases, with their places', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('held', 'a')
    const commitTs = await leasing.server.put('there', '1')
    const checks = [
      { lease: 'free', fence: 7 },
      { key: 'there', exists: true },
      { key: 'there', value: '2' },
      { lease: 'held', fence },
      { lease: 'held', fence: 8 },
      { key: 'absent', exists: true },
    ]
    const failed = [
      { index: 0, lease: 'free', fence: 0 },
      { index: 2, key: 'there', exists: true, commit_ts: commitTs },
      { index: 4, lease: 'held', fence },
      { index: 5, key: 'absent', exists: false, commit_ts: 0 },
    ]
    for (const ops of [[], [{ op: 'put', key: 'k', value: '1' }]]) {
      const all = expectProblem(await leasing.txn({ checks, ops }), 'precondition_failed', { failed_checks: failed })
      expect(all).toMatchObject({ index: 0, lease: 'free', fence: 0 })
      const two = expectProblem(await leasing.txn({ checks: checks.slice(1, 4), ops }), 'precondition_failed')
      expect(two).toMatchObject({ index: 1, key: 'there', failed_checks: [{ ...failed[1], index: 1 }] })
      expectProblem(await leasing.txn({ checks: [checks[1], checks[4]], ops }), 'precondition_failed', {
        failed_checks: [{ ...failed[2], index: 1 }],
      })
    }
    expectProblem(await leasing.server.get('/v1/kv/k'), 'not_found')
  })

  test('that was stored under its Idempotency-Key is not checked again', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    const body = { checks: [{ lease: 'leader', fence }], ops: [{ op: 'increment', key: 'n' }] }
    const send = () => leasing.server.post('/v1/txn', body, { 'idempotency-key': 'once' })
    const first = okBody(await send())
    leasing.machine.pass(1000)
    const repeat = await send()
    expect(repeat.headers['idempotency-replayed']).toBe('true')
    expect(okBody(repeat)).toEqual(first)
    expectProblem(await leasing.server.post('/v1/txn', body, { 'idempotency-key': 'again' }), 'precondition_failed')
    expect((await leasing.server.get('/v1/kv/n')).body).toBe('1')
  })

  test.each([
    [{ lease: 'l' }, 'checks[0].fence'],
    [{ fence: 5 }, 'checks[0].lease'],
    [{ lease: 'l', fence: 5, key: 'k' }, 'checks[0].lease'],
    [{ lease: 'l', fence: 5, exists: true }, 'checks[0].lease'],
    [{ lease: 'l', fence: 0 }, 'checks[0].fence'],
    [{ lease: ' ', fence: 5 }, 'checks[0].lease'],
    [{}, 'checks[0].key'],
  ])('with a malformed check is refused: %j', async (check, field) => {
    const leasing = await Leasing.start()
    expectProblem(await leasing.txn({ checks: [check], ops: [] }), 'invalid_argument', { field })
  })

  test('checks a thousand leases and no more', async () => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    const checks = Array.from({ length: 1000 }, () => ({ lease: 'leader', fence }))
    const ops = [{ op: 'put', key: 'k', value: '1' }]
    okBody(await leasing.txn({ checks, ops }))
    const more = [...checks, { lease: 'leader', fence }]
    expectProblem(await leasing.txn({ checks: more, ops }), 'payload_too_large', { field: 'checks', limit: 1000 })
  })
})

describe('an open transaction', () => {
  async function begin(leasing: Leasing, mode = 'optimistic'): Promise<string> {
    const begun = await leasing.server.post('/v1/txn/begin', { mode })
    expect(begun.statusCode).toBe(201)
    return `/v1/txn/${begun.json<Json>()['txn']}`
  }

  test.each(['optimistic', 'pessimistic'])(
    'commits under its fence, and is over when that is lost: %s',
    async (mode) => {
      const leasing = await Leasing.start()
      const fence = await leasing.fence('leader', 'a')
      const commit = (txn: string) => leasing.server.post(`${txn}/commit`, { checks: [{ lease: 'leader', fence }] })
      for (const writes of [true, false]) {
        const kept = await begin(leasing, mode)
        const late = await begin(leasing, mode)
        if (writes) {
          okBody(await leasing.server.send('PUT', `${kept}/kv/kept`, { 'content-type': 'text/plain' }, '1'))
          okBody(await leasing.server.send('PUT', `${late}/kv/late`, { 'content-type': 'text/plain' }, '1'))
        }
        const first = okBody(await commit(kept))
        if (!writes) leasing.machine.pass(1000)
        else leasing.server.database.leases.look()
        if (writes) {
          okBody(await leasing.remove('leader', 'holder=a'))
          const next = await leasing.fence('leader', 'b')
          expectProblem(await commit(late), 'precondition_failed', {
            failed_checks: [{ index: 0, lease: 'leader', fence: next }],
          })
          expectProblem(await leasing.server.get('/v1/kv/late'), 'not_found')
          okBody(await leasing.remove('leader', 'holder=b'))
        } else expectProblem(await commit(late), 'precondition_failed')
        expect(okBody(await commit(kept))).toEqual(first) // The repeat is not checked again.
        expectProblem(await commit(late), 'precondition_failed')
        expectProblem(
          await leasing.server.send('PUT', `${late}/kv/late`, { 'content-type': 'text/plain' }, '2'),
          'txn_not_found',
        )
        if (writes) break
      }
    },
  )

  test.each(['optimistic', 'pessimistic'])('that wrote nothing is held to its lease too: %s', async (mode) => {
    const leasing = await Leasing.start()
    const fence = await leasing.fence('leader', 'a')
    const [kept, late] = [await begin(leasing, mode), await begin(leasing, mode)]
    const body = { checks: [{ lease: 'leader', fence }] }
    okBody(await leasing.server.post(`${kept}/commit`, body))
    leasing.machine.pass(1000)
    expectProblem(await leasing.server.post(`${late}/commit`, body), 'precondition_failed')
    expectProblem(await leasing.server.post(`${late}/commit`, {}), 'precondition_failed')
  })

  test('has no other checks at its commit', async () => {
    const leasing = await Leasing.start()
    const txn = await begin(leasing)
    expectProblem(
      await leasing.server.post(`${txn}/commit`, { checks: [{ key: 'k', exists: true }] }),
      'invalid_argument',
      {
        field: 'checks[0].lease',
      },
    )
    okBody(await leasing.server.post(`${txn}/commit`, {}))
  })
})

describe('a prewrite', () => {
  test('commits under its fence, and its repeat is not checked again', async () => {
    const leasing = await Leasing.start()
    const { server } = leasing
    const fence = await leasing.fence('leader', 'a')
    const prewrite = async (startTs: number, riders: Json) =>
      server.call('prewrite', {
        ...{ mutations: [{ op: 'put', key: `k${startTs}`, value: '1' }], primary: `k${startTs}` },
        ...{ start_ts: startTs, try_one_pc: true, riders },
      })
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    const riders = { leases: [{ lease: 'leader', fence }] }
    const commitTs = numberOf(okBody(await prewrite(startTs, riders)), 'one_pc_commit_ts')
    leasing.machine.pass(1000)
    expect(numberOf(okBody(await prewrite(startTs, riders)), 'one_pc_commit_ts')).toBe(commitTs)
    const later = numberOf(await server.ok('tso', {}), 'ts')
    const refused = expectProblem(await prewrite(later, riders), 'precondition_failed', {
      failed_checks: [{ index: 0, lease: 'leader', fence: 0 }],
    })
    expect(listOf(refused, 'errors')).toMatchObject([{ code: 'precondition_failed', lease: 'leader' }])
    expect(await server.mvcc(`k${later}`)).toMatchObject({ lock: null, writes: [] })
  })

  test('with leases needs try_one_pc and mutations', async () => {
    const leasing = await Leasing.start()
    const { server } = leasing
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    const riders = { leases: [{ lease: 'leader', fence: 5 }] }
    const mutations = [{ op: 'put', key: 'k', value: '1' }]
    expectProblem(
      await server.call('prewrite', { mutations, primary: 'k', start_ts: startTs, riders }),
      'invalid_argument',
      {
        field: 'riders',
      },
    )
    const empty = { mutations: [], primary: 'k', start_ts: startTs, try_one_pc: true, riders }
    expectProblem(await server.call('prewrite', empty), 'invalid_argument', { field: 'mutations' })
  })
})

describe('a token', () => {
  const tokens = [
    'rw everything-token-1234567',
    'rw app-token-123456789012 prefix=app/',
    'ro read-token-1234567890 prefix=app/',
  ].join('\n')

  test('reaches leases by their names, as it does keys', { tags: ['long'] }, async () => {
    const leasing = await Leasing.start({ tokens })
    const all = leasing.as('everything-token-1234567')
    const some = leasing.as('app-token-123456789012')
    const looks = leasing.as('read-token-1234567890')
    const other = await all.fence('other/leader', 'x')
    const fence = await some.fence('app/leader', 'a')
    expectProblem(await leasing.put('app/leader', 'a'), 'unauthorized')
    expectProblem(await some.put('other/leader', 'a'), 'forbidden', { field: 'name' })
    expectProblem(await some.get('/other/leader'), 'forbidden')
    expectProblem(await some.remove('other/leader', 'holder=x'), 'forbidden')
    expectProblem(await looks.put('app/leader', 'a'), 'forbidden')
    expectProblem(await looks.remove('app/leader', 'holder=a'), 'forbidden')
    expect(okBody(await looks.get('/app/leader'))).toMatchObject({ fence })
    const names = async (as: Leasing) => listOf(okBody(await as.get('')), 'leases').map(({ name }) => name)
    expect(await names(all)).toEqual(['app/leader', 'other/leader'])
    expect(await names(some)).toEqual(['app/leader'])
    const get = [{ op: 'get', key: 'app/k' }]
    okBody(await looks.txn({ checks: [{ lease: 'app/leader', fence }], ops: get }))
    expectProblem(await looks.txn({ checks: [{ lease: 'other/leader', fence: other }], ops: get }), 'forbidden', {
      field: 'checks[0].lease',
    })
  })
})

test('what a restart finds counts as renewed at that moment', async () => {
  const leasing = await Leasing.start()
  const { machine, server } = leasing
  const kept = await leasing.fence('kept', 'a')
  await leasing.hold('released', 'a')
  okBody(await leasing.remove('released', 'holder=a'))
  const { database, directory } = server
  await server.app.close()
  await database.close()
  machine.pass(3_600_000)
  const { now, monotonicNow } = machine
  const again = new Leasing(await start({ directory, now, monotonicNow }), machine)
  if (again.server.store.name !== server.store.name) return
  const names = listOf(okBody(await again.get('')), 'leases').map(({ name, fence }) => [name, fence])
  expect(names).toEqual([['kept', kept]])
  machine.pass(900)
  expect(await again.fence('kept', 'a', { fence: kept })).toBe(kept)
  okBody(await again.write('kept', kept))
  again.pass(1000)
  again.pass(2000)
  expectProblem(await again.get('/kept'), 'not_found')
})

describe('validate_reads', () => {
  test('checks leases for clients that commit in two phases', async () => {
    const leasing = await Leasing.start()
    const { server } = leasing
    const fence = await leasing.fence('leader', 'a')
    const ts = async (): Promise<number> => numberOf(await server.ok('tso', {}), 'ts')
    const startTs = await ts()
    const validate = async (leases: readonly Json[], commitTs: number) =>
      server.call('validate_reads', { start_ts: startTs, commit_ts: commitTs, leases })
    const held = [{ lease: 'leader', fence }]
    okBody(await validate(held, await ts()))
    okBody(await validate([], await ts()))
    expectProblem(await validate(held, (await ts()) + 1_000_000), 'invalid_argument', { field: 'commit_ts' })
    expectProblem(await validate([{ lease: 'no name', fence }], await ts()), 'invalid_argument')
    const lost = await validate([...held, { lease: 'other', fence: 7 }], await ts())
    expectProblem(lost, 'precondition_failed', { lease: 'other', fence: 0, index: 1 })
    leasing.pass(1000)
    expectProblem(await validate(held, await ts()), 'precondition_failed', { lease: 'leader', fence: 0 })
  })

  test('a token reaches a lease as it does a key', async () => {
    const tokens = 'rw secret-secret-secret-secret-1234 prefix=app/'
    const { server } = await Leasing.start({ tokens })
    const body = { start_ts: 1, commit_ts: 2, leases: [{ lease: 'other', fence: 1 }] }
    const headers = { authorization: 'Bearer secret-secret-secret-secret-1234' }
    const refused = await server.post('/v1/percolator/validate_reads', body, headers)
    expectProblem(refused, 'forbidden', { field: 'leases[0].lease' })
  })
})
