import { expect } from 'vitest'
import { invalid } from '../../../src/errors/kv-error.js'
import type { PrewriteMutation, PrewriteRequest, ValuedPair } from '../../../src/percolator/api.js'
import type { ChangeListener, ChangesRequest } from '../../../src/store/change-log.js'
import type { CompleteStore, Store } from '../../../src/store/store.js'
import { LOGICAL_PER_MS, type Timestamp } from '../../../src/timestamp.js'
import { collect } from '../../coordinator/support.js'
import { codeOf, del, failureOf, prewriteOf, put, read, TestClock, utf8 } from '../support.js'
import { asText, changesOf, historyOf, type ReadChange } from './change-readings.js'
import { LONG } from './contents.js'
import type { Contract } from './contract.js'

const MINUTE = 60_000 * LOGICAL_PER_MS

/** The log of changes, and resolved_ts. */
export function changeCases(contract: Contract): void {
  /** Cases for logs that are behind, too. */
  const each = contract.test
  const { open, test, needing } = contract.all('promptLog')

  /** A store, and a timestamp from which on its log has everything. */
  async function begun(): Promise<{ readonly store: CompleteStore; readonly since: Timestamp }> {
    const store = await open()
    await store.log.begin()
    return { store, since: await store.tso(1) }
  }

  /** What was committed above `since` before this call. */
  async function allOf(
    store: CompleteStore,
    since: Timestamp,
    request: Partial<ChangesRequest> = {},
  ): Promise<ReadChange[]> {
    const upTo = await store.tso(1)
    await expect.poll(() => store.log.resolve()).toBeGreaterThanOrEqual(upTo)
    return changesOf(store, { since, upTo, ...request })
  }

  const putAt = (key: string, value: string, startTs: Timestamp, commitTs: Timestamp): ReadChange => ({
    type: 'put',
    key,
    value,
    startTs,
    commitTs,
  })

  async function commitNow(
    store: Store,
    mutations: readonly PrewriteMutation[],
    rest: Partial<PrewriteRequest> = {},
  ): Promise<{ readonly startTs: Timestamp; readonly commitTs: Timestamp }> {
    const startTs = rest.startTs ?? (await store.tso(1))
    const answer = await store.prewrite(prewriteOf(startTs, mutations, { tryOnePc: true, linearizable: true, ...rest }))
    return { startTs, commitTs: answer.onePcCommitTs ?? 0 }
  }

  async function lockNow(store: Store, mutations: readonly PrewriteMutation[], rest: Partial<PrewriteRequest> = {}) {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, mutations, rest))
    return startTs
  }

  /** resolved_ts with a timestamp above every lock. */
  async function resolveNow(store: Store): Promise<Timestamp> {
    await store.tso(1)
    return store.log.resolve()
  }

  // ---- Each way to a commit

  needing('onePhaseCommit')('a commit in one phase: its puts and deletes, in the order of keys', async () => {
    const store = await open()
    const { startTs, commitTs } = await commitNow(store, [
      put('c', LONG),
      put('a', '1'),
      del('b'),
      { op: 'lock', key: utf8('locked') },
      { op: 'insert', key: utf8('d'), value: utf8('') },
      { op: 'check_not_exists', key: utf8('e') },
    ])
    expect(await changesOf(store)).toEqual([
      putAt('a', '1', startTs, commitTs),
      { type: 'delete', key: 'b', startTs, commitTs },
      putAt('c', LONG, startTs, commitTs),
      putAt('d', '', startTs, commitTs),
    ])
  })

  test('a commit in two phases: nothing before all of it, though its keys commit one by one', async () => {
    const store = await open()
    const startTs = await lockNow(store, [put('a', '1'), put('b', LONG), del('c'), put('d', 'no')])
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs })
    expect(await resolveNow(store)).toBe(startTs - 1)
    expect(await changesOf(store)).toEqual([])
    await store.commit({ keys: [utf8('c')], startTs, commitTs })
    await store.resolveLock({ txns: [{ startTs, commitTs }], keys: [utf8('b')] })
    expect(await changesOf(store)).toEqual([])
    await store.resolveLock({ txns: [{ startTs, commitTs: 0 }], keys: [utf8('d')] })
    expect(await resolveNow(store)).toBeGreaterThan(commitTs)
    expect(await changesOf(store)).toEqual([
      putAt('a', '1', startTs, commitTs),
      putAt('b', LONG, startTs, commitTs),
      { type: 'delete', key: 'c', startTs, commitTs },
    ])
  })

  each('locks that resolve_lock finds by itself commit into the log', async () => {
    const { store, since } = await begun()
    const startTs = await lockNow(store, [put('a', '1'), put('b', '2')])
    const commitTs = await store.tso(1)
    expect(await store.resolveLock({ txns: [{ startTs, commitTs }] })).toEqual({ resolved: 2 })
    expect(await allOf(store, since)).toEqual([putAt('a', '1', startTs, commitTs), putAt('b', '2', startTs, commitTs)])
  })

  needing('asyncCommit')('async commit: resolved_ts stays below its least commit_ts until its last key', async () => {
    const store = await open()
    const startTs = await store.tso(1)
    const { minCommitTs = 0 } = await store.prewrite(
      prewriteOf(startTs, [put('a', '1'), put('b', '2')], {
        useAsyncCommit: true,
        secondaries: [utf8('b')],
        linearizable: true,
      }),
    )
    expect(await resolveNow(store)).toBe(minCommitTs - 1)
    await store.resolveLock({ txns: [{ startTs, commitTs: minCommitTs }], keys: [utf8('b')] })
    expect(await resolveNow(store)).toBe(minCommitTs - 1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs: minCommitTs })
    expect(await resolveNow(store)).toBeGreaterThan(minCommitTs)
    expect(await changesOf(store)).toEqual([
      putAt('a', '1', startTs, minCommitTs),
      putAt('b', '2', startTs, minCommitTs),
    ])
  })

  test('a pessimistic transaction: its locks hold nothing back, its prewrite does', async () => {
    const store = await open()
    const [startTs, forUpdateTs] = [await store.tso(1), await store.tso(1)]
    const keys = [utf8('a')]
    await store.acquirePessimisticLock({ keys, primary: utf8('a'), startTs, forUpdateTs, lockTtl: 3000 })
    const passed = await resolveNow(store)
    expect(passed).toBeGreaterThan(forUpdateTs)
    await store.prewrite(prewriteOf(startTs, [put('a', '1')], { forUpdateTs, pessimisticActions: ['do'] }))
    expect(await resolveNow(store)).toBe(passed)
    expect(await codeOf(store.commit({ keys, startTs, commitTs: passed }))).toBe('commit_ts_expired')
    const commitTs = await store.tso(1)
    await store.commit({ keys, startTs, commitTs })
    expect(await resolveNow(store)).toBeGreaterThan(commitTs)
    expect(await changesOf(store, { since: passed })).toEqual([putAt('a', '1', startTs, commitTs)])
  })

  needing('onePhaseCommit')('a commit inside `exclusive`, and one in a single turn', async () => {
    const store = await open()
    const latchSet = (key: string) => ({ written: [key], read: [], isAlone: false })
    const startTs = await store.tso(1)
    const asked = (key: string) => prewriteOf(startTs, [put(key, '1')], { tryOnePc: true, linearizable: true })
    const inside = await store.exclusive(latchSet('a'), (prewrite) => prewrite(asked('a')))
    const commits: Timestamp[] = [inside.onePcCommitTs ?? 0]
    let isTaken = false
    const answered = new Promise<Timestamp>((resolve, reject) => {
      isTaken = store.exclusiveSync(latchSet('b'), (prewriteSync) =>
        prewriteSync(asked('b'), (error, answer) => (error ? reject(error) : resolve(answer?.onePcCommitTs ?? 0))),
      )
    })
    expect(isTaken).toBe(store.name !== 'memory')
    if (isTaken) {
      const before = store.log.resolve()
      commits.push(await answered)
      expect(before).toBeLessThan(commits[1] ?? 0)
    }
    await store.tso(1)
    expect(await changesOf(store)).toEqual(commits.map((commitTs, i) => putAt('ab'.charAt(i), '1', startTs, commitTs)))
  })

  each('two transactions with one commit_ts stand one after the other', async () => {
    const { store, since } = await begun()
    const first = await lockNow(store, [put('b', '1'), put('d', '1')])
    const second = await lockNow(store, [put('a', '2'), put('c', '2')])
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('a'), utf8('c')], startTs: second, commitTs })
    await store.commit({ keys: [utf8('b'), utf8('d')], startTs: first, commitTs })
    expect((await allOf(store, since)).map(({ key }) => key)).toEqual(['b', 'd', 'a', 'c'])
  })

  // ---- No changes

  each('rollbacks, Lock records and repeats are no changes', async () => {
    const { store, since } = await begun()
    const startTs = await lockNow(store, [put('a', '1'), { op: 'lock', key: utf8('b') }])
    const commitTs = await store.tso(1)
    for (let i = 0; i < 2; i++) await store.commit({ keys: [utf8('a'), utf8('b')], startTs, commitTs })
    await store.resolveLock({ txns: [{ startTs, commitTs }], keys: [utf8('a')] })
    const rolledBack = await lockNow(store, [put('a', '2')])
    await store.rollback({ keys: [utf8('a'), utf8('c')], startTs: rolledBack })
    expect(await allOf(store, since)).toEqual([putAt('a', '1', startTs, commitTs)])
  })

  test('the flag of an overlapped rollback is no change', async () => {
    const store = await open()
    const startTs = await lockNow(store, [put('a', '1')])
    const commitTs = await store.tso(1)
    await store.commit({ keys: [utf8('a')], startTs, commitTs })
    const told: ReadChange[] = []
    store.log.listen({ onCommitted: (changes) => told.push(...changes.map(asText)), reloaded: () => {} })
    await store.cleanup({ key: utf8('a'), startTs: commitTs, currentTs: 0 })
    expect((await store.mvccGetByKey({ key: utf8('a') })).writes[0]?.overlappedRollback).toBe(true)
    expect(await changesOf(store)).toEqual([putAt('a', '1', startTs, commitTs)])
    expect(told).toEqual([])
  })

  // ---- resolved_ts

  const HELD: readonly {
    readonly name: string
    readonly mutation: PrewriteMutation
    readonly rest?: (startTs: Timestamp) => Partial<PrewriteRequest>
    readonly bound?: (startTs: Timestamp) => Timestamp
  }[] = [
    { name: 'a put', mutation: put('a'), bound: (startTs) => startTs - 1 },
    { name: 'a delete', mutation: del('a'), bound: (startTs) => startTs - 1 },
    {
      name: 'a put with a min_commit_ts',
      mutation: put('a'),
      rest: (startTs) => ({ minCommitTs: startTs + 5 }),
      bound: (startTs) => startTs + 4,
    },
    { name: 'a lock', mutation: { op: 'lock', key: utf8('a') } },
  ]
  for (const { name, mutation, rest, bound } of HELD)
    test(`resolved_ts and the lock of ${name}`, async () => {
      const store = await open()
      const startTs = await store.tso(1)
      await store.prewrite(prewriteOf(startTs, [mutation], rest?.(startTs)))
      const last = await store.tso(10)
      expect(store.log.resolve()).toBe(bound?.(startTs) ?? last)
      expect(store.log.heldBackBy(10).map((lock) => [Buffer.from(lock.key).toString(), lock.startTs])).toEqual(
        bound === undefined ? [] : [['a', startTs]],
      )
      await store.rollback({ keys: [utf8('a')], startTs })
      expect(store.log.heldBackBy(10)).toEqual([])
      expect(store.log.resolve()).toBe(last)
    })

  test('the locks that hold it back most are named first', async () => {
    const store = await open()
    const starts: Timestamp[] = []
    for (const key of ['c', 'a', 'd', 'b']) starts.push(await lockNow(store, [put(key)]))
    await store.tso(1)
    expect(store.log.heldBackBy(3).map(({ startTs }) => startTs)).toEqual(starts.slice(0, 3))
    expect(store.log.resolve()).toBe((starts[0] ?? 0) - 1)
  })

  test('a heartbeat and a reader that raise min_commit_ts raise it', async () => {
    const store = await open()
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('a')], { minCommitTs: startTs + 1 }))
    expect(await resolveNow(store)).toBe(startTs)
    const callerStartTs = await store.tso(1)
    const asked = { primary: utf8('a'), lockTs: startTs, callerStartTs, currentTs: callerStartTs }
    const { lock } = await store.checkTxnStatus(asked)
    expect(await resolveNow(store)).toBe((lock?.minCommitTs ?? 0) - 1)
    expect(store.log.resolve()).toBeGreaterThanOrEqual(callerStartTs)
    const minCommitTs = await store.tso(1)
    await store.txnHeartBeat({ primary: utf8('a'), startTs, adviseLockTtl: 3000, minCommitTs })
    expect(await resolveNow(store)).toBe(minCommitTs - 1)
    const commit = store.commit({ keys: [utf8('a')], startTs, commitTs: callerStartTs })
    expect(await codeOf(commit)).toBe('commit_ts_expired')
  })

  test('a prewrite below a resolved_ts cannot commit there', async () => {
    const store = await open()
    const [startTs, early] = [await store.tso(1), await store.tso(1)]
    const passed = await resolveNow(store)
    const keys = [utf8('a'), utf8('b')]
    await store.prewrite(prewriteOf(startTs, [put('a', '1'), put('b', '1')]))
    expect(await codeOf(store.commit({ keys, startTs, commitTs: early }))).toBe('commit_ts_expired')
    expect(await codeOf(store.commit({ keys, startTs, commitTs: passed }))).toBe('commit_ts_expired')
    expect(await resolveNow(store)).toBe(passed)
    const commitTs = await store.tso(1)
    await store.commit({ keys, startTs, commitTs })
    expect((await changesOf(store, { since: passed })).map(({ commitTs: at }) => at)).toEqual([commitTs, commitTs])
  })

  needing('onePhaseCommit', 'asyncCommit')('nor do commits whose timestamp is calculated', async () => {
    const store = await open()
    const [first, second] = [await store.tso(1), await store.tso(1)]
    const passed = await resolveNow(store)
    const { onePcCommitTs } = await store.prewrite(prewriteOf(first, [put('a')], { tryOnePc: true }))
    expect(onePcCommitTs).toBeGreaterThan(passed)
    const { minCommitTs } = await store.prewrite(prewriteOf(second, [put('b')], { useAsyncCommit: true }))
    expect(minCommitTs).toBeGreaterThan(passed)
  })

  test('small timestamps stay legal while nobody has asked for resolved_ts', async () => {
    const store = await open()
    await store.prewrite(prewriteOf(5, [put('a', '1')]))
    await store.commit({ keys: [utf8('a')], startTs: 5, commitTs: 6 })
    await store.tso(1)
    expect(await changesOf(store)).toEqual([putAt('a', '1', 5, 6)])
    expect(await read(store, 'a', 6)).toBe('1')
    expect(await read(store, 'a', 5)).toBeUndefined()
  })

  test('a transaction in the past of others that nobody has resolved stands where its commit_ts says', async () => {
    const store = await open()
    const [low, high] = [await store.tso(1), await store.tso(1)]
    const { commitTs } = await commitInTwo(store, await store.tso(1), [put('a', 'late')])
    await store.prewrite(prewriteOf(low, [put('b', 'straggler')]))
    await store.commit({ keys: [utf8('b')], startTs: low, commitTs: high })
    await store.tso(1)
    expect((await changesOf(store)).map(({ key, commitTs: at }) => [key, at])).toEqual([
      ['b', high],
      ['a', commitTs],
    ])
  })

  async function commitInTwo(store: Store, startTs: Timestamp, mutations: readonly PrewriteMutation[]) {
    await store.prewrite(prewriteOf(startTs, mutations))
    const commitTs = await store.tso(1)
    await store.commit({ keys: mutations.map(({ key }) => key), startTs, commitTs })
    return { startTs, commitTs }
  }

  test('a commit ahead of the clock is read once resolved_ts has passed it, and waits for nobody', async () => {
    const clock = new TestClock()
    const store = await open({ now: clock.now })
    const startTs = await lockNow(store, [put('a', 'ahead')])
    const commitTs = (await store.tso(1)) + 1000 * LOGICAL_PER_MS
    await store.commit({ keys: [utf8('a')], startTs, commitTs })
    const now = await commitInTwo(store, await store.tso(1), [put('b', 'now')])
    const resolved = await resolveNow(store)
    expect(resolved).toBeGreaterThan(now.commitTs)
    expect(resolved).toBeLessThan(commitTs)
    expect((await changesOf(store)).map(({ key }) => key)).toEqual(['b'])
    expect(store.log.newest).toBeGreaterThanOrEqual(commitTs)
    clock.ms += 2000
    expect(await resolveNow(store)).toBeGreaterThan(commitTs)
    expect((await changesOf(store, { since: resolved })).map(({ key }) => key)).toEqual(['a'])
  })

  // ---- Listening

  needing('onePhaseCommit')('a listener is told of each change once, before resolved_ts passes it', async () => {
    const store = await open()
    const told: ReadChange[] = []
    const late: string[] = []
    let passed: Timestamp = 0
    const listener: ChangeListener = {
      onCommitted: (changes) => {
        for (const change of changes) if (change.commitTs <= passed) late.push(asText(change).key)
        told.push(...changes.map((change) => asText({ ...change, value: undefined } as typeof change)))
      },
      reloaded: () => {},
    }
    const end = store.log.listen(listener)
    const ticks = async (): Promise<void> => {
      for (let i = 0; i < 50; i++) {
        passed = store.log.resolve()
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    const writes = Array.from({ length: 20 }, (_, i) =>
      commitNow(store, [put(`k${i}`, i % 3 ? 'v' : LONG), del('gone')]),
    )
    const settled = Promise.allSettled(writes)
    await Promise.all([ticks(), settled])
    const startTs = await lockNow(store, [put('two'), put('phases')])
    await store.resolveLock({ txns: [{ startTs, commitTs: await store.tso(1) }] })
    await store.tso(1)
    expect(late).toEqual([])
    const inLog = await changesOf(store, { keysOnly: true })
    expect([...told].sort(order)).toEqual([...inLog].sort(order))
    end()
    await commitNow(store, [put('after')])
    expect(told).toHaveLength(inLog.length)
  })

  test('values that a listener was not told can be had', async () => {
    const store = await open()
    const { startTs, commitTs } = await commitInTwo(store, await store.tso(1), [
      put('a', '1'),
      put('b', LONG),
      del('c'),
    ])
    await store.tso(1)
    const bare = { startTs, commitTs }
    store.log.resolve()
    expect(
      (
        await collect(
          store.log.withValues([
            { type: 'put', key: utf8('a'), ...bare },
            { type: 'put', key: utf8('b'), ...bare },
            { type: 'delete', key: utf8('c'), ...bare },
            { type: 'put', key: utf8('never'), ...bare },
          ]),
        )
      )
        .flat()
        .map(asText),
    ).toEqual([
      putAt('a', '1', startTs, commitTs),
      putAt('b', LONG, startTs, commitTs),
      { type: 'delete', key: 'c', ...bare },
    ])
  })

  // ---- Reading

  each('ranges, keys only, and a signal', async () => {
    const { store, since } = await begun()
    const { startTs, commitTs } = await commitInTwo(
      store,
      await store.tso(1),
      ['a', 'b', 'ba', 'c', 'd'].map((key) => put(key, '1')),
    )
    const ranges = [{ start: utf8('d') }, { start: utf8('b'), end: utf8('c') }]
    expect((await allOf(store, since, { ranges })).map(({ key }) => key)).toEqual(['b', 'ba', 'd'])
    expect(await allOf(store, since, { ranges: [] })).toEqual([])
    expect(await allOf(store, since, { keysOnly: true, ranges: [{ end: utf8('b') }] })).toEqual([
      { type: 'put', key: 'a', startTs, commitTs },
    ])
    expect(await changesOf(store, { since: commitTs })).toEqual([])
    expect(await changesOf(store, { since: commitTs - 1, upTo: commitTs })).toHaveLength(5)
    const abort = new AbortController()
    abort.abort()
    for await (const page of store.log.read({ since, upTo: commitTs, signal: abort.signal }))
      expect(page.upTo).toBeLessThanOrEqual(commitTs)
  })

  test('a transaction of thousands of keys is read whole, in order', { tags: ['long'] }, async () => {
    const { store, since } = await begun()
    const keys = Array.from({ length: 10_000 }, (_, i) => `key${String(i).padStart(5, '0')}`)
    const startTs = await lockNow(
      store,
      keys.map((key) => put(key, 'v')),
    )
    const commitTs = await store.tso(1)
    await store.commit({ keys: keys.map(utf8), startTs, commitTs })
    await commitInTwo(store, await store.tso(1), [put('after')])
    expect((await allOf(store, since)).map(({ key }) => key)).toEqual([...keys, 'after'])
    const ranges = [{ start: utf8('key00500'), end: utf8('key00510') }]
    expect((await allOf(store, since, { ranges })).map(({ key }) => key)).toEqual(keys.slice(500, 510))
  })

  test('hundreds of transactions, and stragglers of a second ago among them', async () => {
    const clock = new TestClock()
    const store = await open({ now: clock.now })
    const expected: string[] = []
    const open2pc: { key: string; startTs: Timestamp }[] = []
    const wrote: { key: string; commitTs: Timestamp }[] = []
    for (let i = 0; i < 300; i++) {
      clock.ms += 40
      const key = `k${i}`
      const startTs = await lockNow(store, [put(key, `${i}`)])
      if (i % 10 === 0) open2pc.push({ key, startTs })
      else {
        const commitTs = await store.tso(1)
        await store.commit({ keys: [utf8(key)], startTs, commitTs })
        wrote.push({ key, commitTs })
      }
      if (i % 40 === 39)
        for (const straggler of open2pc.splice(0)) {
          // Legal while no resolved_ts has passed it: its commit_ts lies among those of others.
          const commitTs = straggler.startTs + 1
          await store.commit({ keys: [utf8(straggler.key)], startTs: straggler.startTs, commitTs })
          wrote.push({ key: straggler.key, commitTs })
        }
    }
    for (const { key, startTs } of open2pc) await store.rollback({ keys: [utf8(key)], startTs })
    await store.tso(1)
    wrote.sort((a, b) => a.commitTs - b.commitTs)
    expected.push(...wrote.map(({ key }) => key))
    expect((await changesOf(store)).map(({ key }) => key)).toEqual(expected)
    const middle = wrote[150]?.commitTs ?? 0
    expect((await changesOf(store, { since: middle })).map(({ key }) => key)).toEqual(expected.slice(151))
  })

  test('a reading may begin between commits that were written together', async () => {
    const store = await open()
    const [first, second] = [await lockNow(store, [put('a', '1')]), await lockNow(store, [put('b', '2')])]
    const [commitTs, between, last] = [await store.tso(1), await store.tso(1), await store.tso(1)]
    await Promise.all([
      store.commit({ keys: [utf8('a')], startTs: first, commitTs }),
      store.commit({ keys: [utf8('b')], startTs: second, commitTs: last }),
    ])
    await store.tso(1)
    expect(await changesOf(store, { since: between })).toEqual([putAt('b', '2', second, last)])
  })

  // ---- Removal

  each('delete_range is one change above the versions that it took, which are left out', async () => {
    const { store, since } = await begun()
    await commitInTwo(store, await store.tso(1), [put('a', '1'), put('b', '2'), put('c', LONG), put('d', '4')])
    await store.deleteRange({ start: utf8('b'), end: utf8('d') })
    const after = await commitInTwo(store, await store.tso(1), [put('c', 'new')])
    const changes = await allOf(store, since)
    const event = changes.find(({ type }) => type === 'delete_range')
    expect(changes.map(({ type, key }) => [type, key])).toEqual([
      ['put', 'a'],
      ['put', 'd'],
      ['delete_range', 'b'],
      ['put', 'c'],
    ])
    expect(event).toMatchObject({ end: 'd', startTs: event?.commitTs })
    expect(event?.commitTs).toBeLessThan(after.commitTs)
    const within = async (start: string, end: string) =>
      (await allOf(store, since, { ranges: [{ start: utf8(start), end: utf8(end) }] })).map(({ type, key }) => [
        type,
        key,
      ])
    expect(await within('c', 'cc')).toEqual([
      ['delete_range', 'b'],
      ['put', 'c'],
    ])
    expect(await within('d', 'e')).toEqual([['put', 'd']])
    expect(await within('a', 'b')).toEqual([['put', 'a']])
  })

  test('delete_range takes what is far ahead of the clock, and leaves a change behind it there', async () => {
    const clock = new TestClock()
    const store = await open({ now: clock.now })
    for (const [key, aheadMs] of [['near', 50_000] as const, ['far', 90_000] as const]) {
      const ahead = clock.ts() + aheadMs * LOGICAL_PER_MS
      await store.prewrite(prewriteOf(ahead - 1, [put(key)]))
      await store.commit({ keys: [utf8(key)], startTs: ahead - 1, commitTs: ahead })
    }
    await store.deleteRange({ start: utf8('a'), end: utf8('z') })
    expect(await read(store, 'near')).toBe('value of near')
    expect(await read(store, 'far')).toBeUndefined()
    clock.ms += 100_000
    await store.tso(1)
    expect((await changesOf(store, { keysOnly: true })).map(({ type, key, end }) => [type, key, end])).toEqual([
      ['delete_range', 'a', 'z'],
      ['put', 'near', undefined],
      ['put', 'far', undefined],
      ['delete_range', 'far', 'far\0'],
    ])
  })

  test('delete_range of nothing is a change too, and takes what waits for a lock with it', async () => {
    const store = await open()
    const startTs = await lockNow(store, [put('a')])
    await store.deleteRange({ start: utf8('a'), end: utf8('b') })
    await store.deleteRange({ start: utf8('x'), end: utf8('y') })
    expect(store.log.heldBackBy(10)).toEqual([])
    expect(await resolveNow(store)).toBeGreaterThan(startTs)
    expect((await changesOf(store)).map(({ type, key, end }) => [type, key, end])).toEqual([
      ['delete_range', 'a', 'b'],
      ['delete_range', 'x', 'y'],
    ])
  })

  test('once somebody has asked for resolved_ts, nothing commits below a delete_range after it', async () => {
    const store = await open()
    store.log.resolve()
    const [startTs, commitTs] = [await store.tso(1), await store.tso(1)]
    await store.deleteRange({ start: utf8('a'), end: utf8('b') })
    await store.prewrite(prewriteOf(startTs, [put('a')]))
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs, commitTs }))).toBe('commit_ts_expired')
  })

  test('what was collected is refused at once and in a reading that has begun; above it nothing is missing', {
    tags: ['long'],
  }, async () => {
    const store = await open()
    const commits: Timestamp[] = []
    for (let i = 0; i < 600; i++)
      commits.push((await commitInTwo(store, await store.tso(1), [put('hot', `${i}`), put(`k${i}`)])).commitTs)
    await store.tso(1)
    const upTo = store.log.resolve()
    const begun = store.log.read({ since: 0, upTo })
    const first = await begun.next()
    expect(first.done).toBe(false)
    const safePoint = commits[580] ?? 0
    await store.upkeep.collect(safePoint)
    expect(store.log.start).toBe(safePoint)
    const rest = async (): Promise<void> => {
      let seen = first.value?.changes.length ?? 0
      for await (const { changes } of begun) seen += changes.length
      // A reader that is refused nothing has seen everything.
      if (seen === 1200) return
      throw new Error(`a gap: ${seen} changes of 1200`)
    }
    expect(['ts_below_safe_point', 'none']).toContain(await codeOf(rest()))
    expect(await failureOf(changesOf(store, { since: safePoint - 1, upTo }))).toMatchObject({
      code: 'ts_below_safe_point',
      fields: { safePoint },
    })
    expect(await changesOf(store, { since: safePoint, upTo })).toEqual(
      (await historyOf(store, [utf8('hot'), ...commits.map((_, i) => utf8(`k${i}`))])).filter(
        ({ commitTs }) => commitTs > safePoint,
      ),
    )
    const below = { type: 'put', key: utf8('hot'), commitTs: commits[0] ?? 0, startTs: 1 } as const
    expect(await codeOf(collect(store.log.withValues([below])))).toBe('ts_below_safe_point')
  })

  test('an old value that collection keeps for readers is no change above the safe point', async () => {
    const store = await open()
    const { commitTs } = await commitInTwo(store, await store.tso(1), [put('a', 'kept')])
    const safePoint = await store.tso(1)
    await store.upkeep.collect(safePoint)
    await store.tso(1)
    expect(commitTs).toBeLessThan(safePoint)
    expect(await changesOf(store)).toEqual([])
    expect(await read(store, 'a')).toBe('kept')
  })

  needing('restore')('a restore is in no log: it begins after it, and whoever listens is told', async () => {
    const store = await open({ now: new TestClock().now })
    let reloads = 0
    store.log.listen({ onCommitted: () => {}, reloaded: () => reloads++ })
    const before = await store.tso(1)
    const source = { id: 'ab'.repeat(16), ts: await store.tso(1) }
    async function* blocks(isCut: boolean): AsyncGenerator<readonly ValuedPair[]> {
      yield [{ key: utf8('a'), value: utf8('1'), commitTs: before }]
      if (isCut) throw invalid('body', 'it was cut off')
      yield [{ key: utf8('b'), value: utf8('2'), commitTs: source.ts }]
    }
    expect(await codeOf(store.upkeep.restore(source, blocks(true), false))).toBe('invalid_argument')
    expect(await codeOf((async () => store.log.resolve())())).toBe('storage_unavailable')
    expect(await codeOf(changesOf(store, { since: 0, upTo: before }))).toBe('storage_unavailable')
    await store.upkeep.restore(source, blocks(false), false)
    expect(reloads).toBeGreaterThan(0)
    expect(store.log.start).toBeGreaterThan(source.ts)
    expect(await codeOf(changesOf(store, { since: source.ts, upTo: await resolveNow(store) }))).toBe(
      'ts_below_safe_point',
    )
    const since = store.log.start
    const { startTs, commitTs } = await commitInTwo(store, await store.tso(1), [put('a', 'new')])
    await store.tso(1)
    expect(await changesOf(store, { since })).toEqual([putAt('a', 'new', startTs, commitTs)])
  })

  // ---- Restarts

  needing('places')('changes, stragglers and the bound are there again, and resolved_ts goes on', async () => {
    const place = await contract.place()
    const clock = new TestClock()
    const first = await open({ place, now: clock.now })
    const collected = await commitInTwo(first, await first.tso(1), [put('a', '1')])
    await first.upkeep.collect(await first.tso(1))
    const since = first.log.start
    const kept = await commitInTwo(first, await first.tso(1), [put('a', '2'), put('b', LONG)])
    await first.deleteRange({ start: utf8('x'), end: utf8('y') })
    const startTs = await lockNow(first, [put('c', '3')])
    const resolved = await resolveNow(first)
    const before = await changesOf(first, { since })
    await first.close()

    clock.ms -= 3_600_000
    const second = await open({ place, now: clock.now })
    expect(second.log.start).toBe(since)
    expect(await codeOf(changesOf(second, { since: collected.commitTs }))).toBe('ts_below_safe_point')
    expect(second.log.heldBackBy(10).map((lock) => lock.startTs)).toEqual([startTs])
    expect(await resolveNow(second)).toBeGreaterThanOrEqual(resolved)
    expect(await changesOf(second, { since })).toEqual(before)
    expect(before.map(({ key }) => key)).toEqual(['a', 'b', 'x'])
    const commitTs = await second.tso(1)
    await second.commit({ keys: [utf8('c')], startTs, commitTs })
    await second.tso(1)
    expect(await changesOf(second, { since: kept.commitTs })).toHaveLength(2)
    expect(second.log.newest).toBeGreaterThanOrEqual(commitTs)
  })

  needing('places', 'onePhaseCommit')('a closed store whose log was empty begins at 0', async () => {
    const place = await contract.place()
    const first = await open({ place })
    expect(first.log.start).toBe(0)
    const { startTs, commitTs } = await commitNow(first, [put('a', '1')])
    await first.close()
    const second = await open({ place })
    await second.tso(1)
    expect(second.log.start).toBe(0)
    expect(await changesOf(second)).toEqual([putAt('a', '1', startTs, commitTs)])
  })

  test('a resolved_ts that nothing holds back is the newest timestamp, and taking it again changes nothing', async () => {
    const store = await open()
    const ts = await store.tso(1)
    expect(store.log.resolve()).toBe(ts)
    expect(store.log.resolve()).toBe(ts)
    const far = ts + MINUTE / 2
    await store.prewrite(prewriteOf(far, [put('a')]))
    expect(store.log.resolve()).toBe(ts)
    expect(await resolveNow(store)).toBeLessThan(far)
  })
}

const order = (a: ReadChange, b: ReadChange): number =>
  a.commitTs - b.commitTs || a.startTs - b.startTs || (a.key < b.key ? -1 : 1)
