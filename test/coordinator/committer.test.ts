import { afterEach, describe, expect, test, vi } from 'vitest'
import { COMMIT_OPTIONS_DEFAULT, Coordinator } from '../../src/coordinator/coordinator.js'
import { Heartbeat } from '../../src/coordinator/heartbeat.js'
import { LockResolver } from '../../src/coordinator/lock-resolver.js'
import { lockTtlMs } from '../../src/coordinator/lock-ttl.js'
import type { Transaction, TransactionOptions } from '../../src/coordinator/transaction.js'
import { Undetermined } from '../../src/coordinator/undetermined.js'
import { KvError } from '../../src/errors/kv-error.js'
import type { PercolatorApi, PrewriteRequest, TxnHeartBeatRequest } from '../../src/percolator/api.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { codeOf, deferred, memoryStores, prewriteOf, put, read, text, turn, utf8, write } from '../store/support.js'
import { type Call, type Fate, FaultyApi } from './faulty-api.js'

/** Which calls a transaction sends, and when it sends none. */

const stores = memoryStores()
const OPTIMISTIC: TransactionOptions = { mode: 'optimistic', isolation: 'snapshot', lockWaitMs: 0 }
const PESSIMISTIC: TransactionOptions = { ...OPTIMISTIC, mode: 'pessimistic' }
const SERIALIZABLE: TransactionOptions = { ...OPTIMISTIC, isolation: 'serializable' }
const ONE_PC = COMMIT_OPTIONS_DEFAULT
/** A batch a key. */
const ASYNC = { ...COMMIT_OPTIONS_DEFAULT, batchBytes: 1 }
const TWO_PC = { ...ASYNC, asyncCommitKeysMax: 0 }

interface Setting {
  readonly store: Store
  readonly network: FaultyApi
  readonly coordinator: Coordinator
  readonly txn: Transaction
}

/** A transaction that was begun; what it sends from now on is in `network.calls`. */
async function begun(
  commitOptions = ONE_PC,
  options = OPTIMISTIC,
  through: (network: FaultyApi, store: Store) => Partial<PercolatorApi> = () => ({}),
): Promise<Setting> {
  const store = await stores.open()
  const network = new FaultyApi(store)
  const coordinator = new Coordinator({ ...network.api, ...through(network, store) }, commitOptions)
  const txn = await coordinator.begin(options)
  network.calls.length = 0
  return { store, network, coordinator, txn }
}

async function putAll(txn: Transaction, keys: readonly string[]): Promise<void> {
  for (const key of keys) await txn.put(utf8(key), utf8('mine'))
}

const names = ({ calls }: FaultyApi): string[] => calls.map(({ name }) => name)
const requests = <R>({ calls }: FaultyApi, wanted: string): R[] =>
  calls.filter(({ name }) => name === wanted).map(({ request }) => request as R)
const prewrites = (network: FaultyApi): PrewriteRequest[] => requests(network, 'prewrite')
const keysOf = ({ mutations }: PrewriteRequest): string[] => mutations.map(({ key }) => text(key))
const committedKeys = (network: FaultyApi): string[][] =>
  requests<{ keys: Uint8Array[] }>(network, 'commit').map(({ keys }) => keys.map(text))
const rolledBackKeys = (network: FaultyApi): string[] =>
  requests<{ keys: Uint8Array[] }>(network, 'rollback').flatMap(({ keys }) => keys.map(text))

async function conflictOn(store: Store, key: string): Promise<Timestamp> {
  const startTs = await store.tso(1)
  const commitTs = await store.tso(1)
  await write(store, startTs, commitTs, [put(key, 'other')])
  return commitTs
}

afterEach(() => {
  vi.useRealTimers()
})

