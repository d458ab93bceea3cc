import { Packr } from 'msgpackr'
import { describe, expect, test } from 'vitest'
import { Clock, type Json, pack, type Sent, type TestServer, testServers, unpack } from '../support.js'

const start = testServers()
const ACCEPT = { accept: 'application/msgpack' }
const bin = (text: string): Buffer => Buffer.from(text)

type Step = readonly [url: string, body: unknown]
/** Every POST route, in an order in which each does something. Strings are bytes but for the enums. */
const STEPS: readonly Step[] = [
  ['/v1/percolator/tso', { count: 3 }],
  [
    '/v1/percolator/prewrite',
    {
      mutations: [
        { op: 'put', key: 'a', value: 'x'.repeat(300) },
        { op: 'delete', key: 'b' },
      ],
      primary: 'a',
      start_ts: 5,
    },
  ],
  ['/v1/percolator/get', { key: 'a', ts: 10 }],
  ['/v1/percolator/batch_get', { keys: ['a', 'b'], ts: 10 }],
  ['/v1/percolator/scan', { start: 'a', end: 'z', ts: 10, limit: 10, reverse: true }],
  ['/v1/percolator/check_txn_status', { primary: 'a', lock_ts: 5, caller_start_ts: 0, current_ts: 6 }],
  ['/v1/percolator/txn_heart_beat', { primary: 'a', start_ts: 5, advise_lock_ttl: 5000, min_commit_ts: 7 }],
  ['/v1/percolator/check_secondary_locks', { keys: ['a', 'b'], start_ts: 5 }],
  ['/v1/percolator/scan_lock', { max_ts: 10, start: 'a' }],
  ['/v1/percolator/commit', { keys: ['a', 'b'], start_ts: 5, commit_ts: 8, primary: 'a' }],
  ['/v1/percolator/mvcc_get_by_key', { key: 'a' }],
  ['/v1/percolator/mvcc_get_by_start_ts', { start_ts: 5 }],
  ['/v1/percolator/get', { key: 'a' }],
  ['/v1/percolator/rollback', { keys: ['c'], start_ts: 9 }],
  ['/v1/percolator/cleanup', { key: 'd', start_ts: 9, current_ts: 0 }],
  ['/v1/percolator/resolve_lock', { txns: [{ start_ts: 9, commit_ts: 0 }] }],
  [
    '/v1/txn',
    {
      checks: [{ key: 'a', exists: true }],
      ops: [
        { op: 'get', key: 'a' },
        { op: 'put', key: 'e', value: '' },
        { op: 'increment', key: 'n', by: -3 },
        { op: 'scan', prefix: 'e' },
      ],
    },
  ],
  ['/v1/txn', { checks: [{ key: 'a', commit_ts: 0 }] }],
  ['/v1/kv/batch_get', { keys: ['a', 'e'] }],
  ['/v1/percolator/gc', { safe_point: 100 }],
  ['/v1/percolator/delete_range', { start: 'a', end: 'b' }],
]

const TEXT = new Set(['op', 'type', 'title', 'code', 'detail', 'status', 'action', 'field', 'reason', 'assertion'])

/** The same body with bytes as `bin` and numbers written as `number` says. */
function packed(value: unknown, number: (n: number) => unknown, field = ''): unknown {
  if (typeof value === 'string') return TEXT.has(field) ? value : bin(value)
  if (typeof value === 'number') return number(value)
  if (Array.isArray(value)) return value.map((item) => packed(item, number, field))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, packed(item, number, name)]))
}

/** As the JSON answer would be; fails on text where bytes must be, and on a number that is no integer format. */
function asJson(value: unknown, field = ''): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString()
  if (typeof value === 'string') {
    expect(TEXT.has(field), `${field} is text`).toBe(true)
    return value
  }
  if (typeof value === 'bigint') return Number(value)
  if (Array.isArray(value)) return value.map((item) => asJson(item, field))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, asJson(item, name)]))
}

/** Decodes 64-bit integers as bigint, so that a float can be told from them. */
const strict = new Packr({ useRecords: false, int64AsType: 'bigint' })

function requireIntegers(value: unknown): void {
  if (typeof value === 'number')
    expect(Math.abs(value)).toBeLessThan(2 ** 32) // A larger one came as a float.
  else if (Array.isArray(value)) value.forEach(requireIntegers)
  else if (typeof value === 'object' && value !== null && !(value instanceof Uint8Array))
    Object.values(value).forEach(requireIntegers)
}

