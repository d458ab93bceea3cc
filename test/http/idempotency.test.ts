import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { IDEMPOTENCY_MS } from '../../src/limits.js'
import { OUTCOMES } from '../../src/percolator/codec/outcome-key.js'
import { reservedKey } from '../../src/percolator/codec/reserved-key.js'
import { isOutcomeExpired } from '../../src/txn/idempotency.js'
import { withTempDir } from '../process/server-process.js'
import { openTestStore, skipOthers } from '../store/test-store.js'
import {
  Clock,
  expectProblem,
  type Headers,
  type Json,
  okBody,
  type Sent,
  serve as serveStore,
  startServer,
  type TestServer,
  testServers,
} from './support.js'

const jsonOf = (answer: Sent): Json => answer.json<Json>()

/** A server on a directory, with a clock that the test steps. */
async function serve(directory: string, clock: { ms: number }) {
  const store = await openTestStore(directory, { durability: 'sync', now: () => clock.ms })
  const http = await serveStore(store, directory)
  return {
    http,
    store,
    async close() {
      await http.app.close()
      await store.close()
    },
  }
}

const put = (http: TestServer, key: string, value: string, idempotencyKey: string, headers: Headers = {}) =>
  http.send('PUT', `/v1/kv/${key}`, { 'idempotency-key': idempotencyKey, ...headers }, value)
const txn = (http: TestServer, body: object, idempotencyKey: string) =>
  http.post('/v1/txn', body, { 'idempotency-key': idempotencyKey })
const increment = { ops: [{ op: 'increment', key: 'n', by: 1 }] }
const isReplayed = (answer: Sent): boolean => answer.headers['idempotency-replayed'] === 'true'

