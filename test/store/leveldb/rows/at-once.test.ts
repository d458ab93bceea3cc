import { describe, expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../../../../src/limits.js'
import type { GetAnswer } from '../../../../src/percolator/api.js'
import { AnswerBudget } from '../../../../src/store/answer-budget.js'
import type { Engine } from '../../../../src/store/leveldb/engine/engine.js'
import type { LevelDbStoreOptions } from '../../../../src/store/leveldb/leveldb-store.js'
import { CF_DEFAULT, CF_NEWEST } from '../../../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore } from '../../../../src/store/store.js'
import {
  atOnce,
  codeOf,
  deferred,
  del,
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

const a = utf8('a')
const LONG = 'x'.repeat(300)

const stores = testStores()

interface Opened {
  readonly store: CompleteStore
  readonly tapped: TappedEngine
  /** Look-ups on the event loop so far. */
  readonly lookUps: () => number
  /** Says for a stored key what a look-up on the event loop does first. */
  onLookUp: (key: Buffer) => void
}

async function opened(options: Partial<LevelDbStoreOptions> = {}): Promise<Opened> {
  const tapped = new TappedEngine()
  let lookUps = 0
  const openEngine = async (directory: string): Promise<Engine> => {
    const engine = await tapped.open(directory)
    return {
      ...engine,
      getSync(key) {
        if (key[0] === CF_NEWEST || key[0] === CF_DEFAULT) lookUps++
        all.onLookUp(key)
        return engine.getSync(key)
      },
    }
  }
  const store = await stores.open({ lookUpSlowMs: Number.POSITIVE_INFINITY, openEngine, ...options })
  const all: Opened = { store, tapped, lookUps: () => lookUps, onLookUp: () => {} }
  return all
}

const shown = (answer: GetAnswer | undefined): string | undefined =>
  answer === undefined ? undefined : answer.found ? `${text(answer.value)} at ${answer.commitTs}` : 'absent'

describe('in the turn in which it is asked', () => {
  test.each([
    ['a short value', [put('a', 'short')], 'short at 6', 1],
    ['a long value', [put('a', LONG)], `${LONG} at 6`, 2],
    ['a deletion', [del('a')], 'absent', 1],
    ['a key that was never written', [put('b', 'other')], 'absent', 1],
  ])('%s is looked up, and then remembered', async (_, mutations, want, looks) => {
    const { store, lookUps } = await opened()
    await write(store, 5, 6, mutations)
    const before = lookUps()
    expect(shown(atOnce(store.get({ key: a, ts: 7 })))).toBe(want)
    expect(shown(atOnce(store.get({ key: a })))).toBe(want)
    expect(lookUps() - before).toBe(looks)
  })

  test('a read at a new timestamp keeps later commits above it', async () => {
    const { store } = await opened()
    await write(store, 5, 6, [put('a', 'old')])
    const startTs = await store.tso(1)
    const ts = await store.tso(1)
    expect(shown(atOnce(store.get({ key: a, ts })))).toBe('old at 6')
    const { onePcCommitTs } = await store.prewrite(prewriteOf(startTs, [put('a', 'new')], { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(ts)
    expect(shown(atOnce(store.get({ key: a, ts: onePcCommitTs })))).toBe(`new at ${onePcCommitTs}`)
    expect(await read(store, 'a', ts)).toBe('old')
  })

  test('a version that is being replaced is not remembered', async () => {
    const { store, tapped, lookUps } = await opened()
    await write(store, 5, 6, [put('a', 'old')])
    const [arrived, goOn] = [deferred(), deferred()]
    tapped.onWrite = async (_, land) => {
      arrived.resolve()
      await goOn.promise
      await land()
    }
    const writing = store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true }))
    await arrived.promise
    const before = lookUps()
    expect([shown(atOnce(store.get({ key: a }))), shown(atOnce(store.get({ key: a })))]).toEqual([
      'old at 6',
      'old at 6',
    ])
    expect(lookUps() - before).toBe(2)
    goOn.resolve()
    const { onePcCommitTs } = await writing
    expect(shown(atOnce(store.get({ key: a })))).toBe(`new at ${onePcCommitTs}`)
  })
})

describe('left to get', () => {
  test('an older version, and a timestamp that nobody was given', async () => {
    const { store } = await opened()
    await write(store, 5, 6, [put('a', 'old')])
    await write(store, 8, 9, [put('a', 'new')])
    expect(atOnce(store.get({ key: a, ts: 7 }))).toBeUndefined()
    expect(await read(store, 'a', 7)).toBe('old')
    expect(await read(store, 'a', (await store.tso(1)) + 1000)).toBe('new')
  })

  test('a key under a lock', async () => {
    const { store } = await opened()
    await store.prewrite(prewriteOf(10, [put('b', 'new'), put('a', 'new')]))
    expect(atOnce(store.get({ key: a }))).toBeUndefined()
    expect(shown(atOnce(store.get({ key: a, ts: 9 })))).toBe('absent')
    await store.commit({ keys: [utf8('b'), a], startTs: 10, commitTs: 11 })
    expect(shown(atOnce(store.get({ key: a })))).toBe('new at 11')
  })

  test('look-ups while the disk is slow', async () => {
    const { store, lookUps } = await opened({ lookUpSlowMs: 0 })
    await write(store, 5, 6, [put('a', 'old')])
    expect(atOnce(store.get({ key: a }))).toBeUndefined()
    expect(lookUps()).toBe(0)
    expect(await read(store, 'a')).toBe('old')
    expect(shown(atOnce(store.get({ key: a })))).toBe('old at 6')
  })

  test('a look-up that fails', async () => {
    const all = await opened()
    const { store } = all
    await write(store, 5, 6, [put('a', 'old')])
    all.onLookUp = () => {
      throw new EngineFailure('unreadable')
    }
    expect(atOnce(store.get({ key: a }))).toBeUndefined()
    expect(await codeOf(store.get({ key: a }))).toBe('storage_unavailable')
  })

  test('a long value whose record is gone', async () => {
    const all = await opened()
    const { store, tapped } = all
    await write(store, 5, 6, [put('a', LONG)])
    const keys: Buffer[] = []
    all.onLookUp = (key) => keys.push(key)
    await store.get({ key: a, ts: 7 })
    const value = keys.find((key) => key[0] === CF_DEFAULT) as Buffer
    await tapped.raw.write([{ type: 'del', key: value }], false)
    await store.prewrite(prewriteOf(10, [put('a', 'new')])) // The lock keeps the version out of the cache.
    await store.rollback({ keys: [a], startTs: 10 })
    expect(atOnce(store.get({ key: a, ts: 9 }))).toBeUndefined()
    expect(await codeOf(store.get({ key: a, ts: 9 }))).toBe('storage_unavailable')
  })

  test('a long value while other answers take all the room', async () => {
    const answers = new AnswerBudget(DEFAULT_LIMITS)
    const { store } = await opened({ answers })
    await write(store, 5, 6, [put('a', LONG)])
    const lease = answers.lease()
    lease.hold(DEFAULT_LIMITS.answersBytesMax)
    expect(atOnce(store.get({ key: a }))).toBeUndefined()
    expect(await codeOf(store.get({ key: a }))).toBe('overloaded')
    lease.end()
    expect(shown(atOnce(store.get({ key: a })))).toBe(`${LONG} at 6`)
  })
})