describe('one phase', () => {
  test('one request, and nothing more', async () => {
    const { network, coordinator, txn } = await begun()
    await putAll(txn, ['a', 'b'])
    await txn.delete(utf8('c'))
    const commitTs = await txn.commit()
    await coordinator.idle()
    expect(names(network)).toEqual(['prewrite'])
    expect(prewrites(network)[0]).toMatchObject({
      tryOnePc: true,
      linearizable: true,
      txnSize: 3,
      startTs: txn.startTs,
    })
    expect(prewrites(network)[0]?.mutations).toEqual([
      put('a', 'mine'),
      put('b', 'mine'),
      { op: 'delete', key: utf8('c') },
    ])
    for (const field of ['useAsyncCommit', 'secondaries', 'reads', 'pessimisticActions'])
      expect(prewrites(network)[0]).not.toHaveProperty(field, expect.anything())
    expect(prewrites(network)[0]?.forUpdateTs).toBeUndefined()
    expect(commitTs).toBeGreaterThan(txn.startTs)
  })

  test.each([OPTIMISTIC, PESSIMISTIC, SERIALIZABLE])(
    'nothing written: nothing sent ($mode, $isolation)',
    async (options) => {
      const { network, txn } = await begun(ONE_PC, options)
      await txn.get(utf8('a'))
      expect(await txn.commit()).toBe(txn.startTs)
      expect(names(network)).toEqual(['get'])
    },
  )

  test('falls back where an earlier try left a plain lock: commits in two phases', async () => {
    const { store, network, txn } = await begun()
    await putAll(txn, ['a'])
    await store.prewrite(prewriteOf(txn.startTs, [put('a', 'mine')]))
    await txn.commit()
    expect(names(network)).toEqual(['prewrite', 'tso', 'commit'])
    expect(await read(store, 'a')).toBe('mine')
  })

  test('a conflict: no lock can stand, nothing is sent', async () => {
    const { store, network, coordinator, txn } = await begun()
    await putAll(txn, ['a', 'b'])
    await conflictOn(store, 'b')
    expect(await codeOf(txn.commit())).toBe('write_conflict')
    await coordinator.idle()
    expect(names(network)).toEqual(['prewrite'])
  })

  test('answers lost: tries again, then asks the primary, and cleans up', async () => {
    const { network, coordinator, txn } = await begun()
    await putAll(txn, ['a', 'b'])
    network.fateOf = ({ name }) => (name === 'prewrite' ? 'lose_request' : 'arrive')
    expect(await codeOf(txn.commit())).toBe('write_conflict')
    await coordinator.idle()
    // The read says whether a commit would still be on record.
    expect(names(network)).toEqual(['prewrite', 'prewrite', 'prewrite', 'checkTxnStatus', 'get', 'rollback'])
    const ask = { primary: utf8('a'), lockTs: txn.startTs, rollbackIfNotExist: true, currentTs: TIMESTAMP_MAX }
    expect(requests(network, 'checkTxnStatus')).toMatchObject([ask])
    expect(rolledBackKeys(network)).toEqual(['a', 'b'])
  })
})

describe('async commit', () => {
  test('prewrites side by side, secondaries in the primary, answered before the commits', async () => {
    const hold = deferred()
    const { store, network, coordinator, txn } = await begun(ASYNC, OPTIMISTIC, ({ api }) => ({
      commit: async (request) => {
        await hold.promise
        return api.commit(request)
      },
    }))
    await putAll(txn, ['a', 'b', 'c'])
    const commitTs = await txn.commit()
    expect(names(network)).toEqual(['prewrite', 'prewrite', 'prewrite'])
    expect(prewrites(network).map(keysOf)).toEqual([['a'], ['b'], ['c']])
    expect(prewrites(network).map(({ secondaries }) => secondaries?.map(text))).toEqual([
      ['b', 'c'],
      undefined,
      undefined,
    ])
    for (const request of prewrites(network)) {
      expect(request).toMatchObject({ useAsyncCommit: true, linearizable: true, primary: utf8('a'), txnSize: 3 })
      expect(request).not.toHaveProperty('tryOnePc')
    }
    const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
    expect(locks).toHaveLength(3)
    expect(commitTs).toBe(Math.max(...locks.map(({ minCommitTs }) => minCommitTs)))
    hold.resolve()
    await coordinator.idle()
    expect(committedKeys(network)).toEqual([['a'], ['b'], ['c']])
    expect(requests(network, 'commit')).toMatchObject([{ commitTs }, { commitTs }, { commitTs }])
  })

  test.each([
    { keys: 256, length: 4, kind: 'async' },
    { keys: 257, length: 4, kind: 'two_pc' },
    { keys: 4, length: 1024, kind: 'async' },
    { keys: 4, length: 1025, kind: 'two_pc' },
  ])('$keys keys of $length bytes: $kind', async ({ keys, length, kind }) => {
    const { network, coordinator, txn } = await begun({ ...ASYNC, batchBytes: length })
    await putAll(
      txn,
      Array.from({ length: keys }, (_, i) => String(i).padStart(length, '0')),
    )
    await txn.commit()
    await coordinator.idle()
    expect(new Set(prewrites(network).map(({ useAsyncCommit = false }) => useAsyncCommit))).toEqual(
      new Set([kind === 'async']),
    )
  })

  test('falls back where one key has a plain lock: commits in two phases', async () => {
    const { store, network, coordinator, txn } = await begun(ASYNC)
    await putAll(txn, ['a', 'b'])
    await store.prewrite(prewriteOf(txn.startTs, [put('b', 'mine')], { primary: utf8('a') }))
    await txn.commit()
    await coordinator.idle()
    expect(names(network)).toEqual(['prewrite', 'prewrite', 'tso', 'commit', 'commit'])
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['mine', 'mine'])
  })
})

