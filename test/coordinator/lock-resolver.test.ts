import { describe, expect, test, vi } from 'vitest'
import { LockResolver, locksOf } from '../../src/coordinator/lock-resolver.js'
import { KvError } from '../../src/errors/kv-error.js'
import type { LockInfo } from '../../src/errors/lock-info.js'
import type { PrewriteMutation, PrewriteRequest } from '../../src/percolator/api.js'
import { keyLocked, keysLocked } from '../../src/percolator/errors.js'
import type { Store } from '../../src/store/store.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../src/timestamp.js'
import { codeOf, memoryStores, prewriteOf, put, read, TestClock, turn, utf8 } from '../store/support.js'
import { type CallName, FaultyApi } from './faulty-api.js'

const stores = memoryStores()

async function opened(): Promise<{
  readonly store: Store
  readonly clock: TestClock
  readonly network: FaultyApi
  readonly resolver: LockResolver
  /** Calls since it was asked last. */
  readonly sent: () => CallName[]
}> {
  const clock = new TestClock()
  const store = await stores.open({ now: clock.now })
  const network = new FaultyApi(store)
  const sent = (): CallName[] => network.calls.splice(0).map(({ name }) => name)
  return { store, clock, network, resolver: new LockResolver(network.api), sent }
}

const locksIn = async (store: Store): Promise<readonly LockInfo[]> =>
  (await store.scanLock({ maxTs: TIMESTAMP_MAX })).locks
const valuesIn = (store: Store, keys: readonly string[]): Promise<(string | undefined)[]> =>
  Promise.all(keys.map((key) => read(store, key)))

/** Locks of a transaction whose primary is the first key. */
async function locked(
  store: Store,
  keys: readonly string[],
  rest: Partial<PrewriteRequest> = {},
): Promise<{ readonly startTs: Timestamp; readonly locks: readonly LockInfo[] }> {
  const startTs = await store.tso(1)
  await store.prewrite(
    prewriteOf(
      startTs,
      keys.map((key): PrewriteMutation => put(key, `of ${key}`)),
      rest,
    ),
  )
  return { startTs, locks: (await locksIn(store)).filter((lock) => lock.startTs === startTs) }
}

async function lockedPessimistically(store: Store, key: string, primary = key): Promise<LockInfo> {
  const startTs = await store.tso(1)
  const request = { keys: [utf8(key)], primary: utf8(primary), startTs, forUpdateTs: startTs, lockTtl: 3000 }
  await store.acquirePessimisticLock(request)
  return (await locksIn(store)).find((lock) => lock.startTs === startTs) as LockInfo
}

/** An async-commit transaction on a, b and c, of which some keys are prewritten. */
async function lockedAsync(store: Store, keys: readonly string[], plain: readonly string[] = []): Promise<Timestamp> {
  const startTs = await store.tso(1)
  for (const key of keys) {
    const isPlain = plain.includes(key)
    const asPrimary = key === 'a' && !isPlain ? { secondaries: [utf8('b'), utf8('c')] } : {}
    const kind = isPlain ? {} : { useAsyncCommit: true, ...asPrimary }
    await store.prewrite(prewriteOf(startTs, [put(key, `of ${key}`)], { primary: utf8('a'), ...kind }))
  }
  return startTs
}

