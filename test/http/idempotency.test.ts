import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createApp } from '../../src/http/app.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { openLevelDbStore } from '../../src/store/leveldb/leveldb-store.js'
import { IDEMPOTENCY_MS, isOutcomeExpired } from '../../src/txn/idempotency.js'
import { withTempDir } from '../process/server-process.js'

type App = Awaited<ReturnType<typeof createApp>>
type Injected = Awaited<ReturnType<App['inject']>>

/** A server on a directory, with a clock that the test steps. */
async function serve(directory: string, clock: { ms: number }) {
  const store = await openLevelDbStore({ directory, durability: 'sync', now: () => clock.ms })
  const app = await createApp({
    store,
    limits: DEFAULT_LIMITS,
    version: '0',
    durability: 'sync',
    log: pino({ level: 'silent' }),
  })
  return {
    app,
    store,
    async close() {
      await app.close()
      await store.close()
    },
  }
}

const put = (app: App, key: string, value: string, idempotencyKey: string, headers: object = {}): Promise<Injected> =>
  app.inject({
    method: 'PUT',
    url: `/v1/kv/${key}`,
    payload: value,
    headers: { 'idempotency-key': idempotencyKey, ...headers },
  })
const txn = (app: App, body: object, idempotencyKey: string): Promise<Injected> =>
  app.inject({ method: 'POST', url: '/v1/txn', payload: body, headers: { 'idempotency-key': idempotencyKey } })
const increment = { ops: [{ op: 'increment', key: 'n', by: 1 }] }
const isReplayed = (answer: Injected): boolean => answer.headers['idempotency-replayed'] === 'true'

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

  test('a repeat answers the first outcome and writes nothing, after a restart too', async () => {
    const first = await txn(server.app, increment, 'count once')
    expect([first.statusCode, isReplayed(first)]).toEqual([200, false])
    for (const round of ['same process', 'restarted']) {
      if (round === 'restarted') {
        await server.close()
        server = await serve(directory, clock)
      }
      const repeat = await txn(server.app, increment, 'count once')
      expect([repeat.statusCode, isReplayed(repeat), repeat.json()]).toEqual([200, true, first.json()])
    }
    expect((await server.app.inject('/v1/kv/n')).body).toBe('1')
  })

  test('PUT and DELETE, the conditional ones too', async () => {
    const first = await put(server.app, 'a', '1', 'put a', { 'if-none-match': '*' })
    const repeat = await put(server.app, 'a', '1', 'put a', { 'if-none-match': '*' })
    expect(first.statusCode).toBe(200)
    expect([isReplayed(repeat), repeat.json()]).toEqual([true, first.json()])
    const del = () =>
      server.app.inject({ method: 'DELETE', url: '/v1/kv/a', headers: { 'idempotency-key': 'delete a' } })
    const deleted = await del()
    await put(server.app, 'a', '2', 'put a again')
    const again = await del()
    expect([isReplayed(again), again.json()]).toEqual([true, deleted.json()])
    expect((await server.app.inject('/v1/kv/a')).body).toBe('2')
  })

  test('another request under the same key is refused', async () => {
    await put(server.app, 'b', '1', 'put b')
    for (const other of [
      await put(server.app, 'b', '2', 'put b'),
      await put(server.app, 'c', '1', 'put b'),
      await put(server.app, 'b', '1', 'put b', { 'if-none-match': '*' }),
      await txn(server.app, increment, 'put b'),
    ]) {
      expect(other.statusCode).toBe(422)
      expect(other.json()).toMatchObject({ status: 422, code: 'idempotency_mismatch' })
    }
    expect((await server.app.inject('/v1/kv/b')).body).toBe('1')
  })

  test('a failed request may be tried again', async () => {
    const insert = { ops: [{ op: 'insert', key: 'd', value: '1' }] }
    await put(server.app, 'd', 'in the way', 'put d')
    expect((await txn(server.app, insert, 'insert d')).statusCode).toBe(409)
    await server.app.inject({ method: 'DELETE', url: '/v1/kv/d' })
    const second = await txn(server.app, insert, 'insert d')
    expect([second.statusCode, isReplayed(second)]).toEqual([200, false])
    expect(isReplayed(await txn(server.app, insert, 'insert d'))).toBe(true)
  })

  test('a request that found nothing to write is stored as well', async () => {
    const read = { ops: [{ op: 'get', key: 'e' }] }
    const first = await txn(server.app, read, 'read e')
    await put(server.app, 'e', '1', 'put e')
    const repeat = await txn(server.app, read, 'read e')
    expect([isReplayed(repeat), repeat.json()]).toEqual([true, first.json()])
  })

  test('repeats sent together take effect once', async () => {
    const body = { ops: [{ op: 'increment', key: 'together', by: 1 }] }
    const answers = await Promise.all(Array.from({ length: 20 }, () => txn(server.app, body, 'together')))
    expect(answers.filter((answer) => !isReplayed(answer))).toHaveLength(1)
    expect(new Set(answers.map(({ body }) => body)).size).toBe(1)
    expect((await server.app.inject('/v1/kv/together')).body).toBe('1')
  })

  test('after its time an outcome is forgotten, and collected', async () => {
    const body = { ops: [{ op: 'increment', key: 'late', by: 1 }] }
    const key = Buffer.from('late')
    await txn(server.app, body, 'late')
    clock.ms += IDEMPOTENCY_MS - 1000
    await server.store.collectOutcomes((record) => isOutcomeExpired(record, clock.ms))
    expect(isReplayed(await txn(server.app, body, 'late'))).toBe(true)
    clock.ms += 2000
    expect(isReplayed(await txn(server.app, body, 'late'))).toBe(false)
    expect((await server.app.inject('/v1/kv/late')).body).toBe('2')
    clock.ms += IDEMPOTENCY_MS + 1
    expect(await server.store.outcome(key)).toBeDefined()
    await server.store.collectOutcomes((record) => isOutcomeExpired(record, clock.ms))
    expect(await server.store.outcome(key)).toBeUndefined()
  })

  test('a key that is used anew while the old outcome is collected keeps the new one', async () => {
    const key = Buffer.from('reused')
    const record = (text: string) => ({ key, record: Buffer.from(text) })
    await server.store.putOutcome(record('old'))
    let renewed: Promise<void> | undefined
    await server.store.collectOutcomes((bytes) => {
      if (String(bytes) !== 'old') return false
      renewed ??= server.store.once(key, () => server.store.putOutcome(record('new')))
      return true
    })
    await renewed
    expect(String(await server.store.outcome(key))).toBe('new')
  })

  test.each(['', 'x'.repeat(256), 'tab\there', 'caf\u00e9'])('%j is no key', async (key) => {
    const answer = await put(server.app, 'f', '1', key)
    expect([answer.statusCode, answer.json().code, answer.json().field]).toEqual([
      400,
      'invalid_argument',
      'idempotency-key',
    ])
  })
})
