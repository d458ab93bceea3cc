import { describe, expect, test } from 'vitest'
import { expectProblem, type Json, numberOf, okBody, type TestServer, testServers } from './support.js'

const start = testServers()

async function keysOf(server: TestServer): Promise<unknown[]> {
  return (okBody(await server.get('/v1/kv?keys_only'))['pairs'] as Json[]).map(({ key }) => key)
}

async function prepare(options: Parameters<typeof start>[0] = {}): Promise<TestServer> {
  const server = await start(options)
  const ops = ['a', 'p/1', 'p/2', 'p/3', 'p/4', 'p/5', 'q'].map((key) => ({ op: 'put', key, value: key }))
  await server.txn({ ops })
  return server
}

describe('DELETE /v1/kv', () => {
  test('in pages, until no cursor comes', async () => {
    const server = await prepare()
    const before = okBody(await server.get('/v1/kv?count_only'))
    const first = okBody(await server.send('DELETE', '/v1/kv?prefix=p/&limit=2'))
    expect(first['deleted']).toBe(2)
    await server.put('p/1', 'again') // Behind the cursor: it stays.
    const second = okBody(await server.send('DELETE', `/v1/kv?cursor=${first['cursor']}&limit=2`))
    const third = okBody(await server.send('DELETE', `/v1/kv?cursor=${second['cursor']}`))
    expect([second['deleted'], third['deleted'], third['cursor']]).toEqual([2, 1, undefined])
    expect(numberOf(third, 'commit_ts')).toBeGreaterThan(numberOf(second, 'commit_ts'))
    expect(await keysOf(server)).toEqual(['a', 'p/1', 'q'])
    expect(okBody(await server.get(`/v1/kv?count_only&ts=${before['ts']}`))['count']).toBe(7) // Older versions stay.
    expect(okBody(await server.send('DELETE', '/v1/kv?prefix=nothing'))).toEqual({ deleted: 0 })
  })

  test('start and end; a repeat under the same Idempotency-Key deletes nothing more', async () => {
    const server = await prepare()
    const once = { 'idempotency-key': 'once' }
    const url = '/v1/kv?start=p/2&end=p/5&limit=2'
    const first = okBody(await server.send('DELETE', url, once))
    expect(okBody(await server.send('DELETE', url, once))).toEqual(first)
    expect(await keysOf(server)).toEqual(['a', 'p/1', 'p/4', 'p/5', 'q'])
  })

  test('a repeat of one that found nothing deletes nothing, though there is something now', async () => {
    const server = await prepare()
    const once = { 'idempotency-key': 'once' }
    const first = await server.send('DELETE', '/v1/kv?prefix=x/', once)
    expect(okBody(first)).toEqual({ deleted: 0 })
    await server.put('x/1', 'later')
    expect(okBody(await server.send('DELETE', '/v1/kv?prefix=x/', once))).toEqual({ deleted: 0 })
    expect((await server.get('/v1/kv/x%2F1')).statusCode).toBe(200)
  })

  test('needs a range, and takes no reverse cursor and no limit above that of scans', async () => {
    const server = await prepare()
    for (const query of ['', '?limit=5', '?prefix=']) {
      const refused = await server.send('DELETE', `/v1/kv${query}`)
      expectProblem(refused, 'invalid_argument', { field: 'prefix' })
    }
    const reverse = okBody(await server.get('/v1/kv?prefix=p/&limit=1&reverse'))['cursor']
    const refused = await server.send('DELETE', `/v1/kv?cursor=${reverse}`)
    expectProblem(refused, 'invalid_argument', { field: 'cursor' })
    for (const limit of ['0', '10001', '1.5']) {
      const odd = await server.send('DELETE', `/v1/kv?prefix=p/&limit=${limit}`)
      expectProblem(odd, 'invalid_argument', { field: 'limit' })
    }
    const lines = await server.send('DELETE', '/v1/kv?prefix=p/&limit=100000', { accept: 'application/x-ndjson' })
    expect(lines.statusCode).toBeLessThan(500)
    expect((await keysOf(server)).length).toBeGreaterThan(1)
  })

  test('a lock of another transaction in the range: 423, or the deadline, and nothing is deleted', async () => {
    const server = await prepare()
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['z', 'p/3'], { lock_ttl: 60_000 })
    expectProblem(await server.send('DELETE', '/v1/kv?prefix=p/&lock_wait_ms=20'), 'key_locked')
    expectProblem(await server.send('DELETE', '/v1/kv?prefix=p/&timeout_ms=20'), 'deadline_exceeded')
    expect((await server.mvcc('p/1'))['lock']).toBeNull()
    await server.ok('rollback', { keys: ['z', 'p/3'], start_ts: ts })
    expect(okBody(await server.send('DELETE', '/v1/kv?prefix=p/'))['deleted']).toBe(5)
  })

  test('tokens reach no further than their prefixes, by the op too', async () => {
    const server = await start({ tokens: `rw ${'w'.repeat(32)} prefix=p/\nro ${'r'.repeat(32)}\n` })
    const as = (letter: string): Record<string, string> => ({ authorization: `Bearer ${letter.repeat(32)}` })
    expectProblem(await server.send('DELETE', '/v1/kv?prefix=p/', as('r')), 'forbidden')
    expectProblem(await server.send('DELETE', '/v1/kv?prefix=q', as('w')), 'forbidden')
    okBody(await server.send('DELETE', '/v1/kv?prefix=p/', as('w')))
    const op = (prefix: string): Json => ({ ops: [{ op: 'delete_range', prefix }] })
    expectProblem(await server.post('/v1/txn', op('p/'), as('r')), 'forbidden')
    expectProblem(await server.post('/v1/txn', op('q'), as('w')), 'forbidden')
    okBody(await server.post('/v1/txn', op('p/'), as('w')))
  })
})

