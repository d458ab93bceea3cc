import { afterEach, describe, expect, test, vi } from 'vitest'
import { TXN_SCANS_MAX } from '../../../src/limits.js'
import { reopenTestStore } from '../../store/test-store.js'
import {
  expectProblem,
  type Headers,
  type Json,
  listOf,
  type Method,
  numberOf,
  okBody,
  pack,
  type Sent,
  serve,
  type TestServer,
  testServers,
  unpack,
} from '../support.js'

const start = testServers()

afterEach(() => {
  vi.useRealTimers()
})

/** A transaction over several requests. Async throughout: an injected request waits until somebody asks for its answer. */
class Txn {
  constructor(
    readonly server: TestServer,
    readonly id: string,
    readonly startTs: number,
  ) {}
  url(rest = ''): string {
    return `/v1/txn/${this.id}${rest}`
  }
  async key(method: Method, key: string, headers: Headers = {}, payload?: string | Buffer): Promise<Sent> {
    return this.server.send(method, this.url(`/kv/${encodeURIComponent(key)}`), headers, payload)
  }
  async get(key: string): Promise<Sent> {
    return this.key('GET', key)
  }
  async put(key: string, value: string | Buffer = `own ${key}`): Promise<void> {
    okBody(await this.key('PUT', key, {}, value))
  }
  async remove(key: string): Promise<void> {
    okBody(await this.key('DELETE', key))
  }
  async scan(query: string, headers: Headers = {}): Promise<Sent> {
    return this.server.get(this.url(`/kv${query}`), headers)
  }
  async ops(ops: readonly Json[], rest: Json = {}): Promise<Sent> {
    return this.server.post(this.url('/ops'), { ops, ...rest })
  }
  async commit(headers: Headers = {}): Promise<Sent> {
    return this.server.post(this.url('/commit'), {}, headers)
  }
  async rollback(): Promise<Sent> {
    return this.server.post(this.url('/rollback'), {})
  }
  async state(): Promise<Sent> {
    return this.server.get(this.url())
  }
  async committed(): Promise<number> {
    return numberOf(okBody(await this.commit()), 'commit_ts')
  }
  async writes(): Promise<number> {
    return numberOf(okBody(await this.state()), 'writes')
  }
}

async function begin(server: TestServer, body: Json = {}): Promise<Txn> {
  const answer = await server.post('/v1/txn/begin', body)
  expect(answer.statusCode, answer.body).toBe(201)
  const begun = answer.json<Json>()
  expect(begun).toEqual({ txn: expect.any(String), start_ts: expect.any(Number) })
  return new Txn(server, String(begun['txn']), numberOf(begun, 'start_ts'))
}

/** The same directory, by a new process as far as the store can tell. */
async function reopen({ app, store, directory }: TestServer): Promise<TestServer> {
  await app.close()
  await store.close()
  return serve(await reopenTestStore(directory), directory)
}

const locksOf = async (server: TestServer): Promise<Json[]> =>
  listOf(await server.ok('scan_lock', { max_ts: 2 ** 52 }), 'locks')

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setImmediate(resolve))
}