const float64 = new Packr({ useRecords: false, moreTypes: false })
const FORMATS: Readonly<Record<string, (n: number) => unknown>> = {
  'as msgpackr writes numbers': (n) => n,
  'integers as bigint (64 bits)': (n) => BigInt(n),
}

for (const [name, number] of Object.entries(FORMATS))
  test(`every POST route: the same answers as in JSON, ${name}`, { tags: ['long'] }, async () => {
    const clock = new Clock()
    const [inJson, inMsgpack] = [await start({ now: clock.now }), await start({ now: clock.now })]
    for (const [url, body] of STEPS) {
      const want = await inJson.post(url, body)
      const got = await inMsgpack.postPacked(url, float64.pack(packed(body, number)), ACCEPT)
      expect(got.statusCode, url).toBe(want.statusCode)
      expect(got.headers['content-type'], url).toBe('application/msgpack')
      requireIntegers(strict.unpack(got.rawPayload))
      expect(asJson(unpack(got.rawPayload)), url).toEqual(want.json())
    }
  })

test('a request in one format, the answer in the other', async () => {
  const server = await start()
  await server.put('k', 'v')
  const body = { keys: [bin('k')] }
  expect((await server.postPacked('/v1/kv/batch_get', pack(body))).json<Json>()).toMatchObject({
    pairs: [{ key: 'k' }],
  })
  const answer = await server.post('/v1/kv/batch_get', { keys: ['k'] }, ACCEPT)
  expect(unpack(answer.rawPayload)).toMatchObject({ pairs: [{ key: bin('k'), value: bin('v') }] })
})

test('GET, PUT and DELETE answer in MessagePack', async () => {
  const server = await start()
  const put = await server.send('PUT', '/v1/kv/%FF', ACCEPT, 'v')
  expect(unpack(put.rawPayload)).toEqual({ commit_ts: expect.any(Number) })
  const scan = unpack((await server.get('/v1/kv?limit=1', ACCEPT)).rawPayload)
  expect(scan).toMatchObject({ pairs: [{ key: Buffer.of(0xff), value: bin('v') }] })
  expect(unpack((await server.get('/v1/kv?count_only', ACCEPT)).rawPayload)).toMatchObject({ count: 1 })
  expect(unpack((await server.send('DELETE', '/v1/kv/%FF', ACCEPT)).rawPayload)).toEqual({
    commit_ts: expect.any(Number),
  })
  for (const url of ['/livez', '/readyz', '/v1/status'])
    expect((await server.get(url, ACCEPT)).headers['content-type']).toBe('application/msgpack')
})

test('timestamps are uint 64 in answers', async () => {
  const server = await start()
  const { rawPayload } = await server.post('/v1/percolator/tso', {}, ACCEPT)
  const at = rawPayload.indexOf('ts') + 2
  expect(rawPayload[at]?.toString(16)).toBe('cf')
})

