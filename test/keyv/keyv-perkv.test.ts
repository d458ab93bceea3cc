import { Keyv, type KeyvStoreAdapter } from 'keyv'
import { describe, expect, test } from 'vitest'
import { type Db, physicalMs } from '../../src/client/index.js'
import { KeyvPerkv } from '../../src/keyv/index.js'
import { BACKENDS, testDbs } from '../client/backends.js'
import { connectTo, failureOf } from '../coordinator/support.js'
import { testServers } from '../http/support.js'

const start = testServers()

/** What keyv's own suite leaves open. */
describe.each(BACKENDS.slice(0, 2))('$backend', ({ openDb }) => {
  const open = testDbs(openDb)

  function cache(namespace: string | undefined, db: Db): Keyv {
    const adapter: KeyvStoreAdapter = new KeyvPerkv(db)
    const keyv = new Keyv({ store: adapter, throwOnErrors: true })
    keyv.namespace = namespace
    return keyv
  }

  test('a time to live is that of the key, to the millisecond', async () => {
    const { db } = await open()
    const keyv = cache('a', db)
    await keyv.set('k', 'v', 60_000)
    await keyv.set('for ever', 'v')
    const found = await db.getVersion('keyv/a:k')
    const lifeMs = physicalMs(found?.expireTs ?? 0) - physicalMs(found?.commitTs ?? 0)
    expect(lifeMs).toBeLessThanOrEqual(60_000)
    expect(lifeMs).toBeGreaterThan(50_000) // It counts from the start of the write, which may be long before its commit.
    expect((await db.getVersion('keyv/a:for ever'))?.expireTs).toBeUndefined()
  })

  test.each([0.5, -7])('a time to live of %d ms is over soon', async (ttl) => {
    const { db } = await open()
    const adapter = new KeyvPerkv(db)
    await adapter.set('k', 'v', ttl)
    await expect.poll(() => adapter.get('k')).toBeUndefined()
  })

  test('many entries are written together, each with its time to live, or not at all', async () => {
    const { db } = await open({ valueBytesMax: 100 })
    const keyv = cache('a', db)
    expect(
      await keyv.setMany([
        { key: 'x', value: 1, ttl: 60_000 },
        { key: 'y', value: 2 },
      ]),
    ).toEqual([true, true])
    expect((await db.getVersion('keyv/a:x'))?.expireAt).toBeInstanceOf(Date)
    expect((await db.getVersion('keyv/a:y'))?.expireAt).toBeUndefined()
    expect((await db.getVersion('keyv/a:x'))?.commitTs).toBe((await db.getVersion('keyv/a:y'))?.commitTs)
    const failure = await failureOf(
      keyv.setMany([
        { key: 'x', value: 3 },
        { key: 'y', value: 'y'.repeat(200) },
      ]),
    )
    expect(failure).toMatchObject({ code: 'payload_too_large' })
    expect(await keyv.getMany(['x', 'y', 'z'])).toEqual([1, 2, undefined])
  })

  test('deletes tell whether anything was there', async () => {
    const { db } = await open()
    const keyv = cache('a', db)
    await keyv.set('x', 1)
    expect(await keyv.hasMany(['x', 'y'])).toEqual([true, false])
    expect(await keyv.delete('x')).toBe(true)
    expect(await keyv.delete('x')).toBe(false)
    await keyv.set('x', 1)
    expect(await keyv.deleteMany(['x', 'y'])).toBe(true)
    expect(await keyv.deleteMany(['x', 'y'])).toBe(false)
  })

  test('clear and iterator stay within the namespace, and below the prefix where there is none', async () => {
    const { db } = await open()
    await db.put('other', 'v')
    const [a, b, none] = [cache('a', db), cache('b', db), cache(undefined, db)] as const
    for (const keyv of [b, a]) for (const key of ['x', 'y:z']) await keyv.set(key, key)
    const pairs = []
    for await (const pair of a.iterator?.(undefined) ?? []) pairs.push(pair)
    expect(pairs).toEqual([
      ['x', 'x'],
      ['y:z', 'y:z'],
    ])
    await a.clear()
    expect(await db.count({ prefix: 'keyv/a' })).toBe(0)
    expect(await b.get('y:z')).toBe('y:z')
    await none.clear()
    expect(await b.get('y:z')).toBeUndefined()
    expect(await db.get('other')).toBe('v')
  })

  test('an error of PerKV reaches the caller, and those who listen', async () => {
    const { db } = await open({ keyBytesMax: 50 })
    const keyv = cache('a', db)
    const heard: unknown[] = []
    keyv.on('error', (error: unknown) => heard.push(error))
    const failure = await failureOf(keyv.set('k'.repeat(100), 'v'))
    expect(failure).toMatchObject({ code: 'payload_too_large' })
    expect(heard).toEqual([failure])
    expect(await failureOf(keyv.get('k'.repeat(100)))).toMatchObject({ code: 'payload_too_large' })
  })

  test('a given database stays open', async () => {
    const { db } = await open()
    const keyv = cache('a', db)
    await keyv.disconnect()
    await db.put('k', 'v')
    expect(await db.get('k')).toBe('v')
  })

  test('a prefix that is empty would clear the whole database', async () => {
    const { db } = await open()
    expect(() => new KeyvPerkv(db, { prefix: '' })).toThrow(TypeError)
  })
})

test('a connection that the adapter has opened is closed with it', async () => {
  const server = await start()
  const db = await connectTo(server)
  const address = server.app.server.address()
  const port = typeof address === 'object' ? address?.port : undefined
  const keyv = new Keyv({ store: new KeyvPerkv(`http://127.0.0.1:${port}`, { prefix: 'cache/' }), throwOnErrors: true })
  await keyv.set('k', 'v')
  expect(await db.count({ prefix: 'cache/keyv:' })).toBe(1)
  await keyv.disconnect()
  expect((await failureOf(keyv.get('k'))).message).toContain('closed')
  await db.close()
})
