import { describe, expect, test, vi } from 'vitest'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { PrewriteRequest } from '../../src/percolator/api.js'
import { expectProblem, type Json, listOf, numberOf, okBody, pack, type TestServer, testServers } from './support.js'

const MIB = 1024 * 1024
const PAGE_BYTES_MAX = DEFAULT_LIMITS.pageBytesMax
/** So that a transaction is full before the test is slow. */
const TXN_BYTES_MAX = 11 * MIB

const startAny = testServers()
const start = (): Promise<TestServer> => startAny({ limits: { txnBytesMax: TXN_BYTES_MAX } })

/** @returns the URL of a transaction that is open. */
async function begin(server: TestServer, body: Json = {}): Promise<string> {
  const answer = await server.post('/v1/txn/begin', body)
  expect(answer.statusCode, answer.body).toBe(201)
  return `/v1/txn/${answer.json<Json>()['txn']}`
}

async function ops(server: TestServer, txn: string, list: readonly Json[]): Promise<Json[]> {
  return listOf(okBody(await server.post(`${txn}/ops`, { ops: list })), 'results')
}

/** A scan with a cursor, to its end. */
async function pagesOf(server: TestServer, txn: string, query: string): Promise<Json[][]> {
  const pages: Json[][] = []
  for (let parameters = query; ; ) {
    const page = okBody(await server.get(`${txn}/kv?${parameters}`))
    pages.push(listOf(page, 'pairs'))
    if (page['cursor'] === undefined) return pages
    parameters = `cursor=${encodeURIComponent(String(page['cursor']))}`
  }
}

/** Compares what must be equal, without printing MiB of it. */
function expectValues(pairs: readonly Json[], wanted: (key: string) => string): void {
  for (const { key, value } of pairs) expect(value === wanted(String(key)), String(key)).toBe(true)
}

describe.each([false, true])(
  'pages of a transaction end at their bound of bytes, with a cursor (reverse: %s)',
  (reverse) => {
    const keys = Array.from({ length: 10 }, (_, i) => `k${i}`)
    const inOrder = reverse ? keys.toReversed() : keys
    const indexOf = (key: string): number => Number(key.slice(1))
    const bytesOf = (key: string, byte: string): string => byte.repeat(MIB - 1) + indexOf(key)

    test('values of control characters, which JSON writes six times as long', async () => {
      const server = await start()
      const txn = await begin(server)
      for (const key of keys) okBody(await server.send('PUT', `${txn}/kv/${key}`, {}, bytesOf(key, '\u0001')))
      const pages = await pagesOf(server, txn, `limit=1000&reverse=${reverse}`)
      expect(pages.map((pairs) => pairs.length)).toEqual([PAGE_BYTES_MAX / MIB, 10 - PAGE_BYTES_MAX / MIB])
      const pairs = pages.flat()
      expect(pairs.map(({ key }) => key)).toEqual(inOrder)
      expectValues(pairs, (key) => bytesOf(key, '\u0001'))
    })

    test('own writes among stored values, some of which they delete or overwrite', async () => {
      const server = await start()
      for (const key of keys) if (indexOf(key) % 4 !== 0) await server.put(key, bytesOf(key, 's'))
      const txn = await begin(server)
      okBody(await server.send('DELETE', `${txn}/kv/k5`))
      const own = keys.filter((key) => indexOf(key) % 2 === 0)
      for (const key of own) okBody(await server.send('PUT', `${txn}/kv/${key}`, {}, bytesOf(key, 'o')))
      const pages = await pagesOf(server, txn, `limit=1000&reverse=${reverse}`)
      expect(pages.length).toBeGreaterThan(1)
      for (const pairs of pages) expect(pairs.length).toBeLessThanOrEqual(PAGE_BYTES_MAX / MIB)
      const pairs = pages.flat()
      expect(pairs.map(({ key }) => key)).toEqual(inOrder.filter((key) => key !== 'k5'))
      expectValues(pairs, (key) => bytesOf(key, own.includes(key) ? 'o' : 's'))
    })
  },
)

