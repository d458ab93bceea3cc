import { get } from 'node:http'
import { describe, expect, test } from 'vitest'
import { skipOthers } from '../../store/test-store.js'
import { expectProblem, type Json, listOf, numberOf, okBody, pack, type TestServer, testServers } from '../support.js'

const start = testServers()
const ND = { accept: 'application/x-ndjson' }

const keysOf = (body: Json): unknown[] => listOf(body, 'pairs').map(({ key }) => key)
const lines = (text: string): Json[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Json)

async function fill(server: TestServer, keys: readonly string[]): Promise<void> {
  await server.txn({ ops: keys.map((key) => ({ op: 'put', key, value: `value of ${key}` })) })
}
const numbered = (count: number): string[] => Array.from({ length: count }, (_, i) => `k${String(i).padStart(4, '0')}`)

async function scan(server: TestServer, query = ''): Promise<Json> {
  return okBody(await server.get(`/v1/kv${query}`))
}

describe('ranges', () => {
  const cases: readonly (readonly [query: string, keys: string[]])[] = [
    ['', ['a', 'b', 'ba', 'bb', 'c']],
    ['?prefix=b', ['b', 'ba', 'bb']],
    ['?prefix=', ['a', 'b', 'ba', 'bb', 'c']],
    ['?prefix=z', []],
    ['?start=b', ['b', 'ba', 'bb', 'c']],
    ['?end=b', ['a']],
    ['?start=b&end=c', ['b', 'ba', 'bb']],
    ['?start=b&end=b', []],
    ['?start=c&end=a', []],
    ['?start=b%00', ['ba', 'bb', 'c']],
    ['?reverse', ['c', 'bb', 'ba', 'b', 'a']],
    ['?reverse=true&start=b&end=c', ['bb', 'ba', 'b']],
    ['?reverse=1&limit=2', ['c', 'bb']],
    ['?reverse=false&limit=1', ['a']],
    ['?prefix=b&reverse&limit=2', ['bb', 'ba']],
    ['?limit=10000', ['a', 'b', 'ba', 'bb', 'c']],
  ]
  for (const [query, keys] of cases)
    test(`GET /v1/kv${query}`, async () => {
      const server = await start()
      await fill(server, ['a', 'b', 'ba', 'bb', 'c'])
      expect(keysOf(await scan(server, query))).toEqual(keys)
      const stream = await server.get(`/v1/kv${query}`, ND)
      expect(lines(stream.body).map(({ key }) => key)).toEqual(keys)
    })

  test('bytes in keys, values and bounds', async () => {
    const server = await start()
    const ops = ['/w==', '//8=', '/wA='].map((base64) => ({ op: 'put', key: { base64 }, value: { base64 } }))
    await server.txn({ ops: [...ops, { op: 'put', key: 'é+ &', value: '\ufeffbom' }] })
    const all = listOf(await scan(server), 'pairs').map(({ key, value }) => [key, value])
    const bytes = ['/w==', '/wA=', '//8='].map((base64) => [{ base64 }, { base64 }])
    expect(all).toEqual([['é+ &', '\ufeffbom'], ...bytes])
    expect(keysOf(await scan(server, '?prefix=%FF'))).toEqual([
      { base64: '/w==' },
      { base64: '/wA=' },
      { base64: '//8=' },
    ])
    expect(keysOf(await scan(server, '?prefix=%FF%FF'))).toEqual([{ base64: '//8=' }])
    expect(keysOf(await scan(server, '?prefix=%C3%A9%2B+%26'))).toEqual(['é+ &'])
    expect(keysOf(await scan(server, '?end=%FF'))).toEqual(['é+ &'])
  })

  test('pairs and ts', async () => {
    const server = await start()
    const commitTs = await server.put('k', 'v')
    const body = await scan(server)
    expect(body).toEqual({ pairs: [{ key: 'k', value: 'v', commit_ts: commitTs }], ts: expect.any(Number) })
    expect(numberOf(body, 'ts')).toBeGreaterThanOrEqual(commitTs)
    expect(await scan(server, '?keys_only')).toMatchObject({ pairs: [{ key: 'k', commit_ts: commitTs }] })
    expect(JSON.stringify(await scan(server, '?keys_only=true'))).not.toContain('"value"')
    expect(await scan(server, `?ts=${commitTs - 1}`)).toEqual({ pairs: [], ts: commitTs - 1 })
    expect(await scan(server, `?ts=${commitTs}`)).toMatchObject({ ts: commitTs, pairs: [{ key: 'k' }] })
    const at = await scan(server, '?at=2023-01-01T00:00:00.5Z')
    expect(at).toEqual({ pairs: [], ts: Date.parse('2023-01-01T00:00:00.5Z') * 2048 + 2047 })
  })

  test('the default limit is 100', async () => {
    const server = await start()
    await fill(server, numbered(101))
    const body = await scan(server)
    expect(listOf(body, 'pairs')).toHaveLength(100)
    expect(typeof body['cursor']).toBe('string')
    expect(await scan(server, '?limit=101')).not.toHaveProperty('cursor')
  })
})

