import { expect, test } from 'vitest'
import { skipOthers } from '../../store/test-store.js'
import { Clock, expectProblem, type TestServer, testServers } from '../support.js'

const start = testServers()

/** Samples by their name and labels, as they are written. */
async function scrape(server: TestServer, headers: Record<string, string> = {}): Promise<Map<string, number>> {
  const { statusCode, headers: sent, body } = await server.get('/metrics', headers)
  expect([statusCode, sent['content-type']]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8'])
  const lines = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  const samples = lines.map((line) => /^([a-z][a-z0-9_]*(?:\{.*\})?) (\S+)$/.exec(line))
  expect(samples).not.toContain(null)
  return new Map(samples.map((sample) => [sample?.[1] ?? '', Number(sample?.[2])]))
}

test('requests by route and code, problems by code, one sample per label set, and no key in any', {
  tags: ['long'],
}, async () => {
  const server = await start({ ownApp: true })
  await server.put('a secret key', 'v')
  await server.get('/v1/kv/a%20secret%20key')
  expectProblem(await server.get('/v1/kv/another%20secret%20key'), 'not_found')
  expectProblem(await server.get('/a/secret/path'), 'not_found')
  await server.post('/v1/txn', { ops: [{ op: 'put', key: 'a secret key', value: 'w' }] })
  const samples = await scrape(server)
  const of = (method: string, route: string, code: number) =>
    samples.get(`perkv_http_request_duration_seconds_count{method="${method}",route="${route}",code="${code}"}`)
  expect(of('PUT', '/v1/kv/:key', 200)).toBe(1)
  expect(of('GET', '/v1/kv/:key', 200)).toBe(1)
  expect(of('GET', '/v1/kv/:key', 404)).toBe(1)
  expect(of('POST', '/v1/txn', 200)).toBe(1)
  expect(of('any', 'none', 404)).toBe(1)
  expect(samples.get('perkv_http_problems_total{code="not_found"}')).toBe(2)
  expect([...samples.keys()].filter((name) => name.includes('secret'))).toEqual([])
  expect([...samples.keys()].filter((name) => !/^(perkv|process|nodejs)_/.test(name))).toEqual([])
})

test('commits by kind, conflicts by reason, resolved locks, rollbacks, waits', { tags: ['long'] }, async () => {
  const server = await start({ ownApp: true })
  const before = await scrape(server)
  await server.put('one', 'phase')
  await server.write(5, 6, ['two', 'phases'])
  await server.lock(10, ['async'], { use_async_commit: true, secondaries: [] })
  await server.ok('commit', { keys: ['async'], start_ts: 10, commit_ts: 20 }).catch(() => {})
  const late = await server.call('prewrite', {
    mutations: [{ op: 'put', key: 'two', value: 'late' }],
    primary: 'two',
    start_ts: 4,
  })
  expectProblem(late, 'write_conflict')
  await server.lock(30, ['gone', 'gone too'])
  await server.ok('resolve_lock', { txns: [{ start_ts: 30, commit_ts: 0 }] })
  await server.lock(40, ['undone'])
  await server.ok('rollback', { keys: ['undone'], start_ts: 40 })
  const after = await scrape(server)
  const since = (name: string) => (after.get(name) ?? 0) - (before.get(name) ?? 0)
  expect(since('perkv_commits_total{kind="1pc"}')).toBe(1)
  expect(since('perkv_commits_total{kind="2pc"}')).toBe(1)
  expect(since('perkv_write_conflicts_total{reason="optimistic"}')).toBe(1)
  expect(since('perkv_refusals_total{code="write_conflict"}')).toBe(1)
  expect(since('perkv_resolved_locks_total{outcome="rolled_back"}')).toBe(2)
  expect(since('perkv_rolled_back_keys_total')).toBe(1)
})

test('an async commit counts when its primary does; a wait for a lock, and a deadlock, count when they end', {
  tags: ['long'],
}, async () => {
  const server = await start({ ownApp: true })
  const { ts } = await server.ok('tso', {})
  const startTs = Number(ts)
  const { min_commit_ts: commitTs } = await server.lock(startTs, ['k'], { use_async_commit: true })
  await server.ok('commit', { keys: ['k'], start_ts: startTs, commit_ts: commitTs })
  const lock = (start_ts: number, key: string, wait_timeout = 0) =>
    server.call('acquire_pessimistic_lock', {
      keys: [key],
      primary: key,
      start_ts,
      for_update_ts: start_ts,
      wait_timeout,
      lock_ttl: 20_000,
    })
  const [first, second] = [Number((await server.ok('tso', {}))['ts']), Number((await server.ok('tso', {}))['ts'])]
  expect((await lock(first, 'a')).statusCode).toBe(200)
  expect((await lock(second, 'b')).statusCode).toBe(200)
  const waiting = lock(second, 'a', 10_000)
  await expect.poll(async () => (await scrape(server)).get('perkv_lock_waiters')).toBe(1)
  expectProblem(await lock(first, 'b', 10_000), 'deadlock')
  await server.ok('pessimistic_rollback', { keys: ['a'], start_ts: first, for_update_ts: first })
  expect((await waiting).statusCode).toBe(200)
  const samples = await scrape(server)
  expect(samples.get('perkv_commits_total{kind="async"}')).toBe(1)
  expect(samples.get('perkv_lock_wait_seconds_count')).toBe(1)
  expect(samples.get('perkv_refusals_total{code="deadlock"}')).toBe(1)
})

test('the age of the oldest lock, whichever was locked first', async () => {
  skipOthers('counts no locks')
  const clock = new Clock()
  const server = await start({ now: clock.now })
  const age = async () => (await scrape(server)).get('perkv_oldest_lock_age_seconds')
  expect(await age()).toBe(0)
  const startTs = clock.ts()
  clock.ms += 1000
  await server.lock(clock.ts(), ['younger'], { lock_ttl: 600_000 })
  await server.lock(startTs, ['older'], { lock_ttl: 600_000 })
  clock.ms += 60_000
  expect(await age()).toBeCloseTo(61, 0)
  await server.ok('rollback', { keys: ['older'], start_ts: startTs })
  expect(await age()).toBeCloseTo(60, 0)
})

test('a token that is bound to prefixes does not read them', { tags: ['long'] }, async () => {
  const [everything, bound] = ['e'.repeat(40), 'b'.repeat(40)]
  const server = await start({ tokens: `ro ${everything}\nro ${bound} prefix=fruit/\n` })
  expectProblem(await server.get('/metrics'), 'unauthorized')
  expectProblem(await server.get('/metrics', { authorization: `Bearer ${bound}` }), 'forbidden')
  await scrape(server, { authorization: `Bearer ${everything}` })
})