describe('20 000 own writes', () => {
  const nameOf = (i: number): string => `w/${String(i).padStart(5, '0')}`

  test('counts and scans agree with a model', async () => {
    const server = await start()
    const model = new Map<string, string>()
    const stored: Json[] = []
    for (let i = 0; i < 24_000; i += 16) {
      stored.push({ op: 'put', key: nameOf(i), value: `stored ${i}` })
      model.set(nameOf(i), `stored ${i}`)
    }
    await server.txn({ ops: stored })
    const txn = await begin(server)
    const writes: Json[] = []
    for (let j = 0; j < 20_000; j++) {
      const i = (j * 7919) % 20_000 // Each once, in no order.
      const key = nameOf(i)
      if (i % 5 === 0) {
        writes.push({ op: 'delete', key })
        model.delete(key)
      } else {
        writes.push({ op: 'put', key, value: `own ${i}` })
        model.set(key, `own ${i}`)
      }
    }
    for (let from = 0; from < writes.length; from += 10_000) await ops(server, txn, writes.slice(from, from + 10_000))
    expect(numberOf(okBody(await server.get(txn)), 'writes')).toBe(20_000)

    const sorted = [...model].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, value]) => ({ key, value }))
    const within = (from: string, to: string) => sorted.filter(({ key }) => key >= from && key < to)
    const count = async (query: string): Promise<number> =>
      numberOf(okBody(await server.get(`${txn}/kv?count_only=true${query}`)), 'count')
    expect(await count('')).toBe(sorted.length)
    expect(await count('&prefix=w/12')).toBe(within('w/12', 'w/13').length)
    expect(await count(`&start=${nameOf(19_000)}`)).toBe(within(nameOf(19_000), 'x').length)
    expect(await count('&reverse=true')).toBe(sorted.length)

    const shown = (pairs: readonly Json[]): Json[] => pairs.map(({ key, value }) => ({ key, value }))
    for (const i of [0, 5, 6, 9_999, 10_000, 19_995, 19_999, 20_000, 23_993, 24_000]) {
      const up = await server.get(`${txn}/kv?limit=1&start=${nameOf(i)}`)
      expect(shown(listOf(okBody(up), 'pairs'))).toEqual(within(nameOf(i), 'x').slice(0, 1))
      const down = await server.get(`${txn}/kv?limit=1&reverse=true&end=${nameOf(i)}`)
      expect(shown(listOf(okBody(down), 'pairs'))).toEqual(within('', nameOf(i)).slice(-1))
    }
    const steps = Array.from({ length: 40 }, (_, i) => ({ op: 'scan', start: nameOf(i * 600), limit: 1 }))
    for (const [i, { pairs }] of (await ops(server, txn, steps)).entries())
      expect(shown(pairs as Json[])).toEqual(within(nameOf(i * 600), 'x').slice(0, 1))
    for (const reverse of [false, true]) {
      const pages = await pagesOf(server, txn, `limit=10000&reverse=${reverse}`)
      expect(shown(pages.flat())).toEqual(reverse ? sorted.toReversed() : sorted)
    }
    // One at a time, with a write in the middle of it, which the scan does not see.
    const first = okBody(await server.get(`${txn}/kv?limit=1`))
    await ops(server, txn, [{ op: 'delete', key: sorted[1]?.key }])
    const second = okBody(await server.get(`${txn}/kv?cursor=${encodeURIComponent(String(first['cursor']))}`))
    expect([first, second].flatMap((page) => shown(listOf(page, 'pairs')))).toEqual([sorted[0], sorted[1]])
  })
})

describe('MessagePack values do not keep the requests that they came in', () => {
  const SMALL = 1000
  const mutationsOf = (requests: readonly PrewriteRequest[]) => requests.flatMap(({ mutations }) => mutations)

  test('what is prewritten has memory of its own', async () => {
    const server = await start()
    const prewrite = vi.spyOn(server.store, 'prewrite')
    const txn = await begin(server)
    for (let i = 0; i < 3; i++) {
      const list = [
        { op: 'put', key: Buffer.from(`small ${i}`), value: Buffer.alloc(SMALL, i) },
        { op: 'get', key: Buffer.from('k'.repeat(4000)) },
        { op: 'put', key: Buffer.from('overwritten'), value: Buffer.alloc(MIB, i) },
      ]
      okBody(await server.postPacked(`${txn}/ops`, pack({ ops: list }), { accept: 'application/json' }))
    }
    okBody(await server.send('PUT', `${txn}/kv/overwritten`, {}, 'short'))
    okBody(await server.post(`${txn}/commit`, {}))
    const mutations = mutationsOf(prewrite.mock.calls.map(([request]) => request))
    expect(mutations.map(({ key }) => Buffer.from(key).toString())).toEqual([
      'small 0',
      'overwritten',
      'small 1',
      'small 2',
    ])
    for (const { key, value } of mutations) {
      // A pool of Node's may hold some short ones together.
      expect(key.buffer.byteLength).toBeLessThanOrEqual(64 * 1024)
      expect(value?.buffer.byteLength).toBeLessThanOrEqual(64 * 1024)
    }
    expect((await server.get('/v1/kv/small%202')).rawPayload).toEqual(Buffer.alloc(SMALL, 2))
  })
})

