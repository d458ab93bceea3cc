import { describe, expect, test } from 'vitest'
import type { Db } from '../../src/client/index.js'
import { connectTo } from '../coordinator/support.js'
import {
  Clock,
  expectProblem,
  type Headers,
  type Json,
  okBody,
  type Sent,
  type TestServer,
  testServers,
} from './support.js'

const start = testServers()

const ALL = 'all-token-0123456789'
const APP = 'app-token-0123456789'
const TOKENS = `rw ${ALL}\nrw ${APP} prefix=app/ prefix=tmp/\n`
const as = (token: string): Headers => ({ authorization: `Bearer ${token}` })

/** What a token of `app/` tries, against transactions of a token that reaches everything. */
class Attack {
  constructor(
    readonly server: TestServer,
    readonly clock: Clock,
  ) {}

  static async start(): Promise<Attack> {
    const clock = new Clock()
    return new Attack(await start({ tokens: TOKENS, now: clock.now }), clock)
  }

  call(token: string, name: string, body: Json): Promise<Sent> {
    return this.server.post(`/v1/percolator/${name}`, body, as(token))
  }

  async own(name: string, body: Json): Promise<Json> {
    return okBody(await this.call(ALL, name, body))
  }

  async tso(): Promise<number> {
    return (await this.own('tso', {}))['ts'] as number
  }

  /** Prewrites keys of a transaction of everything's; the first is the primary unless told otherwise. */
  async prewrite(keys: readonly string[], rest: Json = {}): Promise<number> {
    const startTs = await this.tso()
    const mutations = keys.map((key) => ({ op: 'put', key, value: `of ${key}` }))
    await this.own('prewrite', { mutations, primary: keys[0], start_ts: startTs, lock_ttl: 3000, ...rest })
    return startTs
  }

  async lockOf(key: string): Promise<unknown> {
    return (await this.own('mvcc_get_by_key', { key }))['lock']
  }

  /** Every call that could end, prolong, push or take over the lock of the transaction at `startTs` on a key. */
  async endings(key: string, startTs: number): Promise<[string, Json][]> {
    const later = (await this.tso()) + 1000
    const over = this.clock.ts() + 2048 * 3_600_000
    const status = { primary: key, lock_ts: startTs, caller_start_ts: 0, current_ts: over }
    const put = { mutations: [{ op: 'put', key, value: 'theirs' }], primary: key, start_ts: startTs }
    const locking = { for_update_ts: later, pessimistic_actions: ['do'] }
    return [
      ['commit', { keys: [key], start_ts: startTs, commit_ts: later }],
      ['commit', { keys: [key], start_ts: startTs, commit_ts: later, primary: key }],
      ['rollback', { keys: [key], start_ts: startTs }],
      ['rollback', { keys: ['app/other', key], start_ts: startTs }],
      ['cleanup', { key, start_ts: startTs, current_ts: 0 }],
      ['cleanup', { key, start_ts: startTs, current_ts: over }],
      ['resolve_lock', { start_ts: startTs, commit_ts: 0, keys: [key] }],
      ['resolve_lock', { start_ts: startTs, commit_ts: later, keys: [key] }],
      ['check_txn_status', { ...status }],
      ['check_txn_status', { ...status, force_sync_commit: true }],
      ['check_txn_status', { ...status, force_sync_commit: true, verify_is_primary: true }],
      ['check_txn_status', { ...status, resolving_pessimistic_lock: true }],
      ['check_txn_status', { ...status, current_ts: later, caller_start_ts: later, force_sync_commit: true }],
      ['check_txn_status', { ...status, rollback_if_not_exist: true }],
      ['check_secondary_locks', { keys: [key], start_ts: startTs }],
      ['txn_heart_beat', { primary: key, start_ts: startTs, advise_lock_ttl: 10_000_000, min_commit_ts: later }],
      ['pessimistic_rollback', { keys: [key], start_ts: startTs, for_update_ts: later }],
      [
        'acquire_pessimistic_lock',
        { keys: [key], primary: key, start_ts: startTs, for_update_ts: later, lock_ttl: 99_999 },
      ],
      ['prewrite', put],
      ['prewrite', { ...put, ...locking }],
      ['prewrite', { ...put, ...locking, try_one_pc: true }],
    ]
  }

