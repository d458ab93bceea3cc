import { expect, test } from 'vitest'
import { routesOf } from '../../../src/http/routes/route-list.js'
import { load } from '../../../src/http/wire/schemas/load.js'
import type { Schema } from '../../../src/http/wire/schemas/schema.js'
import { HoldingLock } from '../../../src/http/wire/schemas/values.js'
import { Targets } from '../../../src/webhooks/targets.js'
import { type Described, unseenFields } from '../described.js'
import { type Headers, type Json, listOf, type Method, numberOf, type TestServer, testServers } from '../support.js'

const start = testServers()

/** Answers of a server that has nothing wrong lack these; `test/http/routes/` has tests with them. */
const OF_TROUBLE = [
  'GET /v1/status 200 json.fault',
  'GET /v1/status 200 json.restoring',
  'DELETE /v1/leases/:name 200 json.deleting',
]

/** The tour has no token with prefixes, and none that expires. */
const OF_SCOPED = ['prefixes', 'expires_at'].map((name) => `GET /v1/status 200 json.access.${name}`)

/** Parts of long transactions, expiries, failures in the middle of a stream, and locks that hold the feed back have tests of their own. */
const OF_FEEDS = [
  ...['/v1/changes', '/v1/consumers/:name/changes'].flatMap((url) => [
    ...['json.txns[]', 'ndjson'].flatMap((at) => ['part', 'is_last'].map((name) => `GET ${url} 200 ${at}.${name}`)),
    `GET ${url} 200 ndjson.type`,
  ]),
  ...Object.keys(HoldingLock.properties ?? {}).map((name) => `GET /v1/status 200 json.feed.held_back_by[].${name}`),
]

/** This server has its store to itself; `test/bigtable/` has others. */
const OF_SHARED = ['oracle', 'server', 'servers'].map((name) => `GET /v1/status 200 json.${name}`)

/** A new observer has no workers; `test/http/observers-claims.test.ts` has the value of an expired key. */
const OF_OTHERS = [
  ...['worker', 'claimed', 'seen_at'].map((name) => `PUT /v1/observers/:name 201 json.workers[].${name}`),
  'POST /v1/observers/:name/claim 200 json.notifications[].old',
]

/** `test/http/webhooks.test.ts` has failures, with all of these. */
const OF_WEBHOOKS = [
  ...[
    ...['retry', 'skip', 'reset'].map((action) => `POST /v1/webhooks/:name/${action} 200 json`),
    ...['PUT /v1/webhooks/:name 200 json', 'PUT /v1/webhooks/:name 201 json', 'GET /v1/webhooks/:name 200 json'],
    'GET /v1/webhooks 200 json.webhooks[]',
  ].flatMap((at) => ['error', 'failing_up_to', 'next_attempt_at', 'parked_at'].map((name) => `${at}.${name}`)),
  'PUT /v1/webhooks/:name 200 json.secret',
]

/** Streams of events have no end. Their tests hold each event to its schema. */
function isWhole(format: string): boolean {
  return format !== 'events'
}

/** `test/http/load/load.test.ts` has slow requests and hot keys. */
const OF_LOAD = ['slow', 'hot_keys'].flatMap((list) => {
  const { properties = {} } = load.answers[200]?.json ?? {}
  return Object.keys(properties[list]?.items?.properties ?? {}).map(
    (name) => `GET /v1/admin/load 200 json.${list}[].${name}`,
  )
})

/** Calls everything, so that each answer comes with each of its fields once. */
class Tour {
  constructor(readonly server: TestServer) {}

