import { describe, expect, test } from 'vitest'
import type { Connection } from '../../../src/client/index.js'
import { collect, connectTo, failureOf } from '../../coordinator/support.js'
import { testServers } from '../../http/support.js'

const start = testServers()

async function connected(): Promise<{ db: Connection; post: (path: string, body: object) => Promise<unknown> }> {
  const server = await start()
  return { db: await connectTo(server), post: (path, body) => server.post(path, body) }
}

describe('atomic', () => {
  test('checks and ops in one request, with keys and values as text or bytes', async () => {
    const { db } = await connected()
    const answer = await db.atomic({
      checks: [{ key: 'n', exists: false }],
      ops: [
        { op: 'increment', key: 'n', by: 3 },
        { op: 'put', key: new Uint8Array([0xff]), value: new Uint8Array([0xfe]) },
        { op: 'get', key: 'n' },
        { op: 'scan', start: 'a', end: 'o', limit: 5 },
      ],
    })
    const { commitTs } = answer
    expect(answer.results).toEqual([
      { value: '3' },
      {},
      { found: true, value: '3' },
      { pairs: [{ key: 'n', value: '3' }] },
    ])
    expect(await db.getVersion('n')).toEqual({ value: '3', commitTs })
    const bytes = await db.atomic({ ops: [{ op: 'get', key: new Uint8Array([0xff]) }] }, { as: 'bytes' })
    expect(bytes.results).toEqual([{ found: true, value: new Uint8Array([0xfe]), commitTs }])
    expect(bytes.commitTs).toBeUndefined()
    await expect(db.atomic({ ops: [{ op: 'get', key: new Uint8Array([0xff]) }] })).rejects.toThrow(TypeError)
    await db.close()
  })

  test('a check that does not hold writes nothing; the same idempotencyKey writes once', async () => {
    const { db } = await connected()
    const ops = [{ op: 'increment', key: 'n' }] as const
    const refused = db.atomic({ checks: [{ key: 'n', value: '7' }], ops })
    expect(await failureOf(refused)).toMatchObject({ code: 'precondition_failed' })
    const first = await db.atomic({ ops }, { idempotencyKey: 'once' })
    expect(await db.atomic({ ops }, { idempotencyKey: 'once' })).toEqual(first)
    expect(await db.get('n')).toBe('1')
    await db.close()
  })
})

test('status has what the route has', async () => {
  const { db } = await connected()
  const status = await db.status()
  expect(status).toMatchObject({
    store: 'leveldb',
    writable: true,
    counts: { openTransactions: 0 },
    observers: { count: 0 },
  })
  await db.close()
  expect(await failureOf(db.status())).toBeInstanceOf(TypeError)
})

test('locks come page by page, of a range, up to a limit or a start_ts', async () => {
  const { db, post } = await connected()
  const keys = Array.from({ length: 600 }, (_, i) => `k${String(i).padStart(3, '0')}`)
  const { startTs } = await db.begin()
  const mutations = keys.map((key) => ({ op: 'put', key, value: 'v' }))
  await post('/v1/percolator/prewrite', { mutations, primary: 'k000', start_ts: startTs, lock_ttl: 60_000 })
  const all = await collect(db.locks())
  expect(all.map(({ key }) => key)).toEqual(keys)
  expect(all[0]).toMatchObject({ primary: 'k000', startTs, ttl: 60_000, type: 'put' })
  expect((await collect(db.locks({ prefix: 'k1', limit: 3 }))).map(({ key }) => key)).toEqual(['k100', 'k101', 'k102'])
  expect(await collect(db.locks({ maxTs: startTs - 1 }))).toEqual([])
  expect(await collect(db.locks({ limit: 0 }))).toEqual([])
  expect((await collect(db.locks({ limit: 1, as: 'bytes' })))[0]?.key).toEqual(new TextEncoder().encode('k000'))
  // @ts-expect-error a misspelt option is refused
  expect(await failureOf(collect(db.locks({ limits: 1 })))).toBeInstanceOf(TypeError)
  await db.close()
})

test('mvcc has the records of a key', async () => {
  const { db, post } = await connected()
  const first = await db.put('k', 'v')
  const long = 'x'.repeat(300)
  const second = await db.put('k', long)
  const { startTs } = await db.begin()
  await post('/v1/percolator/prewrite', {
    mutations: [{ op: 'delete', key: 'k' }],
    primary: 'k',
    start_ts: startTs,
    lock_ttl: 60_000,
  })
  const { lock, writes, values } = await db.mvcc('k')
  expect(lock).toMatchObject({ key: 'k', startTs, type: 'delete' })
  expect(writes.map(({ type, commitTs, shortValue }) => [type, commitTs, shortValue])).toEqual([
    ['put', second.commitTs, undefined],
    ['put', first.commitTs, 'v'],
  ])
  expect(values).toEqual([{ startTs: writes[0]?.startTs, value: long }])
  expect((await db.mvcc('k', { as: 'bytes' })).writes[1]?.shortValue).toEqual(new Uint8Array([0x76]))
  expect(await db.mvcc('absent')).toEqual({ lock: null, writes: [], values: [] })
  await db.close()
})
