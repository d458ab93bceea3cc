import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { encodeAnswer, jsonPieces } from '../../src/http/encode-answer.js'
import { LongAnswer } from '../../src/http/long-answer.js'
import { type Plain, toJson, toMsgpack } from '../../src/http/wire.js'
import {
  expectProblem,
  type Json,
  okBody,
  rawRequest,
  rawText,
  type TestServer,
  testServers,
  unpack,
} from './support.js'

const start = testServers()
const KIB = 1024

async function fill(server: TestServer, keys: number, valueBytes = 1): Promise<void> {
  for (let from = 0; from < keys; from += 500) {
    const ops = Array.from({ length: Math.min(500, keys - from) }, (_, i) => ({
      ...{ op: 'put', key: `k${String(from + i).padStart(5, '0')}`, value: 'v'.repeat(valueBytes) },
    }))
    await server.txn({ ops })
  }
}

describe('the memory of an answer is bounded, however small its pairs are', () => {
  const limits = { answerBytesMax: 1000 * KIB }
  const scans = (count: number) => Array.from({ length: count }, () => ({ op: 'scan', keys_only: true, limit: 1000 }))

  test('of all ops of a transaction together', async () => {
    const server = await start({ limits })
    await fill(server, 1000)
    okBody(await server.post('/v1/txn', { ops: scans(4) }))
    expectProblem(await server.post('/v1/txn', { ops: scans(6) }), 'payload_too_large', { limit: 1000 * KIB })
    const begun = (await server.post('/v1/txn/begin', {})).json<Json>()
    expectProblem(await server.post(`/v1/txn/${begun['txn']}/ops`, { ops: scans(6) }), 'payload_too_large')
    okBody(await server.post(`/v1/txn/${begun['txn']}/ops`, { ops: scans(4) }))
  })

  test('of one call', async () => {
    const server = await start({ limits })
    await fill(server, 6000)
    const keys = Array.from({ length: 6000 }, (_, i) => `k${String(i).padStart(5, '0')}`)
    const { ts } = await server.ok('tso', {})
    expectProblem(await server.post('/v1/kv/batch_get', { keys }), 'payload_too_large')
    expectProblem(await server.call('batch_get', { keys, ts }), 'payload_too_large')
    expectProblem(await server.call('scan', { limit: 6000, ts, key_only: true }), 'payload_too_large')
    expect((await server.ok('scan', { limit: 2000, ts }))['pairs']).toHaveLength(2000)
    const mutations = keys.slice(0, 3000).map((key) => ({ op: 'put', key, value: '' }))
    await server.ok('prewrite', { mutations, primary: keys[0], start_ts: ts })
    expectProblem(await server.call('scan_lock', { max_ts: ts }), 'payload_too_large')
    expect((await server.ok('scan_lock', { max_ts: ts, limit: 2000 }))['locks']).toHaveLength(2000)
    await server.ok('rollback', { keys: keys.slice(0, 3000), start_ts: ts })
  })

  test('of the history of one key, before all of it is read', async () => {
    const server = await start({ limits })
    for (let i = 0; i < 30; i++) await Promise.all(Array.from({ length: 100 }, (_, j) => server.put('k', `${i}.${j}`)))
    expectProblem(await server.call('mvcc_get_by_key', { key: 'k' }), 'payload_too_large')
  })

  test('of all answers together: who comes when there is no room is told to come again', async () => {
    const server = await start({ limits: { answersBytesMax: 800 * KIB } })
    await fill(server, 1000)
    okBody(await server.post('/v1/txn', { ops: scans(2) }))
    const lease = server.store.answers.lease()
    lease.hold(350 * KIB)
    expectProblem(await server.post('/v1/txn', { ops: scans(2) }), 'overloaded')
    okBody(await server.post('/v1/txn', { ops: scans(1) }))
    lease.end()
    expect(server.store.answers.heldBytes).toBe(0)
  })
})

