import { describe, expect, test } from 'vitest'
import { connect, isKvError } from '../../src/client/index.js'
import { collect, connectTo, failureOf } from '../coordinator/support.js'
import { testServers } from '../http/support.js'
import { prewriteOf, put, utf8 } from '../store/support.js'
import { BACKENDS, testDbs } from './backends.js'
import { FaultyNetwork } from './http/faulty-fetch.js'

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const start = testDbs(openDb)

  describe('one key', () => {
    test('text, and bytes where asked; undefined when absent', async () => {
      const { db } = await start()
      const { commitTs } = await db.put('Zürich', 'Grüezi')
      expect(await db.get('Zürich')).toBe('Grüezi')
      expect(await db.get(new TextEncoder().encode('Zürich'), { as: 'bytes' })).toEqual(
        new TextEncoder().encode('Grüezi'),
      )
      expect(await db.getVersion('Zürich')).toEqual({ value: 'Grüezi', commitTs })
      await db.put('empty', '')
      expect(await db.get('empty')).toBe('')
      expect(await db.get('empty', { as: 'bytes' })).toEqual(new Uint8Array())
      expect((await db.delete('Zürich')).commitTs).toBeGreaterThan(commitTs)
      expect(await db.get('Zürich')).toBeUndefined()
      expect((await db.delete('Zürich')).commitTs).toBeGreaterThan(0)
    })

    test('any key: each byte, slashes, dots, what URLs would drop', { tags: ['long'] }, async () => {
      const { db } = await start()
      const keys = ['.', '..', 'a/../b', './x', '/', '//', '%2e', 'a?b#c', 'a b+c', '\u0000', '\ufeffbom', '🦀']
      const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte)
      for (const key of [...keys, bytes]) await db.put(key, key)
      for (const key of keys) expect(await db.get(key), key).toBe(key)
      expect(await db.get(bytes, { as: 'bytes' })).toEqual(bytes)
      expect(await db.count()).toBe(keys.length + 1)
      const versions = await Promise.all(keys.map((key) => db.getVersion(key)))
      for (const [i, key] of keys.entries()) {
        const stale = await failureOf(db.put(key, 'x', { ifMatch: (versions[i]?.commitTs ?? 0) - 1 }))
        expect(isKvError(stale, 'precondition_failed') && stale.fields.commitTs, key).toBe(versions[i]?.commitTs)
        expect(await failureOf(db.put(key, 'x', { ifAbsent: true }))).toMatchObject({ code: 'precondition_failed' })
        await db.delete(key, { ifMatch: versions[i]?.commitTs ?? 0 })
        expect(await db.get(key), key).toBeUndefined()
        expect(await db.get(key, { ts: versions[i]?.commitTs }), key).toBe(key)
        await db.put(key, 'anew', { ifAbsent: true })
      }
    })

    test('what is no text is refused, and says how to go on', async () => {
      const { db } = await start()
      await db.put('binary', new Uint8Array([255, 254]))
      const error = await failureOf(db.get('binary'))
      expect(error).toBeInstanceOf(TypeError)
      expect(error.message).toBe(`the value of "binary" is not UTF-8 text: read it with { as: 'bytes' }`)
      expect(await db.get('binary', { as: 'bytes' })).toEqual(new Uint8Array([255, 254]))
      await expect(db.put('half \ud800', 'x')).rejects.toThrow('the key holds half a surrogate pair')
      await expect(db.put('x', 'half \ud800')).rejects.toThrow('the value holds half a surrogate pair')
      await expect(db.put('x', 7 as unknown as string)).rejects.toThrow('the value must be a string or a Uint8Array')
    })

    test('conditions: the version that was read, or none', async () => {
      const { db } = await start()
      const first = await db.put('k', '1', { ifAbsent: true })
      const second = await db.put('k', '2', { ifMatch: first.commitTs })
      const error = await failureOf(db.put('k', '3', { ifMatch: first.commitTs }))
      expect(error).toMatchObject({ name: 'KvError', code: 'precondition_failed', fields: second })
      expect(await failureOf(db.delete('k', { ifMatch: first.commitTs }))).toMatchObject({
        code: 'precondition_failed',
      })
      await expect(db.put('k', '3', { ifMatch: 1, ifAbsent: true } as object)).rejects.toThrow(TypeError)
      expect(await db.get('k')).toBe('2')
    })

    test('the limits of the server come back as its errors', async () => {
      const { db } = await start({ keyBytesMax: 10, valueBytesMax: 10 })
      expect(await failureOf(db.put('k', 'x'.repeat(11)))).toMatchObject({ code: 'payload_too_large' })
      expect(await failureOf(db.get('k'.repeat(11)))).toMatchObject({ code: 'payload_too_large' })
      expect(await failureOf(db.put('', 'x'))).toMatchObject({ code: 'invalid_argument' })
    })
  })

  describe('many keys', () => {
    test('batchGet: in the order asked for, twice where asked twice', async () => {
      const { db } = await start()
      for (const key of ['a', 'b', 'c']) await db.put(key, key.toUpperCase())
      const before = await db.snapshot()
      await db.delete('b')
      expect(await db.batchGet(['c', 'nope', 'a', 'b', 'c'])).toEqual(['C', undefined, 'A', undefined, 'C'])
      expect(await db.batchGet(['b'], { ts: before.ts, as: 'bytes' })).toEqual([new TextEncoder().encode('B')])
      expect(await db.batchGet([])).toEqual([])
    })

    test('scan: ranges, order, limit, keys alone', async () => {
      const { db } = await start()
      const commits = new Map<string, number>()
      for (const key of ['a', 'b/1', 'b/2', 'b/3', 'c']) commits.set(key, (await db.put(key, `${key}!`)).commitTs)
      const pair = (key: string) => ({ key, value: `${key}!`, commitTs: commits.get(key) })
      expect(await collect(db.scan())).toEqual(['a', 'b/1', 'b/2', 'b/3', 'c'].map(pair))
      expect(await collect(db.scan({ prefix: 'b/' }))).toEqual(['b/1', 'b/2', 'b/3'].map(pair))
      expect(await collect(db.scan({ prefix: 'b/', reverse: true, limit: 2 }))).toEqual(['b/3', 'b/2'].map(pair))
      expect(await collect(db.scan({ start: 'b/2', end: 'c' }))).toEqual(['b/2', 'b/3'].map(pair))
      expect(await collect(db.scan({ start: 'b/3', keysOnly: true }))).toEqual([
        { key: 'b/3', commitTs: commits.get('b/3') },
        { key: 'c', commitTs: commits.get('c') },
      ])
      expect(await collect(db.scan({ limit: 0 }))).toEqual([])
      expect(await db.count({ prefix: 'b/' })).toBe(3)
      expect(await db.count({ start: 'b/2', end: 'c', ts: commits.get('b/2') })).toBe(1)
      await expect(collect(db.scan({ prefix: 'b', start: 'a' } as object))).rejects.toThrow(TypeError)
    })

    test('a prefix of bytes 0xFF, and one that is empty', async () => {
      const { db } = await start()
      const high = new Uint8Array([255, 255])
      await db.put(high, 'x')
      await db.put('a', 'x')
      const prefix = Buffer.from([255])
      expect(await collect(db.scan({ prefix, as: 'bytes' }))).toMatchObject([{ key: high }])
      expect(await db.count({ prefix })).toBe(1)
      expect(await db.count({ prefix: '' })).toBe(2)
      const odd = Buffer.from([1, 255])
      await collect(db.scan({ prefix: odd }))
      expect(odd).toEqual(Buffer.from([1, 255])) // The caller's bytes are the caller's.
    })

    test('a long scan is one snapshot, whatever is written meanwhile', { tags: ['long'] }, async () => {
      const { db } = await start()
      await db.transaction(async (txn) => {
        for (let i = 0; i < 3000; i++) await txn.put(`k${String(i).padStart(4, '0')}`, 'old')
      })
      let seen = 0
      for await (const { key, value } of db.scan({ prefix: 'k' })) {
        expect(value).toBe('old')
        if (seen++ % 500 !== 0) continue
        await db.put('k2999', 'new')
        await db.put(`${key}+`, 'new')
      }
      expect(seen).toBe(3000)
      expect(await collect(db.scan({ prefix: 'k', reverse: true, limit: 1 }))).toMatchObject([
        { key: 'k2999', value: 'new' },
      ])
    })
  })

  describe('the past', () => {
    test('by timestamp, by the clock, and as a snapshot', async () => {
      const { db } = await start()
      const { commitTs } = await db.put('k', 'old')
      const snapshot = await db.snapshot()
      await new Promise((resolve) => setTimeout(resolve, 5))
      const at = new Date()
      await new Promise((resolve) => setTimeout(resolve, 5))
      await db.put('k', 'new')
      await db.put('l', 'new')
      expect(await db.get('k', { ts: commitTs })).toBe('old')
      expect(await db.get('k', { ts: commitTs - 1 })).toBeUndefined()
      expect(await db.get('k', { at })).toBe('old')
      expect(await db.count({ at })).toBe(1)
      expect(await collect(db.scan({ at }))).toEqual([{ key: 'k', value: 'old', commitTs }])
      for (const then of [snapshot, await db.snapshot(at), await db.snapshot(commitTs)]) {
        expect(await then.get('k')).toBe('old')
        expect(await then.getVersion('k', { as: 'bytes' })).toEqual({
          value: new TextEncoder().encode('old'),
          commitTs,
        })
        expect(await then.get('l')).toBeUndefined()
        expect(await then.batchGet(['l', 'k'])).toEqual([undefined, 'old'])
        expect(await collect(then.scan({ reverse: true, keysOnly: true }))).toEqual([{ key: 'k', commitTs }])
        expect(await then.count()).toBe(1)
      }
      await expect(db.get('k', { ts: 1, at } as object)).rejects.toThrow('give ts or at, not both')
      await expect(db.get('k', { ts: 0.5 })).rejects.toThrow(TypeError)
    })
  })

  describe('locks of others', () => {
    test('a dead transaction’s are rolled back, a living one’s are waited for', { tags: ['long'] }, async () => {
      const { db, store } = await start({ lockWaitMs: 50 })
      await store.prewrite(prewriteOf(5, [put('dead', 'x'), put('dead too', 'x')]))
      expect(await collect(db.scan({ prefix: 'dead' }))).toEqual([])
      expect(await db.get('dead')).toBeUndefined()
      const startTs = await store.tso(1)
      await store.prewrite(prewriteOf(startTs, [put('living', 'x'), put('living too', 'x')]))
      const error = await failureOf(collect(db.scan({ prefix: 'living' })))
      expect(isKvError(error, 'key_locked') && error.fields.locks?.map(({ startTs }) => startTs)).toEqual([
        startTs,
        startTs,
      ])
      expect(await failureOf(db.put('living', 'x'))).toMatchObject({
        code: 'key_locked',
        fields: { lock: { startTs } },
      })
      expect(await db.get('living')).toBeUndefined() // The latest read passes over a primary lock.
      expect(await failureOf(db.get('living too'))).toMatchObject({ code: 'key_locked' })
      setTimeout(() => void store.rollback({ keys: [utf8('living'), utf8('living too')], startTs }), 100)
      expect(await collect(db.scan({ prefix: 'living', lockWaitMs: 20_000 }))).toEqual([])
    })
  })

  test('under a key of the caller’s, across connections', async () => {
    const { db, another } = await start()
    const first = await db.put('k', 'v', { idempotencyKey: 'order 17' })
    await db.put('k', 'later')
    const again = await (await another()).put('k', 'v', { idempotencyKey: 'order 17' })
    expect(again).toEqual(first)
    expect(await db.get('k')).toBe('later')
    const other = await failureOf(db.put('k', 'other', { idempotencyKey: 'order 17' }))
    expect(other).toMatchObject({ code: 'idempotency_mismatch' })
    await expect(db.put('k', 'v', { idempotencyKey: 'line\nbreak' })).rejects.toThrow(TypeError)
  })

  test('an AbortSignal ends any call', async () => {
    const { db, store } = await start({ lockWaitMs: 60_000 })
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('a', 'x'), put('b', 'x')], { lockTtl: 60_000 }))
    const calls: ((signal: AbortSignal) => Promise<unknown>)[] = [
      (signal) => db.get('b', { signal }),
      (signal) => db.put('b', 'x', { signal }),
      (signal) => db.delete('b', { signal }),
      (signal) => db.batchGet(['b'], { signal }),
      (signal) => collect(db.scan({ signal })),
      (signal) => db.count({ signal }),
      (signal) => db.snapshot(undefined, { signal }).then((snapshot) => snapshot.get('b')),
      (signal) => db.transaction((txn) => txn.get('b'), { signal }),
      (signal) => db.transaction((txn) => txn.put('b', 'x'), { signal, mode: 'pessimistic' }),
    ]
    const started = performance.now()
    for (const call of calls) {
      const controller = new AbortController()
      setTimeout(() => controller.abort(new Error('enough')), 20)
      expect((await failureOf(call(controller.signal))).message, String(call)).toBe('enough')
    }
    expect(performance.now() - started).toBeLessThan(20_000)
    await store.rollback({ keys: [utf8('a'), utf8('b')], startTs }) // A server still waits for some of them.
  })

  test('close: nothing goes on, and nothing can be asked any more', async () => {
    const { db } = await start()
    await db.put('k', 'v')
    await db.close()
    await db.close()
    const calls = [db.get('k'), db.put('k', 'v'), db.begin(), db.snapshot(), db.count(), collect(db.scan())]
    for (const { message } of await Promise.all(calls.map(failureOf)))
      expect(message).toMatch(/^this (connection|database) is closed$/)
  })
})