const randomOf = (seed: number) => {
  let state = seed
  return (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

describe('begin', () => {
  test('defaults, options, and a start_ts of its own each', { tags: ['long'] }, async () => {
    const server = await start()
    const bare = await server.send('POST', '/v1/txn/begin')
    expect([bare.statusCode, Object.keys(bare.json<Json>()).sort()]).toEqual([201, ['start_ts', 'txn']])
    const txn = await begin(server)
    expect(okBody(await txn.state())).toMatchObject({ mode: 'optimistic', writes: 0 })
    const other = await begin(server, { mode: 'pessimistic', isolation: 'serializable', ttl_ms: 5000 })
    expect(okBody(await other.state())).toMatchObject({ txn: other.id, start_ts: other.startTs, mode: 'pessimistic' })
    expect(other.startTs).toBeGreaterThan(txn.startTs)
    expect(other.id).not.toBe(txn.id)
    for (const { id } of [txn, other]) expect(encodeURIComponent(id)).toBe(id)
  })

  const refused: readonly (readonly [body: unknown, field: string])[] = [
    [{ mode: 'Optimistic' }, 'mode'],
    [{ mode: null }, 'mode'],
    [{ isolation: 'read committed' }, 'isolation'],
    [{ ttl_ms: 0 }, 'ttl_ms'],
    [{ ttl_ms: -1 }, 'ttl_ms'],
    [{ ttl_ms: 1.5 }, 'ttl_ms'],
    [{ ttl_ms: '60000' }, 'ttl_ms'],
    [{ ttl_ms: 2 ** 53 }, 'ttl_ms'],
    [{ ttlMs: 1000 }, 'ttlMs'],
    [{ start_ts: 5 }, 'start_ts'],
    [[], 'body'],
    ['optimistic', 'body'],
  ]
  test('what is refused', { tags: ['long'] }, async () => {
    const server = await start()
    for (const [body, field] of refused)
      expectProblem(await server.post('/v1/txn/begin', body), 'invalid_argument', { field })
    expectProblem(await server.post('/v1/txn/begin?ttl_ms=5', {}), 'invalid_argument', { field: 'ttl_ms' })
    for (const type of ['text/plain', 'application/x-www-form-urlencoded'])
      expectProblem(
        await server.send('POST', '/v1/txn/begin', { 'content-type': type }, '{}'),
        'unsupported_media_type',
      )
  })

  test('MessagePack', async () => {
    const server = await start()
    const accept = { accept: 'application/msgpack' }
    const answer = await server.postPacked('/v1/txn/begin', pack({ mode: 'optimistic', ttl_ms: 9000 }), accept)
    expect(answer.statusCode).toBe(201)
    const { txn, start_ts } = unpack(answer.rawPayload) as Json
    expect([typeof txn, typeof start_ts]).toEqual(['string', 'number'])
    const bytes = Buffer.from([0xff, 0])
    const ops = [
      { op: 'put', key: bytes, value: bytes },
      { op: 'get', key: bytes },
      { op: 'increment', key: 'n' },
    ]
    const done = await server.postPacked(`/v1/txn/${txn}/ops`, pack({ ops }), accept)
    expect(unpack(done.rawPayload)).toEqual({
      results: [{}, { found: true, value: bytes }, { value: Buffer.from('1') }],
    })
    const scanned = unpack((await server.get(`/v1/txn/${txn}/kv`, accept)).rawPayload)
    expect(scanned).toMatchObject({ ts: start_ts, pairs: [{ key: Buffer.from('n') }, { key: bytes, value: bytes }] })
    const committed = await server.postPacked(`/v1/txn/${txn}/commit`, pack({}), accept)
    expect(unpack(committed.rawPayload)).toEqual({ commit_ts: expect.any(Number) })
    const gone = await server.get('/v1/txn/nobody', accept)
    expect([gone.statusCode, unpack(gone.rawPayload)]).toMatchObject([404, { code: 'txn_not_found', status: 404 }])
  })
})

describe('one key', () => {
  test('raw bytes; an ETag for what the snapshot has, none for own writes; HEAD', { tags: ['long'] }, async () => {
    const server = await start()
    const bytes = Buffer.from([0, 0xff, 0xfe, 10])
    const commitTs = await server.put('k', bytes)
    await server.put('gone', 'x')
    const txn = await begin(server)
    for (const method of ['GET', 'HEAD'] as const) {
      const seen = await txn.key(method, 'k')
      expect([seen.statusCode, seen.headers.etag, seen.headers['content-length']]).toEqual([200, `"${commitTs}"`, '4'])
      expect(seen.rawPayload).toEqual(method === 'GET' ? bytes : Buffer.alloc(0))
    }
    await txn.put('k', Buffer.from([0xff]))
    await txn.put('empty', '')
    await txn.remove('gone')
    await txn.remove('never there')
    const own = await txn.get('k')
    expect([own.statusCode, own.rawPayload, own.headers.etag]).toEqual([200, Buffer.from([0xff]), undefined])
    expect((await txn.key('HEAD', 'k')).statusCode).toBe(200)
    expect([(await txn.get('empty')).statusCode, (await txn.get('empty')).body]).toEqual([200, ''])
    expectProblem(await txn.get('gone'), 'not_found', { key: 'gone' })
    expect((await txn.key('HEAD', 'gone')).statusCode).toBe(404)
    expect(await txn.writes()).toBe(4)
    await txn.committed()
    expect((await server.get('/v1/kv/k')).rawPayload).toEqual(Buffer.from([0xff]))
    expect((await server.get('/v1/kv/empty')).statusCode).toBe(200)
    expectProblem(await server.get('/v1/kv/gone'), 'not_found')
  })

  test('keys of any bytes, slashes escaped or not, and bodies of any type', { tags: ['long'] }, async () => {
    const server = await start()
    const txn = await begin(server)
    const paths = ['a/b//c', '%FF%00', 'sp%20ace+plus', 'caf%C3%A9', '%3Fq%26=', 'x/kv/y', 'commit', '/lead']
    for (const path of paths) {
      const url = txn.url(`/kv/${path}`)
      okBody(await server.send('PUT', url, { 'content-type': 'application/json' }, `{not json: ${path}`))
      expect((await server.get(url)).body, path).toBe(`{not json: ${path}`)
    }
    expect((await server.get(txn.url('/kv/a%2Fb%2F%2Fc'))).statusCode).toBe(200)
    expect(await txn.writes()).toBe(paths.length)
    await txn.committed()
    for (const path of paths) expect((await server.get(`/v1/kv/${path}`)).body).toBe(`{not json: ${path}`)
    const again = await begin(server)
    okBody(await server.send('DELETE', again.url('/kv/%ff%00')))
    await again.committed()
    expectProblem(await server.get('/v1/kv/%FF%00'), 'not_found', { key: { base64: '/wA=' } })
  })

  test('bad keys, limits, unknown parameters and methods', { tags: ['long'] }, async () => {
    const server = await start({ limits: { keyBytesMax: 10, valueBytesMax: 20, bodyBytesMax: 400 } })
    const txn = await begin(server)
    const urls: readonly (readonly [Method, string, string])[] = [
      ['GET', '/kv/', 'key'],
      ['PUT', '/kv/', 'key'],
      ['GET', '/kv/%zz', 'key'],
      ['GET', '/kv/k?ts=5', 'ts'],
      ['GET', '/kv/k?at=2026-01-31T12:00:00Z', 'at'],
      ['HEAD', '/kv/k?ts=5', 'ts'],
      ['GET', '/kv/k?for_update=maybe', 'for_update'],
      ['GET', '/kv/k?lock_wait_ms=-1', 'lock_wait_ms'],
      ['PUT', '/kv/k?ts=5', 'ts'],
      ['PUT', '/kv/k?for_update=true', 'for_update'],
      ['DELETE', '/kv/k?lock_wait=5', 'lock_wait'],
      ['GET', '/kv?ts=5', 'ts'],
      ['GET', '/kv?at=2026-01-31T12:00:00Z', 'at'],
      ['GET', '/kv?for_update=true', 'for_update'],
      ['GET', '/kv?key_only', 'key_only'],
      ['GET', '/kv?limit=0', 'limit'],
      ['GET', '/kv?limit=10001', 'limit'],
      ['GET', '/kv?reverse=2', 'reverse'],
      ['GET', '/kv?cursor=bm9uZQ', 'cursor'],
      ['GET', '?verbose', 'verbose'],
      ['POST', '/commit?force=true', 'force'],
      ['POST', '/rollback?force=true', 'force'],
      ['POST', '/ops?ts=5', 'ts'],
    ]
    for (const [method, path, field] of urls) {
      const answer = await server.send(method, txn.url(path), {}, method === 'PUT' ? 'v' : undefined)
      if (method === 'HEAD') expect(answer.statusCode).toBe(400)
      else expectProblem(answer, 'invalid_argument', { field })
    }
    expectProblem(await txn.key('PUT', 'k'.repeat(11), {}, 'v'), 'payload_too_large')
    expectProblem(await txn.get('k'.repeat(11)), 'payload_too_large')
    expectProblem(await txn.key('PUT', 'k', {}, 'v'.repeat(21)), 'payload_too_large')
    expectProblem(await txn.ops([{ op: 'put', key: 'k', value: 'v'.repeat(21) }]), 'payload_too_large')
    expectProblem(await txn.ops([{ op: 'put', key: 'k', value: 'v'.repeat(400) }]), 'payload_too_large')
    expect([404, 405]).toContain((await txn.key('POST', 'k')).statusCode)
    expect([404, 405]).toContain((await txn.key('PATCH', 'k')).statusCode)
    for (const path of ['/commit', '/rollback'])
      expect([404, 405]).toContain((await server.get(txn.url(path))).statusCode)
    for (const [path, body, field] of [
      ['/commit', { commit_ts: 5 }, 'commit_ts'],
      ['/rollback', { x: 1 }, 'x'],
    ] as const)
      expectProblem(await server.post(txn.url(path), body), 'invalid_argument', { field })
    await txn.put('k', 'v'.repeat(20))
    expect(await txn.writes()).toBe(1)
    await txn.committed()
  })

  test('a transaction of more than 100 MiB is refused, and goes on without the last write', async () => {
    const server = await start()
    const txn = await begin(server)
    const value = Buffer.alloc(1024 * 1024 - 4)
    for (let i = 0; i < 100; i++) await txn.put(`k${100 + i}`, value)
    expectProblem(await txn.key('PUT', 'kkkk', {}, value), 'payload_too_large')
    expectProblem(await txn.ops([{ op: 'put', key: 'kkkk', value: 'v' }]), 'payload_too_large')
    expect(await txn.writes()).toBe(100)
    await txn.remove('k100')
    await txn.put('kkkk', 'fits')
    okBody(await txn.rollback())
  })

  test('no such transaction: 404 everywhere', async () => {
    const txn = new Txn(await start(), 'bm8tc3VjaC10cmFuc2FjdGlvbg', 0)
    const answers = [txn.get('k'), txn.key('PUT', 'k', {}, 'v'), txn.key('DELETE', 'k'), txn.scan(''), txn.ops([])]
    const others = [
      txn.commit(),
      txn.rollback(),
      txn.state(),
      txn.scan('?count_only'),
      txn.commit({ 'idempotency-key': 'i' }),
    ]
    const stream = txn.scan('', { accept: 'application/x-ndjson' })
    for (const answer of await Promise.all([...answers, ...others, stream])) expectProblem(answer, 'txn_not_found')
  })
})

describe('scan', () => {
  test('pairs of the snapshot with their commit_ts, own ones without; ts is the start_ts', async () => {
    const server = await start()
    const commitTs = await server.put('p/a', '1')
    await server.put('p/b', '2')
    await server.put('q', '3')
    const txn = await begin(server)
    await txn.put('p/c', 'own')
    await txn.remove('p/b')
    const a = { key: 'p/a', value: '1', commit_ts: commitTs }
    const c = { key: 'p/c', value: 'own' }
    expect(okBody(await txn.scan('?prefix=p/'))).toEqual({ pairs: [a, c], ts: txn.startTs })
    expect(okBody(await txn.scan('?prefix=p/&reverse'))).toEqual({ pairs: [c, a], ts: txn.startTs })
    expect(okBody(await txn.scan('?start=p/b&end=q&keys_only=true'))).toEqual({
      pairs: [{ key: 'p/c' }],
      ts: txn.startTs,
    })
    expect(okBody(await txn.scan('?count_only=1&limit=1'))).toEqual({ count: 3, ts: txn.startTs })
    const stream = await txn.scan('?prefix=p/', { accept: 'application/x-ndjson' })
    expect(stream.headers['content-type']).toMatch(/^application\/x-ndjson/)
    expect(stream.body).toBe(`${JSON.stringify(a)}\n${JSON.stringify(c)}\n`)
    const page = okBody(await txn.scan('?prefix=p/&limit=1'))
    expect(page).toEqual({ pairs: [a], ts: txn.startTs, cursor: expect.any(String) })
    expect(okBody(await txn.scan(`?cursor=${page['cursor']}`))).toEqual({ pairs: [c], ts: txn.startTs })
    expectProblem(await txn.scan(`?cursor=${page['cursor']}x`), 'invalid_argument', { field: 'cursor' })
  })

  for (const seed of [1, 2, 3])
    test(`like a map of the snapshot with the writes in it (seed ${seed})`, { tags: ['long'] }, async () => {
      const server = await start()
      const random = randomOf(seed)
      const keyOf = (): string => `k${String(random(60)).padStart(2, '0')}`
      const model = new Map<string, string>()
      const base = Array.from({ length: 40 }, (_, i) => ({ op: 'put', key: keyOf(), value: `base ${i}` }))
      for (const { key, value } of base) model.set(key, value)
      await server.txn({ ops: base })
      const txn = await begin(server)
      await server.txn({ ops: Array.from({ length: 20 }, () => ({ op: 'put', key: keyOf(), value: 'too late' })) })
      for (let round = 0; round < 25; round++) {
        const key = keyOf()
        if (random(2) === 0) {
          await txn.remove(key)
          model.delete(key)
        } else {
          await txn.put(key, `own ${round}`)
          model.set(key, `own ${round}`)
        }
        const [from, to] = [keyOf(), keyOf()]
        const isReverse = random(2) === 0
        const inRange = [...model].filter(([k]) => k >= from && k < to).sort(([a], [b]) => (a < b ? -1 : 1))
        const want = (isReverse ? inRange.reverse() : inRange).map(([k, v]) => `${k}=${v}`)
        const shown = (pairs: Json[]): string[] => pairs.map((pair) => `${pair['key']}=${pair['value']}`)
        const range = `?start=${from}&end=${to}&reverse=${isReverse}`
        const limit = 1 + random(7)
        expect(shown(listOf(okBody(await txn.scan(`${range}&limit=${limit}`)), 'pairs'))).toEqual(want.slice(0, limit))
        expect(okBody(await txn.scan(`${range}&count_only`))['count']).toBe(want.length)
        const lines = (await txn.scan(range, { accept: 'application/x-ndjson' })).body.split('\n').slice(0, -1)
        expect(shown(lines.map((line) => JSON.parse(line) as Json))).toEqual(want)
        const paged: string[] = []
        for (let query = `${range}&limit=${limit}`; ; ) {
          const page = okBody(await txn.scan(query))
          paged.push(...shown(listOf(page, 'pairs')))
          if (page['cursor'] === undefined) break
          query = `?cursor=${page['cursor']}`
        }
        expect(paged).toEqual(want)
        const op = { op: 'scan', start: from, end: to, reverse: isReverse, limit }
        const [scanned = {}] = listOf(okBody(await txn.ops([op])), 'results')
        expect(shown(listOf(scanned, 'pairs'))).toEqual(want.slice(0, limit))
      }
      await txn.rollback()
    })

  test.each([false, true])('a later page shows no writes since the first one (reverse: %s)', async (reverse) => {
    const server = await start()
    const keys = Array.from({ length: 9 }, (_, i) => `k${i}`)
    await server.txn({ ops: keys.map((key) => ({ op: 'put', key, value: 'old' })) })
    const txn = await begin(server)
    await txn.put('k5', 'own')
    const seen: unknown[] = []
    let again = ''
    for (let query = `?limit=2&reverse=${reverse}`; ; ) {
      const page = okBody(await txn.scan(query))
      for (const { key, value } of listOf(page, 'pairs')) {
        seen.push(`${key}=${value}`)
        await txn.put(`${key}+`, 'copy')
        await txn.put(`+${key}`, 'copy')
        await txn.remove(String(key))
      }
      if (page['cursor'] === undefined) break
      again = query
      query = `?cursor=${page['cursor']}`
    }
    const wanted = keys.map((key) => `${key}=${key === 'k5' ? 'own' : 'old'}`)
    expect(seen).toEqual(reverse ? wanted.reverse() : wanted)
    // A client that has lost an answer asks for its page once more.
    expect(listOf(okBody(await txn.scan(again)), 'pairs')).toHaveLength(2)
    expect(okBody(await txn.scan('?count_only'))['count']).toBe(18)
  })

  test('of very many scans at once the last ones go on; the first are refused', { tags: ['long'] }, async () => {
    const server = await start()
    await server.txn({ ops: ['a', 'b', 'c'].map((key) => ({ op: 'put', key, value: 'v' })) })
    const txn = await begin(server)
    const cursors: unknown[] = []
    for (let i = 0; i <= TXN_SCANS_MAX; i++) {
      cursors.push(okBody(await txn.scan('?limit=1'))['cursor'])
      await txn.put(`c${i}`, 'own')
    }
    expectProblem(await txn.scan(`?cursor=${cursors[0]}`), 'invalid_argument', { field: 'cursor' })
    for (const [i, cursor] of cursors.entries())
      if (i > 0) expect(listOf(okBody(await txn.scan(`?cursor=${cursor}&limit=100`)), 'pairs')).toHaveLength(2 + i)
    for (let i = 0; i <= TXN_SCANS_MAX; i++) okBody(await txn.scan('?limit=100')) // Those that end are none of them.
    okBody(await txn.scan(`?cursor=${cursors[1]}`))
  })

  test('thousands of pairs and own writes, over many pages', { tags: ['long'] }, async () => {
    const server = await start()
    const keys = Array.from({ length: 2500 }, (_, i) => `k${String(i).padStart(4, '0')}`)
    await server.txn({ ops: keys.map((key) => ({ op: 'put', key, value: 'v' })) })
    const txn = await begin(server)
    okBody(await txn.ops(keys.filter((_, i) => i % 2 === 0).map((key) => ({ op: 'delete', key }))))
    okBody(await txn.ops(keys.filter((_, i) => i % 5 === 0).map((key) => ({ op: 'put', key: `${key}+`, value: '' }))))
    expect(okBody(await txn.scan('?count_only'))['count']).toBe(1750)
    expect((await txn.scan('?keys_only', { accept: 'application/x-ndjson' })).body.split('\n')).toHaveLength(1751)
    expect(listOf(okBody(await txn.scan('')), 'pairs')).toHaveLength(100)
    expect(await txn.writes()).toBe(1750)
    await txn.committed()
    expect(okBody(await server.get('/v1/kv?count_only'))['count']).toBe(1750)
  })
})

describe('conditions', () => {
  test('If-Match and If-None-Match on PUT and DELETE', { tags: ['long'] }, async () => {
    const server = await start()
    const commitTs = await server.put('k', 'v')
    const failed = { key: 'k', commit_ts: commitTs }
    const txn = await begin(server)
    for (const method of ['PUT', 'DELETE'] as const) {
      expectProblem(await txn.key(method, 'k', { 'if-match': `"${commitTs - 1}"` }), 'precondition_failed', failed)
      expectProblem(await txn.key(method, 'k', { 'if-none-match': '*' }), 'precondition_failed', failed)
      expectProblem(await txn.key(method, 'none', { 'if-match': '*' }), 'precondition_failed', {
        key: 'none',
        commit_ts: 0,
      })
      expectProblem(await txn.key(method, 'k', { 'if-match': 'v1' }), 'invalid_argument')
    }
    expect(await txn.writes()).toBe(0)
    okBody(await txn.key('PUT', 'k', { 'if-match': `"${commitTs}"` }, 'w'))
    okBody(await txn.key('PUT', 'new', { 'if-none-match': '*' }, 'w'))
    expectProblem(await txn.key('PUT', 'new', { 'if-none-match': '*' }, 'x'), 'precondition_failed', { key: 'new' })
    expectProblem(await txn.key('PUT', 'k', { 'if-match': `"${commitTs}"` }, 'x'), 'precondition_failed')
    okBody(await txn.key('DELETE', 'k', { 'if-match': '*' }))
    expectProblem(await txn.key('DELETE', 'k', { 'if-match': '*' }), 'precondition_failed', { commit_ts: 0 })
    okBody(await txn.key('PUT', 'k', { 'if-none-match': '*' }, 'last'))
    await txn.committed()
    expect([(await server.get('/v1/kv/k')).body, (await server.get('/v1/kv/new')).body]).toEqual(['last', 'w'])
  })

  test('a conditional write whose key changes before the commit is a conflict', async () => {
    const server = await start()
    const txn = await begin(server)
    okBody(await txn.key('PUT', 'k', { 'if-none-match': '*' }, 'mine'))
    await server.put('k', 'theirs')
    expectProblem(await txn.commit(), 'write_conflict', { key: 'k' })
  })

  test('snapshot transactions whose writes are disjoint never conflict: not after a 412 or a failed insert either', {
    tags: ['long'],
  }, async () => {
    const server = await start()
    await server.put('k', 'v')
    for (const fail of [
      (txn: Txn) => txn.key('PUT', 'k', { 'if-none-match': '*' }, 'mine'),
      (txn: Txn) => txn.ops([{ op: 'insert', key: 'k', value: 'mine' }]),
      (txn: Txn) => txn.ops([{ op: 'increment', key: 'k' }]),
    ]) {
      const txn = await begin(server)
      await txn.put('other')
      expect((await fail(txn)).statusCode).toBeGreaterThanOrEqual(400)
      await server.put('k', 'v')
      expect(okBody(await txn.commit())).toEqual({ commit_ts: expect.any(Number) })
    }
  })
})

describe('ops', () => {
  test('every op, with the results of POST /v1/txn', async () => {
    const server = await start()
    const commitTs = await server.put('a', '1')
    const txn = await begin(server)
    await txn.put('x/1', 'own')
    const ops = [
      { op: 'get', key: 'a' },
      { op: 'get', key: 'none' },
      { op: 'put', key: 'b', value: '3' },
      { op: 'get', key: 'b' },
      { op: 'delete', key: 'c' },
      { op: 'insert', key: 'd', value: '1' },
      { op: 'scan', prefix: 'x/', limit: 10 },
      { op: 'increment', key: 'n', by: 2 },
      { op: 'increment', key: 'n' },
      { op: 'increment', key: 'a', by: -3 },
      { op: 'max', key: 'n', by: 9 },
      { op: 'min', key: 'n', by: 4 },
      { op: 'scan', start: 'a', end: 'c', reverse: true, keys_only: true },
    ]
    expect(okBody(await txn.ops(ops))).toEqual({
      results: [
        { found: true, value: '1', commit_ts: commitTs },
        { found: false },
        {},
        { found: true, value: '3' },
        {},
        {},
        { pairs: [{ key: 'x/1', value: 'own' }] },
        { value: '2' },
        { value: '3' },
        { value: '-2' },
        { value: '9' },
        { value: '4' },
        { pairs: [{ key: 'b' }, { key: 'a' }] },
      ],
    })
    expect(okBody(await txn.ops([]))).toEqual({ results: [] })
    await txn.committed()
    expect((await server.get('/v1/kv/n')).body).toBe('4')
  })

  test('the commit names the keys of versionstamped puts, and a repeat its commit_ts', async () => {
    const server = await start()
    for (const mode of ['optimistic', 'pessimistic']) {
      const append = { op: 'put', key: 'log/', value: mode, versionstamp: true }
      const run = async () => {
        const txn = await begin(server, { mode })
        expect(okBody(await txn.ops([append, { op: 'scan', prefix: 'log/' }, append]))).toEqual({
          results: [{}, { pairs: expect.any(Array) }, {}],
        })
        return { txn, answer: await txn.commit() }
      }
      // On a busy shared store such a commit may be a write conflict, after which there is more time for the next one.
      let { txn, answer } = await run()
      while (answer.statusCode === 409) ({ txn, answer } = await run())
      const { commit_ts: commitTs, keys } = okBody(answer)
      const { pairs } = (await server.get('/v1/kv?prefix=log/')).json()
      expect(pairs.slice(-2)).toEqual((keys as Json[]).map((key) => ({ key, value: mode, commit_ts: commitTs })))
      expect(okBody(await txn.commit())).toEqual({ commit_ts: commitTs })
    }
  })

  test('a list that fails changes nothing, and what was there before stays', async () => {
    const server = await start()
    await server.put('old', 'text')
    const txn = await begin(server)
    await txn.put('a', 'before')
    await txn.remove('b')
    const writes = [
      { op: 'put', key: 'a', value: 'failed' },
      { op: 'put', key: 'b', value: 'failed' },
      { op: 'put', key: 'c', value: 'failed' },
      { op: 'delete', key: 'old' },
    ]
    const insert = { op: 'insert', key: 'a', value: '' }
    expectProblem(await txn.ops([...writes, insert]), 'already_exists', { key: 'a' })
    expectProblem(await txn.ops([...writes, { op: 'increment', key: 'a' }]), 'invalid_argument')
    const tooMuch = { op: 'increment', key: 'n', by: Number.MAX_SAFE_INTEGER }
    expectProblem(await txn.ops([{ op: 'put', key: 'n', value: '9223372036854775807' }, tooMuch]), 'invalid_argument')
    for (const [body, field] of [
      [{ ops: [...writes, { op: 'frobnicate', key: 'a' }] }, 'ops[4].op'],
      [{ ops: [...writes, { op: 'put', key: 'a' }] }, 'ops[4].value'],
      [{ ops: writes, checks: [] }, 'checks'],
      [{ ops: writes, max_retries: 3 }, 'max_retries'],
      [{}, 'ops'],
    ] as const)
      expectProblem(await txn.server.post(txn.url('/ops'), body), 'invalid_argument', { field })
    expect(await txn.writes()).toBe(2)
    expect((await txn.get('a')).body).toBe('before')
    expect((await txn.get('old')).body).toBe('text')
    for (const key of ['b', 'c', 'n']) expectProblem(await txn.get(key), 'not_found')
    await txn.committed()
    const { pairs } = okBody(await server.get('/v1/kv'))
    expect(pairs).toMatchObject([{ key: 'a', value: 'before' }, { key: 'old' }])
  })
})

describe('isolation and the end', () => {
  test('nobody sees its writes before the commit, and it sees nobody’s after its start', async () => {
    const server = await start()
    await server.put('k', 'old')
    const [txn, reader] = [await begin(server), await begin(server)]
    await txn.put('k', 'own')
    await txn.put('new')
    await server.put('late', 'x')
    for (const url of ['/v1/kv/new', '/v1/kv/late'])
      expect((await server.get(url)).statusCode).toBe(url === '/v1/kv/late' ? 200 : 404)
    expect((await server.get('/v1/kv/k')).body).toBe('old')
    expectProblem(await txn.get('late'), 'not_found')
    expectProblem(await reader.get('new'), 'not_found')
    const commitTs = await txn.committed()
    expect(commitTs).toBeGreaterThan(txn.startTs)
    for (const key of ['k', 'new']) expect((await server.get(`/v1/kv/${key}`)).headers.etag).toBe(`"${commitTs}"`)
    expect((await server.get(`/v1/kv/k?ts=${commitTs - 1}`)).body).toBe('old')
    expect((await reader.get('k')).body).toBe('old')
    expect(okBody(await reader.scan('?keys_only'))['pairs']).toMatchObject([{ key: 'k' }])
    expectProblem(await reader.get('new'), 'not_found')
    expect((await (await begin(server)).get('new')).body).toBe('own new')
    await reader.put('disjoint')
    await reader.committed()
  })

  test('what commits after its start is never in its snapshot, its first read included', async () => {
    const server = await start()
    const [writer, reader, scanner] = [await begin(server), await begin(server), await begin(server)]
    await writer.put('k')
    expect(await writer.committed()).toBeGreaterThan(scanner.startTs)
    expectProblem(await reader.get('k'), 'not_found')
    expect(okBody(await scanner.scan(''))['pairs']).toEqual([])
  })

  test('its commit_ts is above those of all commits that were answered before', async () => {
    const server = await start()
    for (const options of [{}, { isolation: 'serializable' }, { mode: 'pessimistic' }]) {
      const txn = await begin(server, options)
      await txn.put('late')
      const before = numberOf(await server.ok('tso', { count: 100 }), 'ts')
      await server.write(before - 1, before, ['k'])
      expect(await txn.committed()).toBeGreaterThan(before)
    }
  })

  test('a lost race: write_conflict with all its fields, nothing written, no lock, and it is over', async () => {
    const server = await start()
    const [first, second] = [await begin(server), await begin(server)]
    await first.put('k', 'first')
    await second.put('beside')
    await second.put('k', 'second')
    const commitTs = await first.committed()
    expectProblem(await second.commit(), 'write_conflict', {
      key: 'k',
      start_ts: second.startTs,
      conflict_start_ts: first.startTs,
      conflict_commit_ts: commitTs,
      primary: expect.any(String),
      reason: 'optimistic',
    })
    expect((await server.get('/v1/kv/k')).body).toBe('first')
    expectProblem(await server.get('/v1/kv/beside'), 'not_found')
    expect(await locksOf(server)).toEqual([])
    expectProblem(await second.key('PUT', 'k', {}, 'again'), 'txn_not_found')
    expect((await second.commit()).statusCode).toBeGreaterThanOrEqual(404)
    expect(okBody(await second.rollback())).toEqual({})
  })

  test('commit: again, the same answer; of nothing; after that nothing goes', async () => {
    const server = await start()
    for (const write of [async (txn: Txn) => txn.put('k'), async (txn: Txn) => void (await txn.get('k'))]) {
      const txn = await begin(server)
      await write(txn)
      const first = okBody(await txn.commit())
      expect(first).toEqual({ commit_ts: expect.any(Number) })
      for (let i = 0; i < 3; i++) expect(okBody(await txn.commit())).toEqual(first)
      expectProblem(await txn.rollback(), 'already_committed', { start_ts: txn.startTs, ...first })
      const ended = [txn.get('k'), txn.key('PUT', 'k', {}, ''), txn.key('DELETE', 'k'), txn.scan(''), txn.ops([])]
      for (const answer of await Promise.all(ended)) expectProblem(answer, 'txn_not_found', { start_ts: txn.startTs })
      expect(okBody(await txn.commit())).toEqual(first)
    }
  })

  test('rollback: again, the same answer; nothing is written; after that nothing goes', async () => {
    const server = await start()
    const txn = await begin(server)
    await txn.put('k')
    for (let i = 0; i < 3; i++) expect(okBody(await txn.rollback())).toEqual({})
    const ended = [txn.get('k'), txn.key('PUT', 'k', {}, ''), txn.scan(''), txn.ops([]), txn.commit()]
    for (const answer of await Promise.all(ended)) expectProblem(answer, 'txn_not_found', { start_ts: txn.startTs })
    expect(await server.mvcc('k')).toEqual({ lock: null, writes: [], values: [] })
  })

  test('state: its fields', async () => {
    const server = await start()
    const txn = await begin(server, { ttl_ms: 30_000 })
    await txn.put('a')
    await txn.put('a', 'again')
    await txn.remove('b')
    const state = okBody(await txn.state())
    expect(state).toEqual({
      txn: txn.id,
      start_ts: txn.startTs,
      mode: 'optimistic',
      state: expect.any(String),
      writes: 2,
      expires_in_ms: expect.any(Number),
    })
    expect(numberOf(state, 'expires_in_ms')).toBeGreaterThan(0)
    expect(numberOf(state, 'expires_in_ms')).toBeLessThanOrEqual(30_000)
    expect((await server.send('HEAD', txn.url())).statusCode).toBe(200)
  })

  test('a commit resolves a dead transaction’s lock', async () => {
    const server = await start()
    await server.lock(5, ['k'], { lock_ttl: 1 })
    const txn = await begin(server)
    await txn.put('k', 'mine')
    await txn.committed()
    expect((await server.get('/v1/kv/k')).body).toBe('mine')
  })

  test('an idle one is rolled back: 404, no trace; any request keeps it alive', async () => {
    const server = await start()
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    const ttl = { ttl_ms: 1000 }
    const [idle, read, asked] = [await begin(server, ttl), await begin(server, ttl), await begin(server, ttl)]
    for (const txn of [idle, read, asked]) await txn.put(`k ${txn.id}`)
    const last = await begin(server, { ...ttl, mode: 'pessimistic' })
    await last.put('locked')
    vi.advanceTimersByTime(999)
    expect(await locksOf(server)).toHaveLength(1)
    okBody(await asked.state())
    await read.get('k')
    vi.advanceTimersByTime(999)
    await until(async () => (await locksOf(server)).length === 0)
    for (const txn of [idle, last]) {
      const late = [txn.get('k'), txn.key('PUT', 'k', {}, ''), txn.ops([]), txn.commit(), txn.state(), txn.scan('')]
      for (const answer of await Promise.all(late)) expectProblem(answer, 'txn_not_found')
    }
    expect(await server.mvcc('locked')).toEqual({ lock: null, writes: [], values: [] })
    for (const txn of [read, asked]) await txn.committed()
    expect(okBody(await server.get('/v1/kv?count_only'))['count']).toBe(2)
  })
})

describe('at once', () => {
  test('many requests in one transaction', { tags: ['long'] }, async () => {
    const server = await start()
    const txn = await begin(server)
    const puts = Array.from({ length: 60 }, (_, i) => txn.put(`k${i}`, `${i}`))
    const ops = Array.from({ length: 60 }, () =>
      txn.ops([
        { op: 'increment', key: 'n' },
        { op: 'get', key: 'n' },
      ]),
    )
    const reads = Array.from({ length: 60 }, (_, i) => (i % 2 === 0 ? txn.scan('?limit=10000') : txn.get(`k${i}`)))
    const failing = Array.from({ length: 20 }, (_, i) =>
      txn.ops([
        { op: 'put', key: `k${i}`, value: 'failed' },
        { op: 'insert', key: `k${i}`, value: '' },
      ]),
    )
    await Promise.all(puts)
    const sums = (await Promise.all(ops)).map((answer) => listOf(okBody(answer), 'results'))
    for (const [sum = {}, got] of sums) expect(got).toEqual({ found: true, ...sum })
    expect(new Set(sums.map(([sum]) => sum?.['value'])).size).toBe(60)
    for (const answer of await Promise.all(reads)) expect([200, 404]).toContain(answer.statusCode)
    for (const answer of await Promise.all(failing)) expectProblem(answer, 'already_exists')
    expect(await txn.writes()).toBe(61)
    const commits = await Promise.all(Array.from({ length: 10 }, () => txn.commit()))
    expect(new Set(commits.map((answer) => okBody(answer)['commit_ts'])).size).toBe(1)
    expect((await server.get('/v1/kv/n')).body).toBe('60')
    expect((await server.get('/v1/kv/k59')).body).toBe('59')
  })

  test('commit and rollback race: one of them wins, and both say so', { tags: ['long'] }, async () => {
    const server = await start()
    const ends = new Set<boolean>()
    for (let i = 0; i < 40; i++) {
      const txn = await begin(server, { mode: i % 2 === 0 ? 'optimistic' : 'pessimistic' })
      await txn.put(`k${i}`)
      const headers: Headers = i % 3 === 0 ? { 'idempotency-key': `race ${i}` } : {}
      const send = [() => txn.commit(headers), () => txn.rollback(), () => txn.commit(headers), () => txn.rollback()]
      const order = i % 4 < 2 ? send : send.reverse()
      const answers = await Promise.all(order.map((one) => one()))
      const commits = answers.filter((_, at) => (at % 2 === 0) === i % 4 < 2)
      const rollbacks = answers.filter((answer) => !commits.includes(answer))
      const isCommitted = (await server.get(`/v1/kv/k${i}`)).statusCode === 200
      ends.add(isCommitted)
      const commitTs = isCommitted ? numberOf(okBody(await txn.commit()), 'commit_ts') : 0
      for (const answer of commits)
        if (isCommitted) expect(okBody(answer)).toEqual({ commit_ts: commitTs })
        else expectProblem(answer, 'txn_not_found')
      for (const answer of rollbacks)
        if (isCommitted) expectProblem(answer, 'already_committed', { start_ts: txn.startTs, commit_ts: commitTs })
        else expect(okBody(answer)).toEqual({})
    }
    expect(ends.size).toBe(2)
    expect(await locksOf(server)).toEqual([])
  })

  test('of transactions that write one key, one commits; increments are never lost', async () => {
    const server = await start()
    const txns = await Promise.all(Array.from({ length: 20 }, () => begin(server)))
    for (const txn of txns) okBody(await txn.ops([{ op: 'increment', key: 'n' }]))
    const answers = await Promise.all(txns.map((txn) => txn.commit()))
    expect(answers.filter(({ statusCode }) => statusCode === 200)).toHaveLength(1)
    for (const answer of answers) if (answer.statusCode !== 200) expectProblem(answer, 'write_conflict', { key: 'n' })
    expect((await server.get('/v1/kv/n')).body).toBe('1')
  })
})

describe('Idempotency-Key on commit', () => {
  const isReplayed = ({ headers }: Sent): boolean => headers['idempotency-replayed'] === 'true'

  test('replayed, over a restart too; of nothing written; for another request 422', { tags: ['long'] }, async () => {
    const first = await start()
    const [writing, empty, other, unkeyed] = await Promise.all(Array.from({ length: 4 }, () => begin(first)))
    if (!writing || !empty || !other || !unkeyed) throw new Error('four were begun')
    for (const txn of [writing, other, unkeyed]) await txn.put('k', txn.id)
    const answer = await writing.commit({ 'idempotency-key': 'c' })
    expect([okBody(answer), isReplayed(answer)]).toEqual([{ commit_ts: expect.any(Number) }, false])
    const nothing = await empty.commit({ 'idempotency-key': 'nothing' })
    expect([nothing.statusCode, isReplayed(nothing)]).toEqual([200, false])
    const refused = await other.commit({ 'idempotency-key': 'c' })
    expect([refused.statusCode, refused.json<Json>()['code']]).toEqual([422, 'idempotency_mismatch'])
    okBody(await other.state())
    const second = await begin(first)
    await second.put('other')
    const unkeyedTs = await second.committed()
    for (const headers of [{}, { 'idempotency-key': 'c' }]) {
      const again = await writing.commit(headers)
      expect([okBody(again), isReplayed(again)]).toEqual([okBody(answer), 'idempotency-key' in headers])
    }
    const server = await reopen(first)
    try {
      const inNew = (txn: Txn): Txn => new Txn(server, txn.id, txn.startTs)
      const put = await server.put('k', 'newer')
      for (const [txn, key, want] of [
        [writing, 'c', answer],
        [empty, 'nothing', nothing],
      ] as const) {
        const replayed = await inNew(txn).commit({ 'idempotency-key': key })
        expect([okBody(replayed), isReplayed(replayed)]).toEqual([okBody(want), true])
      }
      expect((await server.get('/v1/kv/k')).headers.etag).toBe(`"${put}"`)
      const mismatch = await inNew(other).commit({ 'idempotency-key': 'c' })
      expect(mismatch.json<Json>()['code']).toBe('idempotency_mismatch')
      for (const txn of [writing, second, unkeyed]) expectProblem(await inNew(txn).commit(), 'txn_not_found')
      expect((await server.get('/v1/kv/other')).headers.etag).toBe(`"${unkeyedTs}"`)
      expect(await locksOf(server)).toEqual([])
    } finally {
      await server.app.close()
      await server.store.close()
    }
  })

  test('a failed commit is not stored; repeats sent together commit once', async () => {
    const server = await start()
    const txn = await begin(server)
    await txn.put('k', 'lost')
    await server.put('k', 'won')
    const keyed = { 'idempotency-key': 'again' }
    expectProblem(await txn.commit(keyed), 'write_conflict')
    const next = await begin(server)
    await next.put('k', 'next')
    const answers = await Promise.all(Array.from({ length: 10 }, () => next.commit(keyed)))
    expect(new Set(answers.map((answer) => okBody(answer)['commit_ts'])).size).toBe(1)
    expect(answers.filter((answer) => !isReplayed(answer))).toHaveLength(1)
    expectProblem(await next.commit({ 'idempotency-key': 'x'.repeat(256) }), 'invalid_argument')
  })
})