describe('Idempotency-Key', () => {
  const clock = { ms: Date.now() }
  let server: Awaited<ReturnType<typeof serve>>
  let directory = ''
  let finish: () => void = () => {}
  let gone: Promise<void>
  beforeAll(async () => {
    await new Promise<void>((ready) => {
      gone = withTempDir(async (temp) => {
        directory = temp
        ready()
        await new Promise<void>((resolve) => {
          finish = resolve
        })
      })
    })
    server = await serve(directory, clock)
  })
  afterAll(async () => {
    await server.close()
    finish()
    await gone
  })

  const isStored = async (key: string): Promise<boolean> =>
    (await server.store.get({ key: reservedKey(Buffer.from(`outcome/${key}`)) })).found
  const sweep = () => server.store.sweepRows(OUTCOMES, (value) => isOutcomeExpired(value, clock.ms))

  test('a repeat answers the first outcome and writes nothing, after a restart too', async () => {
    const first = await txn(server.http, increment, 'count once')
    expect([first.statusCode, isReplayed(first)]).toEqual([200, false])
    for (const round of ['same process', 'restarted']) {
      if (round === 'restarted') {
        skipOthers('opens what another run has left')
        await server.close()
        server = await serve(directory, clock)
      }
      const repeat = await txn(server.http, increment, 'count once')
      expect([repeat.statusCode, isReplayed(repeat), repeat.json()]).toEqual([200, true, first.json()])
    }
    expect((await server.http.get('/v1/kv/n')).body).toBe('1')
  })

  test('PUT and DELETE, the conditional ones too', async () => {
    const first = await put(server.http, 'a', '1', 'put a', { 'if-none-match': '*' })
    const repeat = await put(server.http, 'a', '1', 'put a', { 'if-none-match': '*' })
    expect(first.statusCode).toBe(200)
    expect([isReplayed(repeat), repeat.json()]).toEqual([true, first.json()])
    const del = () => server.http.send('DELETE', '/v1/kv/a', { 'idempotency-key': 'delete a' })
    const deleted = await del()
    await put(server.http, 'a', '2', 'put a again')
    const again = await del()
    expect([isReplayed(again), again.json()]).toEqual([true, deleted.json()])
    expect((await server.http.get('/v1/kv/a')).body).toBe('2')
  })

  test('another request under the same key is refused', async () => {
    await put(server.http, 'b', '1', 'put b')
    for (const other of [
      await put(server.http, 'b', '2', 'put b'),
      await put(server.http, 'c', '1', 'put b'),
      await put(server.http, 'b', '1', 'put b', { 'if-none-match': '*' }),
      await txn(server.http, increment, 'put b'),
    ]) {
      expect(other.statusCode).toBe(422)
      expect(other.json()).toMatchObject({ status: 422, code: 'idempotency_mismatch' })
    }
    expect((await server.http.get('/v1/kv/b')).body).toBe('1')
  })

  test('a failed request may be tried again', async () => {
    const insert = { ops: [{ op: 'insert', key: 'd', value: '1' }] }
    await put(server.http, 'd', 'in the way', 'put d')
    expect((await txn(server.http, insert, 'insert d')).statusCode).toBe(409)
    await server.http.send('DELETE', '/v1/kv/d')
    const second = await txn(server.http, insert, 'insert d')
    expect([second.statusCode, isReplayed(second)]).toEqual([200, false])
    expect(isReplayed(await txn(server.http, insert, 'insert d'))).toBe(true)
  })

  test('of a request that wrote nothing nothing is stored: a repeat runs again', async () => {
    const read = { ops: [{ op: 'get', key: 'e' }] }
    expect((await txn(server.http, read, 'read e')).json().results).toEqual([{ found: false }])
    await put(server.http, 'e', '1', 'put e')
    const repeat = await txn(server.http, read, 'read e')
    expect([isReplayed(repeat), repeat.json().results]).toEqual([false, [expect.objectContaining({ found: true })]])
    expect(await isStored('read e')).toBe(false)
  })

  test('repeats sent together take effect once', async () => {
    const body = { ops: [{ op: 'increment', key: 'together', by: 1 }] }
    const answers = await Promise.all(Array.from({ length: 20 }, () => txn(server.http, body, 'together')))
    expect(answers.filter((answer) => !isReplayed(answer))).toHaveLength(1)
    expect(new Set(answers.map(({ body }) => body)).size).toBe(1)
    expect((await server.http.get('/v1/kv/together')).body).toBe('1')
  })

  test('after its time an outcome is forgotten, and collected', async () => {
    const body = { ops: [{ op: 'increment', key: 'late', by: 1 }] }
    await txn(server.http, body, 'late')
    clock.ms += IDEMPOTENCY_MS - 1000
    await sweep()
    expect(isReplayed(await txn(server.http, body, 'late'))).toBe(true)
    clock.ms += 2000
    expect(isReplayed(await txn(server.http, body, 'late'))).toBe(false)
    expect((await server.http.get('/v1/kv/late')).body).toBe('2')
    clock.ms += IDEMPOTENCY_MS + 1
    expect(await isStored('late')).toBe(true)
    await sweep()
    expect(await isStored('late')).toBe(false)
  })

  test('a key that is used anew while the old outcome is collected keeps the new one', async () => {
    const body = { ops: [{ op: 'increment', key: 'reused', by: 1 }] }
    await txn(server.http, body, 'reused')
    clock.ms += IDEMPOTENCY_MS + 1
    let renewed: Promise<Sent> | undefined
    await server.store.sweepRows(OUTCOMES, (value) => {
      const isOver = isOutcomeExpired(value, clock.ms)
      if (isOver) renewed ??= txn(server.http, body, 'reused')
      return isOver
    })
    const first = await renewed
    expect(first && isReplayed(first)).toBe(false)
    expect(isReplayed(await txn(server.http, body, 'reused'))).toBe(true)
    expect((await server.http.get('/v1/kv/reused')).body).toBe('2')
  })

  test.each(['', 'x'.repeat(256), 'tab\there', 'caf\u00e9'])('%j is no key', async (key) => {
    const answer = await put(server.http, 'f', '1', key)
    expect([answer.statusCode, answer.json().code, answer.json().field]).toEqual([
      400,
      'invalid_argument',
      'idempotency-key',
    ])
  })
})