describe('refused', () => {
  for (const query of [
    'limit=0',
    'limit=10001',
    'limit=-1',
    'limit=1.5',
    'limit=',
    'limit=ten',
    'limit=1e2',
    'limit=1&limit=1',
    'reverse=yes',
    'reverse=TRUE',
    'keys_only=2',
    'count_only=maybe',
    'prefix=a&start=a',
    'prefix=a&end=b',
    'key_only=true',
    'Limit=1',
    'prefix=%zz',
    'start=%',
    'end=%f',
    'prefix=a&prefix=b',
    'lock_wait_ms=-1',
    'lock_wait_ms=x',
    'ts=x',
    '=1',
    '__proto__=1',
    'constructor=1',
    'cursor=',
    'cursor=abc',
    'cursor=%FF',
    `${'&'.repeat(80)}bogus=1`,
  ])
    test(`?${query.slice(-30)}`, async () => {
      const server = await start()
      const port = await server.listen()
      const response = await fetch(`http://127.0.0.1:${port}/v1/kv?${query}`)
      expect(response.status).toBe(400)
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
      expect(await response.json()).toMatchObject({ code: 'invalid_argument', field: expect.any(String) })
      // A stream has no highest limit.
      if (query !== 'limit=10001') expectProblem(await server.get(`/v1/kv?${query}`, ND), 'invalid_argument')
    })

  test('bounds over the limit are 413', async () => {
    const server = await start()
    for (const name of ['prefix', 'start', 'end'])
      expectProblem(await server.get(`/v1/kv?${name}=${'a'.repeat(4097)}`), 'payload_too_large')
  })
})

describe('cursors', () => {
  for (const reverse of [false, true])
    for (const limit of [1, 3, 7])
      test(`pages of ${limit}, reverse ${reverse}, are one snapshot while writes go on`, async () => {
        const server = await start()
        const keys = numbered(20)
        await fill(server, [...keys, 'other'])
        const query = `prefix=k&limit=${limit}&reverse=${reverse}`
        let body = await scan(server, `?${query}`)
        const ts = numberOf(body, 'ts')
        const seen: Json[] = listOf(body, 'pairs')
        for (let page = 0; typeof body['cursor'] === 'string'; page++) {
          await server.put(`k0005${page}`, 'new key')
          await server.put(keys[page] ?? 'k', 'new value')
          await server.remove(keys[keys.length - 1 - page] ?? 'k')
          // The cursor alone is enough; the parameters may be repeated.
          body = await scan(server, `?${page % 2 === 0 ? '' : `${query}&`}cursor=${body['cursor']}`)
          expect(numberOf(body, 'ts')).toBe(ts)
          expect(listOf(body, 'pairs').length).toBeLessThanOrEqual(limit)
          seen.push(...listOf(body, 'pairs'))
        }
        expect(seen.map(({ key }) => key)).toEqual(reverse ? keys.toReversed() : keys)
        expect(seen.every(({ key, value }) => value === `value of ${key}`)).toBe(true)
      })

  test('no cursor after the last page, even when it is full', async () => {
    const server = await start()
    await fill(server, ['a', 'b', 'c', 'd'])
    const first = await scan(server, '?limit=2')
    const second = await scan(server, `?limit=2&cursor=${first['cursor']}`)
    expect(keysOf(second)).toEqual(['c', 'd'])
    expect(second).not.toHaveProperty('cursor')
  })

  test('keys_only stays on over the pages, and keys may be bytes', async () => {
    const server = await start()
    await server.txn({ ops: ['/w==', '/wA=', '/wAA'].map((base64) => ({ op: 'put', key: { base64 }, value: 'v' })) })
    const first = await scan(server, '?keys_only&limit=1')
    const second = await scan(server, `?cursor=${first['cursor']}`)
    expect(keysOf(second)).toEqual([{ base64: '/wA=' }])
    expect(JSON.stringify(second)).not.toContain('"value"')
    expect(keysOf(await scan(server, `?cursor=${second['cursor']}`))).toEqual([{ base64: '/wAA' }])
  })

  test('a cursor goes on as NDJSON', async () => {
    const server = await start()
    await fill(server, ['a', 'b', 'c'])
    const { cursor } = await scan(server, '?limit=1')
    expect(lines((await server.get(`/v1/kv?cursor=${cursor}`, ND)).body).map(({ key }) => key)).toEqual(['b', 'c'])
  })

  test('forged, cut, changed and foreign cursors are 400', { tags: ['long'] }, async () => {
    const server = await start()
    const other = await start()
    for (const one of [server, other]) await fill(one, ['a', 'b', 'c'])
    const { cursor } = await scan(server, '?limit=1')
    if (typeof cursor !== 'string') throw new Error('no cursor')
    const foreign = (await scan(other, '?limit=1'))['cursor']
    const bytes = Buffer.from(cursor, 'base64url')
    const flipped = Array.from(bytes, (byte, i) => {
      const copy = Buffer.from(bytes)
      copy[i] = byte ^ 1
      return copy.toString('base64url')
    })
    const forged = [
      foreign,
      ...flipped,
      ...Array.from(bytes, (_, i) => bytes.subarray(0, i).toString('base64url')),
      `${cursor}A`,
      `${cursor}=`,
      cursor.toLowerCase(),
      Buffer.concat([Buffer.alloc(16), pack([1, null, null, false, false, 10, Buffer.from('a')])]).toString(
        'base64url',
      ),
      'null',
      '%00',
    ]
    for (const text of forged)
      expectProblem(await server.get(`/v1/kv?cursor=${text}`), 'invalid_argument', { field: 'cursor' })
  })

  test('what contradicts the cursor is 400', async () => {
    const server = await start()
    await fill(server, ['a', 'b', 'c'])
    const { cursor, ts } = await scan(server, '?limit=1')
    for (const query of ['reverse=true', `ts=${Number(ts) - 1}`, 'prefix=b', 'count_only=true'])
      expectProblem(await server.get(`/v1/kv?cursor=${cursor}&${query}`), 'invalid_argument')
    expect(keysOf(await scan(server, `?cursor=${cursor}&ts=${ts}&reverse=false&limit=2`))).toEqual(['b', 'c'])
  })

  test('a cursor survives no collection of its snapshot', { tags: ['long'] }, async () => {
    const server = await start()
    await fill(server, ['a', 'b', 'c'])
    const { cursor } = await scan(server, '?limit=1')
    const { ts } = await server.ok('tso', {})
    await server.ok('gc', { safe_point: ts })
    expectProblem(await server.get(`/v1/kv?cursor=${cursor}`), 'ts_below_safe_point')
  })
})

