import fc from 'fast-check'
import { beforeEach, expect } from 'vitest'
import type { PrewriteMutation } from '../../../src/percolator/api.js'
import type { CompleteStore, Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../src/timestamp.js'
import { codeOf, del, failureOf, prewriteOf, put, read, TestClock, text, utf8, write } from '../support.js'
import { changesOf } from './change-readings.js'
import { LONG, versionsOf } from './contents.js'
import type { Contract } from './contract.js'

const expiring = (key: string, value: string, expireTs: Timestamp): PrewriteMutation => ({
  ...put(key, value),
  expireTs,
})
const EVERYTHING = { start: undefined, end: undefined }

/** What every kind of read finds of a key at a timestamp. They must agree. */
async function found(store: Store, key: string, ts: Timestamp): Promise<string | undefined> {
  const value = await read(store, key, ts)
  const { pairs } = await store.batchGet({ keys: [utf8(key)], ts })
  const scans = [false, true].flatMap((reverse) => [
    store.scan({ start: utf8(key), end: utf8(`${key}!`), limit: 5, ts, reverse }),
    store.scan({ start: utf8(key), end: utf8(`${key}!`), limit: 5, ts, reverse, keyOnly: true }),
  ])
  for (const scan of [{ pairs }, ...(await Promise.all(scans))])
    expect(scan.pairs.map((pair) => text(pair.key))).toEqual(value === undefined ? [] : [key])
  return value
}

/** Versions that expire. */
export function expiryCases({ open, test, needing }: Contract): void {
  let store: CompleteStore
  const clock = new TestClock()
  beforeEach(async () => {
    clock.ms = new TestClock().ms
    store = await open({ now: clock.now })
  })

  test('a version is there below its expire_ts, and absent from it on, for every kind of read', async () => {
    for (const value of ['1', LONG]) {
      const key = `k${value.length}`
      await write(store, 5, 6, [put(key, 'before')])
      await write(store, 10, 20, [expiring(key, value, 30)])
      await write(store, 40, 50, [put(key, 'after')])
      const seen = await Promise.all([19, 20, 29, 30, 49, 50].map((ts) => found(store, key, ts)))
      expect(seen).toEqual(['before', value, value, undefined, undefined, 'after'])
    }
  })

  test('its expire_ts is in every answer, and 0 or nothing is none', async () => {
    await store.prewrite(prewriteOf(10, [expiring('k', '1', 30), { ...put('for ever'), expireTs: 0 }]))
    expect((await store.scanLock({ maxTs: 10 })).locks.map(({ expireTs }) => expireTs)).toEqual([undefined, 30])
    await store.commit({ keys: [utf8('k'), utf8('for ever')], startTs: 10, commitTs: 20 })
    const pair = { key: utf8('k'), commitTs: 20, expireTs: 30 }
    expect(await store.get({ key: utf8('k'), ts: 25 })).toEqual({
      found: true,
      value: utf8('1'),
      commitTs: 20,
      expireTs: 30,
    })
    expect((await store.batchGet({ keys: [utf8('k')], ts: 25 })).pairs).toEqual([{ ...pair, value: utf8('1') }])
    expect((await store.scan({ ...EVERYTHING, limit: 9, ts: 25, keyOnly: true })).pairs).toEqual([
      { key: utf8('for ever'), commitTs: 20 },
      pair,
    ])
    expect((await store.mvccGetByKey({ key: utf8('k') })).writes).toMatchObject([{ expireTs: 30 }])
    expect((await store.mvccGetByKey({ key: utf8('for ever') })).writes[0]).not.toHaveProperty('expireTs')
  })

  test('an expire_ts at or below the commit_ts makes a version that nobody sees', async () => {
    await write(store, 5, 6, [put('k', 'before')])
    await write(store, 10, 20, [expiring('k', '1', 15)])
    expect(await Promise.all([19, 20, 99].map((ts) => found(store, 'k', ts)))).toEqual(['before', undefined, undefined])
    expect(await store.get({ key: utf8('k'), ts: 99 })).toEqual({ found: false, deletedTs: 20 })
  })

  test('the latest version goes by the clock, and does not come back when the clock is set back', async () => {
    const expireTs = clock.ts() + 1000 * 2048
    await write(store, 5, 6, [expiring('a', '1', expireTs), expiring('b', '1', expireTs), expiring('c', '1', expireTs)])
    const latest = async (): Promise<unknown[]> => [
      await read(store, 'a'),
      (await store.batchGet({ keys: [utf8('b')] })).pairs.length,
      (await store.scan({ start: utf8('c'), end: undefined, limit: 1, ts: TIMESTAMP_MAX })).pairs.length,
    ]
    expect(await latest()).toEqual(['1', 1, 1])
    clock.ms += 1000
    expect(await latest()).toEqual([undefined, 0, 0])
    clock.ms -= 500
    expect(await latest()).toEqual([undefined, 0, 0])
    expect(await store.tso(1)).toBeGreaterThan(expireTs)
    expect(await found(store, 'a', expireTs - 1)).toBe('1')
  })

  test('insert, check_not_exists, assertions and locks see it as reads do', async () => {
    const insert = (startTs: Timestamp) => store.prewrite(prewriteOf(startTs, [{ ...put('k', '2'), op: 'insert' }]))
    const check = (startTs: Timestamp) =>
      codeOf(store.prewrite(prewriteOf(startTs, [{ op: 'check_not_exists', key: utf8('k') }])))
    const assert = (startTs: Timestamp, assertion: 'exist' | 'not_exist') =>
      codeOf(store.prewrite(prewriteOf(startTs, [{ ...put('k', '2'), assertion }])))
    await write(store, 5, 6, [expiring('k', '1', 30)])
    expect([await codeOf(insert(29)), await check(29), await assert(29, 'not_exist')]).toEqual([
      'already_exists',
      'already_exists',
      'assertion_failed',
    ])
    expect([await check(30), await assert(30, 'exist')]).toEqual(['none', 'assertion_failed'])
    const lock = { keys: [utf8('k')], primary: utf8('k'), lockTtl: 3000, returnValues: true, waitTimeout: -1 }
    const locked = async (forUpdateTs: Timestamp) => {
      const { results } = await store.acquirePessimisticLock({ ...lock, startTs: 20, forUpdateTs })
      await store.pessimisticRollback({ keys: [utf8('k')], startTs: 20, forUpdateTs })
      return results
    }
    expect(await locked(29)).toMatchObject([{ found: true, value: utf8('1'), expireTs: 30 }])
    expect(await locked(30)).toEqual([{ found: false }])
    expect(await codeOf(insert(30))).toBe('none')
  })

  test('what a serializable transaction has seen must not expire up to its commit_ts, by itself or in a range', async () => {
    await write(store, 5, 6, [expiring('k', '1', 50), expiring('old', '1', 50), expiring('gone', '1', 9)])
    await write(store, 7, 8, [put('old', '2')])
    const validate = async (key: string, commitTs: Timestamp): Promise<string> => {
      const reads = { startTs: 10, commitTs, keys: [utf8(key)], ranges: [] }
      const code = await codeOf(store.validateReads(reads))
      const ranges = [{ start: utf8(key), end: utf8(`${key}!`) }]
      expect(await codeOf(store.validateReads({ ...reads, keys: [], ranges }))).toBe(code)
      return code
    }
    expect([await validate('k', 49), await validate('k', 50)]).toEqual(['none', 'write_conflict'])
    expect([await validate('old', 60), await validate('gone', 60)]).toEqual(['none', 'none'])
    const reads = { startTs: 10, commitTs: 60, keys: [utf8('k')], ranges: [] }
    expect(await failureOf(store.validateReads(reads))).toMatchObject({
      message: expect.stringContaining('has expired at 50'),
      fields: { reason: 'serializable_read', conflictCommitTs: 6 },
    })
  })

  needing('collection')('a collection takes what has expired at the safe point, with all that is older', async () => {
    await write(store, 5, 6, [put('k', 'older'), expiring('stays', LONG, 31)])
    await write(store, 10, 11, [expiring('k', LONG, 30)])
    expect(await store.upkeep.collect(29)).toBe(1)
    expect(await versionsOf(store, 'k')).toEqual([11])
    expect(await store.upkeep.collect(30)).toBe(1)
    expect(await store.mvccGetByKey({ key: utf8('k') })).toEqual({ lock: null, writes: [], values: [] })
    expect([await found(store, 'k', 30), await found(store, 'stays', 30)]).toEqual([undefined, LONG])
  })

  needing('promptLog')(
    'the log has an expiry at its timestamp, after the transactions there, unless the version was replaced before',
    async () => {
      await write(store, 5, 6, [expiring('k', '1', 30), expiring('late', '1', 10), put('other')])
      await write(store, 7, 8, [expiring('replaced', '1', 30), expiring('deleted', '1', 30)])
      await write(store, 12, 30, [put('replaced', '2')])
      await write(store, 9, 20, [del('deleted'), expiring('late', '2', 15)])
      await store.tso(1)
      const changes = await changesOf(store, { since: 5 })
      const told = changes.map(({ commitTs, type, key }) => `${commitTs} ${type} ${key}`)
      expect(told).toEqual([
        '6 put k',
        '6 put late',
        '6 put other',
        '8 put deleted',
        '8 put replaced',
        '10 expire late',
        '20 delete deleted',
        '20 put late',
        '20 expire late',
        '30 put replaced',
        '30 expire k',
      ])
      expect(changes.at(-1)).toEqual({ type: 'expire', key: 'k', commitTs: 30, startTs: 30, expireTs: 30 })
      expect(changes.find(({ key }) => key === 'k')).toMatchObject({ value: '1', expireTs: 30 })
    },
  )

  needing('promptLog')('whether anything expires is known without a look, once somebody has looked', async () => {
    await write(store, 5, 6, [expiring('k', '1', 30)])
    const since = await store.tso(1)
    expect(await changesOf(store, { since: 6 })).toHaveLength(1)
    const [resolved, later] = [store.log.resolve(), since + 2048 * 1000]
    expect(store.log.mayExpire(resolved, later + 1)).toBe(false)
    await write(store, since + 1, since + 2, [expiring('k', '2', later)])
    expect([store.log.mayExpire(resolved, later - 1), store.log.mayExpire(resolved, later)]).toEqual([false, true])
  })

  needing('promptLog')('many that expire together come in pages', async () => {
    const many = Array.from({ length: 600 }, (_, i) => expiring(`k${i}`, '1', 100 + (i % 2)))
    await write(store, 5, 6, many)
    await store.tso(1)
    const changes = await changesOf(store, { since: 6, upTo: 150, keysOnly: true })
    expect(changes.map(({ commitTs, key }) => `${commitTs} ${key}`)).toEqual(
      [100, 101].flatMap((ts) =>
        many
          .filter(({ expireTs }) => expireTs === ts)
          .map((one) => `${ts} ${text(one.key)}`)
          .sort(),
      ),
    )
  })

  needing('restore')('restored pairs expire when they would have', async () => {
    async function* blocks() {
      yield [{ key: utf8('k'), value: utf8('1'), commitTs: 20, expireTs: clock.ts() + 2048 * 1000 }]
    }
    await store.upkeep.restore({ id: 'ab'.repeat(16), ts: 30 }, blocks(), false)
    expect(await read(store, 'k')).toBe('1')
    const since = await store.tso(1)
    clock.ms += 1000
    expect(await read(store, 'k')).toBeUndefined()
    await store.tso(1)
    if (store.log.prompt !== undefined)
      expect(await changesOf(store, { since })).toMatchObject([{ type: 'expire', key: 'k' }])
  })

  needing('promptLog', 'collection')(
    'property: all reads agree with a model at every timestamp, and the log replayed is the snapshot',
    { tags: ['long'] },
    async () => {
      const keys = ['a', 'b', 'c']
      const step = fc.record({
        key: fc.constantFrom(...keys),
        op: fc.constantFrom('put', 'put', 'expiring', 'expiring', 'expiring', 'delete', 'rollback', 'collect'),
        lasts: fc.integer({ min: -3, max: 12 }),
        isLong: fc.boolean(),
      })
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
          const store = await open({ now: new TestClock().now })
          const versions: { key: string; commitTs: number; value: string | undefined; expireTs: number }[] = []
          let safePoint = 1
          let ts = 10
          for (const { key, op, lasts, isLong } of steps) {
            const [startTs, commitTs] = [ts + 1, ts + 2]
            ts += 3
            const value = `${isLong ? LONG : ''}${commitTs}`
            const expireTs = op === 'expiring' ? Math.max(1, commitTs + lasts) : 0
            if (op === 'rollback') await store.rollback({ keys: [utf8(key)], startTs })
            else if (op === 'collect') {
              safePoint = Math.max(safePoint, startTs - 6)
              await store.upkeep.collect(safePoint)
            } else {
              await write(store, startTs, commitTs, [op === 'delete' ? del(key) : expiring(key, value, expireTs)])
              versions.push({ key, commitTs, value: op === 'delete' ? undefined : value, expireTs })
            }
          }
          const modelAt = (key: string, at: Timestamp): string | undefined => {
            const newest = versions.findLast((version) => version.key === key && version.commitTs <= at)
            const isGone = newest === undefined || (newest.expireTs !== 0 && newest.expireTs <= at)
            return isGone ? undefined : newest.value
          }
          await store.tso(1)
          const end = ts + 15
          for (const since of [safePoint, Math.max(safePoint, ts - 7)]) {
            const replayed = new Map(keys.map((key) => [key, modelAt(key, since)]))
            const changes = await changesOf(store, { since, upTo: end })
            for (let at = since; at <= end; at++) {
              for (const { type, key, value } of changes.filter(({ commitTs }) => commitTs === at))
                replayed.set(key, type === 'put' ? value : undefined)
              for (const key of keys) {
                expect(await found(store, key, at), `${key} at ${at}`).toBe(modelAt(key, at))
                expect(replayed.get(key), `${key} of the log at ${at}`).toBe(modelAt(key, at))
              }
            }
            expect(
              changes
                .filter(({ type }) => type === 'expire')
                .every(
                  ({ commitTs, key }) =>
                    modelAt(key, commitTs - 1) !== undefined ||
                    versions.some((one) => one.key === key && one.commitTs === commitTs),
                ),
            ).toBe(true)
          }
        }),
        { numRuns: Number(process.env['PERKV_TEST_RUNS'] ?? 10) },
      )
    },
  )
}
