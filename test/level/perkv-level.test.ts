import { describe, expect, test } from 'vitest'
import { isKvError } from '../../src/client/index.js'
import { open } from '../../src/embedded/open.js'
import { PerkvLevel } from '../../src/level/index.js'
import { BACKENDS, testDbs } from '../client/backends.js'
import { connectTo, failureOf } from '../coordinator/support.js'
import { testServers } from '../http/support.js'

describe.each(BACKENDS)('$backend', ({ openDb }) => {
  const start = testDbs(openDb)

  test('keys are those of the server below a prefix, and leave all others alone', async () => {
    const { db } = await start()
    await db.put('level', 'mine')
    await db.put('level0', 'mine')
    const [one, other] = [new PerkvLevel(db), new PerkvLevel(db, { prefix: 'other/' })]
    await one.batch([
      { type: 'put', key: '', value: 'empty' },
      { type: 'put', key: 'a', value: '1' },
    ])
    await other.put('a', '2')
    expect(await db.get('level/')).toBe('empty')
    expect(await db.get('level/a')).toBe('1')
    expect(await one.iterator().all()).toEqual([
      ['', 'empty'],
      ['a', '1'],
    ])
    expect(await one.keys({ reverse: true }).all()).toEqual(['a', ''])
    await one.clear()
    expect(await one.has('a')).toBe(false)
    expect(await other.get('a')).toBe('2')
    expect(await db.count()).toBe(3)
  })

  test('a transaction writes all, in sublevels and through hooks too, or nothing', async () => {
    const { db } = await start()
    const level = new PerkvLevel<string, number>(db, { valueEncoding: 'json' })
    const index = level.sublevel<string, string>('index', {})
    level.hooks.prewrite.add((op, batch) => {
      if (typeof op.value === 'number')
        batch.add({ type: 'put', key: String(op.value), value: op.key, sublevel: index })
    })
    const run = level.transaction(async (txn) => {
      await txn.put('a', 7)
      await txn.in(index).put('extra', 'x')
      expect(await txn.get('a')).toBe(7)
      expect(await level.get('a')).toBeUndefined()
      expect(await txn.in(index).iterator().all()).toEqual([
        ['7', 'a'],
        ['extra', 'x'],
      ])
      return 'done'
    })
    expect(await run).toBe('done')
    expect(await index.getMany(['7', 'extra'])).toEqual(['a', 'x'])
    const refused = new Error('refused')
    const rolledBack = level.transaction(async (txn) => {
      await txn.clear()
      expect(await txn.has('a')).toBe(false)
      await txn.put('b', 8)
      throw refused
    })
    expect(await failureOf(rolledBack)).toBe(refused)
    expect(await level.getMany(['a', 'b'])).toEqual([7, undefined])
    const foreign = new PerkvLevel(db, { prefix: 'foreign/' })
    await expect(level.transaction((txn) => txn.in(foreign).put('a', 'x'))).rejects.toThrow(TypeError)
  })

  test('after a lost race a transaction runs again, and none of its increments is lost', async () => {
    const { db } = await start()
    const level = new PerkvLevel<string, number>(db, { valueEncoding: 'json' })
    await level.put('n', 0)
    let runs = 0
    const increment = () =>
      level.transaction(async (txn) => {
        runs++
        await txn.put('n', ((await txn.get('n')) ?? 0) + 1)
        if (runs === 1) await increment()
      })
    await increment()
    expect(runs).toBe(3)
    expect(await level.get('n')).toBe(2)
    const locked = () =>
      level.transaction(async (txn) => txn.put('n', ((await txn.get('n', { forUpdate: true })) ?? 0) + 1), {
        mode: 'pessimistic',
      })
    await Promise.all([locked(), locked(), locked()])
    expect(await level.get('n')).toBe(5)
  })

  test('snapshots and iterators have nothing that is written after them', async () => {
    const { db } = await start()
    const level = new PerkvLevel(db)
    await level.put('a', 'old')
    const snapshot = level.snapshot()
    const iterator = level.iterator()
    const writes = [
      level.put('a', 'new'),
      level.batch([
        { type: 'put', key: 'b', value: 'new' },
        { type: 'put', key: 'c', value: 'new' },
      ]),
      level.transaction((txn) => txn.put('d', 'new')),
    ]
    expect(await iterator.all()).toEqual([['a', 'old']])
    await Promise.all(writes)
    expect(await level.getMany(['a', 'b', 'd'], { snapshot })).toEqual(['old', undefined, undefined])
    await level.clear({ snapshot })
    expect(await level.keys().all()).toEqual(['b', 'c', 'd'])
    await snapshot.close()
    expect(await failureOf(level.get('a', { snapshot }))).toMatchObject({ code: 'LEVEL_SNAPSHOT_NOT_OPEN' })
  })

  test('errors have codes of level, and those of PerKV as their causes', async () => {
    const { db } = await start({ keyBytesMax: 10, valueBytesMax: 10 })
    const level = new PerkvLevel(db)
    const long = 'x'.repeat(11)
    for (const [code, call] of [
      ['LEVEL_INVALID_KEY', () => level.put(long, '')],
      ['LEVEL_INVALID_KEY', () => level.get(long)],
      ['LEVEL_INVALID_KEY', () => level.getMany(['a', long])],
      ['LEVEL_INVALID_VALUE', () => level.put('a', long)],
      [
        'LEVEL_INVALID_VALUE',
        () =>
          level.batch([
            { type: 'put', key: 'a', value: '' },
            { type: 'put', key: 'b', value: long },
          ]),
      ],
    ] as const) {
      const error = await failureOf(call())
      expect(error).toMatchObject({ code })
      expect(isKvError(error.cause, 'payload_too_large')).toBe(true)
    }
    expect(() => level.getSync('a')).toThrow(expect.objectContaining({ code: 'LEVEL_NOT_SUPPORTED' }))
    await level.close()
    expect(await failureOf(level.get('a'))).toMatchObject({ code: 'LEVEL_DATABASE_NOT_OPEN' })
    expect(await failureOf(level.transaction(() => {}))).toMatchObject({ code: 'LEVEL_DATABASE_NOT_OPEN' })
    expect(await db.count()).toBe(0) // It stays open.
    expect(() => new PerkvLevel(db, { prefix: '' })).toThrow(TypeError)
  })

  test('clear deletes any number of entries, and stops at its limit', { tags: ['long'] }, async () => {
    const { db } = await start()
    const level = new PerkvLevel(db)
    const keys = Array.from({ length: 2100 }, (_, i) => String(i).padStart(4, '0'))
    await level.batch(keys.map((key) => ({ type: 'put', key, value: '' })))
    await level.clear({ limit: 50, reverse: true })
    expect(await level.keys().all()).toEqual(keys.slice(0, 2050))
    await level.clear()
    expect(await level.keys().all()).toEqual([])
  })
})