describe('resolve', () => {
  test('a committed primary: rolled forward at its commit_ts, whatever its age; one question and one write for many locks', async () => {
    const { store, resolver, sent } = await opened()
    const { startTs, locks } = await locked(store, ['a', 'b', 'c', 'd'])
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs })
    expect(await resolver.resolve(locks.slice(1), await store.tso(1))).toBe(true)
    expect(sent()).toEqual(['checkTxnStatus', 'resolveLock'])
    expect(await valuesIn(store, ['a', 'b', 'c', 'd'])).toEqual(['of a', 'of b', 'of c', 'of d'])
    expect(await store.get({ key: utf8('c') })).toMatchObject({ commitTs })
  })

  test('one that lives stays, and is asked about once', async () => {
    const { store, resolver, sent } = await opened()
    const { locks } = await locked(store, ['a', 'b', 'c'])
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(false)
    expect(sent()).toEqual(['checkTxnStatus'])
    expect(await locksIn(store)).toHaveLength(3)
    // Not remembered: it may end at any time.
    await resolver.resolve(locks, await store.tso(1))
    expect(sent()).toEqual(['checkTxnStatus'])
  })

  test('over its TTL: rolled back', async () => {
    const { store, clock, resolver, sent } = await opened()
    const { startTs, locks } = await locked(store, ['a', 'b'], { lockTtl: 3000 })
    clock.ms += 3000
    expect(await resolver.resolve(locks.slice(1), await store.tso(1))).toBe(false)
    clock.ms += 1
    sent()
    expect(await resolver.resolve(locks.slice(1), await store.tso(1))).toBe(true)
    expect(sent()).toEqual(['checkTxnStatus', 'resolveLock'])
    expect(await locksIn(store)).toEqual([])
    expect(await valuesIn(store, ['a', 'b'])).toEqual([undefined, undefined])
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) }))).toBe(
      'txn_lock_not_found',
    )
  })

  test('TIMESTAMP_MAX ends them whatever their age', async () => {
    const { store, resolver } = await opened()
    const { locks } = await locked(store, ['a', 'b'], { lockTtl: 1_000_000 })
    expect(await resolver.resolve(locks, TIMESTAMP_MAX)).toBe(true)
    expect(await locksIn(store)).toEqual([])
  })

  test('no trace of the primary: it may only be late, until the TTL is over; then it can not come any more', async () => {
    const { store, clock, resolver, network } = await opened()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('b')], { primary: utf8('a'), lockTtl: 3000 }))
    const locks = await locksIn(store)
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(false)
    expect(network.calls.at(-1)?.request).toMatchObject({ rollbackIfNotExist: false })
    clock.ms += 3001
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(true)
    expect(await locksIn(store)).toEqual([])
    expect(await codeOf(store.prewrite(prewriteOf(startTs, [put('a')])))).toBe('write_conflict')
  })

  test('some live, some do not: what can go is gone', async () => {
    const { store, resolver } = await opened()
    const dead = await locked(store, ['a', 'b'])
    await store.commit({ keys: [utf8('a')], startTs: dead.startTs, commitTs: await store.tso(1) })
    const living = await locked(store, ['x', 'y'])
    const locks = [...living.locks, ...dead.locks.slice(1)]
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(false)
    expect(await locksIn(store)).toEqual(living.locks)
  })
})

