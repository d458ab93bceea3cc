import { describe, expect, test } from 'vitest'
import { skipOthers } from '../../store/test-store.js'
import { Clock, expectProblem, type Json, listOf, numberOf, okBody, type TestServer, testServers } from '../support.js'

const start = testServers()
const HOUR = 3_600_000

/** Two versions of `a` an hour ago. @returns the commit_ts of the older. */
async function startOld(clock: Clock): Promise<{ server: TestServer; old: number }> {
  const server = await start({ now: clock.now })
  const old = await server.put('a', 'old')
  await server.put('a', 'new')
  clock.ms += HOUR
  return { server, old }
}
const gc = async (server: TestServer, body: Json = {}): Promise<Json> => okBody(await server.post('/v1/admin/gc', body))

describe('gc', () => {
  test('without a body: ten minutes stay readable', async () => {
    const clock = new Clock()
    const { server, old } = await startOld(clock)
    const answer = okBody(await server.send('POST', '/v1/admin/gc'))
    expect(answer).toEqual({ safe_point: clock.ts() - 600_000 * 2048, versions_removed: 1 })
    expectProblem(await server.get(`/v1/kv/a?ts=${old}`), 'ts_below_safe_point', { safe_point: answer['safe_point'] })
    expect((await server.get('/v1/kv/a')).body).toBe('new')
    const status = okBody(await server.get('/v1/status'))
    expect(status).toMatchObject({ safe_point: answer['safe_point'], gc: { last_run: { versions_removed: 1 } } })
  })

  test('with another life time, or a safe point', async () => {
    const clock = new Clock()
    const { server } = await startOld(clock)
    expect(await gc(server, { life_time_ms: 2 * HOUR })).toMatchObject({ versions_removed: 0 })
    expect(await gc(server, { life_time_ms: 0 })).toEqual({ safe_point: clock.ts(), versions_removed: 1 })
    expect(await gc(server, { safe_point: 5 })).toEqual({ safe_point: clock.ts(), versions_removed: 0 })
    const future = await server.post('/v1/admin/gc', { safe_point: clock.ts() + 10 * 2048 })
    expectProblem(future, 'invalid_argument', { field: 'safe_point' })
    expectProblem(await server.post('/v1/admin/gc', { safe_point: 5, life_time_ms: 5 }), 'invalid_argument')
  })

  test('runs where too many locks stand for anything to be written', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now, limits: { locksMax: 1 } })
    await server.lock(clock.ts(), ['k'])
    clock.ms += HOUR
    expectProblem(await server.send('PUT', '/v1/kv/a'), 'overloaded')
    await gc(server)
    await server.put('a', 'v')
  })

  test.each(['optimistic', 'pessimistic'])('an open %s transaction reads on', async (mode) => {
    const clock = new Clock()
    const { server } = await startOld(clock)
    const begun = (await server.post('/v1/txn/begin', { mode, ttl_ms: HOUR })).json<Json>()
    const startTs = numberOf(begun, 'start_ts')
    await server.put('a', 'newest')
    clock.ms += HOUR
    expect(await gc(server)).toEqual({ safe_point: startTs, versions_removed: 1, held_back_by: 'transaction' })
    expect((await server.get(`/v1/txn/${begun['txn']}/kv/a`)).body).toBe('new')
    okBody(await server.post(`/v1/txn/${begun['txn']}/rollback`, {}))
    expect(await gc(server)).toMatchObject({ versions_removed: 1 })
  })
})

describe('pins', () => {
  test('keep their snapshot', async () => {
    const clock = new Clock()
    const { server, old } = await startOld(clock)
    const made = await server.post('/v1/admin/pins', { ts: old, ttl_ms: 2 * HOUR })
    expect(made.statusCode).toBe(201)
    const expiresAt = new Date(clock.ms + 2 * HOUR).toISOString()
    const pin = { pin: expect.any(String), ts: old, expires_at: expiresAt }
    expect(made.json()).toEqual(pin)
    expect(okBody(await server.get('/v1/admin/pins'))).toEqual({ pins: [pin] })
    clock.ms += HOUR
    expect(await gc(server)).toMatchObject({ safe_point: old, held_back_by: 'pin' })
    expect((await server.get(`/v1/kv/a?ts=${old}`)).body).toBe('old')

    const url = `/v1/admin/pins/${made.json<Json>()['pin']}`
    const renewed = await server.send('PUT', url, { 'content-type': 'application/json' }, '{"ttl_ms":5}')
    expect(okBody(renewed)).toMatchObject({ ts: old, expires_at: new Date(clock.ms + 5).toISOString() })
    expect(okBody(await server.send('DELETE', url))).toEqual({})
    expectProblem(await server.send('DELETE', url), 'not_found')
    expect(listOf(okBody(await server.get('/v1/admin/pins')), 'pins')).toEqual([])
    expect(await gc(server)).toMatchObject({ versions_removed: 1 })
    expectProblem(await server.post('/v1/admin/pins', { ts: old }), 'ts_below_safe_point')
  })

  test('of now by default, and never of the future', async () => {
    const clock = new Clock()
    const server = await start({ now: clock.now })
    const made = await server.send('POST', '/v1/admin/pins')
    expect(made.json()).toMatchObject({ expires_at: new Date(clock.ms + HOUR).toISOString() })
    const { ts } = made.json<{ ts: number }>()
    expect(Math.abs(ts - clock.ts())).toBeLessThan(10 * 2048)
    expectProblem(await server.post('/v1/admin/pins', { ts: ts + 10 * 2048 }), 'invalid_argument', { field: 'ts' })
    expectProblem(await server.post('/v1/admin/pins', { ttl_ms: 0 }), 'invalid_argument')
  })
})

test('compact rewrites everything or a range', async () => {
  skipOthers('has files')
  const server = await start()
  await server.put('a', 'v'.repeat(100_000))
  for (const body of [{}, { prefix: 'a' }, { start: 'a', end: 'b' }]) {
    const answer = okBody(await server.post('/v1/admin/compact', body))
    expect(numberOf(answer, 'disk_bytes')).toBeGreaterThan(0)
    expect(answer).toHaveProperty('disk_bytes_before')
  }
  expect((await server.get('/v1/kv/a')).body).toHaveLength(100_000)
  expectProblem(await server.post('/v1/admin/compact', { prefix: 'a', start: 'b' }), 'invalid_argument')
})