describe('what is stored for an Idempotency-Key is bounded', () => {
  const start = testServers()
  const secrets = { reader: 'r'.repeat(32), app: 'a'.repeat(32), other: 'o'.repeat(32) }
  const tokens = Object.entries(secrets)
    .map(([name, secret]) => `${name === 'reader' ? 'ro' : 'rw'} ${secret} name=${name}`)
    .join('\n')
  const as = (name: keyof typeof secrets, key: string) => ({
    ...{ authorization: `Bearer ${secrets[name]}`, 'idempotency-key': key },
  })
  const storedBytes = ({ store }: TestServer): Promise<number> => store.sweepRows(OUTCOMES, () => false)

  test('a read-only token stores nothing, however much it reads', { tags: ['long'] }, async () => {
    const server = await start({ tokens })
    const url = (key: string) => `/v1/kv/${key}`
    for (let i = 0; i < 20; i++)
      okBody(await server.send('PUT', url(`k${i}`), as('app', `put ${i}`), Buffer.alloc(50_000)))
    const before = await storedBytes(server)
    for (let i = 0; i < 20; i++) {
      okBody(await server.post('/v1/txn', { ops: [{ op: 'scan', limit: 100 }] }, as('reader', `read ${i}`)))
      const begun = await server.post('/v1/txn/begin', {}, as('reader', 'begin'))
      okBody(await server.post(`/v1/txn/${begun.json<Json>()['txn']}/commit`, {}, as('reader', `commit ${i}`)))
    }
    expect(await storedBytes(server)).toBe(before)
  })

  test('an outcome that is too long is refused before anything is written', { tags: ['long'] }, async () => {
    const server = await start({ limits: { outcomeBytesMax: 4096 } })
    await server.put('long', 'v'.repeat(3000))
    const key = { 'idempotency-key': 'once' }
    const put = { op: 'put', key: 'k', value: '1' }
    const [read, tiny] = [
      { op: 'get', key: 'long' },
      { op: 'scan', prefix: 'none' },
    ]
    for (const ops of [
      [read, read, put],
      [...Array.from({ length: 1000 }, () => tiny), put],
    ]) {
      expectProblem(await server.post('/v1/txn', { ops }, key), 'payload_too_large', { limit: 4096 })
      expect((await server.get('/v1/kv/k')).statusCode).toBe(404)
      okBody(await server.post('/v1/txn', { ops: ops.slice(0, -1) }, key)) // Without a write nothing is stored.
    }
    const fits = await server.post('/v1/txn', { ops: [read, put] }, key)
    const again = await server.post('/v1/txn', { ops: [read, put] }, key)
    expect([okBody(fits), isReplayed(again)]).toEqual([okBody(again), true])
    expect(await server.ok('scan_lock', { max_ts: Number.MAX_SAFE_INTEGER })).toEqual({ locks: [] })
  })

  test('of all, and of one caller: beyond it nothing is written, repeats are answered, and time makes room', {
    tags: ['long'],
  }, async () => {
    const clock = new Clock()
    const server = await start({ tokens, limits: { outcomesBytesMax: 4000 }, now: clock.now })
    const put = (name: keyof typeof secrets, key: string) => server.send('PUT', `/v1/kv/${key}`, as(name, key), 'v')
    const fill = async (name: keyof typeof secrets): Promise<number> => {
      for (let i = 0; ; i++) {
        const answer = await put(name, `${name}${i}`)
        if (answer.statusCode === 200) continue
        expectProblem(answer, 'overloaded')
        expect(answer.headers['retry-after']).toBe('1')
        expect((await server.get(`/v1/kv/${name}${i}`, as('reader', 'x'))).statusCode).toBe(404)
        return i
      }
    }
    const ofOne = await fill('app')
    expect(ofOne).toBeGreaterThan(5)
    expect(await fill('other')).toBe(ofOne) // The other half.
    expect(isReplayed(await put('app', 'app0'))).toBe(true)
    okBody(await server.post('/v1/txn', { ops: [{ op: 'get', key: 'app0' }] }, as('app', 'a read')))
    okBody(await server.send('PUT', '/v1/kv/unkeyed', { authorization: `Bearer ${secrets.app}` }, 'v'))
    const begun = jsonOf(await server.post('/v1/txn/begin', {}, as('app', 'begin')))
    const txn = `/v1/txn/${begun['txn']}`
    okBody(await server.send('PUT', `${txn}/kv/in-txn`, as('app', 'x'), 'v'))
    expectProblem(await server.post(`${txn}/commit`, {}, as('app', 'commit')), 'overloaded')
    expect(await server.get(txn, as('app', 'x')).then(okBody)).toMatchObject({ state: 'open' })
    clock.ms += IDEMPOTENCY_MS + 61_000
    await server.collectOutcomes()
    expect(await storedBytes(server)).toBe(0)
    okBody(await put('app', 'later'))
    okBody(await put('other', 'later too'))
  })

  test('those of an earlier run are counted, and as many as there are expire together', {
    tags: ['long'],
  }, async () => {
    const clock = new Clock()
    const first = await startServer({ now: clock.now })
    await Promise.all(
      Array.from({ length: 1500 }, (_, i) => first.send('PUT', `/v1/kv/k${i}`, { 'idempotency-key': `${i}` }, 'v')),
    )
    await first.app.close()
    await first.store.close()
    const { directory } = first
    const server = await start({ directory, now: clock.now, limits: { outcomesBytesMax: 10_000 } })
    const put = () => server.send('PUT', '/v1/kv/k', { 'idempotency-key': 'new' }, 'v')
    await server.collectOutcomes()
    expectProblem(await put(), 'overloaded')
    clock.ms += IDEMPOTENCY_MS + 1
    await server.collectOutcomes()
    expect(await storedBytes(server)).toBe(0)
    okBody(await put())
  })
})
