import { serialize } from 'node:v8'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startServer, type TestServer, testServers } from '../support.js'
import { KvClient, type MutationOf, readBody, set, writeBody } from './kv-client.js'

let server: TestServer
let databases = 0

beforeAll(async () => {
  server = await startServer({ kvConnect: true })
})
afterAll(() => server.close())

/** A database that nobody else has. */
const database = (): KvClient => new KvClient(server, `db-${databases++}`)
const open = testServers()

const ABSENT = '00000000000000000000'
const u64 = (value: bigint) => {
  const data = Buffer.alloc(8)
  data.writeBigUInt64LE(value)
  return { data, encoding: 2 }
}

describe('the exchange of metadata', () => {
  test('answers exactly what the clients know', async () => {
    const kv = database()
    const answer = await kv.exchange({ supportedVersions: [1, 2, 3] }, { authorization: 'Bearer any-token-of-mine' })
    expect(answer.statusCode).toBe(200)
    expect(answer.headers['content-type']).toBe('application/json')
    const metadata = answer.json<Record<string, unknown>>()
    const { databaseId, expiresAt } = metadata
    expect(metadata).toEqual({
      version: 3,
      databaseId: expect.stringMatching(/^[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/),
      endpoints: [{ url: `./${kv.name}`, consistency: 'strong' }],
      token: 'any-token-of-mine',
      expiresAt,
    })
    expect(Date.parse(String(expiresAt)) - Date.now()).toBeGreaterThan(23 * 3_600_000)
    expect((await kv.exchange({ supportedVersions: [3] })).json()).toMatchObject({ databaseId })
    expect((await database().exchange({ supportedVersions: [3] })).json()).not.toMatchObject({ databaseId })
  })

  test.each([
    { asked: [3, 2], version: 3 },
    { asked: [1, 2], version: 2 },
    { asked: [7, 1], version: 1 },
  ])('the newest version of $asked is $version', async ({ asked, version }) => {
    expect((await database().exchange({ supportedVersions: asked })).json()).toMatchObject({ version })
  })

  test('an exchange with a long body is refused, since it is parsed at once', async () => {
    const { statusCode } = await database().exchange({ supportedVersions: Array.from({ length: 5000 }, () => 3) })
    expect(statusCode).toBe(413)
  })

  test('without a body it is version 1, whose endpoints have whole URLs', async () => {
    const kv = database()
    const answer = await kv.exchange(undefined, { host: 'localhost:7400' })
    const endpoints = [{ url: `http://localhost:7400/kv-connect/${kv.name}`, consistency: 'strong' }]
    expect(answer.json()).toMatchObject({ version: 1, endpoints, token: 'none' })
    const meant = { 'x-transaction-domain-id': answer.json<{ databaseId: string }>().databaseId }
    const url = `/kv-connect/${kv.name}/snapshot_read`
    expect((await server.send('POST', url, meant, Buffer.from(readBody([])))).statusCode).toBe(200)
  })

  test.each([
    { body: { supportedVersions: [4] }, detail: /knows the versions 3, 2, 1/ },
    { body: { supportedVersions: [] }, detail: /knows the versions/ },
    { body: { supportedVersions: ['3'] }, detail: /list of numbers/ },
    { body: {}, detail: /list of numbers/ },
    { body: null, detail: /JSON object/ },
    { body: 'text', detail: /JSON object/ },
  ])('$body is refused as text for people', async ({ body, detail }) => {
    const answer = await database().exchange(body)
    expect(answer.statusCode).toBe(400)
    expect(answer.headers['content-type']).toBe('text/plain; charset=utf-8')
    expect(answer.body).toMatch(detail)
  })

  test.each(['%20', 'a%2Fb', 'ä', '', 'x'.repeat(65)])('a database cannot be called "%s"', async (name) => {
    const answer = await server.send('POST', `/kv-connect/${encodeURI(decodeURIComponent(name))}`)
    expect([400, 404]).toContain(answer.statusCode)
  })

  test('there is no such path without the option', async () => {
    const plain = await open()
    expect((await plain.send('POST', '/kv-connect/db')).statusCode).toBe(404)
  })
})

describe('which database is meant', () => {
  test.each<{ headers: Record<string, string>; detail: RegExp }>([
    { headers: { 'x-denokv-version': '1' }, detail: /must be 2 or 3/ },
    { headers: { 'x-denokv-version': '4' }, detail: /must be 2 or 3/ },
    { headers: { 'x-denokv-version': '3' }, detail: /x-denokv-database-id is missing/ },
    { headers: {}, detail: /x-transaction-domain-id is missing/ },
    { headers: { 'x-denokv-version': '3', 'x-denokv-database-id': 'other' }, detail: /exchange metadata again/ },
  ])('$headers', async ({ headers, detail }) => {
    const url = '/kv-connect/db/atomic_write'
    const answer = await server.send('POST', url, headers, Buffer.from(writeBody([set('k', 'v')])))
    expect({ status: answer.statusCode, detail: answer.body }).toEqual({
      status: 400,
      detail: expect.stringMatching(detail),
    })
  })
})

describe('writes and reads', () => {
  test('what is stored is found under the prefix, with its encoding', async () => {
    const kv = database()
    const versionstamp = await kv.write([set('k', 'v')])
    expect(await kv.get('k')).toEqual({ key: 'k', value: 'v', encoding: 3, versionstamp })
    const stored = await server.get(`/v1/kv/kv-connect/${kv.name}/k`)
    expect(stored.rawPayload).toEqual(Buffer.from('\x03v'))
    const commitTs = Number(/\d+/.exec(String(stored.headers['etag']))?.[0])
    expect(versionstamp).toBe(`${commitTs.toString(16).padStart(16, '0')}0000`)
  })

  test('values of another writer are bytes', async () => {
    const kv = database()
    await server.put(`kv-connect/${kv.name}/k`, 'plain')
    await server.put(`kv-connect/${kv.name}/empty`, '')
    await server.put(`kv-connect/${kv.name}/short`, Buffer.from([2, 1]))
    expect(await kv.get('k')).toMatchObject({ value: 'plain', encoding: 3 })
    expect(await kv.get('empty')).toMatchObject({ value: '', encoding: 3 })
    expect(await kv.get('short')).toMatchObject({ value: '\x02\x01', encoding: 3 })
  })

  test('databases do not see each other, and an empty key is one', async () => {
    const [a, b] = [database(), database()]
    await a.write([set('', 'empty'), set('k', 'a')])
    await b.write([set('k', 'b')])
    const all = { start: '', end: '\xff', limit: 10 }
    expect((await a.read([all]))[0]?.map(({ value }) => value)).toEqual(['empty', 'a'])
    expect((await b.read([all, { ...all, reverse: true }])).map((range) => range.map(({ value }) => value))).toEqual([
      ['b'],
      ['b'],
    ])
    await a.write([{ key: 'k', type: 2 }])
    expect(await b.get('k')).toMatchObject({ value: 'b' })
    expect(await a.get('k')).toBeUndefined()
  })

  test('ranges: start and end, limit, reverse, empty ones, in the order of the request', async () => {
    const kv = database()
    await kv.write(['a', 'b', 'c', 'd'].map((key) => set(key, key.toUpperCase())))
    const ranges = [
      { start: 'b', end: 'd', limit: 10 },
      { start: 'a', end: '\xff', limit: 2, reverse: true },
      { start: 'd', end: 'a', limit: 10 },
      { start: 'c', end: 'c', limit: 10 },
      { start: '', end: '', limit: 10 },
      { start: 'c', end: 'c\0', limit: 1 },
      { start: 'x', end: 'x\0', limit: 1 },
      { start: 'a', end: 'b', limit: 1, reverse: true },
    ]
    const found = (await kv.read(ranges)).map((range) => range.map(({ key }) => key).join(''))
    expect(found).toEqual(['bc', 'dc', '', '', '', 'c', '', 'a'])
  })

  test('all ranges are of one moment', async () => {
    const kv = database()
    const moments: Promise<void>[] = []
    for (let i = 0; i < 20; i++) {
      void kv.write([set('x', String(i)), set('y', String(i))])
      const reading = kv.read([
        { start: 'x', end: 'x\0' },
        { start: 'y', end: 'z' },
      ])
      moments.push(reading.then(([x, y]) => expect(x?.[0]?.versionstamp).toBe(y?.[0]?.versionstamp)))
    }
    await Promise.all(moments)
  })

  test('a long answer comes whole', async () => {
    const kv = database()
    const value = Buffer.alloc(60_000, 7)
    for (let i = 0; i < 2; i++) await kv.write(Array.from({ length: 10 }, (_, j) => set(`${i}${j}`, value)))
    const [entries] = await kv.read([{ start: '', end: '\xff', limit: 1000 }])
    expect(entries?.map(({ value }) => value.length)).toEqual(Array.from({ length: 20 }, () => 60_000))
  })

  test('one key several times: in order', async () => {
    const kv = database()
    await kv.write([set('k', '1'), { key: 'k', type: 2 }, set('k', '2'), set('l', '1'), { key: 'l', type: 2 }])
    expect([await kv.get('k'), await kv.get('l')]).toMatchObject([{ value: '2' }, undefined])
    await kv.write([
      { key: 'n', type: 3, value: u64(3n) },
      { key: 'n', type: 3, value: u64(4n) },
      { key: 'n', type: 5, value: u64(5n) },
      { key: 'n', type: 4, value: u64(6n) },
    ])
    expect(await kv.get('n')).toMatchObject({ value: '\x06\0\0\0\0\0\0\0', encoding: 2 })
  })

  test('checks: which of them failed, and nothing is written', async () => {
    const kv = database()
    const stamp = String(await kv.write([set('a', '1')]))
    const raw = Buffer.from(stamp, 'hex')
    expect(await kv.write([set('a', '2')], [{ key: 'a', versionstamp: raw }, { key: 'b' }])).toHaveLength(20)
    const later = Buffer.from(raw)
    later[9] = 1
    const checks = [
      { key: 'b' },
      { key: 'a' },
      { key: 'a', versionstamp: raw },
      { key: 'b', versionstamp: raw },
      { key: 'a', versionstamp: later },
      { key: 'b', versionstamp: Buffer.from(ABSENT, 'hex') },
      { key: 'a', versionstamp: Buffer.alloc(10, 0xff) },
    ]
    expect(await kv.write([set('a', '3'), set('b', '3')], checks)).toEqual([1, 2, 3, 4, 5, 6])
    expect([await kv.get('a'), await kv.get('b')]).toMatchObject([{ value: '2' }, undefined])
  })

  test('a write of nothing, or of checks alone, has a new versionstamp', async () => {
    const kv = database()
    const first = String(await kv.write([set('a', '1')]))
    const empty = String(await kv.write([]))
    const checked = String(await kv.write([], [{ key: 'b' }]))
    const last = String(await kv.write([{ key: 'absent', type: 2 }]))
    expect([first, empty, checked, last]).toEqual([...new Set([first, empty, checked, last])].sort())
    expect(await kv.write([], [{ key: 'a' }])).toEqual([0])
  })

  test('of two writes that check the same key, one wins', async () => {
    const kv = database()
    const outcomes = await Promise.all(
      Array.from({ length: 8 }, (_, i) => kv.write([set('k', `${i}`)], [{ key: 'k' }])),
    )
    expect(outcomes.filter((outcome) => typeof outcome === 'string')).toHaveLength(1)
  })

  test('sums count every write', async () => {
    const kv = database()
    await Promise.all(Array.from({ length: 20 }, () => kv.write([{ key: 'n', type: 3, value: u64(5n) }])))
    expect(await kv.get('n')).toMatchObject({ value: '\x64\0\0\0\0\0\0\0' })
    const sum: MutationOf = { key: 'v', type: 3, value: { data: serialize(7n), encoding: 1 }, max: serialize(10n) }
    await kv.write([sum])
    const refused = await kv.call('atomic_write', writeBody([set('other', '1'), sum]))
    expect({ status: refused.statusCode, body: refused.body }).toEqual({
      status: 400,
      body: 'The result of a Sum operation would exceed its range limit',
    })
    expect(await kv.get('other')).toBeUndefined()
    await kv.write([{ ...sum, clamp: true }])
    expect(await kv.get('v')).toMatchObject({ value: serialize(10n).toString('latin1'), encoding: 1 })
  })

  test('a versionstamped key ends in the versionstamp of its commit', async () => {
    const kv = database()
    const put = (key: string, data: string): MutationOf => ({ ...set(key, data), type: 9 })
    const stamps = [await kv.write([put('a', '1'), put('b', '2'), set('c', '3')]), await kv.write([put('a', '4')])]
    expect(await kv.write([put('a', '5')], [{ key: 'c' }])).toEqual([0])
    const suffix = (n: number) => `\x02${stamps[n]}\0`
    const [found] = await kv.read([{ start: '', end: '\xff', limit: 10 }])
    expect(found?.map(({ key, value, versionstamp }) => [key, value, versionstamp])).toEqual([
      [`a${suffix(0)}`, '1', stamps[0]],
      [`a${suffix(1)}`, '4', stamps[1]],
      [`b${suffix(0)}`, '2', stamps[0]],
      ['c', '3', stamps[0]],
    ])
  })

  test('a key is absent from its expiry on', async () => {
    let nowMs = 1_700_000_000_000
    const clocked = await open({ kvConnect: true, now: () => nowMs })
    const kv = new KvClient(clocked)
    await kv.write([set('k', 'v', { expireAtMs: nowMs + 5000 }), set('forever', 'v', { expireAtMs: -1 })])
    await kv.write([set('past', 'v', { expireAtMs: 1 }), set('far', 'v', { expireAtMs: 2n ** 62n })])
    await kv.write([{ key: 'n', type: 3, value: u64(1n), expireAtMs: nowMs + 5000 }])
    nowMs += 4999
    expect(await kv.get('k')).toMatchObject({ value: 'v' })
    expect(await kv.get('past')).toBeUndefined()
    nowMs += 1
    expect([await kv.get('k'), await kv.get('n')]).toEqual([undefined, undefined])
    expect(await kv.write([], [{ key: 'k' }])).toHaveLength(20)
    expect(await kv.get('forever')).toMatchObject({ value: 'v' })
    expect(await kv.get('far')).toMatchObject({ value: 'v' })
  })
})

describe('tokens', () => {
  const TOKENS = [
    'rw all-tokens-are-long-0',
    'rw only-one-database-00 prefix=kv-connect/one/',
    'ro reads-one-database-0 prefix=kv-connect/one/',
    'rw a-part-of-a-database prefix=kv-connect/one/a',
  ].join('\n')

  test('a token must reach the whole database', async () => {
    const guarded = await open({ kvConnect: true, tokens: TOKENS })
    const as = (token: string, name: string) =>
      new KvClient(guarded, name, token === '' ? {} : { authorization: `Bearer ${token}` })
    const status = async (kv: KvClient) => (await kv.exchange({ supportedVersions: [3] })).statusCode
    expect(await status(as('', 'one'))).toBe(401)
    expect(await status(as('unknown-token-unknown', 'one'))).toBe(401)
    expect(await status(as('all-tokens-are-long-0', 'two'))).toBe(200)
    expect(await status(as('only-one-database-00', 'one'))).toBe(200)
    expect(await status(as('only-one-database-00', 'two'))).toBe(403)
    expect(await status(as('a-part-of-a-database', 'one'))).toBe(403)
    await as('only-one-database-00', 'one').write([set('k', 'v')])
    const reader = as('reads-one-database-0', 'one')
    expect(await reader.get('k')).toMatchObject({ value: 'v' })
    const refused = await reader.call('atomic_write', writeBody([set('k', 'w')]))
    expect({ status: refused.statusCode, body: refused.body }).toEqual({ status: 403, body: 'this token is read-only' })
    const id = { 'x-denokv-database-id': await as('all-tokens-are-long-0', 'two').id() }
    const other = as('only-one-database-00', 'one')
    const url = '/kv-connect/two/atomic_write'
    const meant = { 'x-denokv-version': '3', ...id, ...other.headers }
    expect((await guarded.send('POST', url, meant, Buffer.from(writeBody([set('k', 'v')])))).statusCode).toBe(403)
  })
})

describe('limits', () => {
  const key = (length: number) => 'k'.repeat(length)
  const rows = (count: number, value = '') => Array.from({ length: count }, (_, i) => set(`${i}`, value))
  const checks = (count: number) => Array.from({ length: count }, (_, i) => ({ key: `${i}` }))
  const ranges = (count: number, limit: number) =>
    Array.from({ length: count }, () => ({ start: 'a', end: 'b', limit }))

  test.each([
    { name: 'key', body: writeBody([set(key(2048), '')]) },
    { name: 'value', body: writeBody([set('k', 'v'.repeat(65_536))]) },
    { name: 'mutations', body: writeBody(rows(1000)) },
    { name: 'bytes', body: writeBody(Array.from({ length: 100 }, (_, i) => set(`${i + 100}`, 'v'.repeat(8189)))) },
    { name: 'checks', body: writeBody([], checks(100)) },
    { name: 'ranges', body: readBody(ranges(10, 100)), method: 'snapshot_read' },
    { name: 'limit', body: readBody(ranges(1, 1000)), method: 'snapshot_read' },
    { name: 'bound', body: readBody([{ start: key(2048), end: key(2049) }]), method: 'snapshot_read' },
  ])('$name: the largest', async ({ body, method = 'atomic_write' }) => {
    const answer = await database().call(method, body)
    expect({ status: answer.statusCode, body: answer.statusCode === 200 ? '' : answer.body }).toEqual({
      status: 200,
      body: '',
    })
  })

  test.each([
    { name: 'key', body: writeBody([set(key(2049), '')]) },
    { name: 'value', body: writeBody([set('k', 'v'.repeat(65_537))]) },
    { name: 'mutations', body: writeBody(rows(1001)) },
    { name: 'bytes', body: writeBody([...rows(100, 'v'.repeat(8190)), set('k', 'v'.repeat(200))]) },
    { name: 'body', body: new Uint8Array(2 ** 20 + 1) },
    { name: 'checks', body: writeBody([], checks(101)) },
    { name: 'ranges', body: readBody(ranges(11, 1)), method: 'snapshot_read' },
    { name: 'limit', body: readBody(ranges(2, 501)), method: 'snapshot_read' },
    { name: 'bound', body: readBody([{ start: key(2050), end: key(2051) }]), method: 'snapshot_read' },
  ])('$name: too much', async ({ body, method = 'atomic_write' }) => {
    const kv = database()
    expect((await kv.call(method, body)).statusCode).toBe(413)
    expect(await kv.read([{ start: '', end: '\xff', limit: 10 }])).toEqual([[]])
  })

  test.each([
    { name: 'a limit of 0', body: readBody([{ start: 'a', end: 'b', limit: 0 }]), method: 'snapshot_read' },
    { name: 'a negative limit', body: readBody([{ start: 'a', end: 'b', limit: -1 }]), method: 'snapshot_read' },
    { name: 'a set without a value', body: writeBody([{ key: 'k', type: 1 }]) },
    { name: 'a mutation without a type', body: writeBody([set('k', 'v', { type: 0 })]) },
    { name: 'an unknown type', body: writeBody([set('k', 'v', { type: 6 })]) },
    { name: 'no encoding', body: writeBody([{ key: 'k', value: { data: 'v', encoding: 0 } }]) },
    { name: 'an unknown encoding', body: writeBody([{ key: 'k', value: { data: 'v', encoding: 259 } }]) },
    { name: 'a short KvU64', body: writeBody([{ key: 'k', value: { data: 'v', encoding: 2 } }]) },
    { name: 'an expiry before 1970', body: writeBody([set('k', 'v', { expireAtMs: -2 })]) },
    { name: 'a versionstamp of 9 bytes', body: writeBody([], [{ key: 'k', versionstamp: Buffer.alloc(9) }]) },
    { name: 'a sum of text', body: writeBody([set('k', '1', { type: 3 })]) },
    { name: 'an enqueue', body: writeBody([set('k', 'v')], [], ['job']) },
  ])('$name is refused', async ({ body, method = 'atomic_write' }) => {
    const kv = database()
    expect((await kv.call(method, body)).statusCode).toBe(400)
    expect(await kv.read([{ start: '', end: '\xff', limit: 10 }])).toEqual([[]])
  })

  test('a server with lower limits keeps to them', async () => {
    const small = await open({ kvConnect: true, limits: { keyBytesMax: 20, valueBytesMax: 20 } })
    const kv = new KvClient(small)
    expect((await kv.call('atomic_write', writeBody([set(key(20), '')]))).statusCode).toBe(413)
    expect((await kv.call('atomic_write', writeBody([set('k', key(20))]))).statusCode).toBe(413)
    await kv.write([set('k', key(19))])
  })
})
