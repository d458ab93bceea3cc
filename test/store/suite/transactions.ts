import { beforeEach, expect } from 'vitest'
import type { Store } from '../../../src/store/store.js'
import { codeOf, del, failureOf, prewriteOf, put, read, START_MS, utf8, write } from '../support.js'
import { LONG, lockedKeys, longValuesOf, versionsOf } from './contents.js'
import type { Contract } from './contract.js'

/** Prewrite, commit, rollback, and how a transaction ends whose client is gone. */
export function transactionCases({ open, test, needing }: Contract): void {
  let store: Store
  beforeEach(async () => {
    store = await open({ now: () => START_MS })
  })

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

  test('values of any length come back', async () => {
    for (const [i, length] of [0, 1, 255, 256, 4096, 4097, 2 ** 20].entries()) {
      const value = Buffer.alloc(length, 'abc')
      await write(store, 10 * i + 10, 10 * i + 11, [put('a', value)])
      const got = await store.get({ key: utf8('a') })
      expect(got.found && value.equals(got.value)).toBe(true) // `toEqual` takes seconds for long ones.
    }
  })

  test('rollback takes locks and long values away, and stops a late prewrite', async () => {
    await write(store, 5, 6, [put('a', 'old')])
    await store.prewrite(prewriteOf(10, [put('a', LONG), put('b', LONG)]))
    expect([await longValuesOf(store, 'a'), await longValuesOf(store, 'b')]).toEqual([[10], [10]])
    await store.rollback({ keys: [utf8('a'), utf8('b')], startTs: 10 })
    await store.rollback({ keys: [utf8('a'), utf8('b')], startTs: 10 })
    expect([await longValuesOf(store, 'a'), await longValuesOf(store, 'b')]).toEqual([[], []])
    expect(await lockedKeys(store)).toEqual([])
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
    expect(await lockedKeys(store)).toEqual([])
    expect(await versionsOf(store, 'a')).toEqual([20])
    expect(await codeOf(store.rollback({ keys: [utf8('a')], startTs: 10 }))).toBe('already_committed')
  })

  test('a rollback at the commit_ts of another transaction is a flag on its record', async () => {
    await write(store, 5, 10, [put('a', '1')])
    await store.cleanup({ key: utf8('a'), startTs: 10, currentTs: 0 })
    expect((await store.mvccGetByKey({ key: utf8('a') })).writes).toMatchObject([
      { type: 'put', startTs: 5, commitTs: 10, overlappedRollback: true },
    ])
    expect(await codeOf(store.prewrite(prewriteOf(10, [put('a')])))).toBe('write_conflict')
    expect(await read(store, 'a')).toBe('1')
  })

  test('a failed prewrite writes nothing, of no key', async () => {
    await write(store, 5, 20, [put('b', 'old')])
    const failure = await failureOf(store.prewrite(prewriteOf(10, [put('a', LONG), put('b'), put('c')])))
    expect(failure.code).toBe('write_conflict')
    expect(failure.errors).toHaveLength(1)
    expect(await lockedKeys(store)).toEqual([])
    expect(await longValuesOf(store, 'a')).toEqual([])
  })

  test('a commit below min_commit_ts is refused', async () => {
    await store.prewrite(prewriteOf(10, [put('a')], { minCommitTs: 15 }))
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 14 }))).toBe('commit_ts_expired')
    await store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 15 })
  })

  needing('onePhaseCommit')('1PC leaves no lock, and commits above every read', async () => {
    await read(store, 'b', 40)
    const { onePcCommitTs } = await store.prewrite(prewriteOf(10, [put('a', LONG), put('b')], { tryOnePc: true }))
    expect(onePcCommitTs).toBe(41)
    expect(await lockedKeys(store)).toEqual([])
    expect(await read(store, 'a', 41)).toBe(LONG)
    expect(await read(store, 'b', 40)).toBeUndefined()
    const again = await store.prewrite(prewriteOf(10, [put('a', LONG), put('b')], { tryOnePc: true }))
    expect(again).toEqual({ onePcCommitTs: 41 })
  })

  needing('asyncCommit')(
    'async commit answers a min_commit_ts above every read; the locks tell the secondaries',
    async () => {
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
    },
  )

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
    expect(await longValuesOf(store, 'a')).toEqual([])
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
    expect(await longValuesOf(store, 'a')).toEqual([])
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

  needing('onePhaseCommit')('reading that a key is absent is a read: nobody commits it below afterwards', async () => {
    await store.prewrite(prewriteOf(40, [{ op: 'check_not_exists', key: utf8('a') }, put('b')]))
    const { onePcCommitTs } = await store.prewrite(prewriteOf(10, [put('a')], { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(40)
  })
}