test('what a function has opened is closed with the level, and opened again', async () => {
  const level = new PerkvLevel(() => open(':memory:'))
  await level.put('a', '1')
  await level.close()
  await level.open()
  expect(await level.get('a')).toBeUndefined()
  await level.close()
  const failing = new PerkvLevel(() => Promise.reject(new Error('no disk')))
  const error = await failureOf(failing.open())
  expect(error).toMatchObject({ code: 'LEVEL_DATABASE_NOT_OPEN', cause: { message: 'no disk' } })
})

describe('over a network', () => {
  const start = testServers()

  test('an iterator that outlives the versions of its snapshot says so, and does not end early', async () => {
    const server = await start()
    const db = await connectTo(server)
    const level = new PerkvLevel(db)
    await level.batch(Array.from({ length: 100 }, (_, i) => ({ type: 'put', key: String(100 + i), value: '' })))
    const snapshot = level.snapshot()
    const iterator = level.iterator()
    expect((await iterator.next())?.[0]).toBe('100')
    await expect
      .poll(async () => {
        await server.post('/v1/admin/gc', { life_time_ms: 0 })
        return level.get('100', { snapshot }).catch((error) => error)
      })
      .toMatchObject({ code: 'LEVEL_SNAPSHOT_NOT_OPEN', cause: { code: 'ts_below_safe_point' } })
    expect((await iterator.nextv(31)).at(-1)?.[0]).toBe('131')
    for (let tries = 0; tries < 2; tries++)
      expect(await failureOf(iterator.next())).toMatchObject({ code: 'LEVEL_SNAPSHOT_NOT_OPEN' })
    await level.close()
    await db.close()
  })

  test('a server that is away is a lost connection', async () => {
    const server = await start()
    const db = await connectTo(server, { retryMs: 0, connectTimeoutMs: 1 })
    await server.app.close()
    const level = new PerkvLevel(db)
    expect(await failureOf(level.get('a'))).toMatchObject({
      code: 'LEVEL_CONNECTION_LOST',
      cause: { code: 'connection_failed' },
    })
    const iterator = level.iterator()
    expect(await failureOf(iterator.next())).toMatchObject({ code: 'LEVEL_CONNECTION_LOST' })
    expect(await failureOf(level.put('a', '1'))).toMatchObject({ code: 'LEVEL_CONNECTION_LOST' })
    await level.close()
    await db.close()
  })
})