  /** Tries all of them; whatever they answer, the lock stands as it stood. @returns those that were refused as forbidden. */
  async tryAll(key: string, startTs: number): Promise<string[]> {
    const before = await this.own('mvcc_get_by_key', { key })
    expect(before['lock']).toMatchObject({ start_ts: startTs })
    const refused: string[] = []
    for (const [name, body] of await this.endings(key, startTs)) {
      const answer = await this.call(APP, name, body)
      expect(answer.body).not.toContain('secret/')
      if (answer.statusCode === 403) {
        expectProblem(answer, 'forbidden')
        refused.push(name)
      }
      expect(await this.own('mvcc_get_by_key', { key }), `${name} ${answer.body}`).toEqual(before)
    }
    return refused
  }

  /** What a reader finds, after the server has ended the transaction by its own rules. */
  async read(token: string, key: string): Promise<string | undefined> {
    this.clock.ms += 20_000
    const answer = await this.server.get(`/v1/kv/${key}`, as(token))
    return answer.statusCode === 200 ? answer.body : undefined
  }
}

describe('a token of prefixes ends nothing that is decided elsewhere', () => {
  const asynchronous = (secondaries: readonly string[]): Json => ({ use_async_commit: true, secondaries })

  test('a secondary of an async commit whose primary it does not reach: committed by definition, and it stays so', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['secret/3', 'app/L9'], asynchronous(['app/L9']))
    expect(await attack.tryAll('app/L9', startTs)).toEqual(
      expect.arrayContaining(['commit', 'rollback', 'cleanup', 'resolve_lock', 'check_txn_status', 'txn_heart_beat']),
    )
    expect(await attack.read(ALL, 'secret/3')).toBe('of secret/3')
    expect(await attack.read(APP, 'app/L9')).toBe('of app/L9')
  })

  test('nor its primary, where it does not reach a secondary', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['app/P', 'secret/4', 'app/S'], asynchronous(['secret/4', 'app/S']))
    for (const key of ['app/P', 'app/S'])
      expect(await attack.tryAll(key, startTs)).toEqual(expect.arrayContaining(['commit', 'rollback', 'resolve_lock']))
    expect(await attack.read(ALL, 'secret/4')).toBe('of secret/4')
    expect(await attack.read(APP, 'app/S')).toBe('of app/S')
  })

  test('nor a secondary before its primary has come', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['app/S'], { use_async_commit: true, primary: 'app/P' })
    await attack.tryAll('app/S', startTs)
    const mutations = ['app/P', 'secret/4'].map((key) => ({ op: 'put', key, value: `of ${key}` }))
    const rest = { primary: 'app/P', start_ts: startTs, ...asynchronous(['app/S', 'secret/4']) }
    expect((await attack.own('prewrite', { mutations, ...rest }))['min_commit_ts']).toBeGreaterThan(startTs)
    expect(await attack.read(ALL, 'secret/4')).toBe('of secret/4')
  })

  test('a secondary in two phases', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['secret/5', 'app/L', 'tmp/L'], { min_commit_ts: (await attack.tso()) + 1 })
    for (const key of ['app/L', 'tmp/L'])
      expect(await attack.tryAll(key, startTs)).toEqual(
        expect.arrayContaining(['commit', 'rollback', 'txn_heart_beat']),
      )
    const commitTs = (await attack.tso()) + 10_000
    await attack.own('commit', { keys: ['secret/5', 'app/L', 'tmp/L'], start_ts: startTs, commit_ts: commitTs })
    expect(await attack.read(APP, 'tmp/L')).toBe('of tmp/L')
  })

  test('a pessimistic lock, which it does not take over either', async () => {
    const attack = await Attack.start()
    const startTs = await attack.tso()
    const lock = { primary: 'secret/6', start_ts: startTs, for_update_ts: startTs, lock_ttl: 3000 }
    await attack.own('acquire_pessimistic_lock', { keys: ['secret/6', 'app/L'], ...lock })
    expect(await attack.tryAll('app/L', startTs)).toEqual(
      expect.arrayContaining(['rollback', 'pessimistic_rollback', 'acquire_pessimistic_lock', 'prewrite']),
    )
  })

  test('nor those of a transaction that the server runs', async () => {
    const attack = await Attack.start()
    const { server } = attack
    const begun = await server.post('/v1/txn/begin', { mode: 'pessimistic' }, as(ALL))
    const { txn, start_ts } = begun.json<{ txn: string; start_ts: number }>()
    for (const key of ['secret/7', 'app/L'])
      expect((await server.send('PUT', `/v1/txn/${txn}/kv/${key}`, as(ALL), 'x')).statusCode).toBe(200)
    await attack.tryAll('app/L', start_ts)
    expect((await server.post(`/v1/txn/${txn}/commit`, {}, as(ALL))).statusCode).toBe(200)
    expect((await server.get('/v1/kv/secret/7', as(ALL))).body).toBe('x')
  })

  test('nor makes a transaction believe that it has committed, by a write at its start_ts', async () => {
    const attack = await Attack.start()
    for (const rest of [{ try_one_pc: true }, { use_async_commit: true, secondaries: ['secret/3'] }, {}]) {
      const startTs = await attack.tso()
      const squat = { mutations: [{ op: 'put', key: 'app/L', value: 'theirs' }], primary: 'app/L', start_ts: startTs }
      okBody(await attack.call(APP, 'prewrite', { ...squat, try_one_pc: true, skip_constraint_check: true }))
      const mutations = ['app/L', 'secret/3'].map((key) => ({ op: 'put', key, value: `of ${key}` }))
      const body = { mutations, primary: 'app/L', start_ts: startTs, ...rest }
      expectProblem(await attack.call(ALL, 'prewrite', body), 'write_conflict', { reason: 'self_rolled_back' })
    }
  })

  test('nor perkv/client, whose transaction fails, and leaves nothing', async () => {
    const attack = await Attack.start()
    const db = await connectTo(attack.server, { token: ALL })
    const txn = await db.begin()
    const squat = { mutations: [{ op: 'put', key: 'app/L', value: 'theirs' }], primary: 'app/L', start_ts: txn.startTs }
    okBody(await attack.call(APP, 'prewrite', { ...squat, try_one_pc: true, skip_constraint_check: true }))
    for (const key of ['app/L', 'secret/3']) await txn.put(key, 'mine')
    await expect(txn.commit()).rejects.toMatchObject({ code: 'write_conflict' })
    await db.close()
    expect(await attack.lockOf('secret/3')).toBeNull()
    expect((await attack.server.get('/v1/kv/secret/3', as(ALL))).statusCode).toBe(404)
  })

  test('one key that is decided elsewhere refuses the whole request', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['secret/8', 'app/L'])
    const mutations = [{ op: 'put', key: 'app/own', value: '1' }]
    okBody(await attack.call(APP, 'prewrite', { mutations, primary: 'app/own', start_ts: startTs, lock_ttl: 3000 }))
    const both = { keys: ['app/own', 'app/L'], start_ts: startTs }
    expectProblem(await attack.call(APP, 'rollback', both), 'forbidden')
    expect(await attack.lockOf('app/own')).not.toBeNull()
    okBody(await attack.call(APP, 'rollback', { ...both, keys: ['app/own'] }))
  })
})