describe('requests', () => {
  /** `{"key": "k", "ts": <bytes given>}` for a get of a version at 2^50. */
  async function getAt(ts: Buffer): Promise<Sent> {
    const server = await start()
    await server.write(2 ** 50 - 1, 2 ** 50, ['k'])
    const body = Buffer.concat([
      Buffer.of(0x82, 0xa3),
      bin('key'),
      Buffer.of(0xa1),
      bin('k'),
      Buffer.of(0xa2),
      bin('ts'),
      ts,
    ])
    return server.postPacked('/v1/percolator/get', body)
  }
  const float = (value: number): Buffer => {
    const bytes = Buffer.alloc(9, 0xcb)
    bytes.writeDoubleBE(value, 1)
    return bytes
  }
  const int = (token: number, value: bigint): Buffer => {
    const bytes = Buffer.alloc(9, token)
    bytes.writeBigUInt64BE(BigInt.asUintN(64, value), 1)
    return bytes
  }
  const numbers: readonly (readonly [name: string, bytes: Buffer, status: 200 | 400])[] = [
    ['uint 64', int(0xcf, 2n ** 50n), 200],
    ['int 64', int(0xd3, 2n ** 50n), 200],
    ['an integral float 64', float(2 ** 50), 200],
    ['an integral float 32', Buffer.of(0xca, 0x58, 0x80, 0, 0), 200],
    ['a small fixint', Buffer.of(5), 200],
    ['uint 64 above the safe integers', int(0xcf, 2n ** 53n), 400],
    ['the largest uint 64', int(0xcf, 2n ** 64n - 1n), 400],
    ['a negative int 64', int(0xd3, -(2n ** 50n)), 400],
    ['a float with a fraction', float(2.5), 400],
    ['NaN', float(Number.NaN), 400],
    ['infinity', float(Number.POSITIVE_INFINITY), 400],
    ['text', Buffer.of(0xa1, 0x35), 400],
    ['nil', Buffer.of(0xc0), 400],
    ['true', Buffer.of(0xc3), 400],
    ['a timestamp extension', Buffer.of(0xd6, 0xff, 0, 0, 0, 5), 400],
  ]
  for (const [name, bytes, status] of numbers)
    test(`ts as ${name} is ${status}`, async () => {
      const answer = await getAt(bytes)
      expect(answer.statusCode, answer.body).toBe(status)
      if (status === 400) expect(answer.json<Json>()).toMatchObject({ code: 'invalid_argument' })
      else expect(answer.json<Json>()['found']).toBe(!name.includes('fixint'))
    })

  test('bytes as bin or str', async () => {
    const server = await start()
    const ops = [
      { op: 'put', key: 'str', value: 'é' },
      { op: 'put', key: Buffer.of(0xff), value: Buffer.of(0, 0xff) },
    ]
    expect((await server.postPacked('/v1/txn', pack({ ops }))).statusCode).toBe(200)
    expect((await server.get('/v1/kv/str')).body).toBe('é')
    expect((await server.get('/v1/kv/%FF')).rawPayload).toEqual(Buffer.of(0, 0xff))
  })

  test('a str that is not UTF-8 is never turned into other bytes', async () => {
    const server = await start()
    for (const byte of [0xff, 0xfe]) {
      const fields = [bin('key'), Buffer.of(0xa2, byte, 0x61), Buffer.of(0xa5), bin('value'), Buffer.of(0xa1, 0x78)]
      const op = Buffer.concat([
        Buffer.of(0x83, 0xa2),
        bin('op'),
        Buffer.of(0xa3),
        bin('put'),
        Buffer.of(0xa3),
        ...fields,
      ])
      const answer = await server.postPacked(
        '/v1/txn',
        Buffer.concat([Buffer.of(0x81, 0xa3), bin('ops'), Buffer.of(0x91), op]),
      )
      expect([200, 400]).toContain(answer.statusCode)
    }
    const { pairs } = (await server.get('/v1/kv')).json<{ pairs: Json[] }>()
    expect(pairs.filter(({ key }) => String(key).includes('\ufffd'))).toEqual([])
  })

  for (const [name, hex] of [
    ['nothing', ''],
    ['two values', '8080'],
    ['a cut map', '82a3'],
    ['the unused byte', 'c1'],
    ['a list', '90'],
    ['nil', 'c0'],
    ['a map of 4 billion', 'dfffffffff'],
    ['bin of 4 GB', 'c6ffffffff'],
    ['deep nesting', '91'.repeat(100_000)],
    ['__proto__', '81a95f5f70726f746f5f5f80'],
    ['an unknown field', '81a5636f756e7403'.replace('636f', '636e')],
    ['an undefined extension', 'd40000'],
  ] as const)
    test(`${name} is 400`, async () => {
      const server = await start()
      const answer = await server.postPacked('/v1/percolator/tso', Buffer.from(hex, 'hex'))
      expect(answer.statusCode, answer.body).toBe(400)
      expect(answer.json<Json>()).toMatchObject({ code: 'invalid_argument' })
    })
})

describe('problems', () => {
  const ask = (server: TestServer, accept: string) => server.get('/v1/kv/nobody', { accept })
  test('MessagePack when only that is accepted, JSON otherwise', async () => {
    const server = await start()
    const only = await ask(server, 'application/msgpack')
    expect(only.headers['content-type']).toMatch(/msgpack/)
    const json = (await ask(server, 'application/json')).json<Json>()
    expect(asJson(unpack(only.rawPayload))).toEqual(json)
    for (const accept of ['application/msgpack, application/json', 'application/msgpack, */*', '*/*', 'text/html'])
      expect((await ask(server, accept)).headers['content-type'], accept).toMatch(/^application\/problem\+json/)
  })

  test('of a request in MessagePack without Accept: JSON', async () => {
    const server = await start()
    const answer = await server.postPacked('/v1/percolator/get', pack({}))
    expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/)
  })
})
