import { rm } from 'node:fs/promises'
import { connect } from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { routesOf } from '../../src/http/routes/route-list.js'
import { TIMESTAMP_MAX } from '../../src/timestamp.js'
import { type Json, pack, type Sent, STATUS_OF_CODE, startServer, type TestServer, unpack } from './support.js'
import { type Body, KEYS, OBSERVERS, requestOf, type WildRequest } from './wild-requests.js'

/**
 * Every route that the server has, with requests that are nearly right, under every kind of token. The everyday run stops
 * after a few seconds and begins with the same requests each time: a rare one that fails is found by whoever looks for it,
 * and not by whoever changes something else. A long one takes as many as it is told, from a seed:
 *
 *   PERKV_TEST_RUNS=100000 PERKV_TEST_SEED=1 npx vitest run test/http/fuzz.test.ts --test-timeout=7200000
 */
const RUNS = process.env['PERKV_TEST_RUNS']
const SEED = process.env['PERKV_TEST_SEED']
const PARAMETERS = {
  seed: Number(SEED ?? 1),
  ...(RUNS === undefined
    ? { numRuns: 5000, interruptAfterTimeLimit: 2500, markInterruptAsFailure: false }
    : { numRuns: Number(RUNS) }),
}

const TOKENS = { rw: 'rw-token-0123456789', ro: 'ro-token-0123456789', app: 'app-token-0123456789' }
type Caller = keyof typeof TOKENS | 'nobody'
const caller: fc.Arbitrary<Caller> = fc.constantFrom<Caller>('rw', 'rw', 'rw', 'app', 'app', 'ro', 'nobody')
/** Of keys that the token `app` does not reach, in values and in names that no request has. */
const SECRET = 'sEcReT'
const ALL = [...KEYS, `hidden/${SECRET}`]

/** A refusal of these kinds comes before anything is read. */
const REFUSED = new Set([
  ...['invalid_argument', 'unauthorized', 'forbidden', 'payload_too_large', 'unsupported_media_type'],
])

let server: TestServer
async function open(): Promise<void> {
  const tokens = `rw ${TOKENS.rw}\nro ${TOKENS.ro}\nrw ${TOKENS.app} prefix=app/\n`
  server = await startServer({ tokens, limits: { valueBytesMax: 2000, bodyBytesMax: 20_000 } })
}
async function close(): Promise<void> {
  await server.app.close()
  await server.database.close()
  await rm(server.directory, { recursive: true })
}
beforeAll(open)
afterAll(close)

const bytes = (text: string) => Buffer.from(text)
const as = (who: Caller) => (who === 'nobody' ? {} : { authorization: `Bearer ${TOKENS[who]}` })

/** Everything is removed and written again: requests with timestamps of the far future would leave nothing to write to. */
async function seed(): Promise<void> {
  if (server.store.safePoint > 20) {
    await close() // Below it nothing can be written any more.
    await open()
  }
  await removeLocks()
  await server.store.deleteRange({ start: bytes('\0'), end: Buffer.alloc(9, 0xff) })
  const { observers, store } = server.database
  const hasObservers = store.traits.onePhaseCommit
  for (const { name } of await observers.list()) await observers.remove(name)
  for (const [name, prefix] of hasObservers ? Object.entries(OBSERVERS) : [])
    await observers.put(name, { range: { prefix: bytes(prefix) } })
  for (const key of ALL) {
    const value = key.startsWith('app/') ? '5' : `${SECRET} of ${key}`
    const startTs = store.safePoint + 5
    const { onePcCommitTs } = await store.prewrite({
      ...{ mutations: [{ op: 'put', key: bytes(key), value: bytes(value) }], primary: bytes(key) },
      ...{ startTs, lockTtl: 1, tryOnePc: true, maxCommitTs: 0, linearizable: false },
    })
    if (onePcCommitTs === undefined) await store.commit({ keys: [bytes(key)], startTs, commitTs: startTs + 1 })
  }
}

/** What stays locked would make later requests wait. */
async function removeLocks(): Promise<void> {
  const { locks } = await server.store.scanLock({ maxTs: TIMESTAMP_MAX })
  for (const { key, startTs, forUpdateTs, type } of locks)
    if (type === 'pessimistic') await server.store.pessimisticRollback({ keys: [key], startTs, forUpdateTs })
    else await server.store.rollback({ keys: [key], startTs })
}