describe('two phases', () => {
  test('batches by size, the primary first; its commit is the answer, the rest follows', async () => {
    const hold = deferred()
    const { network, coordinator, txn } = await begun({ ...TWO_PC, batchBytes: 10 }, PESSIMISTIC, ({ api, calls }) => ({
      commit: async (request) => {
        if (calls.some(({ name }) => name === 'commit')) await hold.promise
        return api.commit(request)
      },
    }))
    await txn.getForUpdate(utf8('z'))
    await putAll(txn, ['a', 'b', 'c'])
    const commitTs = await txn.commit()
    expect(prewrites(network).map(keysOf)).toEqual([['z', 'a', 'b'], ['c']])
    expect(prewrites(network).map(({ primary }) => text(primary))).toEqual(['z', 'z'])
    for (const request of prewrites(network)) {
      expect(request).toMatchObject({ linearizable: true })
      for (const field of ['tryOnePc', 'useAsyncCommit', 'secondaries']) expect(request).not.toHaveProperty(field)
    }
    expect(names(network).slice(-2)).toEqual(['tso', 'commit'])
    expect(requests(network, 'commit')).toMatchObject([{ primary: utf8('z'), startTs: txn.startTs, commitTs }])
    expect(committedKeys(network)).toEqual([['z', 'a', 'b']])
    hold.resolve()
    await coordinator.idle()
    expect(committedKeys(network)).toEqual([['z', 'a', 'b'], ['c']])
  })

  test('where a request is not one atomic write, only the primary is waited for', async () => {
    const hold = deferred()
    const options = { ...TWO_PC, batchBytes: 10, commitsPrimaryAlone: true }
    const { network, coordinator, txn } = await begun(options, OPTIMISTIC, ({ api, calls }) => ({
      commit: async (request) => {
        if (calls.some(({ name }) => name === 'commit')) await hold.promise
        return api.commit(request)
      },
    }))
    await putAll(txn, ['a', 'b', 'c'])
    await txn.commit()
    expect(prewrites(network).map(keysOf)).toEqual([['a', 'b'], ['c']])
    expect(committedKeys(network)).toEqual([['a']])
    hold.resolve()
    await coordinator.idle()
    expect(committedKeys(network)).toEqual([['a'], ['b'], ['c']])
  })

  test('a prewrite of all keys: refused it leaves nothing to roll back, lost it may', async () => {
    const refused = await begun({ ...TWO_PC, batchBytes: 1000, onePhase: false })
    await putAll(refused.txn, ['a', 'b'])
    await conflictOn(refused.store, 'b')
    expect(await codeOf(refused.txn.commit())).toBe('write_conflict')
    await refused.coordinator.idle()
    expect(rolledBackKeys(refused.network)).toEqual([])

    const lost = await begun({ ...TWO_PC, batchBytes: 1000, onePhase: false })
    lost.network.fateOf = ({ name }) => (name === 'prewrite' ? 'lose_answer' : 'arrive')
    await putAll(lost.txn, ['a', 'b'])
    await expect(lost.txn.commit()).rejects.toThrow()
    await lost.coordinator.idle()
    expect(rolledBackKeys(lost.network)).toEqual(['a', 'b'])
    expect((await lost.store.scanLock({ maxTs: TIMESTAMP_MAX })).locks).toEqual([])
  })

  test.each([ASYNC, TWO_PC])('a conflict (async: $asyncCommitKeysMax): all keys are rolled back', async (options) => {
    const { store, network, coordinator, txn } = await begun(options)
    await putAll(txn, ['a', 'b', 'c'])
    await conflictOn(store, 'b')
    expect(await codeOf(txn.commit())).toBe('write_conflict')
    await coordinator.idle()
    expect(names(network)).not.toContain('commit')
    expect(rolledBackKeys(network).sort()).toEqual(['a', 'b', 'c'])
    expect(await read(store, 'a')).toBeUndefined()
    expect((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks).toEqual([])
  })

  test('somebody rolled the primary back: refused, and cleaned up', async () => {
    const { network, coordinator, txn } = await begun(TWO_PC, OPTIMISTIC, ({ api }, store) => ({
      commit: async (request) => {
        await store.rollback({ keys: [utf8('a')], startTs: request.startTs })
        return api.commit(request)
      },
    }))
    await putAll(txn, ['a', 'b'])
    expect(await codeOf(txn.commit())).toBe('txn_lock_not_found')
    await coordinator.idle()
    expect(rolledBackKeys(network)).toEqual(['a', 'b'])
  })

  test('a reader raised min_commit_ts: a new commit_ts, validated again', async () => {
    let pushed = 0
    const { store, network, txn } = await begun(TWO_PC, SERIALIZABLE, ({ api }, store) => ({
      commit: async (request) => {
        const minCommitTs = (await store.tso(1)) + 1
        if (pushed++ === 0)
          await store.txnHeartBeat({ primary: utf8('a'), startTs: request.startTs, adviseLockTtl: 1, minCommitTs })
        return api.commit(request)
      },
    }))
    await txn.get(utf8('r'))
    await putAll(txn, ['a'])
    await store.prewrite(prewriteOf(txn.startTs, [put('a', 'mine')])) // Keeps it from being one phase.
    const commitTs = await txn.commit()
    expect(names(network)).toEqual([
      'get',
      'prewrite',
      ...['tso', 'validateReads', 'commit'],
      ...['tso', 'validateReads', 'commit'],
    ])
    const tried = requests<{ commitTs: Timestamp }>(network, 'commit').map(({ commitTs }) => commitTs)
    expect(requests(network, 'validateReads')).toMatchObject(tried.map((commitTs) => ({ commitTs })))
    expect(tried[1]).toBe(commitTs)
    expect(tried[1]).toBeGreaterThan(tried[0] ?? 0)
  })

  test('somebody raised min_commit_ts far ahead: it waits with back-off until the time has come', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    try {
      let isAhead = true
      const { network, txn } = await begun(TWO_PC, OPTIMISTIC, ({ api }) => ({
        commit: async (request) => {
          const answer = isAhead ? undefined : await api.commit(request)
          if (answer !== undefined) return answer
          if (network.calls.push({ name: 'commit', index: 0, request }) > 100) throw new Error('it never waits')
          const { startTs, commitTs } = request
          const fields = { key: utf8('a'), startTs, attemptedCommitTs: commitTs, minCommitTs: commitTs + 2 ** 40 }
          throw new KvError('commit_ts_expired', 'too early', fields)
        },
      }))
      await putAll(txn, ['a', 'b'])
      const committing = txn.commit()
      // The first time a reader went by, most likely: it tries again at once.
      for (const tries of [2, 3, 4]) {
        while (vi.getTimerCount() === 0) await turn()
        expect(requests(network, 'commit')).toHaveLength(tries)
        isAhead = tries < 4
        vi.advanceTimersToNextTimer()
      }
      expect(await committing).toBeGreaterThan(txn.startTs)
    } finally {
      vi.useRealTimers()
    }
  })
})

