import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../../../src/limits.js'
import { Clock } from '../../../../src/oracle/clock.js'
import { Oracle } from '../../../../src/oracle/oracle.js'
import { AnswerBudget } from '../../../../src/store/answer-budget.js'
import { VersionCache } from '../../../../src/store/leveldb/memory/version-cache.js'
import { LongReads } from '../../../../src/store/leveldb/rows/long-reads.js'
import { Reads } from '../../../../src/store/leveldb/rows/reads.js'
import { RowStore } from '../../../../src/store/leveldb/rows/row-store.js'
import {
  atOnce,
  codeOf,
  EngineFailure,
  prewriteOf,
  put,
  read,
  TappedEngine,
  testStores,
  text,
  utf8,
  write,
} from '../../support.js'

const stores = testStores()
const a = utf8('a')
const one = { value: utf8('1'), commitTs: 5, expireTs: 0, leaseFence: 0 }

describe('entries', () => {
  test('a fill that nothing disturbed stays', () => {
    const cache = new VersionCache(10_000)
    cache.endFill(a, cache.beginFill(a), one)
    expect(cache.get(a)).toBe(one)
    cache.forget(a)
    expect(cache.get(a)).toBeUndefined()
  })

  test('a fill is lost to a forget, to a later fill, and to a clear', () => {
    const cache = new VersionCache(10_000)
    for (const disturb of [() => cache.forget(a), () => cache.beginFill(a), () => cache.clear()]) {
      const fill = cache.beginFill(a)
      disturb()
      cache.endFill(a, fill, one)
      expect(cache.get(a)).toBeUndefined()
    }
  })

  test('it stays within its bytes, and keeps what was read within the last half of them', () => {
    const size = 300 + 4
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.boolean(), fc.integer({ min: 0, max: 9 }))), fc.nat(9), (steps, room) => {
        const cache = new VersionCache(room * size)
        const keyOf = (n: number) => utf8(`key${n}`)
        let recent: number[] = []
        for (const [isRead, n] of steps) {
          const found = cache.get(keyOf(n))
          if (found !== undefined) expect(found).toEqual({ value: undefined, commitTs: n, expireTs: 0, leaseFence: 0 })
          if (recent.includes(n)) expect(found).toBeDefined()
          if (isRead && found === undefined) continue
          if (!isRead)
            cache.endFill(keyOf(n), cache.beginFill(keyOf(n)), {
              value: undefined,
              commitTs: n,
              expireTs: 0,
              leaseFence: 0,
            })
          recent = [...recent.filter((other) => other !== n), n].slice(-Math.floor(room / 2) || recent.length + 1)
          const kept = Array.from({ length: 10 }, (_, key) => key).filter((key) => cache.has(keyOf(key)))
          expect(kept.length).toBeLessThanOrEqual(room)
          expect(cache.bytes).toBe(kept.length * size)
        }
      }),
      { examples: [[[3, 2, 6, 4, 2, 6, 0, 2].map((n): [boolean, number] => [false, n]), 6]] },
    )
  })
})