const start = testServers()

test('a scan that is left asks for no more pages', async () => {
  const network = new FaultyNetwork()
  const db = await connectTo(await start(), { fetch: network.fetch })
  await db.transaction(async (txn) => {
    for (let i = 0; i < 100; i++) await txn.put(`k${i}`, 'x')
  })
  for await (const _ of db.scan({ prefix: 'k' })) break
  expect(network.countOf('/v1/percolator/scan')).toBe(1)
})

describe('exactly once', () => {
  test('a write whose answer is lost, or that arrives twice, takes effect once', { tags: ['long'] }, async () => {
    const server = await start()
    const fates = ['lose_request', 'busy', 'lose_answer', 'twice'] as const
    const network = new FaultyNetwork(({ index }) => fates[index] ?? 'arrive')
    const db = await connectTo(server, { fetch: network.fetch })
    await db.put('k', 'v')
    expect(network.countOf('/v1/kv/k')).toBe(4)
    expect((await server.mvcc('k'))['writes']).toHaveLength(1)
  })

  test('its repetition answers the first outcome: conditions are not checked again', async () => {
    const server = await start()
    const network = new FaultyNetwork(({ index }) => (index % 2 === 0 ? 'lose_answer' : 'arrive'))
    const db = await connectTo(server, { fetch: network.fetch })
    for (const key of ['k', '..']) {
      const { commitTs } = await db.put(key, 'v', { ifAbsent: true })
      const deleted = await db.delete(key, { ifMatch: commitTs })
      expect(deleted.commitTs).toBeGreaterThan(commitTs)
      expect(await db.get(key)).toBeUndefined()
    }
  })

  test('a server that does not come back: the outcome is not known', async () => {
    const server = await start()
    const network = new FaultyNetwork(() => 'lose_answer')
    const db = await connectTo(server, { fetch: network.fetch, retryMs: 50 })
    const error = await failureOf(db.put('k', 'v'))
    expect(error).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: true })
    network.fateOf = () => 'refuse'
    expect(await failureOf(db.put('k', 'v'))).toMatchObject({ code: 'connection_failed', mayHaveTakenEffect: false })
  })
})

