import { randomBytes } from 'node:crypto'
import { ClassicLevel } from 'classic-level'
import { beforeEach, describe, expect, test } from 'vitest'
import { encodeKeyAt } from '../../../src/percolator/codec/key.js'
import { packRecord } from '../../../src/percolator/codec/record.js'
import { DataDirectoryError } from '../../../src/store/leveldb/data-directory-error.js'
import { FORMAT_VERSION } from '../../../src/store/leveldb/directory/data-directory.js'
import { CF_DEFAULT, metaKey } from '../../../src/store/leveldb/records/keyspace.js'
import type { Claim, Store } from '../../../src/store/store.js'
import { TIMESTAMP_MAX } from '../../../src/timestamp.js'
import {
  codeOf,
  del,
  failureOf,
  prewriteOf,
  put,
  read,
  START_MS,
  TappedEngine,
  TestClock,
  testStores,
  text,
  utf8,
  write,
} from '../support.js'

const stores = testStores()
const LONG = 'x'.repeat(300)
const keyNumber = (n: number): string => `key${String(n).padStart(5, '0')}`

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

  test('the cursor secret stays the same', async () => {
    const directory = await stores.directory()
    const first = await stores.open({ directory })
    expect(first.cursorSecret.length).toBe(32)
    await first.close()
    expect((await stores.open({ directory })).cursorSecret).toEqual(first.cursorSecret)
  })

  test('timestamps go on above those before, though the clock stepped back', async () => {
    const directory = await stores.directory()
    const clock = new TestClock()
    const first = await stores.open({ directory, now: clock.now })
    const before = await first.tso(10)
    await first.close()
    clock.ms -= 3_600_000
    const second = await stores.open({ directory, now: clock.now })
    expect(await second.tso(1)).toBeGreaterThan(before)
  })

  test('a calculated commit timestamp goes above every read before the restart', async () => {
    const directory = await stores.directory()
    const clock = new TestClock()
    const first = await stores.open({ directory, now: clock.now })
    const readTs = await first.tso(1)
    expect(await read(first, 'a', readTs)).toBeUndefined()
    await first.close()
    const second = await stores.open({ directory, now: clock.now })
    const answer = await second.prewrite(prewriteOf(readTs - 1, [put('a')], { tryOnePc: true }))
    expect(answer.onePcCommitTs).toBeGreaterThan(readTs)
  })

  test('everything committed, and every lock, is there again', async () => {
    const directory = await stores.directory()
    const first = await stores.open({ directory })
    await write(first, 5, 6, [put('a', '1'), put('long', LONG), del('gone')])
    await first.prewrite(prewriteOf(10, [put('a', '2'), put('b', LONG)], { minCommitTs: 11 }))
    await first.close()
    const second = await stores.open({ directory })
    expect(second.lockCount).toBe(2)
    expect(await read(second, 'a', 9)).toBe('1')
    expect(await read(second, 'long', 9)).toBe(LONG)
    expect(await codeOf(read(second, 'b', 20))).toBe('key_locked')
    await second.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 12 })
    expect(await read(second, 'a', 20)).toBe('2')
    expect(await read(second, 'b', 20)).toBe(LONG)
    expect(second.lockCount).toBe(0)
  })

  test('a thousand locks are all there again', async () => {
    const directory = await stores.directory()
    const first = await stores.open({ directory })
    const mutations = Array.from({ length: 1000 }, (_, i) => put(keyNumber(i), 'v'.repeat(50)))
    await first.prewrite(prewriteOf(10, mutations))
    expect(first.lockCount).toBe(1000)
    await first.close()
    const second = await stores.open({ directory })
    expect(second.lockCount).toBe(1000)
    expect(await codeOf(read(second, keyNumber(999), 20))).toBe('key_locked')
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

describe('one transaction', () => {
  let store: Store
  const tapped = new TappedEngine()
  beforeEach(async () => {
    store = await stores.open({ openEngine: tapped.open, now: () => START_MS })
  })
  const storedValues = async (): Promise<string[]> => {
    const iterator = tapped.engine.iterator({ gte: Buffer.of(CF_DEFAULT), lt: Buffer.of(CF_DEFAULT + 1) })
    const entries = await iterator.nextv(100)
    await iterator.close()
    return entries.map(([key]) => key.toString('hex'))
  }
  const valueAt = (key: string, startTs: number): string => encodeKeyAt(CF_DEFAULT, utf8(key), startTs).toString('hex')

  test('is seen from its commit timestamp on, and not before', async () => {
    await store.prewrite(prewriteOf(10, [put('a', '1'), put('b', '2')], { minCommitTs: 15 }))
    expect(await read(store, 'a', 9)).toBeUndefined()
    expect(await read(store, 'a', 14)).toBeUndefined()
    const { fields } = (await failureOf(store.get({ key: utf8('b'), ts: 15 }))) as { fields: { lock?: unknown } }
    expect(fields.lock).toMatchObject({ key: utf8('b'), primary: utf8('a'), startTs: 10, ttl: 3000, type: 'put' })
    expect(await store.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 20 })).toEqual({ commitTs: 20 })
    expect(await read(store, 'a', 19)).toBeUndefined()
    expect(await store.get({ key: utf8('a'), ts: 20 })).toEqual({ found: true, value: utf8('1'), commitTs: 20 })
    expect(await store.get({ key: utf8('b') })).toEqual({ found: true, value: utf8('2'), commitTs: 20 })
  })

  test('values of 255 bytes travel in the records, longer ones stand in CF_DEFAULT', async () => {
    await store.prewrite(
      prewriteOf(10, [put('short', 'x'.repeat(255)), put('long', 'y'.repeat(256)), put('empty', '')]),
    )
    expect(await storedValues()).toEqual([valueAt('long', 10)])
    await store.commit({ keys: [utf8('short'), utf8('long'), utf8('empty')], startTs: 10, commitTs: 20 })
    expect(await storedValues()).toEqual([valueAt('long', 10)])
    expect(await read(store, 'short')).toBe('x'.repeat(255))
    expect(await read(store, 'long')).toBe('y'.repeat(256))
    expect(await read(store, 'empty')).toBe('')
  })

  test('a megabyte comes back as it was', async () => {
    const value = Buffer.alloc(1024 * 1024, 'abc')
    await write(store, 10, 20, [put('a', value)])
    const got = await store.get({ key: utf8('a') })
    expect(got.found && value.equals(got.value)).toBe(true) // `toEqual` takes seconds for it.
    expect(got).toMatchObject({ commitTs: 20 })
  })

  test('rollback takes locks and long values away, and stops a late prewrite', async () => {
    await write(store, 5, 6, [put('a', 'old')])
    await store.prewrite(prewriteOf(10, [put('a', LONG), put('b', LONG)]))
    expect((await storedValues()).length).toBe(2)
    await store.rollback({ keys: [utf8('a'), utf8('b')], startTs: 10 })
    await store.rollback({ keys: [utf8('a'), utf8('b')], startTs: 10 })
    expect(await storedValues()).toEqual([])
    expect(store.lockCount).toBe(0)
    expect(await read(store, 'a', 30)).toBe('old')
    expect(await codeOf(store.prewrite(prewriteOf(10, [put('a')])))).toBe('write_conflict')
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 20 }))).toBe('txn_lock_not_found')
  })

  test('prewrite and commit may be repeated', async () => {
    await store.prewrite(prewriteOf(10, [put('a', '1')]))
    await store.prewrite(prewriteOf(10, [put('a', '1')]))
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 20 })
    expect(await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 25 })).toEqual({ commitTs: 20 })
    await store.prewrite(prewriteOf(10, [put('a', '1')]))
    expect(store.lockCount).toBe(0)
    expect((await store.mvccGetByKey({ key: utf8('a') })).writes).toHaveLength(1)
    expect(await codeOf(store.rollback({ keys: [utf8('a')], startTs: 10 }))).toBe('already_committed')
  })

  test('a failed prewrite writes nothing, of no key', async () => {
    await write(store, 5, 20, [put('b', 'old')])
    const failure = await failureOf(store.prewrite(prewriteOf(10, [put('a', LONG), put('b'), put('c')])))
    expect(failure.code).toBe('write_conflict')
    expect(failure.errors).toHaveLength(1)
    expect(store.lockCount).toBe(0)
    expect(await storedValues()).toEqual([])
  })

  test('a commit below min_commit_ts is refused', async () => {
    await store.prewrite(prewriteOf(10, [put('a')], { minCommitTs: 15 }))
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 14 }))).toBe('commit_ts_expired')
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 15 })
  })

  test('1PC leaves no lock, and commits above every read', async () => {
    await read(store, 'b', 40)
    const { onePcCommitTs } = await store.prewrite(prewriteOf(10, [put('a', LONG), put('b')], { tryOnePc: true }))
    expect(onePcCommitTs).toBe(41)
    expect(store.lockCount).toBe(0)
    expect(await read(store, 'a', 41)).toBe(LONG)
    expect(await read(store, 'b', 40)).toBeUndefined()
    const again = await store.prewrite(prewriteOf(10, [put('a', LONG), put('b')], { tryOnePc: true }))
    expect(again).toEqual({ onePcCommitTs: 41 })
  })

  test('async commit answers a min_commit_ts above every read; the locks tell the secondaries', async () => {
    await read(store, 'b', 40)
    const request = prewriteOf(10, [put('a'), put('b')], { useAsyncCommit: true, secondaries: [utf8('b')] })
    expect(await store.prewrite(request)).toEqual({ minCommitTs: 41 })
    const status = await store.checkTxnStatus({ primary: utf8('a'), lockTs: 10, callerStartTs: 0, currentTs: 50 })
    expect(status).toMatchObject({ status: 'locked', lock: { secondaries: [utf8('b')], minCommitTs: 41 } })
    const { locks, commitTs } = await store.checkSecondaryLocks({ keys: [utf8('b')], startTs: 10 })
    expect(locks.map(({ minCommitTs }) => minCommitTs)).toEqual([41])
    expect(commitTs).toBe(0)
    await store.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 41 })
    expect(await store.checkSecondaryLocks({ keys: [utf8('b')], startTs: 10 })).toEqual({ locks: [], commitTs: 41 })
  })

  test('a secondary that is asked for while it is missing can never come', async () => {
    expect(await store.checkSecondaryLocks({ keys: [utf8('b')], startTs: 10 })).toEqual({ locks: [], commitTs: 0 })
    const late = prewriteOf(10, [put('b')], { primary: utf8('a'), useAsyncCommit: true })
    expect(await codeOf(store.prewrite(late))).toBe('write_conflict')
  })

  test('the TTL decides when check_txn_status rolls back; heartbeats stretch it', async () => {
    const startTs = (START_MS - 10_000) * 2048
    const at = (ms: number): number => startTs + ms * 2048
    const check = (currentTs: number) =>
      store.checkTxnStatus({ primary: utf8('a'), lockTs: startTs, callerStartTs: 0, currentTs })
    await store.prewrite(prewriteOf(startTs, [put('a', LONG)]))
    expect(await check(at(3000))).toMatchObject({ status: 'locked', lockTtl: 3000, action: 'no_action' })
    const beat = { primary: utf8('a'), startTs, adviseLockTtl: 5000 }
    expect(await store.txnHeartBeat(beat)).toEqual({ lockTtl: 5000 })
    expect(await store.txnHeartBeat({ ...beat, adviseLockTtl: 100 })).toEqual({ lockTtl: 5000 })
    expect(await check(at(5000))).toMatchObject({ status: 'locked', lockTtl: 5000 })
    expect(await check(at(5001))).toMatchObject({ status: 'rolled_back', action: 'ttl_expire_rollback' })
    expect(await check(at(5001))).toMatchObject({ status: 'rolled_back', action: 'no_action' })
    expect(await storedValues()).toEqual([])
    expect(await codeOf(store.txnHeartBeat(beat))).toBe('txn_not_found')
  })

  test('check_txn_status pushes min_commit_ts above the caller, who then reads past the lock', async () => {
    await store.prewrite(prewriteOf(10, [put('a')], { minCommitTs: 11 }))
    expect(await codeOf(read(store, 'a', 30))).toBe('key_locked')
    const pushed = await store.checkTxnStatus({ primary: utf8('a'), lockTs: 10, callerStartTs: 30, currentTs: 35 })
    expect(pushed).toMatchObject({ action: 'min_commit_ts_pushed', lock: { minCommitTs: 35 } })
    expect(await read(store, 'a', 30)).toBeUndefined()
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 34 }))).toBe('commit_ts_expired')
  })

  test('check_txn_status of a transaction without a trace', async () => {
    const request = { primary: utf8('a'), lockTs: 10, callerStartTs: 0, currentTs: 20 }
    expect(await codeOf(store.checkTxnStatus(request))).toBe('txn_not_found')
    const made = await store.checkTxnStatus({ ...request, rollbackIfNotExist: true })
    expect(made).toMatchObject({ status: 'rolled_back', action: 'lock_not_exist_rollback' })
    expect(await codeOf(store.prewrite(prewriteOf(10, [put('a')])))).toBe('write_conflict')
  })

  test('cleanup: not while the lock lives, unless told to', async () => {
    await store.prewrite(prewriteOf(10, [put('a', LONG)]))
    expect(await codeOf(store.cleanup({ key: utf8('a'), startTs: 10, currentTs: 20 }))).toBe('key_locked')
    await store.cleanup({ key: utf8('a'), startTs: 10, currentTs: 0 })
    expect(await storedValues()).toEqual([])
    await write(store, 30, 31, [put('a', '1')])
    expect(await codeOf(store.cleanup({ key: utf8('a'), startTs: 30, currentTs: 0 }))).toBe('already_committed')
  })

  test('insert and check_not_exists', async () => {
    const insert = { op: 'insert', key: utf8('a'), value: utf8('1') } as const
    const absent = { op: 'check_not_exists', key: utf8('c') } as const
    await store.prewrite(prewriteOf(5, [insert, absent]))
    await store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 6 })
    expect(await codeOf(store.prewrite(prewriteOf(10, [insert])))).toBe('already_exists')
    expect(await codeOf(store.prewrite(prewriteOf(10, [put('b'), { ...absent, key: utf8('a') }])))).toBe(
      'already_exists',
    )
    await write(store, 11, 12, [del('a')])
    await write(store, 15, 16, [insert])
    expect(await read(store, 'a', 20)).toBe('1')
    expect(await read(store, 'c', 20)).toBeUndefined()
  })

  test('reading that a key is absent is a read: nobody commits it below afterwards', async () => {
    await store.prewrite(prewriteOf(40, [{ op: 'check_not_exists', key: utf8('a') }, put('b')]))
    const { onePcCommitTs } = await store.prewrite(prewriteOf(10, [put('a')], { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(40)
  })
})

describe('reads', () => {
  let store: Store
  const clock = new TestClock()
  beforeEach(async () => {
    clock.ms = START_MS
    store = await stores.open({ now: clock.now })
  })

  test('the latest read passes over a primary lock, but not over a secondary or async commit', async () => {
    await write(store, 5, 6, [put('p', 'old'), put('s', 'old')])
    await store.prewrite(prewriteOf(10, [put('p', 'new'), put('s', 'new')]))
    expect(await read(store, 'p')).toBe('old')
    expect(await codeOf(read(store, 's'))).toBe('key_locked')
    expect(await codeOf(read(store, 'p', 20))).toBe('key_locked')
    expect(text((await store.batchGet({ keys: [utf8('p')] })).pairs[0]?.value ?? utf8(''))).toBe('old')
    await store.rollback({ keys: [utf8('p'), utf8('s')], startTs: 10 })
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
    expect(onePcCommitTs).toBeLessThanOrEqual(limit + 1)
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
    expect(store.clock()).toBeGreaterThanOrEqual(seen)
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

    test('a thousand keys with long values', async () => {
      const mutations = Array.from({ length: 1000 }, (_, i) => put(keyNumber(i), `${LONG}${i}`))
      await write(store, 5, 6, mutations)
      const { pairs } = await store.batchGet({ keys: mutations.map(({ key }) => key), ts: 10 })
      expect(pairs.map(({ value }) => text(value ?? utf8('')))).toEqual(
        mutations.map(({ value }) => text(value ?? utf8(''))),
      )
    })
  })

  describe('scan', () => {
    const keysOf = async (request: {
      start?: string
      end?: string
      limit?: number
      ts?: number
      reverse?: boolean
      keyOnly?: boolean
    }) =>
      (
        await store.scan({
          ...request,
          limit: request.limit ?? 100_000,
          ts: request.ts ?? 1000,
          start: request.start === undefined ? undefined : utf8(request.start),
          end: request.end === undefined ? undefined : utf8(request.end),
        })
      ).pairs.map(({ key }) => text(key))
    /** Both directions must agree, whole or cut off. */
    const both = async (request: Parameters<typeof keysOf>[0]): Promise<string[]> => {
      const forward = await keysOf(request)
      const backward = await keysOf({ ...request, reverse: true })
      if (request.limit === undefined) expect(backward).toEqual([...forward].reverse())
      return forward
    }

    test('the range is half open both ways; the limit cuts off the far end', async () => {
      await write(
        store,
        5,
        6,
        ['a', 'aa', 'b', 'c', 'd'].map((key) => put(key)),
      )
      expect(await both({})).toEqual(['a', 'aa', 'b', 'c', 'd'])
      expect(await both({ start: 'aa', end: 'c' })).toEqual(['aa', 'b'])
      expect(await both({ start: 'c' })).toEqual(['c', 'd'])
      expect(await both({ end: 'b' })).toEqual(['a', 'aa'])
      expect(await both({ start: 'c', end: 'a' })).toEqual([])
      expect(await both({ start: 'b', end: 'b' })).toEqual([])
      expect(await keysOf({ limit: 2 })).toEqual(['a', 'aa'])
      expect(await keysOf({ limit: 2, reverse: true })).toEqual(['d', 'c'])
      expect(await keysOf({ limit: 1, end: 'c', reverse: true })).toEqual(['b'])
    })

    test('pairs carry commit_ts, and values unless key_only', async () => {
      await write(store, 5, 6, [put('a', '1'), put('b', LONG)])
      expect((await store.scan({ limit: 10, ts: 10 })).pairs).toEqual([
        { key: utf8('a'), value: utf8('1'), commitTs: 6 },
        { key: utf8('b'), value: utf8(LONG), commitTs: 6 },
      ])
      expect((await store.scan({ limit: 10, ts: 10, keyOnly: true })).pairs).toEqual([
        { key: utf8('a'), commitTs: 6 },
        { key: utf8('b'), commitTs: 6 },
      ])
    })

    test('each version at its time', async () => {
      for (let i = 1; i <= 5; i++) await write(store, i * 10, i * 10 + 1, [put(`k${i}`), put('shared', String(i))])
      await write(store, 60, 61, [del('k1'), del('shared')])
      expect(await both({ ts: 10 })).toEqual([])
      expect(await both({ ts: 31 })).toEqual(['k1', 'k2', 'k3', 'shared'])
      expect(await both({ ts: 60 })).toEqual(['k1', 'k2', 'k3', 'k4', 'k5', 'shared'])
      expect(await both({ ts: 61 })).toEqual(['k2', 'k3', 'k4', 'k5'])
    })

    test('keys with a thousand versions, between keys with one', async () => {
      await write(
        store,
        1,
        2,
        ['a', 'm', 'n', 'z'].map((key) => put(key, 'once')),
      )
      for (let i = 1; i <= 1000; i++)
        await store.prewrite(
          prewriteOf(i * 10, [put('b', String(i)), put('c', String(i)), i % 2 ? put('d') : del('d')], {
            tryOnePc: true,
            minCommitTs: i * 10 + 1,
          }),
        )
      expect(await both({ ts: 100_000 })).toEqual(['a', 'b', 'c', 'm', 'n', 'z'])
      expect(await both({ ts: 9991 })).toEqual(['a', 'b', 'c', 'd', 'm', 'n', 'z'])
      expect(await both({ ts: 5 })).toEqual(['a', 'm', 'n', 'z'])
      expect(await both({ ts: 11, start: 'b', end: 'd' })).toEqual(['b', 'c'])
      for (const limit of [1, 2, 3, 4]) {
        expect(await keysOf({ ts: 100_000, limit })).toEqual(['a', 'b', 'c', 'm'].slice(0, limit))
        expect(await keysOf({ ts: 100_000, limit, reverse: true })).toEqual(['z', 'n', 'm', 'c'].slice(0, limit))
      }
      for (const i of [1, 7, 400, 1000]) {
        for (const reverse of [false, true]) {
          const { pairs } = await store.scan({ start: utf8('b'), end: utf8('d'), ts: i * 10 + 5, limit: 10, reverse })
          expect(pairs.map(({ value }) => text(value ?? utf8('')))).toEqual([String(i), String(i)])
        }
        expect(await read(store, 'c', i * 10 + 5)).toBe(String(i))
      }
    })

    test('ten thousand keys', async () => {
      const keys = Array.from({ length: 10_000 }, (_, i) => keyNumber(i))
      await store.prewrite(
        prewriteOf(
          5,
          keys.map((key) => put(key)),
          { tryOnePc: true, minCommitTs: 6 },
        ),
      )
      expect(await both({})).toEqual(keys)
      expect(await keysOf({ limit: 5000 })).toEqual(keys.slice(0, 5000))
      expect(await keysOf({ limit: 5000, reverse: true })).toEqual(keys.slice(5000).reverse())
    })

    test('keys and values of many bytes', async () => {
      const keys = Array.from({ length: 40 }, (_, i) => `${'k'.repeat(4000)}${keyNumber(i)}`)
      await write(
        store,
        5,
        6,
        keys.map((key) => put(key, 'v'.repeat(255))),
      )
      expect(await both({})).toEqual(keys)
    })

    test('lots of deletes', async () => {
      const keys = Array.from({ length: 3000 }, (_, i) => keyNumber(i))
      await store.prewrite(
        prewriteOf(
          5,
          keys.map((key) => put(key)),
          { tryOnePc: true, minCommitTs: 6 },
        ),
      )
      const deleted = keys.filter((_, i) => i % 1000 !== 500)
      await store.prewrite(
        prewriteOf(
          10,
          deleted.map((key) => del(key)),
          { tryOnePc: true, minCommitTs: 11 },
        ),
      )
      expect(await both({ ts: 20 })).toEqual([keyNumber(500), keyNumber(1500), keyNumber(2500)])
      expect(await keysOf({ ts: 20, limit: 1, reverse: true })).toEqual([keyNumber(2500)])
      expect(await both({ ts: 7 })).toEqual(keys)
    })

    test('locks count towards the limit, and only those within it are met', async () => {
      await write(
        store,
        5,
        6,
        ['a', 'b', 'd', 'f'].map((key) => put(key)),
      )
      await store.prewrite(prewriteOf(10, [put('c'), put('d'), put('e')]))
      const locksOf = async (limit: number, reverse: boolean): Promise<string[]> => {
        const failure = await failureOf(store.scan({ limit, ts: 20, reverse }))
        expect(failure.code).toBe('key_locked')
        return (failure.fields as { locks: { key: Uint8Array }[] }).locks.map(({ key }) => text(key))
      }
      expect(await keysOf({ ts: 20, limit: 2 })).toEqual(['a', 'b'])
      expect(await locksOf(3, false)).toEqual(['c'])
      expect(await locksOf(4, false)).toEqual(['c', 'd'])
      expect(await locksOf(100, false)).toEqual(['c', 'd', 'e'])
      expect(await keysOf({ ts: 20, limit: 1, reverse: true })).toEqual(['f'])
      expect(await locksOf(2, true)).toEqual(['e'])
      expect(await locksOf(3, true)).toEqual(['d', 'e'])
      expect(await keysOf({ ts: 20, end: 'c' })).toEqual(['a', 'b'])
      expect(await keysOf({ ts: 9 })).toEqual(['a', 'b', 'd', 'f'])
    })
  })

  describe('scan_lock', () => {
    test('by start_ts, range and limit, in key order', async () => {
      await store.prewrite(prewriteOf(10, [put('b'), put('d')]))
      await store.prewrite(prewriteOf(20, [put('a'), put('c')]))
      const scan = async (request: { maxTs: number; start?: Uint8Array; end?: Uint8Array; limit?: number }) =>
        (await store.scanLock(request)).locks.map(({ key }) => text(key))
      expect(await scan({ maxTs: 100 })).toEqual(['a', 'b', 'c', 'd'])
      expect(await scan({ maxTs: 10 })).toEqual(['b', 'd'])
      expect(await scan({ maxTs: 9 })).toEqual([])
      expect(await scan({ maxTs: 100, start: utf8('b'), end: utf8('d') })).toEqual(['b', 'c'])
      expect(await scan({ maxTs: 100, limit: 3 })).toEqual(['a', 'b', 'c'])
      expect(await scan({ maxTs: TIMESTAMP_MAX, limit: 1 })).toEqual(['a'])
    })
  })

  describe('resolve_lock', () => {
    const lockThree = () => store.prewrite(prewriteOf(10, [put('a'), put('b', LONG), put('c')]))

    test('without keys: every lock of each transaction', async () => {
      await lockThree()
      await store.prewrite(prewriteOf(20, [put('x'), put('y')]))
      await store.prewrite(prewriteOf(30, [put('z')]))
      const txns = [
        { startTs: 10, commitTs: 15 },
        { startTs: 20, commitTs: 0 },
        { startTs: 25, commitTs: 26 },
      ]
      expect(await store.resolveLock({ txns })).toEqual({ resolved: 5 })
      expect(await store.resolveLock({ txns })).toEqual({ resolved: 0 })
      expect(await read(store, 'b', 15)).toBe(LONG)
      expect(await read(store, 'x', 29)).toBeUndefined()
      expect(store.lockCount).toBe(1)
    })

    test('with keys: those alone', async () => {
      await lockThree()
      const roll = (keys: string[], commitTs: number) =>
        store.resolveLock({ txns: [{ startTs: 10, commitTs }], keys: keys.map(utf8) })
      expect(await roll(['a', 'b'], 15)).toEqual({ resolved: 2 })
      expect(await codeOf(read(store, 'c', 20))).toBe('key_locked')
      expect(await roll(['c', 'b'], 15)).toEqual({ resolved: 1 })
      expect(await read(store, 'c', 20)).toBe('value of c')
    })

    test('a thousand locks of one transaction', async () => {
      await store.prewrite(
        prewriteOf(
          10,
          Array.from({ length: 1000 }, (_, i) => put(keyNumber(i))),
        ),
      )
      expect(await store.resolveLock({ txns: [{ startTs: 10, commitTs: 0 }] })).toEqual({ resolved: 1000 })
      expect(store.lockCount).toBe(0)
    })
  })
})

describe('inspection', () => {
  let store: Store
  beforeEach(async () => {
    store = await stores.open()
  })

  test('mvcc_get_by_key shows the lock, the records newest first and the long values', async () => {
    await write(store, 5, 6, [put('a', '1')])
    await write(store, 10, 11, [put('a', LONG)])
    await write(store, 20, 21, [del('a')])
    await store.rollback({ keys: [utf8('a')], startTs: 30 })
    await store.prewrite(prewriteOf(40, [put('a', LONG)]))
    expect(await store.mvccGetByKey({ key: utf8('a') })).toMatchObject({
      lock: { startTs: 40, key: utf8('a') },
      writes: [
        { type: 'rollback', startTs: 30, commitTs: 30 },
        { type: 'delete', startTs: 20, commitTs: 21 },
        { type: 'put', startTs: 10, commitTs: 11 },
        { type: 'put', startTs: 5, commitTs: 6, shortValue: utf8('1') },
      ],
      values: [
        { startTs: 40, value: utf8(LONG) },
        { startTs: 10, value: utf8(LONG) },
      ],
    })
    expect(await store.mvccGetByKey({ key: utf8('b') })).toEqual({ lock: null, writes: [], values: [] })
  })

  test('mvcc_get_by_key shows every one of many versions and long values', async () => {
    const value = 'v'.repeat(1000)
    for (let i = 1; i <= 200; i++)
      await store.prewrite(prewriteOf(i * 10, [put('a', i % 2 ? value : 'w'.repeat(255))], { tryOnePc: true }))
    const { writes, values } = await store.mvccGetByKey({ key: utf8('a') })
    expect(writes).toHaveLength(200)
    expect(values).toHaveLength(100)
  })

  test('an old version under many newer ones is found', async () => {
    for (let i = 1; i <= 200; i++)
      await store.prewrite(
        prewriteOf(i * 10, [put('a', `${i} ${'w'.repeat(240)}`)], { tryOnePc: true, minCommitTs: i * 10 + 1 }),
      )
    for (const i of [1, 2, 100, 200]) expect((await read(store, 'a', i * 10 + 5))?.split(' ')[0]).toBe(String(i))
  })

  test('a prewrite far below many newer versions finds the one of its own transaction', async () => {
    await write(store, 5, 6, [put('a', 'mine')])
    for (let i = 1; i <= 200; i++)
      await store.prewrite(prewriteOf(i * 10, [put('a', 'w'.repeat(250))], { tryOnePc: true }))
    expect(await store.prewrite(prewriteOf(5, [put('a', 'mine')], { tryOnePc: true }))).toEqual({ onePcCommitTs: 6 })
    expect(await store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 9 })).toEqual({ commitTs: 6 })
  })

  test('mvcc_get_by_start_ts finds the first key of a transaction, locked or written', async () => {
    await write(store, 5, 6, [put('c'), put('b')])
    await store.prewrite(prewriteOf(10, [put('e'), put('d')]))
    await store.rollback({ keys: [utf8('z')], startTs: 20 })
    const find = async (startTs: number, start?: string, end?: string): Promise<string | undefined> => {
      const bounds = {
        start: start === undefined ? undefined : utf8(start),
        end: end === undefined ? undefined : utf8(end),
      }
      const { key } = await store.mvccGetByStartTs({ startTs, ...bounds })
      return key && text(key)
    }
    expect(await find(5)).toBe('b')
    expect(await find(5, 'bb')).toBe('c')
    expect(await find(5, undefined, 'b')).toBeUndefined()
    expect(await find(10)).toBe('d')
    expect(await find(20)).toBe('z')
    expect(await find(99)).toBeUndefined()
    expect(await store.mvccGetByStartTs({ startTs: 99 })).toEqual({ lock: null, writes: [], values: [] })
    await store.commit({ keys: [utf8('e')], startTs: 10, commitTs: 11 })
    expect(await find(10)).toBe('d')
  })

  test('mvcc_get_by_start_ts finds a key behind thousands of others', async () => {
    const mutations = Array.from({ length: 3000 }, (_, i) => put(keyNumber(i)))
    await store.prewrite(prewriteOf(5, mutations, { tryOnePc: true }))
    await write(store, 10, 11, [put(keyNumber(2999))])
    expect((await store.mvccGetByStartTs({ startTs: 10 })).key).toEqual(utf8(keyNumber(2999)))
  })
})