describe('what is decided', () => {
  test('is known by start_ts and primary: two transactions with one start_ts are two', async () => {
    const { store, resolver, sent } = await opened()
    const startTs = await store.tso(1)
    const both = (primary: string, secondary: string) =>
      store.prewrite(prewriteOf(startTs, [put(primary, 'new'), put(secondary, 'new')]))
    await both('a', 'b')
    await both('x', 'y')
    const locks = await locksIn(store)
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
    await store.rollback({ keys: [utf8('x')], startTs })
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(true)
    expect(sent().filter((name) => name === 'checkTxnStatus')).toHaveLength(2)
    expect(await valuesIn(store, ['a', 'b', 'x', 'y'])).toEqual(['new', 'new', undefined, undefined])
  })

  test('is forgotten with the call: once its records are gone, another transaction may bear its name', async () => {
    const { store, clock, resolver } = await opened()
    const startTs = await store.tso(1)
    const prewrite = () => store.prewrite(prewriteOf(startTs, [put('a', 'new'), put('b', 'new')], { lockTtl: 1 }))
    await prewrite()
    clock.ms += 2
    await resolver.resolve((await locksIn(store)).slice(1), await store.tso(1))
    expect(await valuesIn(store, ['a', 'b'])).toEqual([undefined, undefined])
    await store.deleteRange({ start: utf8('a'), end: utf8('c') })
    await prewrite()
    const secondary = (await locksIn(store)).slice(1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
    await resolver.resolve(secondary, await store.tso(1))
    expect(await valuesIn(store, ['a', 'b'])).toEqual(['new', 'new'])
  })

  test('a pessimistic lock that goes says nothing of its transaction', async () => {
    const { store, clock, resolver, sent } = await opened()
    const lock = await lockedPessimistically(store, 'a')
    expect(await resolver.resolve([lock], await store.tso(1))).toBe(false)
    clock.ms += 3001
    sent()
    const currentTs = await store.tso(1)
    expect(await resolver.resolve([lock], currentTs)).toBe(true)
    expect(sent()).toEqual(['checkTxnStatus', 'pessimisticRollback'])
    expect(await locksIn(store)).toEqual([])
    // It goes on, and commits.
    const { startTs } = lock
    const pessimistic = { forUpdateTs: startTs, pessimisticActions: ['do' as const, 'do' as const], lockTtl: 60_000 }
    await store.prewrite(prewriteOf(startTs, [put('a', 'new'), put('b', 'new')], pessimistic))
    const locks = await locksIn(store)
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
    expect(await resolver.resolve(locks.slice(1), currentTs)).toBe(true)
    expect(await valuesIn(store, ['a', 'b'])).toEqual(['new', 'new'])
  })

  test('a pessimistic lock whose primary is not there: only the lock goes', async () => {
    const { store, clock, resolver, sent } = await opened()
    const lock = await lockedPessimistically(store, 'b', 'a')
    expect(await resolver.resolve([lock], await store.tso(1))).toBe(false)
    clock.ms += 3001
    sent()
    expect(await resolver.resolve([lock], await store.tso(1))).toBe(true)
    expect(sent()).toEqual(['checkTxnStatus', 'pessimisticRollback'])
    expect((await store.mvccGetByKey({ key: utf8('a') })).writes).toEqual([])
  })

  test('a pessimistic lock of a transaction that committed: it goes, and the commit stands', async () => {
    const { store, resolver } = await opened()
    const lock = await lockedPessimistically(store, 'b', 'a')
    const { startTs } = lock
    await store.prewrite(prewriteOf(startTs, [put('a', 'new')]))
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
    expect(await resolver.resolve([lock], await store.tso(1))).toBe(true)
    expect(await locksIn(store)).toEqual([])
    expect(await valuesIn(store, ['a', 'b'])).toEqual(['new', undefined])
  })
})

describe('async commit', () => {
  test('all keys prewritten: committed at the highest min_commit_ts, the primary first', async () => {
    const { store, clock, resolver, network, sent } = await opened()
    const startTs = await store.tso(1)
    const prewrite = (key: string, rest: Partial<PrewriteRequest> = {}) =>
      store.prewrite(prewriteOf(startTs, [put(key, 'new')], { primary: utf8('a'), useAsyncCommit: true, ...rest }))
    await prewrite('a', { secondaries: [utf8('b'), utf8('c')] })
    const later = await store.tso(1)
    await store.get({ key: utf8('b'), ts: later })
    await prewrite('b')
    await prewrite('c')
    const locks = await locksIn(store)
    expect(await resolver.resolve(locks, await store.tso(1))).toBe(false)
    clock.ms += 3001
    sent()
    const wanted = Math.max(...locks.map(({ minCommitTs }) => minCommitTs))
    expect(wanted).toBe(later + 1)
    expect(await resolver.resolve(locks.slice(1), await store.tso(1))).toBe(true)
    const resolved = network.calls.flatMap(({ name, request }) => (name === 'resolveLock' ? [request] : []))
    const txns = [{ commitTs: wanted }]
    expect(resolved).toMatchObject([
      { keys: [utf8('a')], txns },
      { keys: [utf8('b'), utf8('c')], txns },
    ])
    expect(sent()).toEqual(['checkTxnStatus', 'checkSecondaryLocks', 'resolveLock', 'resolveLock'])
    expect(await valuesIn(store, ['a', 'b', 'c'])).toEqual(['new', 'new', 'new'])
  })

  test('a secondary is missing: rolled back, and it can not come any more', async () => {
    const { store, resolver } = await opened()
    const startTs = await lockedAsync(store, ['a', 'b'])
    expect(await resolver.resolve(await locksIn(store), TIMESTAMP_MAX)).toBe(true)
    const late = prewriteOf(startTs, [put('c')], { primary: utf8('a'), useAsyncCommit: true })
    expect(await codeOf(store.prewrite(late))).toBe('write_conflict')
    expect(await valuesIn(store, ['a', 'b', 'c'])).toEqual([undefined, undefined, undefined])
  })

  test('a secondary is committed: so is the rest', async () => {
    const { store, resolver } = await opened()
    const startTs = await lockedAsync(store, ['a', 'b', 'c'])
    const commitTs = Math.max(...(await locksIn(store)).map(({ minCommitTs }) => minCommitTs)) + 5
    await store.resolveLock({ txns: [{ startTs, commitTs }], keys: [utf8('b')] })
    expect(await resolver.resolve(await locksIn(store), TIMESTAMP_MAX)).toBe(true)
    expect(await valuesIn(store, ['a', 'b', 'c'])).toEqual(['of a', 'of b', 'of c'])
    expect(await store.get({ key: utf8('a') })).toMatchObject({ commitTs })
  })

  describe('the primary changes between asking and ending it', () => {
    const meanwhile: [string, (store: Store, startTs: Timestamp) => Promise<unknown>][] = [
      [
        'its client commits elsewhen',
        async (store, startTs) => store.commit({ keys: [utf8('a')], startTs, commitTs: (await store.tso(1)) + 1000 }),
      ],
      ['its client rolls back', (store, startTs) => store.rollback({ keys: [utf8('a')], startTs })],
      [
        'somebody pushes it',
        async (store, startTs) => {
          const ts = await store.tso(1)
          const status = { callerStartTs: ts, currentTs: ts, forceSyncCommit: true }
          return store.checkTxnStatus({ primary: utf8('a'), lockTs: startTs, ...status })
        },
      ],
    ]
    for (const keys of [
      ['a', 'b', 'c'],
      ['a', 'b'],
    ])
      test.each(meanwhile)(`${keys.length} of 3 keys prewritten; %s: all keys end alike`, async (_, change) => {
        const { store } = await opened()
        const startTs = await lockedAsync(store, keys)
        let isChanged = false
        const api: ConstructorParameters<typeof LockResolver>[0] = {
          now: () => store.now(),
          get: (request) => store.get(request),
          checkTxnStatus: (request) => store.checkTxnStatus(request),
          resolveLock: (request) => store.resolveLock(request),
          pessimisticRollback: (request) => store.pessimisticRollback(request),
          checkSecondaryLocks: async (request) => {
            const answer = await store.checkSecondaryLocks(request)
            if (!isChanged) await change(store, startTs)
            isChanged = true
            return answer
          },
        }
        const resolver = new LockResolver(api)
        const locks = await locksIn(store)
        for (let tries = 0; tries < 2; tries++) await resolver.resolve(locks, TIMESTAMP_MAX)
        expect(await locksIn(store)).toEqual([])
        const ends = await Promise.all(keys.map((key) => store.get({ key: utf8(key) })))
        expect(new Set(ends.map((end) => (end.found ? end.commitTs : 0))).size).toBe(1)
      })
  })

  test('without secondaries: the primary alone decides', async () => {
    const { store, resolver } = await opened()
    const { locks } = await locked(store, ['a'], { useAsyncCommit: true })
    expect(await resolver.resolve(locks, TIMESTAMP_MAX)).toBe(true)
    expect(await store.get({ key: utf8('a') })).toMatchObject({ commitTs: locks[0]?.minCommitTs })
  })

  test.each([['b'], ['c'], ['b', 'c']])(
    'fallen back (%s has a plain lock): only its commit would decide',
    async (...plain) => {
      const { store, resolver, sent } = await opened()
      await lockedAsync(store, ['a', 'b', 'c'], plain)
      expect(await resolver.resolve(await locksIn(store), TIMESTAMP_MAX)).toBe(true)
      expect(sent().slice(0, 3)).toEqual(['checkTxnStatus', 'checkSecondaryLocks', 'checkTxnStatus'])
      expect(await locksIn(store)).toEqual([])
      expect(await valuesIn(store, ['a', 'b', 'c'])).toEqual([undefined, undefined, undefined])
    },
  )
})

describe('a lock seen while it was pessimistic, whose key has become a secondary meanwhile', () => {
  test.each([{ useAsyncCommit: true }, {}])('is not taken for the primary ($useAsyncCommit)', async (kind) => {
    const { store, resolver } = await opened()
    // Its answer was lost, so that another key became the primary.
    const lock = await lockedPessimistically(store, 'b', 'b')
    const { startTs } = lock
    const pessimistic = { forUpdateTs: startTs, pessimisticActions: ['do' as const], primary: utf8('a'), ...kind }
    await store.prewrite(prewriteOf(startTs, [put('b', 'new')], pessimistic))
    await resolver.resolve([lock], TIMESTAMP_MAX).catch(() => {})
    // Its primary may still come: neither rolled back nor committed.
    expect((await store.mvccGetByKey({ key: utf8('b') })).writes).toEqual([])
    await store.prewrite(prewriteOf(startTs, [put('a', 'new')], { ...kind, secondaries: [utf8('b')] }))
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs })
    await new LockResolver(store).resolve(await locksIn(store), TIMESTAMP_MAX)
    expect(await valuesIn(store, ['a', 'b'])).toEqual(['new', 'new'])
  })
})

