import { beforeEach, describe, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import { codeOf, del, failureOf, prewriteOf, put, read, START_MS, TestClock, text, utf8, write } from '../support.js'
import { keyNumber, LONG } from './contents.js'
import type { Contract } from './contract.js'

/** Reads of one key and of several, and what they mean for timestamps. */
export function readCases({ open, test, needing }: Contract): void {
  let store: Store
  const clock = new TestClock()
  beforeEach(async () => {
    clock.ms = START_MS
    store = await open({ now: clock.now })
  })

  test('the latest read passes over a primary lock, but not over a secondary', async () => {
    await write(store, 5, 6, [put('p', 'old'), put('s', 'old')])
    await store.prewrite(prewriteOf(10, [put('p', 'new'), put('s', 'new')]))
    expect(await read(store, 'p')).toBe('old')
    expect(await codeOf(read(store, 's'))).toBe('key_locked')
    expect(await codeOf(read(store, 'p', 20))).toBe('key_locked')
    expect(text((await store.batchGet({ keys: [utf8('p')] })).pairs[0]?.value ?? utf8(''))).toBe('old')
    await store.rollback({ keys: [utf8('p'), utf8('s')], startTs: 10 })
  })

  needing('asyncCommit')('nor over a primary lock with async commit, whose transaction may be committed', async () => {
    await store.prewrite(prewriteOf(20, [put('p', 'new')], { useAsyncCommit: true }))
    expect(await codeOf(read(store, 'p'))).toBe('key_locked')
  })

  test('lock-type locks and records do not hide a value', async () => {
    await write(store, 5, 6, [put('a', '1')])
    await write(store, 10, 11, [{ op: 'lock', key: utf8('a') }])
    await store.prewrite(prewriteOf(20, [{ op: 'lock', key: utf8('a') }]))
    expect(await store.get({ key: utf8('a'), ts: 30 })).toEqual({ found: true, value: utf8('1'), commitTs: 6 })
    expect(await read(store, 'a')).toBe('1')
  })

  test('a delete hides, from its commit on', async () => {
    await write(store, 5, 6, [put('a', '1')])
    await write(store, 10, 11, [del('a')])
    expect(await read(store, 'a', 10)).toBe('1')
    expect(await read(store, 'a', 11)).toBeUndefined()
    expect(await read(store, 'a')).toBeUndefined()
  })

  test('reads at a future timestamp never move the clock or the calculated timestamps beyond it', async () => {
    const now = clock.ts()
    const future = now + 10_000_000
    await read(store, 'a', future)
    await store.batchGet({ keys: [utf8('a')], ts: future })
    await store.scan({ ts: future, limit: 10 })
    await store.scanLock({ maxTs: future })
    await store.checkTxnStatus({
      primary: utf8('z'),
      lockTs: 5,
      callerStartTs: future,
      currentTs: future,
      rollbackIfNotExist: true,
    })
    const limit = clock.ts(2048)
    expect(await store.tso(1)).toBeLessThanOrEqual(limit)
    const { onePcCommitTs } = await store.prewrite(prewriteOf(now, [put('a')], { tryOnePc: true }))
    if (onePcCommitTs !== undefined) expect(onePcCommitTs).toBeLessThanOrEqual(limit + 1)
    clock.ms += 1
    expect(await store.tso(1)).toBeLessThan(clock.ts(2048))
    await read(store, 'a', TIMESTAMP_MAX)
    expect(await store.tso(1)).toBeLessThan(clock.ts(2048))
  })

  test('timestamps handed out after a commit are above it, where the clock allows', async () => {
    await store.prewrite(prewriteOf(10, [put('a')]))
    const commitTs = clock.ts(1000)
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs })
    expect(await store.tso(1)).toBeGreaterThan(commitTs)
  })

  test('timestamps handed out after a read are above it', async () => {
    const seen = clock.ts(1500)
    await read(store, 'a', seen)
    expect(await store.tso(1)).toBeGreaterThan(seen)
    expect(store.time.clock()).toBeGreaterThanOrEqual(seen)
  })

  describe('batch_get', () => {
    test('answers what is there, as asked for in order, of one snapshot', async () => {
      await write(store, 5, 6, [put('a', '1'), put('b', LONG), del('c')])
      await write(store, 10, 11, [put('a', '2')])
      const get = async (ts?: number) =>
        (await store.batchGet({ keys: ['b', 'c', 'a', 'd'].map(utf8), ts })).pairs.map(({ key, value, commitTs }) => [
          text(key),
          text(value ?? utf8('')),
          commitTs,
        ])
      expect(await get(8)).toEqual([
        ['b', LONG, 6],
        ['a', '1', 6],
      ])
      expect(await get()).toEqual([
        ['b', LONG, 6],
        ['a', '2', 11],
      ])
      expect(await get(5)).toEqual([])
    })

    test('lists the locks in its way in key order', async () => {
      await store.prewrite(
        prewriteOf(
          10,
          ['c', 'a', 'b'].map((key) => put(key)),
        ),
      )
      const failure = await failureOf(store.batchGet({ keys: ['b', 'x', 'c', 'a'].map(utf8), ts: 20 }))
      expect(failure.code).toBe('key_locked')
      expect(failure).toMatchObject({
        fields: { locks: ['a', 'b', 'c'].map((key) => ({ key: utf8(key), startTs: 10 })) },
      })
    })

    test('a thousand keys with long values', { tags: ['long'] }, async () => {
      const mutations = Array.from({ length: 1000 }, (_, i) => put(keyNumber(i), `${LONG}${i}`))
      await write(store, 5, 6, mutations)
      const { pairs } = await store.batchGet({ keys: mutations.map(({ key }) => key), ts: 10 })
      expect(pairs.map(({ value }) => text(value ?? utf8('')))).toEqual(
        mutations.map(({ value }) => text(value ?? utf8(''))),
      )
    })
  })
}