test('connections are kept alive', { tags: ['long'] }, async () => {
  const server = await start()
  let connections = 0
  server.app.server.on('connection', () => connections++)
  const db = await connectTo(server)
  for (let i = 0; i < 50; i++) await db.transaction((txn) => txn.increment('n'))
  expect(connections).toBeLessThan(5)
})

test('connect takes http and https URLs', () => {
  for (const url of ['ftp://a', 'http://u:p@a', 'http://a?b', 'nowhere'])
    expect(() => connect(url), url).toThrow(TypeError)
  connect('https://a.test/perkv/')
})

test('a read that chooses no timestamp is not refused because a collection passed the one it took', async () => {
  const server = await start()
  let collections = 0
  const collecting: typeof fetch = async (url, init) => {
    const answer = await fetch(url, init)
    if (!String(url).endsWith('/percolator/tso') || collections >= 3) return answer
    collections++
    await server.ok('gc', { safe_point: server.store.time.clock() })
    return answer
  }
  const db = await connectTo(server, { fetch: collecting })
  await db.put('a', '1')
  expect(await db.batchGet(['a', 'b'])).toEqual(['1', undefined])
  expect(collections).toBe(3)
  collections = 0
  expect((await collect(db.scan())).map(({ key }) => key)).toEqual(['a'])
  expect(collections).toBe(3)
})