  async #send(method: Method, url: string, headers: Headers = {}, body?: string | Buffer): Promise<Json> {
    const answer = await this.server.send(method, url, headers, body)
    expect(answer.statusCode, `${method} ${url}: ${answer.body}`).toBeLessThan(400)
    return answer.headers['content-type']?.toString().startsWith('application/json') ? answer.json<Json>() : {}
  }

  #post(url: string, body: Json = {}): Promise<Json> {
    return this.#send('POST', url, { 'content-type': 'application/json' }, JSON.stringify(body))
  }

  async keys(): Promise<void> {
    for (const key of ['a', 'b', 'gone']) await this.#send('PUT', `/v1/kv/${key}?ttl_ms=600000`, {}, '1')
    await this.#send('DELETE', '/v1/kv/gone')
    await this.#readKey('/v1/kv/a')
    await this.#readKeys('/v1/kv')
    await this.#post('/v1/kv/batch_get', { keys: ['a'] })
    for (const key of ['of/1', 'of/2']) await this.#send('PUT', `/v1/kv/${key}`, {}, '1')
    await this.#send('DELETE', '/v1/kv?prefix=of/&limit=1')
  }

  async transactions(): Promise<void> {
    const ops = [
      { op: 'get', key: 'a' },
      { op: 'put', key: 'c', value: '3' },
      { op: 'put', key: 'log/', value: '3', versionstamp: true },
      { op: 'scan', prefix: '' },
      { op: 'increment', key: 'n' },
      { op: 'min', key: 'n', by: 1 },
      { op: 'max', key: 'n', by: 1 },
      { op: 'touch', key: 'c', ttl_ms: 600_000 },
      { op: 'delete_range', prefix: 'of/', limit: 1 },
    ]
    for (const key of ['of/1', 'of/2', 'of/3', 'of/4', 'of/5']) await this.#send('PUT', `/v1/kv/${key}`, {}, '1')
    await this.#post('/v1/txn', { ops })
    const txn = `/v1/txn/${(await this.#post('/v1/txn/begin'))['txn']}`
    await this.#send('PUT', `${txn}/kv/d`, {}, '4')
    await this.#send('DELETE', `${txn}/kv/e`)
    await this.#readKey(`${txn}/kv/a`)
    await this.#readKeys(`${txn}/kv`)
    await this.#post(`${txn}/ops`, { ops })
    await this.#send('GET', txn)
    await this.#post(`${txn}/commit`)
    await this.#post(`/v1/txn/${(await this.#post('/v1/txn/begin'))['txn']}/rollback`)
  }

  async #readKey(url: string): Promise<void> {
    const { headers } = await this.server.get(url)
    await this.#send('GET', url, { 'if-none-match': String(headers['etag']) })
  }

  async #readKeys(url: string): Promise<void> {
    await this.#send('GET', `${url}?limit=1`)
    await this.#send('GET', `${url}?count_only`)
    await this.#send('GET', url, { accept: 'application/x-ndjson' })
  }

  async changes(): Promise<void> {
    const url = '/v1/changes?since_ts=5&old_values' // After a collection.
    await this.#send('GET', url)
    await this.#send('GET', `${url}&wait_ms=0`, { accept: 'application/x-ndjson' })
    await this.#send('GET', '/v1/changes?snapshot&wait_ms=0', { accept: 'application/x-ndjson' })
  }

  async leases(): Promise<void> {
    const body = JSON.stringify({ holder: 'h', ttl_ms: 10_000 })
    await this.#send('PUT', '/v1/leases/jobs/1', { 'content-type': 'application/json' }, body)
    await this.#send('GET', '/v1/leases/jobs/1')
    await this.#send('GET', '/v1/leases?prefix=jobs%2F')
    await this.#send('PUT', '/v1/leases/jobs/2', { 'content-type': 'application/json' }, body)
    await this.#send('GET', '/v1/leases?limit=1')
    await this.#send('DELETE', '/v1/leases/jobs/2?holder=h')
    await this.#send('DELETE', '/v1/leases/jobs/1?holder=h')
  }

  /** The end of the lease deletes the key. */
  async attachedKeys(): Promise<void> {
    const { server } = this
    const type = { 'content-type': 'application/json' }
    const grant = { holder: 'h', ttl_ms: 10_000 }
    const { fence } = await this.#send('PUT', '/v1/leases/up', type, JSON.stringify(grant))
    await this.#send('PUT', '/v1/leases/up/next', type, JSON.stringify(grant))
    await this.#send('GET', '/v1/leases?limit=1')
    const ops = [
      { op: 'get', key: 'attached' },
      { op: 'scan', prefix: 'attached' },
    ]
    const put = { op: 'put', key: 'attached', value: '1', lease: 'up' }
    await this.#post('/v1/txn', { checks: [{ lease: 'up', fence }], ops: [put] })
    await this.#send('GET', '/v1/leases/up?keys=1')
    await this.#post('/v1/txn', { ops })
    await this.#readKeys('/v1/kv')
    await this.#send('GET', '/v1/kv?prefix=attached')
    await this.#post('/v1/kv/batch_get', { keys: ['attached'] })
    const txn = `/v1/txn/${(await this.#post('/v1/txn/begin'))['txn']}`
    await this.#readKeys(`${txn}/kv`)
    await this.#send('GET', `${txn}/kv?prefix=attached`)
    await this.#post(`${txn}/ops`, { ops })
    await this.#post(`${txn}/rollback`)
    const key = 'attached'
    await server.ok('get', { key })
    await server.ok('batch_get', { keys: [key] })
    const startTs = numberOf(await server.ok('tso', {}), 'ts')
    await server.ok('scan', { start: key, limit: 1, ts: startTs })
    const wanted = { keys: [key], primary: key, start_ts: startTs, for_update_ts: startTs, return_values: true }
    await server.ok('acquire_pessimistic_lock', wanted)
    await server.ok('pessimistic_rollback', { keys: [key], start_ts: startTs, for_update_ts: startTs })
    const mutations = [{ op: 'put', key, value: '2', keeps_lease: true }]
    await server.ok('prewrite', { mutations, primary: key, start_ts: startTs, lock_ttl: 60_000 })
    await server.ok('scan_lock', { max_ts: startTs })
    await server.ok('check_secondary_locks', { keys: [key], start_ts: startTs })
    const asked = { primary: key, lock_ts: startTs, caller_start_ts: startTs + 1, current_ts: startTs + 1 }
    await server.ok('check_txn_status', asked)
    await server.mvcc(key)
    await server.ok('mvcc_get_by_start_ts', { start_ts: startTs })
    const commitTs = numberOf(await server.ok('tso', {}), 'ts')
    await server.ok('commit', { keys: [key], start_ts: startTs, commit_ts: commitTs })
    await server.mvcc(key)
    await server.ok('mvcc_get_by_start_ts', { start_ts: startTs })
    await this.#send('DELETE', '/v1/leases/up?holder=h')
    expect((await this.#send('GET', '/v1/kv?prefix=attached'))['pairs']).toEqual([])
  }

  async webhooks(): Promise<void> {
    const ranges = { all: { prefix: 'of/' }, range: { start: 'of/1', end: 'of/2' } }
    for (const [name, range] of Object.entries(ranges)) {
      const url = `/v1/webhooks/${name}`
      const body = JSON.stringify({ url: 'https://hooks.example.com/', ...range })
      for (let i = 0; i < 2; i++) await this.#send('PUT', url, { 'content-type': 'application/json' }, body)
      await this.#send('GET', url)
      for (const action of ['retry', 'skip', 'reset']) await this.#post(`${url}/${action}`)
    }
    for (const query of ['', '?limit=1']) await this.#send('GET', `/v1/webhooks${query}`)
    for (const name of Object.keys(ranges)) await this.#send('DELETE', `/v1/webhooks/${name}`)
  }

  async consumers(): Promise<void> {
    const ranges = { range: { start: 'fed/', end: 'fed0', since_ts: 5 }, fed: { prefix: 'fed/', since_ts: 5 } }
    for (const [name, body] of Object.entries(ranges)) {
      const url = `/v1/consumers/${name}`
      // New, and again.
      for (let i = 0; i < 2; i++)
        await this.#send('PUT', url, { 'content-type': 'application/json' }, JSON.stringify(body))
      await this.#send('GET', url)
      await this.#post(`${url}/ack`, { ts: 6 })
      await this.#post(`${url}/reset`, { since_ts: 5 })
    }
    for (const query of ['', '?limit=1']) await this.#send('GET', `/v1/consumers${query}`)
    for (const value of ['1', '2']) await this.#send('PUT', '/v1/kv/fed/1?ttl_ms=600000', {}, value)
    await this.#send('PUT', '/v1/kv/fed/2', {}, '1')
    await this.#send('DELETE', '/v1/kv/fed/2')
    await this.server.ok('delete_range', { start: 'fed/3', end: 'fed0' })
    const url = '/v1/consumers/fed/changes?old_values'
    await this.#send('GET', url)
    await this.#send('GET', `${url}&wait_ms=0`, { accept: 'application/x-ndjson' })
    await this.#send('GET', '/v1/consumers/fed/changes?snapshot&wait_ms=0', { accept: 'application/x-ndjson' })
    await this.#send('DELETE', '/v1/consumers/range')
  }

  async percolator(): Promise<void> {
    const { server } = this
    await server.ok('tso', {})
    await server.ok('gc', { safe_point: 5 })
    const mutations = ['p', 'q'].map((key) => ({ op: 'put', key, value: '1', expire_ts: 2 ** 52 }))
    const locks = { use_async_commit: true, secondaries: ['q'], lock_ttl: 3000 }
    await server.ok('prewrite', { mutations, primary: 'p', start_ts: 10, ...locks })
    await server.ok('scan_lock', { max_ts: 10 })
    await server.ok('check_secondary_locks', { keys: ['q'], start_ts: 10 })
    await server.ok('txn_heart_beat', { primary: 'p', start_ts: 10, advise_lock_ttl: 4000 })
    await server.ok('check_txn_status', { primary: 'p', lock_ts: 10, caller_start_ts: 11, current_ts: 11 })
    const { lock } = await server.mvcc('p')
    const commitTs = numberOf(lock as Json, 'min_commit_ts')
    await server.ok('commit', { keys: ['p'], start_ts: 10, commit_ts: commitTs })
    await server.ok('resolve_lock', { start_ts: 10, commit_ts: commitTs })
    await server.ok('get', { key: 'q' })
    await server.ok('batch_get', { keys: ['q'] })
    await server.ok('scan', { limit: 2, ts: commitTs })
    await server.lock(12, ['r'], { try_one_pc: true })
    const long = { op: 'put', key: 's', value: 'x'.repeat(300) }
    await server.ok('prewrite', { mutations: [long], primary: 's', start_ts: 14, lock_ttl: 1 })
    await server.mvcc('s')
    await server.ok('mvcc_get_by_start_ts', { start_ts: 14 })
    await server.ok('cleanup', { key: 's', start_ts: 14, current_ts: 0 })
    await server.mvcc('s')
    const expiring = { op: 'put', key: 't', value: '1', expire_ts: 2 ** 52 }
    await server.ok('prewrite', { mutations: [expiring], primary: 't', start_ts: 20 })
    await server.ok('mvcc_get_by_start_ts', { start_ts: 20 })
    await server.ok('commit', { keys: ['t'], start_ts: 20, commit_ts: 30 })
    const asked = { primary: 't', lock_ts: 30, caller_start_ts: 31, current_ts: 31, rollback_if_not_exist: true }
    await server.ok('check_txn_status', asked) // Its Rollback record would stand where the commit does.
    await server.mvcc('t')
    await server.ok('mvcc_get_by_start_ts', { start_ts: 20 })
    await server.ok('validate_reads', { start_ts: 31, commit_ts: 32, keys: ['t'] })
    const wanted = { keys: ['t'], primary: 't', start_ts: 25, for_update_ts: 25, return_values: true }
    await server.ok('acquire_pessimistic_lock', { ...wanted, wake_up_mode: 'force_lock' })
    const waiting = server.ok('acquire_pessimistic_lock', {
      ...wanted,
      start_ts: 26,
      for_update_ts: 31,
      wait_timeout: 60_000,
      until_expired: false,
    })
    await expect.poll(async () => listOf(await server.ok('get_lock_wait_info', {}), 'entries')).toHaveLength(1)
    await server.ok('pessimistic_rollback', { keys: ['t'], start_ts: 25, for_update_ts: 30 })
    await waiting
    await server.ok('pessimistic_rollback', { keys: ['t'], start_ts: 26, for_update_ts: 31 })
    await server.lock(40, ['u'])
    await server.ok('rollback', { keys: ['u'], start_ts: 40 })
    await server.ok('mvcc_get_by_start_ts', { start_ts: 40 })
    await server.ok('delete_range', { start: 'p', end: 'z' })
  }

  async observers(): Promise<void> {
    const type = { 'content-type': 'application/json' }
    const url = '/v1/observers/docs'
    const put = (name: string, body: Json) =>
      this.#send('PUT', `/v1/observers/${name}`, type, JSON.stringify({ max_attempts: 1, ...body }))
    const ranges = { range: { start: 'doc/', end: 'doc0' }, docs: { prefix: 'doc/' } }
    for (const [name, range] of Object.entries(ranges)) await put(name, range)
    for (const key of ['1', '2']) await this.#send('PUT', `/v1/kv/doc/${key}`, {}, 'to be')
    const { notifications } = await this.#post(`${url}/claim`, { worker: 'w', limit: 2, values: true })
    const claims = (notifications as Json[]).map(({ key, fence }) => ({ key, fence }))
    for (const query of ['', '?limit=1']) await this.#send('GET', `/v1/observers${query}`)
    for (const [name, range] of Object.entries(ranges)) {
      await put(name, range)
      await this.#send('GET', `/v1/observers/${name}`)
      for (const call of ['pause', 'resume', 'backfill']) await this.#post(`/v1/observers/${name}/${call}`)
      // A mark of the backfill that came after the release would make the parked cell ready again.
      await expect.poll(async () => (await this.server.get(`/v1/observers/${name}`)).json().state).toBe('running')
    }
    await this.#post(`${url}/extend`, { claims: [...claims, { key: 'doc/3', fence: 5 }] })
    await this.#post(`${url}/release`, { claims: claims.map((claim) => ({ ...claim, error: 'no' })) })
    await this.#send('GET', `${url}/parked?limit=1`)
    await this.#post(`${url}/notify`, { keys: ['doc/1'] })
    await this.#post(`${url}/retry`)
    await this.#post(`${url}/skip`, { keys: ['doc/1'] })
    await this.#send('DELETE', url)
  }

  async administration(): Promise<void> {
    const { pin } = await this.#post('/v1/admin/pins')
    await this.#post('/v1/admin/pins')
    await this.#send('GET', '/v1/admin/pins?limit=1')
    await this.#send('PUT', `/v1/admin/pins/${pin}`, { 'content-type': 'application/json' }, '{}')
    await this.#send('PUT', '/v1/kv/a', {}, '2')
    await this.#post('/v1/admin/gc', { life_time_ms: 0 })
    await this.#send('GET', '/v1/status')
    await this.#send('DELETE', `/v1/admin/pins/${pin}`)
    await this.#post('/v1/admin/compact')
    await this.#send('GET', '/livez')
    await this.#send('GET', '/readyz')
    await this.#send('GET', '/metrics')
    await this.#send('GET', '/v1/admin/load')
    const { headers } = await this.server.get('/openapi.json')
    await this.#send('GET', '/openapi.json', { 'if-none-match': String(headers['etag']) })
  }

  /** On an empty server. */
  async restore(from: TestServer): Promise<void> {
    const { rawPayload } = await from.get('/v1/admin/backup')
    await this.#send('POST', '/v1/admin/restore', { 'content-type': 'application/octet-stream' }, rawPayload)
  }
}

test('every answer of every route has a schema, and every field of the schemas is answered', {
  tags: ['long'],
}, async () => {
  const webhookTargets = Targets.parse('https://hooks.example.com/')
  if (typeof webhookTargets === 'string') throw new Error(webhookTargets)
  const server = await start({ webhookTargets })
  const empty = await start()
  const seen = new Map<string, { readonly schema: Schema | undefined; readonly values: unknown[] }>()
  const note = ({ name, schema, values }: Described): void => {
    const { values: before = [] } = seen.get(name) ?? {}
    seen.set(name, { schema, values: [...before, ...values] })
  }
  server.onAnswer = note
  empty.onAnswer = note
  const tour = new Tour(server)
  await tour.keys()
  await tour.transactions()
  await tour.percolator()
  await tour.observers()
  await tour.changes()
  await tour.consumers()
  await tour.webhooks()
  await tour.leases()
  await tour.attachedKeys()
  await tour.administration()
  await new Tour(empty).restore(server)

  const described = routesOf(server.app)
    .filter(({ method, url }) => method !== 'HEAD' && !/^\/(console|docs|$)/.test(url)) // Pages, and no data.
    .flatMap(({ method, url, schema }) => {
      const answers = Object.entries(schema?.answers ?? { none: {} })
      return answers.flatMap(([status, formats]) => {
        const names = Object.keys(formats).length === 0 ? ['none'] : Object.keys(formats)
        return names.filter(isWhole).map((format) => `${method} ${url} ${status} ${format}`)
      })
    })
  expect([...seen.keys()].sort()).toEqual(described.sort())
  const unseen = [...seen].flatMap(([name, { schema, values }]) => (schema ? unseenFields(schema, values, name) : []))
  expect(unseen.sort()).toEqual(
    [...OF_OTHERS, ...OF_SHARED, ...OF_TROUBLE, ...OF_SCOPED, ...OF_FEEDS, ...OF_WEBHOOKS, ...OF_LOAD].sort(),
  )
})