describe('end', () => {
  test('a living transaction is rolled back now', async () => {
    const { store, resolver } = await opened()
    const { startTs } = await locked(store, ['a'], { lockTtl: 1_000_000 })
    expect(await resolver.end(utf8('a'), startTs)).toBe(0)
    expect(await codeOf(store.prewrite(prewriteOf(startTs, [put('a')])))).toBe('write_conflict')
  })

  test('one that only holds a pessimistic lock, or none yet, can not commit any more', async () => {
    const { store, resolver } = await opened()
    const { startTs } = await lockedPessimistically(store, 'a')
    expect(await resolver.end(utf8('a'), startTs)).toBe(0)
    expect(await locksIn(store)).toEqual([])
    const pessimistic = { forUpdateTs: startTs, pessimisticActions: ['do' as const] }
    expect(await codeOf(store.prewrite(prewriteOf(startTs, [put('a')], pessimistic)))).not.toBe('none')
    const nextTs = await store.tso(1)
    expect(await resolver.end(utf8('b'), nextTs)).toBe(0)
    expect(await codeOf(store.prewrite(prewriteOf(nextTs, [put('b')], { tryOnePc: true })))).toBe('write_conflict')
  })

  test('one that is committed, or decided by its prewrites, says when', async () => {
    const { store, resolver } = await opened()
    const { startTs } = await locked(store, ['x'])
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('x')], startTs, commitTs })
    expect(await resolver.end(utf8('x'), startTs)).toBe(commitTs)
    const asyncTs = await lockedAsync(store, ['a', 'b', 'c'])
    const wanted = Math.max(...(await locksIn(store)).map(({ minCommitTs }) => minCommitTs))
    expect(await resolver.end(utf8('a'), asyncTs)).toBe(wanted)
  })

  test('one that is committed, and its record collected: says that it can not say', async () => {
    const { store, resolver } = await opened()
    const { startTs } = await locked(store, ['a'])
    await store.commit({ keys: [utf8('a')], startTs, commitTs: await store.tso(1) })
    const next = await locked(store, ['a'])
    await store.commit({ keys: [utf8('a')], startTs: next.startTs, commitTs: await store.tso(1) })
    await store.upkeep.collect(await store.tso(1))
    expect(await codeOf(resolver.end(utf8('a'), startTs))).toBe('ts_below_safe_point')
  })

  test('is asked again after a failure', async () => {
    const { store, network, resolver } = await opened()
    const { startTs } = await locked(store, ['a'])
    network.fateOf = () => 'lose_answer'
    await expect(resolver.end(utf8('a'), startTs)).rejects.toMatchObject({ code: 'connection_failed' })
    network.fateOf = () => 'arrive'
    expect(await resolver.end(utf8('a'), startTs)).toBe(0)
  })
})

