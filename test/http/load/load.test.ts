import { encode } from 'msgpackr'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import {
  expectProblem,
  type Json,
  listOf,
  numberOf,
  okBody,
  type StartOptions,
  sendTo,
  testServers,
} from '../support.js'

const start = testServers()
const JSON_TYPE = { 'content-type': 'application/json' }
/** Every request is a slow one. */
const ALL = { slowMs: 1e-9 }

/** Requests go over a connection, as both lanes need one. */
async function startLoad(options: StartOptions = ALL) {
  const server = await start(options)
  const port = await server.listen()
  const send = (method: string, path: string, headers = {}, body?: string | Buffer) =>
    sendTo({ port }, method, path, headers, body)
  const load = async (): Promise<Json> => okBody(await server.get('/v1/admin/load'))
  const slow = async (): Promise<Json[]> => listOf(await load(), 'slow') as Json[]
  return { server, send, load, slow }
}

describe('slow requests', () => {
  test.each([true, false])('are kept with their times and keys; fast lane: %s', async (fastLane) => {
    const { server, send, slow, load } = await startLoad({ ...ALL, fastLane })
    const txn = (ops: readonly Json[]) => send('POST', '/v1/txn', JSON_TYPE, JSON.stringify({ ops }))
    const putting = (...keys: unknown[]) => keys.map((key) => ({ op: 'put', key, value: 'a secret' }))
    const before = Date.now()
    await send('PUT', '/v1/kv/a%2F%C3%BC', {}, 'a secret')
    await send('GET', '/v1/kv/none')
    await txn(putting('k1', { base64: '/w==' }))
    await txn(putting('k1', 'k2', 'k3', 'k4', 'k5'))
    await txn([{ op: 'scan', prefix: 'p/', limit: 1 }])
    await send('GET', `/v1/kv/${'x'.repeat(300)}`)
    const [long, scan, cut, both, absent, first] = await slow()
    expect(first).toMatchObject({ method: 'PUT', route: '/v1/kv/:key', status: 200, keys: ['a/ü'], is_cut: false })
    const startedAt = Date.parse(String(first?.['started_at']))
    expect(startedAt).toBeGreaterThanOrEqual(before - 2)
    expect(startedAt).toBeLessThanOrEqual(Date.now() + 2)
    for (const name of ['total', 'receive', 'queue', 'latch', 'lock', 'read', 'write', 'other'])
      expect(numberOf(first ?? {}, `${name}_ms`), name).toBeGreaterThanOrEqual(0)
    expect(absent).toMatchObject({ method: 'GET', status: 404, keys: ['none'], request_id: expect.any(String) })
    expect(both).toMatchObject({ method: 'POST', route: '/v1/txn', keys: ['k1', { base64: '/w==' }], is_cut: false })
    expect(cut).toMatchObject({ keys: ['k1', 'k2', 'k3', 'k4'], is_cut: true })
    expect(scan).toMatchObject({ keys: [], start: 'p/', end: 'p0' })
    expect(long).toMatchObject({ keys: ['x'.repeat(256)], is_cut: true })
    expect((await server.get('/v1/admin/load')).body).not.toContain('secret')
    expect(await load()).toMatchObject({ slow_ms: expect.any(Number) })
  })

  test('name the keys and ranges of every kind of request, also of one that is refused', async () => {
    const { send, slow } = await startLoad()
    const post = (path: string, body: unknown) => send('POST', path, JSON_TYPE, JSON.stringify(body))
    const touched = async () => {
      const [{ keys, start, end } = {}] = await slow()
      return { keys, start, end }
    }
    const nothing = { start: undefined, end: undefined }
    await post('/v1/percolator/get', { key: 'a' })
    expect(await touched()).toEqual({ keys: ['a'], ...nothing })
    await post('/v1/kv/batch_get', { keys: ['a', 'b'] })
    expect(await touched()).toEqual({ keys: ['a', 'b'], ...nothing })
    await post('/v1/percolator/prewrite', { mutations: [{ op: 'put', key: 'c' }, 7, { key: 8 }], primary: 'c' })
    expect(await touched()).toEqual({ keys: ['c'], ...nothing })
    await post('/v1/txn', { ops: 'none' })
    expect(await touched()).toEqual({ keys: [], ...nothing })
    await post('/v1/percolator/get', { key: '\ud800' })
    expect(await touched()).toEqual({ keys: [], ...nothing })
    await send('GET', '/v1/kv?prefix=a%2F&limit=1')
    expect(await touched()).toEqual({ keys: [], start: 'a/', end: 'a0' })
    await send('GET', '/v1/kv?start=a&end=b&count_only=true')
    expect(await touched()).toEqual({ keys: [], start: 'a', end: 'b' })
    await send('GET', '/v1/kv?prefix=')
    expect(await touched()).toEqual({ keys: [], ...nothing })
    await send('GET', '/v1/kv?prefix=%ZZ')
    expect(await touched()).toEqual({ keys: [], ...nothing })
    await send(
      'POST',
      '/v1/kv/batch_get',
      { 'content-type': 'application/msgpack' },
      encode({ keys: [Buffer.of(255)] }),
    )
    expect(await touched()).toEqual({ keys: [{ base64: '/w==' }], ...nothing })
    await send('PUT', '/v1/leases/name', JSON_TYPE, '{"holder": "h", "ttl_ms": 1000}')
    expect(await touched()).toEqual({ keys: [], ...nothing })
  })

  test('are the latest hundred; none where none is called slow, and not those that are quick', async () => {
    const { send, slow } = await startLoad()
    for (let i = 0; i < 103; i++) await send('GET', `/v1/kv/k${i}`)
    const kept = await slow()
    expect(kept).toHaveLength(100)
    expect(kept[0]).toMatchObject({ keys: ['k102'] })
    for (const slowMs of [0, 60_000]) {
      const quick = await startLoad({ slowMs })
      await quick.send('GET', '/v1/kv/k')
      expect(await quick.load()).toMatchObject({ slow_ms: slowMs, slow: [] })
    }
  })
})