describe('what it may do', () => {
  test('end a lock as its primary says', async () => {
    const attack = await Attack.start()
    const committed = await attack.prewrite(['secret/1', 'app/a', 'app/b', 'app/c'])
    const commitTs = await attack.tso()
    await attack.own('commit', { keys: ['secret/1'], start_ts: committed, commit_ts: commitTs })
    const forward = (key: string, at: number) =>
      attack.call(APP, 'resolve_lock', { start_ts: committed, commit_ts: at, keys: [key] })
    expectProblem(await forward('app/a', commitTs + 1), 'forbidden')
    expectProblem(await forward('app/a', 0), 'forbidden')
    expectProblem(await attack.call(APP, 'rollback', { keys: ['app/a'], start_ts: committed }), 'forbidden')
    expect(okBody(await forward('app/a', commitTs))).toEqual({ resolved: 1 })
    okBody(await attack.call(APP, 'commit', { keys: ['app/b'], start_ts: committed, commit_ts: commitTs }))
    expect((await attack.server.get('/v1/kv/app/b', as(APP))).headers.etag).toBe(`"${commitTs}"`)

    const rolledBack = await attack.prewrite(['secret/2', 'app/d', 'app/e', 'app/f'])
    await attack.own('rollback', { keys: ['secret/2'], start_ts: rolledBack })
    const later = await attack.tso()
    const commit = { keys: ['app/d'], start_ts: rolledBack, commit_ts: later }
    expectProblem(await attack.call(APP, 'commit', commit), 'forbidden')
    okBody(await attack.call(APP, 'rollback', { keys: ['app/d'], start_ts: rolledBack }))
    okBody(await attack.call(APP, 'cleanup', { key: 'app/e', start_ts: rolledBack, current_ts: 0 }))
    okBody(await attack.call(APP, 'resolve_lock', { start_ts: rolledBack, commit_ts: 0, keys: ['app/f'] }))
    for (const key of ['app/d', 'app/e', 'app/f']) expect(await attack.lockOf(key)).toBeNull()
  })

  test('remove a pessimistic lock whose transaction has ended', async () => {
    const attack = await Attack.start()
    for (const end of ['commit', 'rollback']) {
      const startTs = await attack.tso()
      const lock = { primary: 'secret/1', start_ts: startTs, for_update_ts: startTs }
      await attack.own('acquire_pessimistic_lock', { keys: ['app/a'], ...lock })
      const mutations = [{ op: 'put', key: 'secret/1', value: '1' }]
      await attack.own('prewrite', { mutations, primary: 'secret/1', start_ts: startTs })
      const release = { keys: ['app/a'], start_ts: startTs, for_update_ts: startTs }
      expectProblem(await attack.call(APP, 'pessimistic_rollback', release), 'forbidden')
      const rest = end === 'commit' ? { commit_ts: await attack.tso() } : {}
      await attack.own(end, { keys: ['secret/1'], start_ts: startTs, ...rest })
      okBody(await attack.call(APP, 'pessimistic_rollback', release))
      expect(await attack.lockOf('app/a')).toBeNull()
    }
  })

  test('end what its own keys decide, whoever began it', async () => {
    const attack = await Attack.start()
    const twoPhases = await attack.prewrite(['app/P', 'app/S'])
    const beat = { primary: 'app/P', start_ts: twoPhases, advise_lock_ttl: 9000 }
    expect(okBody(await attack.call(APP, 'txn_heart_beat', beat))).toEqual({ lock_ttl: 9000 })
    okBody(await attack.call(APP, 'rollback', { keys: ['app/S', 'app/P'], start_ts: twoPhases }))

    const rest = { use_async_commit: true, secondaries: ['app/T', 'tmp/U'] }
    const asynchronous = await attack.prewrite(['app/Q', 'app/T', 'tmp/U'], rest)
    okBody(await attack.call(APP, 'rollback', { keys: ['tmp/U'], start_ts: asynchronous }))
    okBody(await attack.call(APP, 'rollback', { keys: ['app/Q', 'app/T'], start_ts: asynchronous }))
    for (const key of ['app/P', 'app/S', 'app/Q', 'app/T', 'tmp/U']) expect(await attack.lockOf(key)).toBeNull()
  })

  test('decide by a primary of its own, but not put the other keys out of reach', async () => {
    const attack = await Attack.start()
    const startTs = await attack.prewrite(['app/P9', 'secret/22'])
    const commit = { keys: ['app/P9'], start_ts: startTs }
    for (const commit_ts of [2 ** 53 - 2, attack.clock.ts() + 61_000 * 2048])
      expectProblem(await attack.call(APP, 'commit', { ...commit, commit_ts }), 'invalid_argument')
    okBody(await attack.call(APP, 'commit', { ...commit, commit_ts: attack.clock.ts() + 59_000 * 2048 }))
    attack.clock.ms += 60_000
    expect(await attack.read(ALL, 'secret/22')).toBe('of secret/22')
    okBody(await attack.server.send('PUT', '/v1/kv/secret/22', as(ALL), 'new'))
  })

  test('ask the server, which ends every transaction as the protocol says', async () => {
    const attack = await Attack.start()
    await attack.prewrite(['secret/9', 'app/a'])
    attack.clock.ms += 20_000
    okBody(await attack.server.send('PUT', '/v1/kv/app/a', as(APP), 'mine'))
    expect(await attack.lockOf('secret/9')).toBeNull() // Over its TTL: rolled back, the primary first.
    const rest = { use_async_commit: true, secondaries: ['app/b'] }
    await attack.prewrite(['secret/10', 'app/b'], rest)
    attack.clock.ms += 20_000
    const read = await attack.server.post('/v1/txn', { ops: [{ op: 'get', key: 'app/b' }] }, as(APP))
    expect(okBody(read)['results']).toMatchObject([{ found: true, value: 'of app/b' }])
  })
})

