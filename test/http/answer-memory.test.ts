import { connect } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import * as fc from 'fast-check'
import { describe, expect, test, vi } from 'vitest'
import { Grant } from '../../src/access/grant.js'
import { encodeAnswer, jsonPieces } from '../../src/http/wire/encode-answer.js'
import { LongAnswer } from '../../src/http/wire/long-answer.js'
import { redactKeys } from '../../src/http/wire/redaction.js'
import { type Plain, toJson, toMsgpack } from '../../src/http/wire/wire.js'
import { createLog } from '../../src/server/log.js'
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

async function requests(server: TestServer): Promise<unknown> {
  return (okBody(await server.get('/v1/status'))['overload'] as Json)['requests']
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
    const server = await start({ limits: { answerBytesMax: 200 * KIB } })
    for (let i = 0; i < 6; i++) await Promise.all(Array.from({ length: 100 }, (_, j) => server.put('k', `${i}.${j}`)))
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
        const packed = unpack((await encoded(answer, 'msgpack')).bytes)
        expect(isDeepStrictEqual(packed, unpack(toMsgpack(answer)))).toBe(true) // toEqual takes twenty times as long.
        expect([...jsonPieces(answer)].join('')).toBe(toJson(answer))
      }),
      { numRuns: Number(process.env['PERKV_TEST_RUNS'] ?? 4) },
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

  test('without the keys that a token does not reach, as in short ones', async () => {
    const grant = new Grant({ mayWrite: false, prefixes: [Buffer.from('a/')] })
    const secondaries = Array.from({ length: 20_000 }, (_, i) => Buffer.from(`${i % 2 ? 'a' : 'b'}/${i}`))
    const lock = { key: Buffer.from('a/1'), primary: Buffer.from('b/0'), value: Buffer.from('b/0'), secondaries }
    for (const answer of [
      { locks: [lock] },
      { locks: Array.from({ length: 5000 }, () => ({ ...lock, secondaries: [] })) },
    ]) {
      const pieces: Buffer[] = await (encodeAnswer(answer, 'json', grant) as LongAnswer).toArray()
      expect(String(Buffer.concat(pieces))).toBe(`${toJson(redactKeys(answer, grant))}\n`)
      expect(String(Buffer.concat(pieces))).toContain('"primary":"","value":"b/0"')
    }
  })

  test('one that nobody takes counts once', async () => {
    const server = await start()
    await fill(server, 4000, 1000)
    const { txn } = (await server.post('/v1/txn/begin', {})).json<Json>()
    const port = await server.listen()
    const held = async (line: string): Promise<number> => {
      const body = JSON.stringify({ ops: [{ op: 'scan', limit: 4000 }] })
      const socket = connect(port, '127.0.0.1').pause()
      socket.write(rawText(line, ['Content-Type: application/json'], body))
      await vi.waitFor(() => expect(server.store.answers.heldBytes).toBeGreaterThan(0))
      await vi.waitFor(async () => expect(await requests(server)).toBe(0))
      const bytes = server.store.answers.heldBytes
      socket.destroy()
      await vi.waitFor(() => expect(server.store.answers.heldBytes).toBe(0))
      return bytes
    }
    expect(await held(`POST /v1/txn/${txn}/ops`)).toBeLessThan(1.1 * (await held('POST /v1/txn')))
  })

  test('one whose client has gone is no fault of the server', async () => {
    const lines: string[] = []
    const server = await start({ log: createLog('info', (line) => void lines.push(line)) })
    await fill(server, 2000, 500)
    const port = await server.listen()
    const request = rawText('GET /v1/kv?limit=2000') // Requests that are not safe would run one after the other.
    const behindAnother = request.replace('Connection: close\r\n', '').repeat(3)
    const socket = connect(port, '127.0.0.1').pause()
    socket.write(behindAnother)
    await vi.waitFor(() => expect(server.store.answers.heldBytes).toBeGreaterThan(3 * 2000 * 500))
    socket.destroy()
    await vi.waitFor(() => expect(server.store.answers.heldBytes).toBe(0))
    await server.app.close()
    expect(lines).toEqual([])
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
