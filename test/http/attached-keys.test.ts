import { describe, expect, test } from 'vitest'
import { attachedKey } from '../../src/percolator/codec/attached-key.js'
import { prewriteOf, utf8 } from '../store/support.js'
import { expectProblem, type Json, listOf, Machine, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()
const TYPE = { 'content-type': 'application/json' }

/** A server whose time the test lets pass. */
class Attaching {
  constructor(
    readonly server: TestServer,
    readonly machine: Machine,
  ) {}

  static async start(): Promise<Attaching> {
    const machine = new Machine()
    const { now, monotonicNow } = machine
    return new Attaching(await start({ now, monotonicNow }), machine)
  }

  pass(ms: number): void {
    this.machine.pass(ms)
    this.server.database.leases.look()
  }

  async grant(name = 'up', rest: Json = {}): Promise<number> {
    const body = JSON.stringify({ holder: 'h', ttl_ms: 10_000, ...rest })
    return numberOf(okBody(await this.server.send('PUT', `/v1/leases/${name}`, TYPE, body)), 'fence')
  }

  async release(name = 'up'): Promise<Json> {
    return okBody(await this.server.send('DELETE', `/v1/leases/${name}?holder=h`))
  }

  txn(ops: readonly Json[], checks: readonly Json[] = []) {
    return this.server.post('/v1/txn', { checks, ops })
  }

  async attach(fence: number, ...keys: readonly string[]): Promise<Json> {
    const ops = keys.map((key) => ({ op: 'put', key, value: '1', lease: 'up' }))
    return okBody(await this.txn(ops, [{ lease: 'up', fence }]))
  }

  async pairs(): Promise<readonly Json[]> {
    return listOf(okBody(await this.server.get('/v1/kv')), 'pairs') as Json[]
  }

  async keys(): Promise<unknown[]> {
    return (await this.pairs()).map(({ key }) => key)
  }
}

describe('keys that are attached to a lease', () => {
  test('are named by a refusal, and not the rows by which the end of the lease finds them', async () => {
    const attaching = await Attaching.start()
    const { store } = attaching.server.database
    const fence = await attaching.grant()
    const keys = [utf8('a'), attachedKey(fence, utf8('a')), attachedKey(fence, utf8('b'))]
    const startTs = await store.tso(1)
    await store.prewrite(
      prewriteOf(
        startTs,
        keys.map((key) => ({ op: 'put', key, value: utf8('1') })),
        { lockTtl: 600_000 },
      ),
    )
    const mutations = ['a', 'b'].map((key) => ({ op: 'put', key, value: '2', lease_fence: fence }))
    const named = (problem: Json) => listOf(problem, 'locks').map((entry) => (entry as Json).key)
    const raw = await attaching.server.call('prewrite', {
      mutations,
      ...{ primary: 'b', start_ts: await store.tso(1), try_one_pc: true, linearizable: true },
      riders: { leases: [{ lease: 'up', fence }] },
    })
    expectProblem(raw, 'key_locked', { detail: expect.stringContaining('is locked by the transaction') })
    expect(raw.body).not.toContain('perkv')
    expect(raw.body).not.toContain('base64')
    expect(named(raw.json())).toEqual(['a', 'b'])
  })

  test('are deleted before the release is answered, in one transaction of the feed', async () => {
    const attaching = new Attaching(await start(), new Machine()) // Logs of commits go by the clock.
    await attaching.server.beginFeed()
    const fence = await attaching.grant('up', { ttl_ms: 600_000 })
    await attaching.attach(fence, 'a', 'b')
    okBody(await attaching.server.send('PUT', '/v1/kv/c', {}, '1'))
    expect(await attaching.pairs()).toMatchObject([
      { key: 'a', lease_fence: fence },
      { key: 'b', lease_fence: fence },
      { key: 'c' },
    ])
    const { ts: sinceTs } = okBody(await attaching.server.get('/v1/kv?limit=1'))
    await attaching.grant('up', { ttl_ms: 600_000 }) // A renewal: no version, no event.
    expect(await attaching.release()).toEqual({})
    expect(await attaching.keys()).toEqual(['c'])
    await attaching.server.untilTold()
    const { txns } = okBody(await attaching.server.get(`/v1/changes?since_ts=${sinceTs}`))
    expect(txns).toEqual([
      {
        commit_ts: expect.any(Number),
        start_ts: expect.any(Number),
        changes: [
          { key: 'a', op: 'delete' },
          { key: 'b', op: 'delete' },
        ],
      },
    ])
    const past = okBody(await attaching.server.get(`/v1/kv?ts=${sinceTs}`))
    expect(listOf(past, 'pairs')).toHaveLength(3)
    expect(await attaching.grant('up', { ttl_ms: 600_000 })).toBeGreaterThan(fence)
  })

  test('are listed with the lease where that is asked for: in order, bounded, and without those that are attached no more', async () => {
    const attaching = await Attaching.start()
    const fence = await attaching.grant()
    const listed = async (query: string) => okBody(await attaching.server.get(`/v1/leases/up${query}`))
    expect(await listed('?keys=10')).toMatchObject({ name: 'up', fence, keys: [], more_keys: false })
    await attaching.attach(fence, 'c', 'a', 'b', 'd')
    await attaching.server.put('b', 'attached no more')
    okBody(await attaching.server.send('DELETE', '/v1/kv/d'))
    expect(await listed('?keys=2')).toMatchObject({ keys: ['a', 'c'], more_keys: false })
    expect(await listed('?keys=1')).toMatchObject({ keys: ['a'], more_keys: true })
    expect(await listed('?keys=0')).toMatchObject({ keys: [], more_keys: true })
    expect(await listed('')).not.toHaveProperty('keys')
    expectProblem(await attaching.server.get('/v1/leases/up?keys=all'), 'invalid_argument', { field: 'keys' })
    await attaching.release()
    expectProblem(await attaching.server.get('/v1/leases/up?keys=10'), 'not_found')
  })

  test('are listed only as far as the token reaches them', async () => {
    const [all, own] = ['all-token-0123456789', 'own-token-0123456789'].map((token) => ({
      authorization: `Bearer ${token}`,
    }))
    const server = await start({ tokens: 'rw all-token-0123456789\nro own-token-0123456789 prefix=up prefix=own/\n' })
    const body = JSON.stringify({ holder: 'h', ttl_ms: 600_000 })
    const fence = numberOf(okBody(await server.send('PUT', '/v1/leases/up', { ...TYPE, ...all }, body)), 'fence')
    const ops = ['other/1', 'own/1'].map((key) => ({ op: 'put', key, value: '1', lease: 'up' }))
    okBody(await server.post('/v1/txn', { checks: [{ lease: 'up', fence }], ops }, all))
    expect(okBody(await server.get('/v1/leases/up?keys=10', all))).toMatchObject({ keys: ['other/1', 'own/1'] })
    const seen = okBody(await server.get('/v1/leases/up?keys=10', own))
    expect(seen).toMatchObject({ keys: ['own/1'], more_keys: false })
  })

  test('are deleted when the lease has run out, before it is granted again', async () => {
    const attaching = await Attaching.start()
    const fence = await attaching.grant()
    await attaching.attach(fence, 'a')
    attaching.machine.pass(10_000) // Before any timer has noticed.
    expect(await attaching.keys()).toEqual(['a'])
    const next = await attaching.grant('up', { holder: 'next' })
    const { writes } = await attaching.server.mvcc('a')
    expect(writes).toMatchObject([{ type: 'delete' }, { type: 'put', lease_fence: fence }])
    expect(next).toBeGreaterThan(numberOf((writes as Json[])[0] as Json, 'commit_ts'))
  })

  test('a put with a lease that its transaction does not check is refused, and changes nothing', async () => {
    const attaching = await Attaching.start()
    const fence = await attaching.grant()
    const other = await attaching.grant('other')
    const put = { op: 'put', key: 'a', value: '1', lease: 'up' }
    for (const checks of [[], [{ key: 'a', exists: false }], [{ lease: 'other', fence: other }]])
      for (const op of [put, { ...put, op: 'insert' }])
        expectProblem(await attaching.txn([op], checks), 'invalid_argument', { field: 'lease' })
    expectProblem(await attaching.txn([put], [{ lease: 'up', fence: fence - 1 }]), 'precondition_failed')
    for (const op of ['delete', 'increment', 'touch', 'get'])
      expectProblem(await attaching.txn([{ op, key: 'a', lease: 'up' }]), 'invalid_argument', { field: 'ops[0].lease' })
    for (const lease of ['', 'no name', 'x'.repeat(129), 7])
      expectProblem(await attaching.txn([{ ...put, lease }], [{ lease: 'up', fence }]), 'invalid_argument')
    expect(await attaching.keys()).toEqual([])
    okBody(await attaching.txn([put], [{ lease: 'up', fence }]))
    await attaching.release()
    expectProblem(await attaching.txn([put], [{ lease: 'up', fence }]), 'precondition_failed')
    expect(await attaching.keys()).toEqual([])
  })

  test('an open transaction checks at its commit, and stays open where the check is missing', async () => {
    const attaching = await Attaching.start()
    const { server } = attaching
    const fence = await attaching.grant()
    for (const mode of ['optimistic', 'pessimistic']) {
      const txn = `/v1/txn/${(await server.post('/v1/txn/begin', { mode })).json()['txn']}`
      okBody(await server.post(`${txn}/ops`, { ops: [{ op: 'put', key: mode, value: '1', lease: 'up' }] }))
      expectProblem(await server.post(`${txn}/commit`, {}), 'invalid_argument', { field: 'lease' })
      expect(okBody(await server.get(txn))).toMatchObject({ state: 'open', writes: 1 })
      okBody(await server.post(`${txn}/commit`, { checks: [{ lease: 'up', fence }] }))
    }
    expect(await attaching.pairs()).toMatchObject([{ lease_fence: fence }, { lease_fence: fence }])
    await attaching.release()
    expect(await attaching.keys()).toEqual([])
  })

  test('touch, increment, min and max keep the attachment, a put without it ends it', async () => {
    const attaching = await Attaching.start()
    const fence = await attaching.grant()
    await attaching.attach(fence, 'put', 'sum', 'touched')
    okBody(
      await attaching.txn([
        { op: 'touch', key: 'touched', ttl_ms: 60_000 },
        { op: 'increment', key: 'sum' },
        { op: 'max', key: 'sum', by: 1 },
        { op: 'min', key: 'sum', by: 9 },
      ]),
    )
    okBody(await attaching.server.send('PUT', '/v1/kv/put', {}, '2'))
    const results = okBody(await attaching.txn(['put', 'sum', 'touched'].map((key) => ({ op: 'get', key }))))
    expect(results['results']).toMatchObject([
      { value: '2' },
      { value: '2', lease_fence: fence },
      { lease_fence: fence },
    ])
    await attaching.release()
    expect(await attaching.keys()).toEqual(['put'])
  })

  test('clients that coordinate themselves attach with a rider, and keep what is attached', async () => {
    const attaching = await Attaching.start()
    const { server } = attaching
    const fence = await attaching.grant()
    const ts = async (): Promise<number> => numberOf(await server.ok('tso', {}), 'ts')
    const prewrite = async (mutation: Json, rest: Json = {}) =>
      server.call('prewrite', { mutations: [mutation], primary: 'a', start_ts: await ts(), ...rest })
    const put = { op: 'put', key: 'a', value: '1' }
    const riders = { try_one_pc: true, linearizable: true, riders: { leases: [{ lease: 'up', fence }] } }
    expectProblem(await prewrite({ ...put, lease_fence: fence }), 'invalid_argument', { field: 'lease_fence' })
    expectProblem(await prewrite({ ...put, lease_fence: fence + 1 }, riders), 'invalid_argument')
    expectProblem(await prewrite({ ...put, lease_fence: fence, keeps_lease: true }, riders), 'invalid_argument')
    expectProblem(await prewrite({ op: 'delete', key: 'a', lease_fence: fence }, riders), 'invalid_argument')
    expectProblem(await prewrite({ op: 'delete', key: 'a', keeps_lease: true }), 'invalid_argument')
    expectProblem(await prewrite({ op: 'delete', key: 'a', attached_to: fence }), 'invalid_argument')
    expect(await attaching.keys()).toEqual([])
    okBody(await prewrite({ ...put, lease_fence: fence }, riders))
    const startTs = await ts()
    okBody(
      await server.call('prewrite', { mutations: [{ ...put, keeps_lease: true }], primary: 'a', start_ts: startTs }),
    )
    expect((await server.mvcc('a'))['lock']).toMatchObject({ lease_fence: fence })
    await server.ok('commit', { keys: ['a'], start_ts: startTs, commit_ts: await ts() })
    expect(await attaching.pairs()).toMatchObject([{ key: 'a', lease_fence: fence }])
    await attaching.release()
    expect(await attaching.keys()).toEqual([])
  })

  test('a release says that keys are locked, and the server goes on', { tags: ['long'] }, async () => {
    const attaching = await Attaching.start()
    const { server } = attaching
    await attaching.attach(await attaching.grant(), 'a', 'b')
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    await server.lock(startTs, ['b'], { lock_ttl: 600_000 })
    expect(await attaching.release()).toEqual({ deleting: true })
    expectProblem(await server.get('/v1/leases/up'), 'not_found')
    const body = JSON.stringify({ holder: 'next', ttl_ms: 10_000 })
    const refused = await server.send('PUT', '/v1/leases/up', TYPE, body)
    expectProblem(refused, 'lease_held', { lease: 'up', holder: 'h' })
    await server.ok('rollback', { keys: ['b'], start_ts: startTs })
    attaching.pass(1000)
    await expect.poll(() => attaching.keys()).toEqual([])
    okBody(await server.send('PUT', '/v1/leases/up', TYPE, body))
  })
})