/** Every version and lock of every key; `hidden`: of those that the token `app` does not reach. */
async function rows(): Promise<{ all: string; hidden: string }> {
  const mvcc = await Promise.all(ALL.map((key) => server.store.mvccGetByKey({ key: bytes(key) })))
  return { all: JSON.stringify(mvcc), hidden: JSON.stringify(mvcc.filter((_, i) => !ALL[i]?.startsWith('app/'))) }
}

function payloadOf(body: Body): { type: Record<string, string>; payload?: Buffer } {
  if (body.kind === 'none') return { type: {} }
  if (body.kind === 'bytes') return { type: { 'content-type': 'application/json' }, payload: Buffer.from(body.bytes) }
  const whole = body.kind === 'json' ? bytes(JSON.stringify(body.value) ?? '') : pack(body.value)
  return {
    type: { 'content-type': `application/${body.kind}` },
    payload: whole.subarray(0, Math.ceil(whole.length * body.cutTo)),
  }
}

/** Sound whatever was asked: no 5xx but for what the store lacks, nothing but problems for failures, safe for browsers. @returns the problem's code. */
function requireSound(answer: Sent, what: string, method: string): string | undefined {
  const isLacking = answer.statusCode === 501 && answer.body.includes('not_supported')
  if (!isLacking) expect(answer.statusCode, `${what}: ${answer.body}`).toBeLessThan(500)
  expect(answer.headers['x-content-type-options'], what).toBe('nosniff')
  const isPage = /: (?:GET|HEAD) \/docs/.test(what) && answer.statusCode < 400
  if (!isPage) expect(String(answer.headers['content-type'] ?? ''), what).not.toMatch(/html|script|xml|image|multipart/)
  if (answer.statusCode < 400 || method === 'HEAD') return undefined
  const isPacked = answer.headers['content-type'] === 'application/msgpack'
  if (!isPacked) expect(answer.headers['content-type'], what).toMatch(/^application\/problem\+json/)
  const { code, status } = (isPacked ? unpack(answer.rawPayload) : answer.json()) as Json
  expect(STATUS_OF_CODE.get(String(code)), `${what}: ${answer.body}`).toBe(answer.statusCode)
  expect(status).toBe(answer.statusCode)
  return String(code)
}

async function beginFor(who: Caller, mode: string): Promise<string> {
  const answer = await server.post('/v1/txn/begin', { mode: who === 'rw' ? mode : 'optimistic' }, as(who))
  return answer.statusCode === 201 ? String(answer.json<Json>()['txn']) : 'nobody'
}

async function send({ method, url, headers, body }: WildRequest, who: Caller, txn: string) {
  const { type, payload } = payloadOf(body)
  const named = url.replace(':txn', txn)
  // A stream ends only when it is told how long to wait.
  const isEndless =
    headers['accept'] === 'application/x-ndjson' && /\/changes(\?|$)/.test(url) && !url.includes('wait_ms')
  const path = isEndless ? `${named}${named.includes('?') ? '&' : '?'}wait_ms=0` : named
  return server.send(method, path, { ...type, ...headers, ...as(who) }, payload)
}