describe('the op delete_range', () => {
  const range = { op: 'delete_range', prefix: 'p/' }

  test('deletes what the ops before it left, together with the other ops', async () => {
    const server = await prepare()
    const { results } = await server.txn({
      checks: [{ key: 'a', value: 'a' }],
      ops: [
        { op: 'put', key: 'p/0', value: 'new' },
        { op: 'delete', key: 'p/1' },
        { ...range, limit: 2 },
        { op: 'scan', prefix: 'p/', keys_only: true },
        { op: 'increment', key: 'count' },
      ],
    })
    expect((results as Json[])[2]).toEqual({ deleted: 2, more: true, last: 'p/2' })
    expect((results as Json[])[3]).toMatchObject({ pairs: [{ key: 'p/3' }, { key: 'p/4' }, { key: 'p/5' }] })
    expect(await keysOf(server)).toEqual(['a', 'count', 'p/3', 'p/4', 'p/5', 'q'])
    const nothing = await server.txn({ ops: [{ op: 'delete_range', prefix: 'none' }] })
    expect(nothing).toEqual({ start_ts: nothing['start_ts'], results: [{ deleted: 0, more: false }] })
  })

  test('a check that does not hold deletes nothing', async () => {
    const server = await prepare()
    const body = { checks: [{ key: 'a', exists: false }], ops: [range] }
    expectProblem(await server.post('/v1/txn', body), 'precondition_failed')
    expect(await keysOf(server)).toHaveLength(7)
  })

  test('does not go with other fields, needs a range, and has a limit over all ops', async () => {
    const server = await prepare({ limits: { requestKeysMax: 10 } })
    const refused = async (op: Json): Promise<string> => {
      const body = expectProblem(await server.post('/v1/txn', { ops: [op] }), 'invalid_argument')
      return String(body['field'])
    }
    expect(await refused({ ...range, key: 'a' })).toBe('ops[0].key')
    expect(await refused({ ...range, reverse: true })).toBe('ops[0].reverse')
    expect(await refused({ op: 'delete_range' })).toBe('ops[0].prefix')
    const many = {
      ops: [
        { ...range, limit: 6 },
        { ...range, limit: 5 },
      ],
    }
    expectProblem(await server.post('/v1/txn', many), 'payload_too_large', { field: 'ops', limit: 10 })
  })

  test('in interactive transactions of both modes, undone by a rollback', async () => {
    const server = await prepare()
    for (const mode of ['optimistic', 'pessimistic'])
      for (const end of ['rollback', 'commit']) {
        const txn = `/v1/txn/${(await server.post('/v1/txn/begin', { mode })).json<Json>()['txn']}`
        const ops = [{ ...range, limit: 1 }]
        const { results } = okBody(await server.post(`${txn}/ops`, { ops }))
        expect((results as Json[])[0]).toMatchObject({ deleted: 1, more: true })
        okBody(await server.post(`${txn}/${end}`, {}))
      }
    expect(await keysOf(server)).toEqual(['a', 'p/3', 'p/4', 'p/5', 'q'])
  })

  test('side by side with increments and checks of the same keys nothing is lost', { tags: ['long'] }, async () => {
    const server = await prepare()
    await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        i % 4 === 0
          ? server.txn({
              ops: [{ op: 'put', key: 'gone', value: 'x' }, range, { op: 'increment', key: 'runs' }],
              max_retries: 100,
            })
          : server.txn({
              ops: [
                { op: 'increment', key: 'p/n' },
                { op: 'increment', key: 'sum' },
              ],
              max_retries: 100,
            }),
      ),
    )
    expect((await server.get('/v1/kv/sum')).body).toBe('30')
    expect((await server.get('/v1/kv/runs')).body).toBe('10')
  })

  test('many of long keys: refused when they are more than a transaction may write, and nothing is deleted', async () => {
    const server = await prepare({ limits: { txnBytesMax: 3000 } })
    const long = (i: number): string => `long/${i}/`.padEnd(1000, 'x')
    for (let i = 0; i < 4; i++) await server.put(long(i), '')
    const ops = Array.from({ length: 4 }, (_, i) => ({ op: 'delete_range', prefix: `long/${i}/` }))
    expectProblem(await server.post('/v1/txn', { ops }), 'payload_too_large', { limit: 3000 })
    expect((await keysOf(server)).length).toBe(11)
    expect((await server.txn({ ops: ops.slice(0, 2) }))['results']).toMatchObject([{ deleted: 1 }, { deleted: 1 }])
  })
})