describe('perkv/client with a token of prefixes', () => {
  async function connected(): Promise<{ readonly attack: Attack; readonly db: Db }> {
    const attack = await Attack.start()
    return { attack, db: await connectTo(attack.server, { token: APP }) }
  }
  const names = Array.from({ length: 5 }, (_, i) => `app/k${i}`)
  /** More than a request takes: several prewrites, under async commit. */
  const big = Buffer.alloc(700_000, 'x').toString()

  test('commits in several requests, and leaves no lock', { tags: ['long'] }, async () => {
    const { attack, db } = await connected()
    await db.transaction(async (txn) => {
      for (const name of names) await txn.put(name, big)
    })
    for (const name of names) expect(await db.get(name)).toBeDefined()
    await db.close()
    for (const name of names) expect(await attack.lockOf(name)).toBeNull()
  })

  for (const conflict of ['app/k0', 'app/k3'])
    test(`rolls back in several requests, after a conflict on ${conflict}, and leaves no lock`, async () => {
      const { attack, db } = await connected()
      const txn = await db.begin()
      for (const name of names) await txn.put(name, big)
      await attack.server.put(conflict, 'first', as(APP))
      await expect(txn.commit()).rejects.toMatchObject({ code: 'write_conflict' })
      await db.close()
      for (const name of names) expect(await attack.lockOf(name), name).toBeNull()
    })

  test('ends a dead transaction of its own keys, and waits where it does not see them all', async () => {
    const { attack, db } = await connected()
    await attack.prewrite(['app/P', 'app/S'])
    attack.clock.ms += 20_000
    expect(await db.get('app/S')).toBeUndefined()

    const rest = { use_async_commit: true, secondaries: ['app/T', 'secret/1'] }
    await attack.prewrite(['app/Q', 'app/T', 'secret/1'], rest)
    attack.clock.ms += 20_000
    const txn = await db.begin({ lockWaitMs: 50 })
    await txn.put('app/T', 'mine')
    await expect(txn.commit()).rejects.toMatchObject({ code: 'key_locked' })
    expect(await attack.read(APP, 'app/T')).toBe('of app/T')
    expect(await attack.read(ALL, 'secret/1')).toBe('of secret/1')
    await db.close()
  })
})