test('no request makes the server fail; a refused one changes nothing; no token reaches beyond what it may', {
  tags: ['long'],
}, async () => {
  const routes = routesOf(server.app).filter(({ method, config }) => method !== 'HEAD' && !config?.isOfPage)
  expect(routes.length).toBeGreaterThan(30)
  const codes = new Map<string, number>()
  let count = 0
  const wild = fc.constantFrom(...routes).chain(requestOf)
  const mode = fc.constantFrom('optimistic', 'pessimistic')
  const property = fc.asyncProperty(wild, caller, mode, async (request, who, txnMode) => {
    if (count++ % 40 === 0) await seed()
    const what = `${who}: ${request.method} ${request.url.slice(0, 200)}`
    const txn = request.url.includes(':txn') ? await beginFor(who, txnMode) : ''
    const before = await rows()
    const answer = await send(request, who, txn)
    const code = requireSound(answer, what, request.method)
    codes.set(code ?? 'done', (codes.get(code ?? 'done') ?? 0) + 1)
    const isOpen = ['/livez', '/readyz', '/openapi.json', '/docs'].some((url) => request.url.startsWith(url))
    if (who === 'nobody' && !isOpen) expect(answer.statusCode, what).toBeGreaterThanOrEqual(400)
    const after = await rows()
    const mayChangeNothing = (code !== undefined && REFUSED.has(code)) || who === 'ro' || who === 'nobody'
    if (mayChangeNothing) expect(after.all, what).toBe(before.all)
    if (who !== 'rw') expect(after.hidden, what).toBe(before.hidden)
    if (who === 'app' || who === 'nobody')
      expect(answer.rawPayload.includes(SECRET), `${what}: ${answer.body}`).toBe(false)
    if (answer.statusCode === 201) await rollBack(answer, who)
    if (txn !== '') await server.post(`/v1/txn/${txn}/rollback`, {}, as(who))
    await removeLocks()
  })
  await fc.assert(property, PARAMETERS)
  if (RUNS !== undefined) process.stderr.write(`${count} requests: ${JSON.stringify(Object.fromEntries(codes))}\n`)
})

async function rollBack(begun: Sent, who: Caller): Promise<void> {
  const isPacked = begun.headers['content-type'] === 'application/msgpack'
  const { txn } = (isPacked ? unpack(begun.rawPayload) : begun.json()) as Json
  await server.post(`/v1/txn/${txn}/rollback`, {}, as(who))
}

test('no bytes on a connection make the server fail', { tags: ['long'] }, async () => {
  const port = await server.listen()
  const lines = [
    'CONNECT a:80',
    'OPTIONS *',
    'TRACE /v1/kv',
    'GET /v1/kv/a',
    'PUT /v1/kv/app/a',
    'POST /v1/txn',
    'POST /v1/percolator/tso',
    'GET /v1/kv?limit=2',
  ]
  const head = fc.record({
    line: fc.oneof(fc.constantFrom(...lines), fc.string({ maxLength: 30 })),
    host: fc.constantFrom('host: localhost', 'host: localhost', 'host: localhost', 'x-no-host: 1'),
    version: fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/1.1\0', ''),
    headers: fc.array(
      fc.constantFrom(
        `authorization: Bearer ${TOKENS.rw}`,
        'content-length: 5',
        'content-length: 99',
        'content-length: -1',
        'content-length: 5, 5',
        'transfer-encoding: chunked',
        'transfer-encoding: chunked, gzip',
        'content-type: application/json',
        'expect: 100-continue',
        'upgrade: websocket\r\nconnection: upgrade',
        'x: \0',
        ' folded',
        `x: ${'y'.repeat(40_000)}`,
      ),
      { maxLength: 4 },
    ),
    body: fc.oneof(fc.constantFrom('', '{}', '5\r\nhello\r\n0\r\n\r\n', 'ffffffffffffffff\r\n'), fc.string()),
  })
  const property = fc.asyncProperty(head, async ({ line, version, host, headers, body }) => {
    const answer = await exchange(port, [`${line} ${version}`, host, ...headers, '', body].join('\r\n'))
    for (const [, status] of answer.matchAll(/^HTTP\/1\.1 (\d+)/gm)) expect(Number(status), answer).toBeLessThan(500)
    for (const [head] of answer.matchAll(/^HTTP\/1\.1 [2-5].*?\r\n\r\n/gms))
      expect(head, answer).toMatch(/^x-content-type-options: nosniff\r$/m)
    expect(answer).not.toMatch(/\.js:\d+/)
  })
  await fc.assert(property, { ...PARAMETERS, ...(RUNS === undefined && { interruptAfterTimeLimit: 1000 }) })
  expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200)
})

/** Sends it and says no more; what comes back until the server closes. */
function exchange(port: number, text: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = ''
    const socket = connect(port, '127.0.0.1')
    socket.setEncoding('latin1').on('data', (chunk) => {
      answer += chunk
    })
    socket.on('error', () => {}) // A reset is an answer too.
    socket.on('close', () => resolve(answer))
    socket.end(text, 'latin1')
  })
}