describe('removal', () => {
  let store: Store
  let directory: string
  beforeEach(async () => {
    directory = await stores.directory()
    store = await stores.open({ directory })
  })
  const versions = async (key: string): Promise<number[]> =>
    (await store.mvccGetByKey({ key: utf8(key) })).writes.map(({ commitTs }) => commitTs)

  test('collect keeps what readers at the safe point see, and nothing below', async () => {
    await write(store, 5, 6, [put('a', LONG), put('gone', LONG), put('b', '1')])
    await write(store, 10, 11, [put('a', LONG), del('gone')])
    await store.rollback({ keys: [utf8('a')], startTs: 15 })
    await write(store, 30, 31, [put('a', 'new')])
    expect(await store.collect(20)).toBe(4) // a at 6 and its rollback, and both of `gone`.
    expect(await versions('a')).toEqual([31, 11])
    expect((await store.mvccGetByKey({ key: utf8('a') })).values.map(({ startTs }) => startTs)).toEqual([10])
    expect(await store.mvccGetByKey({ key: utf8('gone') })).toEqual({ lock: null, writes: [], values: [] })
    expect(await read(store, 'a', 20)).toBe(LONG)
    expect(await read(store, 'b', 20)).toBe('1')
    expect(await read(store, 'a')).toBe('new')
  })

  test('below the safe point nothing is read, prewritten or committed', async () => {
    await store.prewrite(prewriteOf(15, [put('c')]))
    await store.collect(20)
    expect(store.safePoint).toBe(20)
    expect(await codeOf(read(store, 'a', 19))).toBe('ts_below_safe_point')
    expect(await codeOf(store.batchGet({ keys: [utf8('a')], ts: 19 }))).toBe('ts_below_safe_point')
    expect(await codeOf(store.scan({ limit: 1, ts: 19 }))).toBe('ts_below_safe_point')
    expect(await codeOf(store.prewrite(prewriteOf(19, [put('a')])))).toBe('ts_below_safe_point')
    expect(await codeOf(store.commit({ keys: [utf8('c')], startTs: 15, commitTs: 25 }))).toBe('ts_below_safe_point')
    expect(await failureOf(store.get({ key: utf8('a'), ts: 19 }))).toMatchObject({ fields: { safePoint: 20 } })
    expect(await read(store, 'a', 20)).toBeUndefined()
    await store.prewrite(prewriteOf(20, [put('a')]))
  })

  test('the safe point stays over a restart', async () => {
    await store.collect(20)
    await store.close()
    const again = await stores.open({ directory })
    expect(again.safePoint).toBe(20)
    expect(await codeOf(read(again, 'a', 19))).toBe('ts_below_safe_point')
  })

  test.each([
    [
      'one after another',
      async () => {
        await store.collect(50)
        await store.collect(20)
      },
    ],
    ['at once', () => Promise.all([store.collect(50), store.collect(20)])],
  ])('a lower safe point, %s, never lowers it, over a restart either', async (_, collect) => {
    await write(store, 5, 6, [put('a', 'old')])
    await write(store, 40, 41, [put('a', 'new')])
    await collect()
    expect(store.safePoint).toBe(50)
    await store.close()
    const again = await stores.open({ directory })
    // The version at 6 is gone: a read at 30 would wrongly say that the key was absent.
    expect(await codeOf(read(again, 'a', 30))).toBe('ts_below_safe_point')
    expect(again.safePoint).toBe(50)
  })

  test('collect over thousands of keys and versions', async () => {
    const keys = Array.from({ length: 2000 }, (_, i) => `a/key/of/the/usual/length/${keyNumber(i)}`)
    for (const startTs of [5, 15, 25])
      await store.prewrite(
        prewriteOf(
          startTs,
          keys.map((key) => put(key, LONG)),
          { tryOnePc: true, minCommitTs: startTs + 1 },
        ),
      )
    for (let i = 0; i < 300; i++) await store.prewrite(prewriteOf(30 + i, [put('hot', LONG)], { tryOnePc: true }))
    expect(await store.collect(1000)).toBe(2 * 2000 + 299)
    expect(await versions('hot')).toHaveLength(1)
    expect((await store.mvccGetByKey({ key: utf8('hot') })).values).toHaveLength(1)
    expect((await store.scan({ ts: 1000, limit: 10_000 })).pairs).toHaveLength(2001)
    expect(await store.collect(1000)).toBe(0)
  })

  test('a history longer than a step goes in parts, its delete last', async () => {
    const versionsOf = async (keys: string[]) => Promise.all(keys.map(versions))
    for (let i = 0; i < 1300; i++)
      await store.prewrite(
        prewriteOf(10 + i, [put('deleted', LONG), put('kept', LONG), put('later', LONG)], { tryOnePc: true }),
      )
    await write(store, 2000, 2001, [del('deleted')])
    await write(store, 3000, 3001, [put('later', 'new')])
    await write(store, 5, 6, [put('a', '1'), put('z', '1')])
    await write(store, 7, 8, [put('a', '2'), put('z', '2')])
    expect(await store.collect(2500)).toBe(2 + 1301 + 1299 + 1299)
    expect(await versionsOf(['a', 'deleted', 'kept', 'z'])).toEqual([[8], [], [expect.any(Number)], [8]])
    expect(await versions('later')).toEqual([3001, expect.any(Number)])
    for (const [key, values] of [
      ['deleted', 0],
      ['kept', 1],
      ['later', 1],
    ] as const)
      expect((await store.mvccGetByKey({ key: utf8(key) })).values).toHaveLength(values)
    expect(await read(store, 'kept', 2500)).toBe(LONG)
  })

  test('a collection that is ended goes on from the start the next time', async () => {
    const keys = Array.from({ length: 1000 }, (_, i) => keyNumber(i))
    for (const startTs of [5, 15])
      await store.prewrite(
        prewriteOf(
          startTs,
          keys.map((key) => put(key)),
          { tryOnePc: true, minCommitTs: startTs + 1 },
        ),
      )
    const abort = new AbortController()
    const pace = { pause: async () => abort.abort(), signal: abort.signal }
    const first = await store.collect(20, pace)
    expect(first).toBeGreaterThan(0)
    expect(first).toBeLessThan(1000)
    expect(await store.collect(20)).toBe(1000 - first)
  })

  test('the space of long values that were collected comes back', async () => {
    const value = randomBytes(64 * 1024)
    for (let version = 0; version < 20; version++)
      for (let i = 0; i < 10; i++)
        await store.prewrite(prewriteOf(10 * version + 5, [put(keyNumber(i), value)], { tryOnePc: true }))
    await store.compact({})
    const before = await store.diskBytes()
    expect(await store.collect(1000)).toBe(190)
    expect(await store.diskBytes()).toBeLessThan(before / 4)
    expect((await store.scan({ ts: 1000, limit: 100 })).pairs).toHaveLength(10)
  })

  test('delete_range removes every version, value and lock in it, and nothing else', async () => {
    for (const startTs of [5, 15])
      await write(
        store,
        startTs,
        startTs + 1,
        ['a', 'b', 'bb', 'c'].map((key) => put(key, LONG)),
      )
    await store.prewrite(prewriteOf(20, [put('b', LONG), put('bx'), put('c')]))
    await store.deleteRange({ start: utf8('b'), end: utf8('c') })
    const nothing = { lock: null, writes: [], values: [] }
    for (const key of ['b', 'bb', 'bx']) expect(await store.mvccGetByKey({ key: utf8(key) })).toEqual(nothing)
    expect(await versions('a')).toEqual([16, 6])
    expect(await versions('c')).toEqual([16, 6])
    expect(store.lockCount).toBe(1)
    expect(await read(store, 'b', 100)).toBeUndefined()
    await store.close()
    expect((await stores.open({ directory })).lockCount).toBe(1)
  })

  test('delete_range of thousands of keys, some with many long values', async () => {
    const keys = Array.from({ length: 2000 }, (_, i) => keyNumber(i))
    await store.prewrite(
      prewriteOf(
        5,
        keys.map((key) => put(key, LONG)),
        { tryOnePc: true },
      ),
    )
    for (let i = 0; i < 100; i++)
      await store.prewrite(prewriteOf(10 + i, [put('key0', 'v'.repeat(1000))], { tryOnePc: true }))
    await store.deleteRange({ start: utf8('key'), end: utf8('key~') })
    expect((await store.scan({ ts: 1000, limit: 10_000 })).pairs).toEqual([])
    expect(await store.mvccGetByKey({ key: utf8('key0') })).toEqual({ lock: null, writes: [], values: [] })
    expect(await store.mvccGetByKey({ key: utf8(keyNumber(1999)) })).toEqual({ lock: null, writes: [], values: [] })
  })
})

describe('exclusive', () => {
  const claim = (...written: string[]): Claim => ({ written, read: [], isAlone: false })

  test('others wait; the prewrite handed in does not', async () => {
    const store = await stores.open()
    const order: string[] = []
    const inside = store.exclusive(claim('a', 'b'), async (prewrite) => {
      const other = store.prewrite(prewriteOf(10, [put('a', 'other')], { tryOnePc: true })).then(
        () => 'written',
        (error: { code?: string }) => error.code,
      )
      expect(await read(store, 'a', 20)).toBeUndefined()
      await prewrite(prewriteOf(20, [put('a', '1'), put('b', '2')], { tryOnePc: true }))
      order.push('exclusive')
      return { other }
    })
    const { other } = await inside
    expect(await other).toBe('write_conflict')
    expect(await read(store, 'a')).toBe('1')
    expect(order).toEqual(['exclusive'])
  })

  test('a body that throws lets the keys go', async () => {
    const store = await stores.open()
    const failing = store.exclusive(claim('a'), async () => {
      throw new Error('on purpose')
    })
    await expect(failing).rejects.toThrow('on purpose')
    await write(store, 5, 6, [put('a', '1')])
  })
})