describe('what a serializable transaction has read', () => {
  /** Absent keys of the greatest length. */
  const reads = (from: number, count: number): Json[] =>
    Array.from({ length: count }, (_, i) => ({ op: 'get', key: String(from + i).padStart(4096, 'k') }))
  const HALF = Math.floor(TXN_BYTES_MAX / 4200 / 2)

  test('is bounded; the transaction goes on', async () => {
    const server = await start()
    const txn = await begin(server, { isolation: 'serializable' })
    await ops(server, txn, [{ op: 'put', key: 'a', value: '1' }, ...reads(0, HALF)])
    await ops(server, txn, reads(0, HALF)) // The same ones cost nothing.
    const refused = await server.post(`${txn}/ops`, {
      ops: [{ op: 'put', key: 'b', value: '1' }, ...reads(HALF, HALF + 100)],
    })
    expectProblem(refused, 'payload_too_large', { limit: TXN_BYTES_MAX })
    okBody(await server.post(`${txn}/commit`, {}))
    expect([(await server.get('/v1/kv/a')).statusCode, (await server.get('/v1/kv/b')).statusCode]).toEqual([200, 404])
  })

  test('so are the ranges that it scanned', async () => {
    const server = await start()
    const txn = await begin(server, { isolation: 'serializable' })
    const scans = (from: number): Json[] =>
      Array.from({ length: HALF * 0.6 }, (_, i) => {
        const bound = String(from + i).padStart(4095, 'k')
        return { op: 'scan', start: bound, end: `${bound}z` }
      })
    await ops(server, txn, scans(0))
    expectProblem(await server.post(`${txn}/ops`, { ops: scans(10_000) }), 'payload_too_large', {
      limit: TXN_BYTES_MAX,
    })
  })

  test('of a snapshot nothing is remembered', async () => {
    const server = await start()
    const txn = await begin(server)
    await ops(server, txn, reads(0, HALF * 2 + 100))
    okBody(await server.post(`${txn}/commit`, {}))
  })
})

describe('the keys of a transaction', () => {
  const MAX = 5
  const keys = Array.from({ length: MAX }, (_, i) => `k${i}`)
  const startSmall = (): Promise<TestServer> => startAny({ limits: { requestKeysMax: MAX } })

  test.each(['optimistic', 'pessimistic'])('are bounded, however many requests bring them (%s)', async (mode) => {
    const server = await startSmall()
    const txn = await begin(server, { mode })
    for (const key of keys) await ops(server, txn, [{ op: 'put', key, value: '1' }])
    await ops(server, txn, [{ op: 'put', key: 'k0', value: '2' }]) // One of them again.
    expectProblem(await server.send('PUT', `${txn}/kv/more`, {}, '1'), 'payload_too_large', { limit: MAX })
    okBody(await server.post(`${txn}/commit`, {}))
    expect((await server.get('/v1/kv/k0')).body).toBe('2')
    expect((await server.get('/v1/kv/more')).statusCode).toBe(404)
  })

  test.each(['optimistic', 'pessimistic'])('count where they are only read for update (%s)', async (mode) => {
    const server = await startSmall()
    const txn = await begin(server, { mode })
    for (const key of keys) await server.get(`${txn}/kv/${key}?for_update=true`)
    const answers = []
    for (const key of ['more', 'most']) answers.push(await server.get(`${txn}/kv/${key}?for_update=true`))
    expectProblem(answers[1] as (typeof answers)[number], 'payload_too_large', { limit: MAX })
  })
})