describe('resolving', () => {
  test('tries again at once when the locks are gone, and waits with back-off while one lives', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
    try {
      const { store, resolver } = await opened()
      const { startTs, locks } = await locked(store, ['a'])
      let tries = 0
      const done = resolver.resolving(60_000, async () => {
        if (++tries === 3) await store.rollback({ keys: [utf8('a')], startTs })
        if (tries < 4) throw keysLocked(locks)
        return 'done'
      })
      // Twice it waits; after the third try the lock is gone.
      for (const wanted of [1, 2]) {
        while (vi.getTimerCount() === 0) await turn()
        expect(tries).toBe(wanted)
        vi.advanceTimersToNextTimer()
      }
      expect(await done).toBe('done')
      expect([tries, vi.getTimerCount()]).toEqual([4, 0])
    } finally {
      vi.useRealTimers()
    }
  })

  test('no time to wait: one try, its own error, and other errors at once', async () => {
    const { store, resolver, sent } = await opened()
    const { locks } = await locked(store, ['a'])
    const error = keysLocked(locks)
    await expect(resolver.resolving(0, () => Promise.reject(error))).rejects.toBe(error)
    expect(sent()).toEqual(['now', 'checkTxnStatus'])
    await expect(resolver.resolving(60_000, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
    expect(sent()).toEqual([])
  })

  test('an aborted signal ends it, before a try and while it waits', async () => {
    const { store, resolver, network } = await opened()
    const { locks } = await locked(store, ['a'])
    const abort = new AbortController()
    const reason = new Error('enough')
    network.fateOf = () => {
      abort.abort(reason)
      return 'arrive'
    }
    const body = vi.fn(() => Promise.reject(keysLocked(locks)))
    await expect(resolver.resolving(60_000, body, abort.signal)).rejects.toBe(reason)
    await expect(resolver.resolving(60_000, body, abort.signal)).rejects.toBe(reason)
    expect(body).toHaveBeenCalledTimes(1)
  })
})

test('every lock that an error tells of', async () => {
  const { store } = await opened()
  const { locks } = await locked(store, ['a', 'b'])
  const [first] = locks as [LockInfo]
  const errors = [...locks.map(keyLocked), new KvError('already_exists', '', { key: utf8('c') })]
  expect(locksOf(keysLocked(locks))).toEqual(locks)
  expect(locksOf(keyLocked(first))).toEqual([first])
  expect(locksOf(new KvError('key_locked', '', { key: first.key, lock: first }, { errors }))).toEqual(locks)
  expect(locksOf(new KvError('key_locked', '', {}))).toEqual([])
})