describe('in the store', () => {
  test('versions of the past, absence and long values', async () => {
    const store = await stores.open()
    expect([await read(store, 'a'), await read(store, 'a')]).toEqual([undefined, undefined])
    const long = 'x'.repeat(1000)
    await write(store, 5, 6, [put('a', '1')])
    expect([await read(store, 'a'), await read(store, 'a')]).toEqual(['1', '1'])
    await write(store, 7, 8, [put('a', long)])
    expect([await read(store, 'a'), await read(store, 'a')]).toEqual([long, long])
    expect([await read(store, 'a', 5), await read(store, 'a', 7), await read(store, 'a', 8)]).toEqual([
      undefined,
      '1',
      long,
    ])
    await store.deleteRange({ start: utf8('a'), end: utf8('b') })
    expect(await read(store, 'a')).toBeUndefined()
  })

  test('an answer out of memory is as bounded as one out of LevelDB', { tags: ['long'] }, async () => {
    const store = await stores.open({ cacheBytesMax: 2 ** 30 })
    const keys = Array.from({ length: 65 }, (_, i) => utf8(`key${i}`))
    const value = 'x'.repeat(2 ** 20)
    for (const key of keys) {
      await write(store, 5, 6, [put(key.toString(), value)])
      await store.get({ key }) // Cached.
    }
    expect(await codeOf(store.batchGet({ keys, ts: 6 }))).toBe('payload_too_large')
    expect((await store.batchGet({ keys: keys.slice(1, 60), ts: 6 })).pairs).toHaveLength(59)
  })

  test('a commit below the newest version does not hide it', async () => {
    const store = await stores.open()
    await write(store, 20, 30, [put('a', 'new')])
    expect(await read(store, 'a')).toBe('new')
    await store.prewrite({ mutations: [put('b', '1')], primary: utf8('b'), startTs: 5, lockTtl: 1 })
    await store.commit({ keys: [utf8('b')], startTs: 5, commitTs: 6 })
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['new', '1'])
  })

  test('a write that failed but landed is served, not what the cache held before', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    await write(store, 5, 6, [put('a', 'old')])
    await store.prewrite(prewriteOf(7, [put('a', 'new')]))
    expect(await read(store, 'a')).toBe('old')
    engine.onWrite = async (_, land) => {
      await land()
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.commit({ keys: [a], startTs: 7, commitTs: 8 }))).toBe('storage_unavailable')
    engine.onWrite = (_, land) => land()
    expect(await read(store, 'a')).toBe('new')
  })

  test.each(['1PC', 'commit'])('what a %s has put into LevelDB is seen of all keys at once', async (kind) => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    const keys = [a, utf8('b')]
    await write(store, 5, 6, [put('a', 'old'), put('b', 'old')])
    expect(await read(store, 'a')).toBe('old') // Cached.
    const mutations = [put('a', 'new'), put('b', 'new')]
    if (kind === 'commit') await store.prewrite(prewriteOf(10, mutations))
    let seen: unknown[] = []
    engine.onWrite = async (_, land) => {
      expect(await read(store, 'a')).toBe('old')
      await land() // LevelDB has it, and its writer has not heard of it yet.
      const b = kind === '1PC' ? (await store.batchGet({ keys: [utf8('b')] })).pairs[0]?.value : utf8('new')
      seen = [b && text(b), await read(store, 'a')]
    }
    if (kind === 'commit') await store.commit({ keys, startTs: 10, commitTs: 11 })
    else await store.prewrite(prewriteOf(10, mutations, { tryOnePc: true }))
    expect(seen).toEqual(['new', 'new'])
  })

  test('a read while a range is removed leaves nothing behind', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    await write(store, 5, 6, [put('a', 'old')])
    engine.onWrite = async (_, land) => {
      expect(await read(store, 'a')).toBe('old')
      await land()
    }
    await store.deleteRange({ start: a, end: utf8('b') })
    expect(await read(store, 'a')).toBeUndefined()
  })

  test('a removal that landed but reported failure leaves nothing behind either', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    await write(store, 5, 6, [put('a', 'old')])
    engine.onWrite = async (_, land) => {
      expect(await read(store, 'a')).toBe('old')
      await land()
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.deleteRange({ start: a, end: utf8('b') }))).toBe('storage_unavailable')
    expect(await read(store, 'a')).toBeUndefined()
  })

  test('a read that began before a commit and ends after it leaves nothing stale behind', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    await write(store, 5, 6, [put('a', '6')])
    for (let startTs = 10; startTs < 100; startTs += 2) {
      const reads = [
        read(store, 'a'),
        write(store, startTs, startTs + 1, [put('a', String(startTs + 1))]),
        read(store, 'a'),
      ]
      await Promise.all(reads)
      expect(await read(store, 'a')).toBe(String(startTs + 1))
    }
  })
})

test('nothing is answered from it once a file is known to be damaged: a key that was missed there may be in it', async () => {
  const tapped = new TappedEngine()
  await tapped.open(await stores.directory())
  const { engine } = tapped
  const clock = new Clock({})
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  const options = {
    durability: 'async',
    cacheBytesMax: 10_000,
    clock,
    oracle,
    savedMark: 0,
    safePoint: 0,
    logStart: 0,
    isLogRead: false,
  } as const
  const rows = new RowStore(engine, options)
  await rows.start()
  const answers = new AnswerBudget(DEFAULT_LIMITS)
  const reads = new Reads(rows, answers, new LongReads(answers))
  expect(await reads.get({ key: a })).toEqual({ found: false })
  expect(atOnce(reads.get({ key: a }))).toEqual({ found: false })
  rows.health.end('a table is damaged')
  expect(atOnce(reads.get({ key: a }))).toBeUndefined()
  await rows.close()
})