describe('serializable', () => {
  test('one phase: what it read goes with the prewrite, without what it wrote', async () => {
    const { network, txn } = await begun(ONE_PC, SERIALIZABLE)
    for (const key of ['a', 'r']) await txn.get(utf8(key))
    await txn.batchGet([utf8('s')])
    await txn.scan({ start: utf8('x'), end: utf8('y'), limit: 10, reverse: false, keyOnly: false })
    await putAll(txn, ['a'])
    await txn.commit()
    expect(prewrites(network)).toMatchObject([
      { tryOnePc: true, reads: { keys: [utf8('r'), utf8('s')], ranges: [{ start: utf8('x'), end: utf8('y') }] } },
    ])
  })

  test('pessimistic: what it wrote too, since its lock does not look at the snapshot', async () => {
    const { network, txn } = await begun(ONE_PC, { ...SERIALIZABLE, mode: 'pessimistic' })
    await txn.get(utf8('a'))
    await putAll(txn, ['a'])
    await txn.commit()
    expect(prewrites(network)).toMatchObject([{ reads: { keys: [utf8('a')], ranges: [] } }])
  })

  test('it read only what it wrote: nothing to validate, and async commit', async () => {
    const { network, coordinator, txn } = await begun(ASYNC, SERIALIZABLE)
    await txn.get(utf8('a'))
    await putAll(txn, ['a', 'b'])
    await txn.commit()
    await coordinator.idle()
    expect(names(network)).not.toContain('validateReads')
    expect(prewrites(network)).toMatchObject([{ useAsyncCommit: true }, { useAsyncCommit: true }])
  })

  test.each([
    { reverse: false, limit: 2, range: ['r', 'r2\0'] },
    { reverse: true, limit: 2, range: ['r2', 's'] },
    { reverse: false, limit: 4, range: ['r', 's'] },
  ])('a scan counts as far as it looked (reverse: $reverse, limit: $limit)', async ({ reverse, limit, range }) => {
    const { store, network, coordinator } = await begun(ONE_PC, SERIALIZABLE)
    await store.prewrite(
      prewriteOf(
        await store.tso(1),
        ['r1', 'r2', 'r3'].map((key) => put(key)),
        { tryOnePc: true },
      ),
    )
    const txn = await coordinator.begin(SERIALIZABLE)
    await txn.scan({ start: utf8('r'), end: utf8('s'), limit, reverse, keyOnly: false })
    await putAll(txn, ['a'])
    await txn.commit()
    const ranges = prewrites(network).flatMap(({ reads }) => reads?.ranges ?? [])
    expect(ranges.map(({ start, end }) => [start, end].map((bound) => bound && text(bound)))).toEqual([range])
  })

  test('several batches: no async commit; validated between the prewrites and the commit', async () => {
    const { network, coordinator, txn } = await begun(ASYNC, SERIALIZABLE)
    await txn.get(utf8('r'))
    await putAll(txn, ['a', 'b'])
    const commitTs = await txn.commit()
    await coordinator.idle()
    expect(names(network)).toEqual(['get', 'prewrite', 'prewrite', 'tso', 'validateReads', 'commit', 'commit'])
    for (const request of prewrites(network)) expect(request.useAsyncCommit ?? request.reads).toBeUndefined()
    const validation = { startTs: txn.startTs, commitTs, keys: [utf8('r')], ranges: [] }
    expect(requests(network, 'validateReads')).toEqual([validation])
  })

  test('several batches: what it read was written; all keys are rolled back', async () => {
    const { store, network, coordinator, txn } = await begun(ASYNC, SERIALIZABLE)
    await txn.get(utf8('r'))
    await putAll(txn, ['a', 'b'])
    await conflictOn(store, 'r')
    expect(await codeOf(txn.commit())).toBe('write_conflict')
    await coordinator.idle()
    expect(names(network)).not.toContain('commit')
    expect(rolledBackKeys(network)).toEqual(['a', 'b'])
  })
})