test.each([true, false])('hot keys are told with their reads and writes; fast lane: %s', async (fastLane) => {
  const always = vi.spyOn(Math, 'random').mockReturnValue(0) // Each request is looked at.
  onTestFinished(() => always.mockRestore())
  const { send, load } = await startLoad({ fastLane })
  expect(await load()).toMatchObject({ hot_keys: [], sampled_every: 256 })
  const increment = '{"ops": [{"op": "increment", "key": "counter", "by": 1}]}'
  for (let i = 0; i < 20; i++) {
    await send('GET', '/v1/kv/hot')
    if (i % 2 === 0) await send('POST', '/v1/txn', JSON_TYPE, increment)
    await send('GET', `/v1/kv/cold${i}`)
  }
  const hot = listOf(await load(), 'hot_keys') as Json[]
  expect(hot).toMatchObject([
    { key: 'hot', writes_per_minute: 0 },
    { key: 'counter', reads_per_minute: 0 },
  ])
  expect(numberOf(hot[0] ?? {}, 'reads_per_minute')).toBeGreaterThan(numberOf(hot[1] ?? {}, 'writes_per_minute'))
})

test('the load is for tokens that read every key', async () => {
  const tokens = 'rw all-token-0123456789\nro eye-token-0123456789\nrw own-token-0123456789 prefix=own/\n'
  const server = await start({ tokens })
  const ask = (token: string) => server.get('/v1/admin/load', { authorization: `Bearer ${token}` })
  okBody(await ask('all-token-0123456789'))
  okBody(await ask('eye-token-0123456789'))
  expectProblem(await ask('own-token-0123456789'), 'forbidden')
  expectProblem(await ask('unknown'), 'unauthorized')
})
