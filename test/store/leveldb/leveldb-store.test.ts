import { randomBytes } from 'node:crypto'
import { ClassicLevel } from 'classic-level'
import { describe, expect, test } from 'vitest'
import { encodeKeyAt } from '../../../src/percolator/codec/key.js'
import { packRecord } from '../../../src/percolator/codec/record.js'
import { DataDirectoryError } from '../../../src/store/leveldb/data-directory-error.js'
import { FORMAT_VERSION } from '../../../src/store/leveldb/directory/data-directory.js'
import { CF_DEFAULT, metaKey } from '../../../src/store/leveldb/records/keyspace.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { keyNumber } from '../suite/contents.js'
import { codeOf, prewriteOf, put, read, TappedEngine, testStores, utf8, write } from '../support.js'

const stores = testStores()

describe('opening', () => {
  test('a directory in use is refused, and served once it is free', async () => {
    const directory = await stores.directory()
    const first = await stores.open({ directory })
    const refused = stores.open({ directory })
    await expect(refused).rejects.toThrow(DataDirectoryError)
    await expect(refused).rejects.toThrow(/in use/)
    await write(first, 5, 6, [put('a', '1')])
    await first.close()
    expect(await read(await stores.open({ directory }), 'a')).toBe('1')
  })

  test('a newer format is refused, and the directory let go', async () => {
    const directory = await stores.directory()
    const newer = new ClassicLevel<Buffer, Buffer>(directory, { keyEncoding: 'buffer', valueEncoding: 'buffer' })
    await newer.put(metaKey('format'), packRecord([FORMAT_VERSION + 1]))
    await newer.close()
    for (let i = 0; i < 2; i++) {
      const refused = stores.open({ directory })
      await expect(refused).rejects.toThrow(DataDirectoryError)
      await expect(refused).rejects.toThrow(/newer/)
    }
  })

  test("another program's LevelDB is refused and left as it was", async () => {
    const directory = await stores.directory()
    const foreign = new ClassicLevel(directory)
    await foreign.put('hello', 'world')
    await foreign.close()
    await expect(stores.open({ directory })).rejects.toThrow(DataDirectoryError)
    await foreign.open()
    expect(await foreign.keys().all()).toEqual(['hello'])
    await foreign.close()
  })

  test('a directory that cannot be made is a DataDirectoryError', async () => {
    await expect(stores.open({ directory: '/dev/null/data' })).rejects.toThrow(DataDirectoryError)
  })

  test.each([
    ['sync', true],
    ['async', false],
  ] as const)('durability %s: every batch is written with sync %s', async (durability, sync) => {
    const tapped = new TappedEngine()
    const store = await stores.open({ durability, openEngine: tapped.open })
    tapped.writes.length = 0
    await write(store, 5, 6, [put('a', '1')])
    await store.prewrite(prewriteOf(10, [put('a', '2')], { tryOnePc: true }))
    await store.prewrite(prewriteOf(TIMESTAMP_MAX - 10, [put('b')]))
    await store.rollback({ keys: [utf8('b')], startTs: TIMESTAMP_MAX - 10 })
    expect(tapped.writes.length).toBeGreaterThanOrEqual(5)
    expect(tapped.writes.map((each) => each.sync)).toEqual(tapped.writes.map(() => sync))
  })

  test('closing twice, and a request after closing, leave the directory free', async () => {
    const tapped = new TappedEngine()
    const directory = await stores.directory()
    const store = await stores.open({ directory, openEngine: tapped.open })
    await write(store, 5, 6, [put('a', '1')])
    await store.close()
    expect(await codeOf(read(store, 'a', 9))).toBe('storage_unavailable')
    expect(await codeOf(store.prewrite(prewriteOf(9, [put('a')])))).toBe('storage_unavailable')
    await tapped.quiet()
    expect(tapped.reopens).toBe(0)
    await store.close()
    expect(await read(await stores.open({ directory }), 'a', 9)).toBe('1')
  })
})

test('values of 255 bytes travel in the records, longer ones stand in CF_DEFAULT', async () => {
  const tapped = new TappedEngine()
  const store = await stores.open({ openEngine: tapped.open })
  const storedValues = async (): Promise<string[]> => {
    const iterator = tapped.engine.iterator({ gte: Buffer.of(CF_DEFAULT), lt: Buffer.of(CF_DEFAULT + 1) })
    const entries = await iterator.nextv(100)
    await iterator.close()
    return entries.map(([key]) => key.toString('hex'))
  }
  const long = encodeKeyAt(CF_DEFAULT, utf8('long'), 10).toString('hex')
  await store.prewrite(prewriteOf(10, [put('short', 'x'.repeat(255)), put('long', 'y'.repeat(256)), put('empty', '')]))
  expect(await storedValues()).toEqual([long])
  await store.commit({ keys: [utf8('short'), utf8('long'), utf8('empty')], startTs: 10, commitTs: 20 })
  expect(await storedValues()).toEqual([long])
  expect(await read(store, 'long')).toBe('y'.repeat(256))
})

test('the space of long values that were collected comes back', { tags: ['long'] }, async () => {
  const store = await stores.open()
  const value = randomBytes(64 * 1024)
  for (let version = 0; version < 20; version++)
    for (let i = 0; i < 10; i++)
      await store.prewrite(prewriteOf(10 * version + 5, [put(keyNumber(i), value)], { tryOnePc: true }))
  await store.files.compact({})
  const before = await store.files.bytes()
  expect(await store.upkeep.collect(1000)).toBe(190)
  expect(await store.files.bytes()).toBeLessThan(before / 4)
  expect((await store.scan({ ts: 1000, limit: 100 })).pairs).toHaveLength(10)
})