describe('count_only', () => {
  test('counts the whole range, whatever the limit', { tags: ['long'] }, async () => {
    const server = await start()
    await fill(server, numbered(2500))
    await fill(server, ['a', 'z'])
    expect(await scan(server, '?count_only')).toEqual({ count: 2502, ts: expect.any(Number) })
    expect(await scan(server, '?count_only=true&prefix=k&limit=1')).toMatchObject({ count: 2500 })
    expect(await scan(server, '?count_only=1&start=k0001&end=k0003')).toMatchObject({ count: 2 })
    expect(await scan(server, '?count_only&reverse')).toMatchObject({ count: 2502 })
    expect(await scan(server, '?count_only&ts=1')).toEqual({ count: 0, ts: 1 })
  })
})

describe('NDJSON', () => {
  test('one pair a line, without limit unless one is given', { tags: ['long'] }, async () => {
    const server = await start()
    const keys = numbered(2345)
    await fill(server, keys)
    const all = await server.get('/v1/kv', ND)
    expect(all.headers['content-type']).toMatch(/^application\/x-ndjson/)
    expect(all.body.endsWith('\n')).toBe(true)
    const pairs = lines(all.body)
    expect(pairs).toHaveLength(keys.length)
    expect(pairs.map(({ key }) => key)).toEqual(keys)
    expect(pairs[0]).toEqual({ key: 'k0000', value: 'value of k0000', commit_ts: expect.any(Number) })
    expect(lines((await server.get('/v1/kv?limit=1001&reverse', ND)).body).map(({ key }) => key)).toEqual(
      keys.toReversed().slice(0, 1001),
    )
    expect(lines((await server.get('/v1/kv?limit=20000&keys_only', ND)).body)).toHaveLength(2345)
  })

  test('an empty range is an empty stream', async () => {
    const server = await start()
    const answer = await server.get('/v1/kv', ND)
    expect([answer.statusCode, answer.body]).toEqual([200, ''])
  })

  test('what fails before the first byte is a problem', { tags: ['long'] }, async () => {
    const server = await start()
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['a'], { lock_ttl: 60_000 })
    expectProblem(await server.get(`/v1/kv?ts=${ts}&lock_wait_ms=0`, ND), 'key_locked')
    await server.ok('rollback', { keys: ['a'], start_ts: ts })
    await server.ok('gc', { safe_point: ts })
    expectProblem(await server.get('/v1/kv?ts=1', ND), 'ts_below_safe_point')
  })

  test('a lock after the first byte cuts the stream off: it never ends as if it were whole', async () => {
    const server = await start()
    const port = await server.listen()
    await fill(server, numbered(1500))
    const { ts } = await server.ok('tso', {})
    await server.lock(Number(ts), ['zz'], { lock_ttl: 60_000 })
    const outcome = await new Promise<string>((resolve, reject) => {
      get({ port, path: `/v1/kv?ts=${ts}&lock_wait_ms=0`, headers: ND }, (response) => {
        response.resume()
        response.on('end', () => resolve(`ended with ${response.statusCode}`))
        response.on('error', () => resolve('cut off'))
      }).on('error', reject)
    })
    expect(outcome).toBe('cut off')
    expect((await server.get('/livez')).statusCode).toBe(200)
  })

  test('a client that goes away stops the scan; one that stands still is not read ahead for', {
    tags: ['long'],
  }, async () => {
    skipOthers('reads more slowly than the client can go away')
    const server = await start()
    const port = await server.listen()
    const value = 'v'.repeat(8000)
    for (let batch = 0; batch < 8; batch++) {
      const keys = numbered(2000).slice(batch * 1000, (batch + 1) * 1000)
      await server.txn({ ops: keys.map((key) => ({ op: 'put', key: `${batch}${key}`, value })) })
    }
    let scans = 0
    const scanPage = server.store.scan.bind(server.store)
    server.store.scan = (request) => {
      scans++
      return scanPage(request)
    }
    await new Promise<void>((resolve, reject) => {
      const request = get({ port, path: '/v1/kv', headers: ND }, (response) => {
        response.on('error', () => {})
        response.once('data', () => {
          response.pause()
          request.destroy()
        })
        response.on('close', resolve)
      })
      request.on('error', reject)
    })
    await server.app.close()
    expect(scans).toBeLessThanOrEqual(3)
  })

  test('media type: the first of the wanted ones counts', async () => {
    const server = await start()
    await fill(server, ['a'])
    const typeOf = async (accept: string): Promise<string> =>
      String((await server.get('/v1/kv', { accept })).headers['content-type']).split(';')[0] ?? ''
    expect(await typeOf('application/json, application/x-ndjson')).toBe('application/json')
    expect(await typeOf('application/x-ndjson, application/json')).toBe('application/x-ndjson')
    expect(await typeOf('application/x-ndjson;q=0.1, application/msgpack')).toBe('application/msgpack')
    expect(await typeOf('*/*')).toBe('application/json')
    expect(await typeOf('text/html')).toBe('application/json')
  })
})

