import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startServer, type TestServer } from '../support.js'
import { KvClient, readBody, set, watchBody, writeBody } from './kv-client.js'

let server: TestServer
let kv: KvClient
const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 80)

beforeAll(async () => {
  server = await startServer({ kvConnect: true })
  kv = new KvClient(server)
  await kv.write([set('kept', 'v')])
})
afterAll(() => server.close())

const METHODS = ['snapshot_read', 'atomic_write', 'watch'] as const

/** Valid messages to cut and bend. */
const messages = [
  readBody([{ start: 'a', end: 'b', limit: 3, reverse: true }]),
  writeBody([set('k', 'v', { expireAtMs: 5 })], [{ key: 'c', versionstamp: Buffer.alloc(10, 1) }]),
  watchBody(['a', 'b']),
]

/** A message that may be anything, and is never watched: a watch that is accepted does not end. */
async function refused(method: string, body: Uint8Array): Promise<number> {
  const answer = await kv.call(method, body)
  if (answer.statusCode >= 400) {
    expect(answer.statusCode).toBeLessThan(500)
    expect(answer.headers['content-type']).toBe('text/plain; charset=utf-8')
    expect(answer.body).not.toBe('')
  }
  return answer.statusCode
}

test('random bytes are a message or 4xx, and never 5xx', async () => {
  const bytes = fc.oneof(fc.uint8Array({ maxLength: 64 }), fc.constantFrom(...messages).chain(bent))
  await fc.assert(
    fc.asyncProperty(fc.constantFrom('snapshot_read', 'atomic_write'), bytes, async (method, body) => {
      await refused(method, body)
    }),
    { numRuns: RUNS },
  )
  expect(await kv.get('kept')).toMatchObject({ value: 'v' })
})

/** One byte of a message is another, or some are left out or put in. */
function bent(message: Uint8Array): fc.Arbitrary<Uint8Array> {
  return fc.tuple(fc.nat(message.length), fc.nat(3), fc.uint8Array({ maxLength: 4 })).map(([at, gone, more]) => {
    return Buffer.concat([message.subarray(0, at), more, message.subarray(at + gone)])
  })
}

test('a message that is cut anywhere is refused, or ends between two fields', async () => {
  const whole = writeBody([set('k1', 'v'), set('k2', 'v')])
  const half = writeBody([set('k1', 'v')]).length
  for (let length = 1; length < whole.length; length++) {
    expect(await refused('atomic_write', whole.subarray(0, length)), `${length} bytes`).toBe(
      length === half ? 200 : 400,
    )
  }
})

const varint = (bytes: number): number[] => [...Array.from({ length: bytes - 1 }, () => 0xff), 0x7f]
/** Groups in groups, which this protocol has none of. */
const groups = (depth: number): Uint8Array => Buffer.alloc(depth, 0x7b)

test.each([
  { name: 'field 0', body: [0x02, 0x00] },
  { name: 'a wire type that there is not', body: [0x0e] },
  { name: 'the end of a group', body: [0x0c] },
  { name: 'a length beyond the end', body: [0x0a, 0x7f, 0x01] },
  { name: 'a length of 4 GiB', body: [0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f] },
  { name: 'a varint of 11 bytes as a tag', body: varint(11) },
  { name: 'a varint that does not end', body: [0x78, 0xff, 0xff] },
  { name: 'a field that is longer than its message', body: [0x0a, 0x02, 0x0a, 0x05, 1, 2, 3, 4, 5] },
  { name: 'groups, 100 000 deep', body: groups(100_000) },
])('$name is 400 for every method', async ({ body }) => {
  for (const method of METHODS) expect(await refused(method, Buffer.from(body)), method).toBe(400)
})

test('half a million empty entries are refused at the first one too many', async () => {
  const ranges = Buffer.alloc(1_000_000)
  for (let i = 0; i < ranges.length; i += 2) ranges[i] = 0x0a
  const mutations = Buffer.from(ranges).map((byte) => (byte === 0x0a ? 0x12 : byte))
  expect(await refused('snapshot_read', ranges)).toBe(413)
  expect(await refused('watch', ranges)).toBe(413)
  expect(await refused('atomic_write', ranges)).toBe(413)
  expect(await refused('atomic_write', mutations)).toBe(413)
})

test('unknown fields are left out', async () => {
  const unknown = Buffer.from([0x78, 1, 0x7a, 2, 1, 2, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7b, 0x7c])
  const read = Buffer.concat([unknown, readBody([{ start: 'kept', end: 'kept\0' }]), unknown])
  expect((await kv.call('snapshot_read', read)).statusCode).toBe(200)
})

test('keys that look like paths stay in their database', async () => {
  const other = new KvClient(server, 'other')
  await other.write([set('k', 'theirs')])
  for (const key of ['../other/k', '/kv-connect/other/k', '../../kv-connect/other/k', '\0\0perkv/x', '\xff\xff']) {
    expect(await kv.get(key)).toBeUndefined()
    await kv.write([set(key, 'mine'), { key, type: 2 }])
  }
  const all = { start: '', end: '\xff'.repeat(2049), limit: 1000 }
  expect((await kv.read([all]))[0]?.map(({ value }) => value)).not.toContain('theirs')
  expect(await other.get('k')).toMatchObject({ value: 'theirs' })
})

test.each(['GET', 'PUT', 'DELETE'] as const)('%s is no method of a database', async (method) => {
  expect((await server.send(method, '/kv-connect/db')).statusCode).toBe(405)
})