describe('pessimistic', () => {
  test.each([ONE_PC, TWO_PC])(
    'locks first; keys read for update are locked in the commit too ($batchBytes)',
    async (options) => {
      const { store, network, coordinator, txn } = await begun(options, PESSIMISTIC)
      const newer = await conflictOn(store, 'b')
      await putAll(txn, ['a', 'b'])
      await txn.getForUpdate(utf8('u'))
      await txn.commit()
      await coordinator.idle()
      const locks = requests<Record<string, unknown>>(network, 'acquirePessimisticLock')
      const common = { primary: utf8('a'), startTs: txn.startTs, wakeUpMode: 'force_lock' }
      expect(locks).toMatchObject([
        { ...common, keys: [utf8('a')], forUpdateTs: txn.startTs, isFirstLock: true, returnValues: false },
        { ...common, keys: [utf8('b')], forUpdateTs: txn.startTs, isFirstLock: false },
        { ...common, keys: [utf8('u')], forUpdateTs: newer, isFirstLock: false, returnValues: true },
      ])
      const mutations = prewrites(network).flatMap((request) => request.mutations)
      expect(mutations).toEqual([put('a', 'mine'), put('b', 'mine'), { op: 'lock', key: utf8('u') }])
      for (const { forUpdateTs, pessimisticActions, mutations } of prewrites(network)) {
        expect(forUpdateTs).toBe(newer)
        expect(pessimisticActions).toEqual(mutations.map(() => 'do'))
      }
    },
  )

  test('a dead lock in the way is ended at once', async () => {
    const { store, network, txn } = await begun(ONE_PC, { ...PESSIMISTIC, lockWaitMs: 600_000 })
    await store.prewrite(prewriteOf(10, [put('a', 'lost'), put('b', 'lost')]))
    await putAll(txn, ['b'])
    const acquire = 'acquirePessimisticLock'
    expect(names(network)).toEqual([acquire, 'now', 'checkTxnStatus', 'resolveLock', acquire])
    expect(requests(network, acquire)).toMatchObject([{ untilExpired: true }, { untilExpired: true }])
  })

  test('a lock whose TTL is over is waited for while its transaction lives', async () => {
    const { store, network, txn } = await begun(ONE_PC, { ...PESSIMISTIC, lockWaitMs: 600_000 })
    const startTs = await store.tso(1)
    const request = { primary: utf8('a'), startTs, forUpdateTs: startTs, waitTimeout: -1 }
    await store.acquirePessimisticLock({ ...request, keys: [utf8('a')], lockTtl: 600_000 })
    await store.acquirePessimisticLock({ ...request, keys: [utf8('b')], lockTtl: 0 })
    const writing = putAll(txn, ['b'])
    await expect
      .poll(() => requests<{ untilExpired: boolean }>(network, 'acquirePessimisticLock').at(-1)?.untilExpired)
      .toBe(false)
    await expect.poll(() => store.figures.waiting).toBe(1)
    await store.pessimisticRollback({ keys: [utf8('b')], startTs, forUpdateTs: startTs })
    await writing
  })

  test('optimistic: keys read for update are written as locks', async () => {
    const { network, txn } = await begun()
    await txn.getForUpdate(utf8('u'))
    await putAll(txn, ['a'])
    await txn.commit()
    expect(names(network)).toEqual(['get', 'prewrite'])
    expect(prewrites(network)[0]?.mutations).toEqual([put('a', 'mine'), { op: 'lock', key: utf8('u') }])
  })

  test('nothing written: releases its locks', async () => {
    const { store, network, txn } = await begun(ONE_PC, PESSIMISTIC)
    await txn.getForUpdate(utf8('u'))
    expect(await txn.commit()).toBe(txn.startTs)
    expect(names(network)).toEqual(['acquirePessimisticLock', 'acquirePessimisticLock', 'pessimisticRollback'])
    expect(store.locks?.count).toBe(0)
  })

  test('one phase that fails: rolls back, since its locks stand', async () => {
    const { store, network, coordinator, txn } = await begun(ONE_PC, PESSIMISTIC)
    await putAll(txn, ['a', 'b'])
    await store.pessimisticRollback({ keys: [utf8('b')], startTs: txn.startTs, forUpdateTs: TIMESTAMP_MAX - 1 })
    await conflictOn(store, 'b')
    expect(await codeOf(txn.commit())).toBe('pessimistic_lock_not_found')
    await coordinator.idle()
    expect(rolledBackKeys(network)).toEqual(['a', 'b'])
    expect(store.locks?.count).toBe(0)
  })

  test('a lock whose answer was lost is no part of the commit, and is released after it', async () => {
    const { network, coordinator, txn } = await begun(ONE_PC, PESSIMISTIC)
    await putAll(txn, ['a'])
    network.fateOf = ({ name }) => (name === 'acquirePessimisticLock' ? 'lose_answer' : 'arrive')
    await expect(txn.put(utf8('b'), utf8('mine'))).rejects.toMatchObject({ code: 'connection_failed' })
    await txn.commit()
    await coordinator.idle()
    expect(prewrites(network).map(keysOf)).toEqual([['a']])
    expect(rolledBackKeys(network)).toEqual(['b'])
  })

  test.each([
    { how: 'a signal', code: 'deadline_exceeded' },
    { how: 'a broken connection', code: 'connection_failed' },
  ])('a request for a lock that $how ended arrives after the rollback: it locks nothing', async ({ how, code }) => {
    const store = await stores.open()
    const network = new FaultyApi(store)
    const abort = new AbortController()
    const coordinator = new Coordinator(network.abortable(), ONE_PC)
    const txn = await coordinator.begin({ ...PESSIMISTIC, signal: abort.signal })
    const arrival = deferred()
    if (how === 'a signal') network.gate = () => arrival.promise
    else network.fateOf = ({ name }) => (name === 'acquirePessimisticLock' ? 'late' : 'arrive')
    const locking = Promise.resolve(txn.put(utf8('a'), utf8('mine'))).catch((error: unknown) => error)
    await turn()
    network.gate = undefined
    if (how === 'a signal') abort.abort(new KvError('deadline_exceeded', 'too late', {}))
    expect(await locking).toMatchObject({ code })
    await txn.rollback()
    arrival.resolve()
    await turn()
    await network.deliverLate()
    await vi.waitUntil(() => network.running === 0)
    expect((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks).toEqual([])
    await conflictOn(store, 'a')
  })

  /** Its lock is gone, as after its TTL, and somebody else wrote the key. */
  async function loseLock(store: Store, key: string): Promise<void> {
    await new LockResolver(store).resolve((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks, TIMESTAMP_MAX)
    await conflictOn(store, key)
  }

  test.each([ONE_PC, TWO_PC])(
    'its lock was lost, and a copy of its request takes it again over a newer version ($batchBytes)',
    async (options) => {
      const { store, network, coordinator, txn } = await begun(options, PESSIMISTIC)
      network.fateOf = ({ name }) => (name === 'acquirePessimisticLock' ? 'echo' : 'arrive')
      expect(await txn.getForUpdate(utf8('n'))).toBeUndefined()
      await loseLock(store, 'n')
      await network.deliverLate()
      await putAll(txn, ['n'])
      expect(await codeOf(txn.commit())).not.toBe('none')
      await coordinator.idle()
      expect(await read(store, 'n')).toBe('other')
    },
  )

  test.each([{ was: 'read' }, { was: 'locked' }] as const)(
    'its lock was lost, and another writes the key: the transaction reads no old value of it, and does not commit ($was)',
    async ({ was }) => {
      const { store, coordinator, txn } = await begun(ONE_PC, PESSIMISTIC)
      await txn.getForUpdate(utf8('o'))
      expect(await txn.getForUpdate(utf8('n'))).toBeUndefined()
      await loseLock(store, 'n')
      if (was === 'locked') {
        const startTs = await store.tso(1)
        const lock = { keys: [utf8('n')], primary: utf8('n'), startTs, forUpdateTs: startTs, lockTtl: 60_000 }
        await store.acquirePessimisticLock(lock)
      }
      expect(await codeOf(txn.getForUpdate(utf8('n')))).toBe('pessimistic_lock_not_found')
      expect(await codeOf(txn.getForUpdate(utf8('n')))).toBe('pessimistic_lock_not_found')
      expect(await codeOf(txn.commit())).toBe('pessimistic_lock_not_found')
      expect(txn.state).toBe('rolled_back')
      await coordinator.idle()
      const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
      expect(locks.filter(({ startTs }) => startTs === txn.startTs)).toEqual([])
    },
  )

  test('its lock was lost, and another writes the key: a commit that wrote nothing is refused, without another read', async () => {
    const { store, txn } = await begun(ONE_PC, PESSIMISTIC)
    await txn.getForUpdate(utf8('n'))
    await loseLock(store, 'n')
    expect(await codeOf(txn.commit())).toBe('pessimistic_lock_not_found')
  })

  test('its lock was lost, and nobody has written the key since: it goes on', async () => {
    const { store, txn } = await begun(ONE_PC, PESSIMISTIC)
    await txn.getForUpdate(utf8('n'))
    await store.pessimisticRollback({ keys: [utf8('n')], startTs: txn.startTs, forUpdateTs: TIMESTAMP_MAX - 1 })
    expect(await txn.getForUpdate(utf8('n'))).toBeUndefined()
    expect(await txn.commit()).toBe(txn.startTs)
    expect(store.locks?.count).toBe(0)
  })
})

describe('TTLs and heartbeats', () => {
  test.each([
    { bytes: 0, ageMs: 0, ttl: 3000 },
    { bytes: 32 * 1024 - 1, ageMs: 0, ttl: 3000 },
    { bytes: 256 * 1024, ageMs: 0, ttl: 3000 },
    { bytes: 2 ** 20, ageMs: 0, ttl: 6000 },
    { bytes: 4 * 2 ** 20, ageMs: 1.5, ttl: 12_002 },
    { bytes: 2 ** 30, ageMs: 5000, ttl: 25_000 },
  ])('$bytes bytes, $ageMs ms old: $ttl ms', ({ bytes, ageMs, ttl }) => {
    expect(lockTtlMs(bytes, ageMs)).toBe(ttl)
  })

  const TIMERS = ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', 'performance'] as const
  const isFake = (): void => void vi.useFakeTimers({ toFake: [...TIMERS] })

  test('of each request: the whole transaction counts, and its age', async () => {
    isFake()
    const { network, coordinator, txn } = await begun({ ...ASYNC, batchBytes: 2 ** 20 })
    for (const key of ['a', 'b', 'c', 'd']) await txn.put(utf8(key), new Uint8Array(2 ** 20 - 1))
    vi.advanceTimersByTime(500)
    await txn.commit()
    await coordinator.idle()
    expect(prewrites(network).map(({ lockTtl }) => lockTtl)).toEqual([12_500, 12_500, 12_500, 12_500])
  })

  test('a pessimistic lock lives long, and longer while its transaction does', async () => {
    isFake()
    const { store, network, txn } = await begun(ONE_PC, PESSIMISTIC)
    vi.advanceTimersByTime(500)
    await putAll(txn, ['a'])
    expect(requests(network, 'acquirePessimisticLock')).toMatchObject([{ lockTtl: 20_500 }])
    await vi.advanceTimersByTimeAsync(14_000)
    const beats = requests<TxnHeartBeatRequest>(network, 'txnHeartBeat')
    expect(beats.map(({ primary, adviseLockTtl }) => [text(primary), adviseLockTtl])).toEqual([
      ['a', 27_166],
      ['a', 33_832],
    ])
    expect((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks).toMatchObject([{ ttl: 33_832 }])
    await txn.commit()
    vi.advanceTimersByTime(60_000)
    expect(requests(network, 'txnHeartBeat')).toHaveLength(2)
  })

  test('a pessimistic lock whose answer was long on its way is renewed at once', async () => {
    isFake()
    const answer = deferred()
    const { network, txn } = await begun(ONE_PC, PESSIMISTIC, ({ api }) => ({
      acquirePessimisticLock: async (request) => {
        const granted = await api.acquirePessimisticLock(request)
        await answer.promise
        return granted
      },
    }))
    const locking = putAll(txn, ['a'])
    await turn()
    vi.advanceTimersByTime(7000)
    answer.resolve()
    await locking
    expect(requests(network, 'txnHeartBeat')).toMatchObject([{ adviseLockTtl: 27_000 }])
    await txn.rollback()
  })

  test('rolled back: no beat any more', async () => {
    isFake()
    const { network, txn } = await begun(ONE_PC, PESSIMISTIC)
    await putAll(txn, ['a'])
    await txn.rollback()
    vi.advanceTimersByTime(60_000)
    expect(names(network)).toEqual(['acquirePessimisticLock', 'pessimisticRollback'])
  })

  const TWO_PHASES = { ...ONE_PC, onePhase: false, asyncCommitKeysMax: 0 }
  test.each([
    { what: 'one phase', options: ONE_PC, bytes: 1, beats: [] },
    { what: 'async commit', options: ASYNC, bytes: 1, beats: [4000, 5000] },
    { what: 'two phases', options: TWO_PC, bytes: 1, beats: [4000, 5000] },
    { what: 'two phases of one batch', options: TWO_PHASES, bytes: 1, beats: [4000, 5000] },
    { what: 'two phases of 1 MiB', options: TWO_PC, bytes: 2 ** 19 - 1, beats: [8000, 10_000] },
  ])('$what: while prewrites last, locks are renewed at a third of their TTL', async ({ options, bytes, beats }) => {
    isFake()
    const hold = deferred()
    const { network, coordinator, txn } = await begun(options, OPTIMISTIC, ({ api }) => ({
      prewrite: async (request) => {
        await hold.promise
        return api.prewrite(request)
      },
    }))
    for (const key of ['a', 'b']) await txn.put(utf8(key), new Uint8Array(bytes))
    const commit = txn.commit()
    await turn()
    const third = (beats[0] ?? 4000) / 4
    await vi.advanceTimersByTimeAsync(2 * third)
    hold.resolve()
    await commit
    vi.advanceTimersByTime(60_000)
    await coordinator.idle()
    expect(requests<TxnHeartBeatRequest>(network, 'txnHeartBeat').map((beat) => beat.adviseLockTtl)).toEqual(beats)
  })

  test('a commit that fell back from one phase to two is renewed while it waits', async () => {
    isFake()
    const hold = deferred()
    const { store, network, txn } = await begun(ONE_PC, OPTIMISTIC, ({ api }) => ({
      commit: async (request) => {
        await hold.promise
        return api.commit(request)
      },
    }))
    await putAll(txn, ['a'])
    await store.prewrite(prewriteOf(txn.startTs, [put('a', 'mine')]))
    const commit = txn.commit()
    while (!names(network).includes('tso')) await turn()
    await vi.advanceTimersByTimeAsync(1000)
    hold.resolve()
    await commit
    expect(names(network)).toEqual(['prewrite', 'tso', 'txnHeartBeat', 'commit'])
  })

  test('a server that hangs is sent two beats, and no more before it answers', async () => {
    isFake()
    let sent = 0
    const txnHeartBeat = (): Promise<never> => {
      sent++
      return new Promise(() => {})
    }
    const options = { startedAt: performance.now(), ttlMs: 3000, ageMaxMs: 60_000 }
    const heartbeat = new Heartbeat({ txnHeartBeat }, { primary: utf8('a'), startTs: 1 }, options)
    await vi.advanceTimersByTimeAsync(30_000)
    expect(sent).toBe(2)
    heartbeat.stop()
  })

  test('a beat that fails does not end it; its age does', async () => {
    isFake()
    const beats: number[] = []
    const txnHeartBeat = async ({ adviseLockTtl }: TxnHeartBeatRequest): Promise<never> => {
      beats.push(adviseLockTtl)
      throw new Error('not yet')
    }
    const heartbeat = new Heartbeat(
      { txnHeartBeat },
      { primary: utf8('a'), startTs: 1 },
      { startedAt: performance.now() - 500, ttlMs: 30_000, ageMaxMs: 30_500 },
    )
    await vi.advanceTimersByTimeAsync(100_000)
    expect(beats).toEqual([40_500, 50_500, 60_500])
    expect(vi.getTimerCount()).toBe(0)
    heartbeat.stop()
  })
})

describe('a signal', () => {
  const reason = new Error('enough')

  test.each([ONE_PC, TWO_PC])('aborted before the commit: rejects with its reason ($batchBytes)', async (options) => {
    const abort = new AbortController()
    const { network, coordinator, txn } = await begun(options, { ...OPTIMISTIC, signal: abort.signal })
    await putAll(txn, ['a', 'b'])
    abort.abort(reason)
    await expect(txn.commit()).rejects.toBe(reason)
    await coordinator.idle()
    expect(names(network)).toEqual([])
  })

  test('aborted between the prewrites and the commit: rolled back', async () => {
    const abort = new AbortController()
    const { store, network, coordinator, txn } = await begun(TWO_PC, { ...OPTIMISTIC, signal: abort.signal })
    await putAll(txn, ['a', 'b'])
    network.fateOf = ({ name, index }) => {
      if (name === 'prewrite' && index === 1) abort.abort(reason)
      return 'arrive'
    }
    await expect(txn.commit()).rejects.toBe(reason)
    await coordinator.idle()
    expect(names(network)).toEqual(['prewrite', 'prewrite', 'rollback', 'rollback'])
    expect(store.locks?.count).toBe(0)
  })

  test.each([
    { options: ONE_PC, at: 'prewrite' },
    { options: TWO_PC, at: 'commit' },
  ])('aborted with $at on its way: too late', async ({ options, at }) => {
    const abort = new AbortController()
    const { store, network, coordinator, txn } = await begun(options, { ...OPTIMISTIC, signal: abort.signal })
    await putAll(txn, ['a', 'b'])
    network.fateOf = ({ name }) => {
      if (name === at) abort.abort(reason)
      return 'arrive'
    }
    expect(await txn.commit()).toBeGreaterThan(txn.startTs)
    await coordinator.idle()
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['mine', 'mine'])
  })
})

describe('refused once, and given up before the next try: a copy of what was refused may still arrive', () => {
  /** An older transaction holds a lock on `a` when this one wants to commit; both are gone in the end. */
  async function refusedOnce(
    commitOptions: typeof ONE_PC,
    keys: readonly string[],
    fateOf: (call: Call, abort: AbortController) => Fate,
  ): Promise<{ readonly error: unknown; readonly values: (string | undefined)[] }> {
    const { store, network, coordinator } = await begun(commitOptions)
    const otherTs = await store.tso(1)
    const abort = new AbortController()
    const txn = await coordinator.begin({ ...OPTIMISTIC, lockWaitMs: 10_000, signal: abort.signal })
    await putAll(txn, keys)
    await store.prewrite(prewriteOf(otherTs, [put('a', 'other')], { lockTtl: 60_000 }))
    network.fateOf = (call) => fateOf(call, abort)
    const error = await txn.commit().catch((error: unknown) => error)
    await coordinator.idle()
    await store.rollback({ keys: [utf8('a')], startTs: otherTs })
    await network.deliverLate()
    await new LockResolver(store).resolve((await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks, TIMESTAMP_MAX)
    return { error, values: await Promise.all(keys.map((key) => read(store, key))) }
  }

  test.each([
    { kind: 'one phase', options: ONE_PC },
    { kind: 'async commit', options: ASYNC },
  ])('$kind: the signal is aborted while it waits for a lock', async ({ options }) => {
    const { error, values } = await refusedOnce(options, ['a', 'b'], ({ name }, abort) => {
      if (name === 'checkTxnStatus') abort.abort(new Error('enough'))
      return name === 'prewrite' ? 'echo' : name === 'rollback' ? 'lose_request' : 'arrive'
    })
    expect(error).toBeInstanceOf(Error)
    expect(error).not.toBeInstanceOf(Undetermined)
    expect(values).toEqual([undefined, undefined])
  })

  test('one phase: it cannot ask whose lock it is', async () => {
    const { error, values } = await refusedOnce(ONE_PC, ['a'], ({ name, index }) =>
      name === 'prewrite' ? 'echo' : name === 'checkTxnStatus' && index === 0 ? 'lose_request' : 'arrive',
    )
    expect(error).toBeInstanceOf(Error)
    expect(error).not.toBeInstanceOf(Undetermined)
    expect(values).toEqual([undefined])
  })
})