test('a page ends early where the pairs are long, and a stream has them all', { tags: ['long'] }, async () => {
  const server = await start()
  const value = Buffer.alloc(1024 * 1024) // NUL bytes: valid UTF-8, six characters each in JSON.
  for (let i = 10; i < 20; i++) await server.put(`k${i}`, value)
  const page = okBody(await server.get('/v1/kv'))
  expect(listOf(page, 'pairs').map(({ key }) => key)).toEqual(Array.from({ length: 8 }, (_, i) => `k${i + 10}`))
  const next = okBody(await server.get(`/v1/kv?cursor=${page['cursor']}`))
  expect(listOf(next, 'pairs')).toHaveLength(2)
  expect((await server.get('/v1/kv', ND)).body.trimEnd().split('\n')).toHaveLength(10)
})

test('HEAD of a stream reads no further than its first page', { tags: ['long'] }, async () => {
  const server = await start()
  const ops = Array.from({ length: 5000 }, (_, i) => ({ op: 'put', key: `k${i}`, value: 'v' }))
  okBody(await server.post('/v1/txn', { ops }))
  await expect.poll(() => server.lockCount(), { timeout: 30_000 }).toBe(0) // A page that meets a lock is read twice.
  const scan = server.store.scan.bind(server.store)
  let pages = 0
  server.store.scan = (request) => {
    pages++
    return scan(request)
  }
  const ndjson = { accept: 'application/x-ndjson' }
  const head = await server.send('HEAD', '/v1/kv', ndjson)
  expect([head.statusCode, head.headers['content-type'], head.body]).toEqual([
    200,
    'application/x-ndjson; charset=utf-8',
    '',
  ])
  expect((await server.send('HEAD', '/v1/kv?limit=0', ndjson)).statusCode).toBe(400)
  // Six pages, while what HEAD goes on reading would be read as well.
  expect((await server.get('/v1/kv', ndjson)).body.split('\n')).toHaveLength(5001)
  expect(pages).toBeLessThanOrEqual(6 + 2) // The next page is on its way while the first is used.
})