describe('long answers are encoded as they are taken', () => {
  const bytes = fc.uint8Array({ maxLength: 40 })
  const leaf: fc.Arbitrary<Plain> = fc.oneof(
    bytes,
    fc.string(),
    fc.integer(),
    fc.maxSafeInteger(),
    fc.boolean(),
    fc.constant(null),
  )
  const plain = fc.letrec<{ node: Plain }>((tie) => ({
    node: fc.oneof(
      { depthSize: 'small' },
      leaf,
      fc.array(tie('node'), { maxLength: 40 }),
      fc.dictionary(
        fc.constantFrom('pairs', 'commitTs', 'startTs', 'lock', 'secondaries', 'key'),
        fc.oneof(tie('node'), fc.constant(undefined)),
      ),
    ),
  })).node

  async function encoded(answer: Plain, format: 'json' | 'msgpack'): Promise<{ bytes: Buffer; longest: number }> {
    const body = encodeAnswer(answer, format, undefined)
    if (!(body instanceof LongAnswer)) return { bytes: Buffer.from(body), longest: body.length }
    const pieces: Buffer[] = await body.toArray()
    return { bytes: Buffer.concat(pieces), longest: Math.max(...pieces.map(({ length }) => length)) }
  }

  test('the pieces are what it is at once, in JSON and in MessagePack', async () => {
    await fc.assert(
      fc.asyncProperty(plain, async (some) => {
        const answer = {
          some,
          pairs: Array.from({ length: 9000 }, (_, i) => ({ key: Buffer.of(i % 256), some })).slice(0, 3000),
        }
        expect(String((await encoded(answer, 'json')).bytes)).toBe(`${toJson(answer)}\n`)
        expect(unpack((await encoded(answer, 'msgpack')).bytes)).toEqual(unpack(toMsgpack(answer)))
        expect([...jsonPieces(answer)].join('')).toBe(toJson(answer))
      }),
      { numRuns: 10 },
    )
  })

  test.each(['json', 'msgpack'] as const)('no piece is long, however long the answer: %s', async (format) => {
    const pairs = Array.from({ length: 20_000 }, (_, i) => ({ key: Buffer.from(`k${i}`), value: Buffer.alloc(20, 1) }))
    const { bytes, longest } = await encoded(
      { results: [{ pairs }], many: Array.from({ length: 70_000 }, () => 1) },
      format,
    )
    expect(longest).toBeLessThan(300_000)
    expect(bytes.length).toBeGreaterThan(longest)
  })

  test('over a connection, of any format and route', async () => {
    const server = await start()
    await fill(server, 5000, 50)
    const ops = [{ op: 'scan', limit: 5000 }]
    const { results } = await server.txn({ ops })
    const [{ pairs }] = results as [{ pairs: Json[] }]
    expect([pairs.length, pairs[4999]]).toEqual([
      5000,
      { key: 'k04999', value: 'v'.repeat(50), commit_ts: expect.any(Number) },
    ])
    const packed = await server.post('/v1/txn', { ops }, { accept: 'application/msgpack' })
    const unpacked = unpack(packed.rawPayload) as { results: [{ pairs: { key: Buffer }[] }] }
    expect(String(unpacked.results[0].pairs[4999]?.key)).toBe('k04999')
    const port = await server.listen()
    const { body } = await rawRequest(port, rawText('GET /v1/kv?limit=5000').replace('HTTP/1.1', 'HTTP/1.0'))
    expect(JSON.parse(body)).toMatchObject({ pairs })
    const head = await server.send('HEAD', '/v1/kv?limit=5000')
    expect([head.statusCode, head.body]).toEqual([200, ''])
  })

  test('a problem that lists much', async () => {
    const server = await start()
    await fill(server, 5000)
    const keys = Array.from({ length: 5000 }, (_, i) => `k${String(i).padStart(5, '0')}`)
    const checks = keys.map((key) => ({ key, exists: false }))
    const failed = expectProblem(await server.post('/v1/txn', { checks }), 'precondition_failed')
    expect(failed['failed_checks']).toHaveLength(5000)
  })
})
