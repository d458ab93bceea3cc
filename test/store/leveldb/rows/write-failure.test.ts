import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { decodeKey } from '../../../../src/percolator/codec/key.js'
import { decodeLock } from '../../../../src/percolator/codec/lock.js'
import { lockInfo } from '../../../../src/percolator/lock-info.js'
import { CF_LOCK } from '../../../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore } from '../../../../src/store/store.js'
import { TIMESTAMP_MAX, timestampFromMs } from '../../../../src/timestamp.js'
import {
  codeOf,
  deferred,
  del,
  EngineFailure,
  prewriteOf,
  put,
  read,
  TappedEngine,
  TestClock,
  testStores,
  text,
  utf8,
  WriteGate,
  watch,
  write,
} from '../../support.js'

const stores = testStores()
const LONG = 'x'.repeat(300)
let tapped: TappedEngine
let clock: TestClock
let directory: string
let store: CompleteStore

beforeEach(async () => {
  tapped = new TappedEngine()
  clock = new TestClock()
  directory = await stores.directory()
  store = await stores.open({ openEngine: tapped.open, directory, now: clock.now })
})
afterEach(() => {
  vi.useRealTimers()
})

type Mode = 'fails' | 'lands but reports failure'
const MODES: readonly Mode[] = ['fails', 'lands but reports failure']

/** The next write goes wrong; those after it are fine again. */
function breakNextWrite(mode: Mode): void {
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_next, landNext) => landNext()
    if (mode !== 'fails') await land()
    throw new EngineFailure('disk full')
  }
}

/** Memory and disk say the same: the locks on disk are the locks that the store knows, field by field. */
async function expectAgreement(): Promise<void> {
  const iterator = tapped.engine.iterator({ gte: Buffer.of(CF_LOCK), lt: Buffer.of(CF_LOCK + 1) })
  const stored = await iterator.nextv(50)
  await iterator.close()
  const { locks } = await store.scanLock({ maxTs: TIMESTAMP_MAX })
  expect(locks).toEqual(stored.map(([key, bytes]) => lockInfo(decodeKey(key), decodeLock(bytes))))
  expect(store.locks.count).toBe(stored.length)
}

const keys = ['a', 'b'].map(utf8)
interface Case {
  readonly name: string
  readonly before?: () => Promise<unknown>
  /** The call whose write goes wrong; may be repeated. */
  readonly act: () => Promise<unknown>
  /** What a read of `a` and `b` at 100 says afterwards; by mode where it matters. */
  readonly want: Record<Mode, string>
  /** What a read at 150 says once the call was repeated. */
  readonly wantRepeated: string
}
const prewriteBoth = () => store.prewrite(prewriteOf(10, [put('a', 'new'), put('b', LONG)], { minCommitTs: 11 }))
const same = (state: string): Record<Mode, string> => ({ fails: state, 'lands but reports failure': state })
const CASES: readonly Case[] = [
  {
    name: 'prewrite',
    act: prewriteBoth,
    want: { fails: 'old old', 'lands but reports failure': 'key_locked key_locked' },
    wantRepeated: 'key_locked key_locked',
  },
  {
    name: '1PC',
    act: () => store.prewrite(prewriteOf(10, [put('a', 'new'), put('b', 'new')], { tryOnePc: true })),
    want: { fails: 'old old', 'lands but reports failure': 'new new' },
    wantRepeated: 'new new',
  },
  {
    name: 'async commit',
    act: () => store.prewrite(prewriteOf(10, [put('a'), put('b')], { useAsyncCommit: true, secondaries: [utf8('b')] })),
    want: { fails: 'old old', 'lands but reports failure': 'key_locked key_locked' },
    wantRepeated: 'key_locked key_locked',
  },
  {
    name: 'commit',
    before: prewriteBoth,
    act: () => store.commit({ keys, startTs: 10, commitTs: 20 }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': `new ${LONG}` },
    wantRepeated: `new ${LONG}`,
  },
  {
    name: 'rollback',
    before: prewriteBoth,
    act: () => store.rollback({ keys, startTs: 10 }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': 'old old' },
    wantRepeated: 'old old',
  },
  {
    name: 'cleanup',
    before: prewriteBoth,
    act: () => store.cleanup({ key: utf8('a'), startTs: 10, currentTs: 0 }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': 'old key_locked' },
    wantRepeated: 'old key_locked',
  },
  {
    name: 'resolve_lock',
    before: prewriteBoth,
    act: () => store.resolveLock({ txns: [{ startTs: 10, commitTs: 20 }] }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': `new ${LONG}` },
    wantRepeated: `new ${LONG}`,
  },
  {
    name: 'check_txn_status that pushes min_commit_ts',
    before: prewriteBoth,
    act: () => store.checkTxnStatus({ primary: utf8('a'), lockTs: 10, callerStartTs: 150, currentTs: 150 }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': 'old key_locked' },
    wantRepeated: 'old key_locked',
  },
  {
    name: 'check_secondary_locks that leaves a rollback record',
    act: () => store.checkSecondaryLocks({ keys, startTs: 10 }),
    want: same('old old'),
    wantRepeated: 'old old',
  },
  {
    name: 'txn_heart_beat',
    before: prewriteBoth,
    act: () => store.txnHeartBeat({ primary: utf8('a'), startTs: 10, adviseLockTtl: 60_000 }),
    want: same('key_locked key_locked'),
    wantRepeated: 'key_locked key_locked',
  },
  {
    name: 'delete_range',
    act: () => store.deleteRange({ start: utf8('a'), end: utf8('c') }),
    want: { fails: 'old old', 'lands but reports failure': 'absent absent' },
    wantRepeated: 'absent absent',
  },
  {
    name: 'delete_range that ends a transaction first',
    before: prewriteBoth,
    act: () => store.deleteRange({ start: utf8('a'), end: utf8('c') }),
    want: { fails: 'key_locked key_locked', 'lands but reports failure': 'old key_locked' },
    wantRepeated: 'absent absent',
  },
  {
    name: 'collect',
    act: () => store.upkeep.collect(50),
    want: same('old old'),
    wantRepeated: 'old old',
  },
]

const stateAt = async (ts: number): Promise<string> => {
  const of = async (key: string): Promise<string> => {
    const code = await codeOf(read(store, key, ts))
    return code === 'none' ? ((await read(store, key, ts)) ?? 'absent') : code
  }
  return `${await of('a')} ${await of('b')}`
}

describe.each(MODES)('a write that %s', (mode) => {
  beforeEach(() => write(store, 5, 6, [put('a', 'old'), put('b', 'old'), put('safe', LONG)]))

  test.each(CASES)('$name', async ({ before, act, want, wantRepeated }) => {
    await before?.()
    breakNextWrite(mode)
    expect(await codeOf(act())).toBe('storage_unavailable')
    await tapped.quiet()
    expect(tapped.reopens).toBe(1)
    expect(store.upkeep.probe()).toBe(true)
    await expectAgreement()
    expect(await stateAt(100)).toBe(want[mode])
    expect(await read(store, 'safe', 100)).toBe(LONG)

    expect(await codeOf(act())).toBe('none')
    await expectAgreement()
    expect(await stateAt(150)).toBe(wantRepeated)

    await write(store, 200, 201, [put('later', '1')])
    await store.close()
    store = await stores.open({ openEngine: tapped.open, directory, now: clock.now })
    await expectAgreement()
    expect(await stateAt(150)).toBe(wantRepeated)
    expect(await read(store, 'safe', 300)).toBe(LONG)
    expect(await read(store, 'later', 300)).toBe('1')
  })

  test('a timestamp that needs the mark saved', async () => {
    const before = await store.tso(1)
    clock.ms += 10_000
    breakNextWrite(mode)
    expect(await codeOf(store.tso(1))).toBe('storage_unavailable')
    await tapped.quiet()
    const after = await store.tso(1)
    expect(after).toBeGreaterThan(before)
    await store.close()
    store = await stores.open({ directory, now: clock.now })
    expect(await store.tso(1)).toBeGreaterThan(after)
  })

  test.each([
    ['get', (ts: number) => store.get({ key: utf8('z'), ts })],
    ['scan', (ts: number) => store.scan({ limit: 1, ts, start: utf8('x') })],
    ['scan_lock', (ts: number) => store.scanLock({ maxTs: ts })],
    ['prewrite', (ts: number) => store.prewrite(prewriteOf(ts, [put('z')], { tryOnePc: true }))],
    ['commit', (ts: number) => store.commit({ keys, startTs: 10, commitTs: ts })],
    ['cleanup', (ts: number) => store.cleanup({ key: utf8('z'), startTs: ts, currentTs: 0 })],
    ['check_secondary_locks', (ts: number) => store.checkSecondaryLocks({ keys: [utf8('z')], startTs: ts })],
    [
      'check_txn_status',
      (ts: number) =>
        store.checkTxnStatus({
          primary: utf8('z'),
          lockTs: 7,
          callerStartTs: ts,
          currentTs: ts,
          rollbackIfNotExist: true,
        }),
    ],
  ] as const)('%s at a timestamp that needs the mark saved first', async (_, call) => {
    await prewriteBoth()
    clock.ms += 10_000
    breakNextWrite(mode)
    expect(await codeOf(call(clock.ts()))).toBe('storage_unavailable')
    await tapped.quiet()
    await expectAgreement()
    expect(await codeOf(call(clock.ts()))).toBe('none')
  })

  test('every batch of its group fails, and those that waited behind it; none is lost that was acknowledged', async () => {
    const arrived = deferred()
    const goOn = deferred()
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      arrived.resolve()
      await goOn.promise
      if (mode !== 'fails') await land()
      throw new EngineFailure('disk full')
    }
    const onePc = (key: string) => store.prewrite(prewriteOf(10, [put(key, 'new')], { tryOnePc: true }))
    const first = codeOf(onePc('a'))
    await arrived.promise
    const behind = [codeOf(onePc('b')), codeOf(store.prewrite(prewriteOf(20, [put('c'), put('d')])))]
    await tapped.quiet()
    goOn.resolve()
    expect(await Promise.all([first, ...behind])).toEqual(Array(3).fill('storage_unavailable'))
    await expectAgreement()
    expect(store.locks.count).toBe(0) // What waited behind was never written.
    expect(await stateAt(100)).toBe(mode === 'fails' ? 'old old' : 'new old')
    expect(await read(store, 'safe')).toBe(LONG)
    await onePc('b')
    expect(await read(store, 'b')).toBe('new')
  })

  test('readers that waited for the batch hear what became of it', async () => {
    const gate = new WriteGate(tapped)
    const land = tapped.onWrite
    const call = codeOf(store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true })))
    await tapped.quiet()
    expect(gate.held).toBe(1)
    const readers = [11, undefined].map((ts) => watch(read(store, 'a', ts)))
    const scan = watch(store.scan({ ts: 20, limit: 10, end: utf8('ab') }))
    await tapped.quiet()
    expect(readers.map(({ isSettled }) => isSettled())).toEqual([false, true])
    // The held write lands; a second one, behind it, is the one that goes wrong.
    tapped.onWrite = land
    breakNextWrite(mode)
    const second = codeOf(store.prewrite(prewriteOf(30, [put('b', 'new')], { tryOnePc: true })))
    await tapped.quiet()
    gate.release()
    expect(await call).toBe('none')
    expect(await second).toBe('storage_unavailable')
    // Readers in the middle of the reopening may be told so; nobody may hear the old value at 11.
    const [outcome] = await Promise.allSettled([readers[0]?.promise])
    if (outcome.status === 'fulfilled') expect(outcome.value).toBe('new')
    else expect(await codeOf(Promise.reject(outcome.reason))).toBe('storage_unavailable')
    await Promise.allSettled([scan.promise])
    await tapped.quiet()
    expect(await stateAt(100)).toBe(mode === 'fails' ? 'new old' : 'new new')
    await expectAgreement()
  })

  test('a reader that waits for the failing batch itself', async () => {
    const goOn = deferred()
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      await goOn.promise
      if (mode !== 'fails') await land()
      throw new EngineFailure('disk full')
    }
    const call = codeOf(store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true })))
    await tapped.quiet()
    const reader = watch(read(store, 'a', 50))
    await tapped.quiet()
    expect(reader.isSettled()).toBe(false)
    goOn.resolve()
    expect(await call).toBe('storage_unavailable')
    expect(await reader.promise).toBe(mode === 'fails' ? 'old' : 'new')
    expect(store.locks.count).toBe(0)
  })

  test('who waits for a lock hears that it went', async () => {
    await prewriteBoth()
    const request = { keys: [utf8('a')], primary: utf8('a'), startTs: 30, forUpdateTs: 30, lockTtl: 1000 }
    const waiting = store.acquirePessimisticLock({ ...request, waitTimeout: 100_000 })
    await tapped.quiet()
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_next, landNext) => landNext()
      await land()
      throw new EngineFailure('disk full')
    }
    await codeOf(store.rollback({ keys, startTs: 10 }))
    expect((await waiting).results).toHaveLength(1)
  })

  test('hundreds of locks are all known again afterwards', async () => {
    const many = Array.from({ length: 500 }, (_, i) => put(`many${i}`, 'v'.repeat(100)))
    await store.prewrite(prewriteOf(10, many))
    breakNextWrite(mode)
    expect(await codeOf(store.prewrite(prewriteOf(30, [del('b')], { tryOnePc: true })))).toBe('storage_unavailable')
    await tapped.quiet()
    expect(store.locks.count).toBe(500)
    expect(await codeOf(read(store, 'many499', 50))).toBe('key_locked')
  })
})

describe('a reopening that fails', () => {
  const refuse = async (): Promise<void> => {
    throw new EngineFailure('still full')
  }
  beforeEach(async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    await write(store, 5, 6, [put('a', 'old')])
    await store.prewrite(prewriteOf(10, [put('a', 'new'), put('b', 'new')]))
    tapped.onReopen = refuse
    breakNextWrite('fails')
    expect(await codeOf(store.prewrite(prewriteOf(30, [put('c')])))).toBe('storage_unavailable')
    await tapped.quiet()
    expect(tapped.reopens).toBe(1)
  })

  test('every call says so meanwhile; the next one after the pause tries again, and all is there', async () => {
    expect(store.upkeep.probe()).toBe(false)
    const calls = [
      () => read(store, 'a'),
      () => store.batchGet({ keys, ts: 50 }),
      () => store.scan({ limit: 1, ts: 50 }),
      () => store.scanLock({ maxTs: 50 }),
      () => store.mvccGetByKey({ key: utf8('a') }),
      () => store.mvccGetByStartTs({ startTs: 5 }),
      () => store.prewrite(prewriteOf(40, [put('d')])),
      () => store.prewrite(prewriteOf(40, [put('d')], { tryOnePc: true })),
      () => store.commit({ keys, startTs: 10, commitTs: 20 }),
      () => store.rollback({ keys, startTs: 10 }),
      () => store.resolveLock({ txns: [{ startTs: 10, commitTs: 0 }] }),
      () => store.checkTxnStatus({ primary: utf8('a'), lockTs: 10, callerStartTs: 20, currentTs: 20 }),
      () => store.txnHeartBeat({ primary: utf8('a'), startTs: 10, adviseLockTtl: 60_000 }),
    ]
    for (const call of calls) expect(await codeOf(call())).toBe('storage_unavailable')
    expect(tapped.reopens).toBe(1)

    tapped.onReopen = (reopen) => reopen()
    vi.advanceTimersByTime(60_000)
    expect(await codeOf(read(store, 'a'))).toBe('storage_unavailable')
    await tapped.quiet()
    expect(tapped.reopens).toBe(2)
    expect(store.upkeep.probe()).toBe(true)
    await expectAgreement()
    expect(store.locks.count).toBe(2)
    await store.commit({ keys, startTs: 10, commitTs: 20 })
    expect(await read(store, 'b', 50)).toBe('new')
    await write(store, 60, 61, [put('c', '1')])
    expect(await read(store, 'c')).toBe('1')
  })

  test('one attempt at a time, however many ask', async () => {
    const goOn = deferred()
    tapped.onReopen = async (reopen) => {
      await goOn.promise
      await reopen()
    }
    vi.advanceTimersByTime(60_000)
    const asking = Array.from({ length: 10 }, () => codeOf(read(store, 'a')))
    expect(await Promise.all(asking)).toEqual(Array(10).fill('storage_unavailable'))
    expect(tapped.reopens).toBe(2)
    goOn.resolve()
    await tapped.quiet()
    expect(await read(store, 'a', 9)).toBe('old')
  })

  test('closing meanwhile works, and leaves the engine closed', async () => {
    await store.close()
    expect(tapped.isClosed).toBe(true)
    const again = await stores.open({ directory, now: clock.now })
    expect(again.locks.count).toBe(2)
  })

  test('closing in the middle of a new attempt leaves the engine closed', async () => {
    const goOn = deferred()
    tapped.onReopen = async (reopen) => {
      await goOn.promise
      await reopen()
    }
    vi.advanceTimersByTime(60_000)
    expect(await codeOf(read(store, 'a'))).toBe('storage_unavailable')
    const closing = store.close()
    await tapped.quiet()
    goOn.resolve()
    await closing
    await tapped.quiet()
    expect(tapped.isClosed).toBe(true)
    expect(store.upkeep.probe()).toBe(false)
  })
})

test('a write that fails while the store closes opens nothing again', async () => {
  const fail = deferred()
  tapped.onWrite = async () => {
    await fail.promise
    throw new EngineFailure('no disk')
  }
  const writing = codeOf(store.prewrite(prewriteOf(10, [put('a')])))
  await tapped.quiet()
  const closing = store.close()
  fail.resolve()
  expect(await writing).toBe('storage_unavailable')
  await closing
  expect([tapped.reopens, tapped.isClosed]).toEqual([0, true])
})

describe('a disk that stays full', () => {
  const noRoom = async (): Promise<void> => {
    throw new Error('no room')
  }
  /** What a client is told: the value, or the code. */
  const told = async (key: string, ts?: number): Promise<string> => {
    const code = await codeOf(read(store, key, ts))
    return code === 'none' ? ((await read(store, key, ts)) ?? 'absent') : code
  }
  const makeRoom = async (): Promise<void> => {
    tapped.onRequireRoom = async () => {}
    vi.advanceTimersByTime(60_000)
    store.upkeep.probe()
    await tapped.quiet()
    expect(store.upkeep.probe()).toBe(true)
  }
  beforeEach(async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    await write(store, 5, 6, [put('a', 'old'), put('b', 'old'), put('safe', LONG)])
    tapped.onRequireRoom = noRoom
  })

  describe.each(MODES)('after a write that %s', (mode) => {
    test.each(CASES)('$name: what can still change is not read, all else is, and nothing is written', async (each) => {
      const isDropped = each.name === 'delete_range' && mode !== 'fails' // Of the past too: no transaction.
      const isRaised = each.name === 'collect' && mode !== 'fails' // The safe point.
      await each.before?.()
      breakNextWrite(mode)
      expect(await codeOf(each.act())).toBe('storage_unavailable')
      const writes = tapped.writes.length
      const reads = keys.flatMap((key) => [8, 100, undefined].map((ts) => ({ key: text(key), ts })))
      const before = await Promise.all(reads.map(({ key, ts }) => told(key, ts)))
      const scanned = await codeOf(store.scan({ ts: 100, limit: 10 }))
      expect(await told('safe')).toBe(LONG)
      expect(await told('a', 8)).toBe(isDropped ? 'absent' : 'old')
      expect(await codeOf(write(store, 300, 301, [put('other')]))).toBe('storage_unavailable')
      expect(await codeOf(each.act())).toBe('storage_unavailable')
      expect(await codeOf(store.files.compact({}))).toBe('storage_unavailable')
      expect([store.upkeep.probe(), tapped.reopens, tapped.writes.length]).toEqual([false, 0, writes])
      expect(store.upkeep.fault).toBe('disk full; no room')

      await makeRoom()
      await expectAgreement()
      const after = await Promise.all(reads.map(({ key, ts }) => told(key, ts)))
      before.forEach((answer, i) => {
        if (answer === 'storage_unavailable' || isDropped) return
        const isRefused = isRaised && reads[i]?.ts === 8
        expect([reads[i], after[i]]).toEqual([reads[i], isRefused ? 'ts_below_safe_point' : answer])
      })
      if (scanned === 'none') expect(await stateAt(100)).toBe(`${before[1]} ${before[4]}`)
      expect(await codeOf(each.act())).toBe('none')
      expect(await stateAt(150)).toBe(each.wantRepeated)
    })
  })

  test('a system record that a failed write may have stored is not taken for absent', async () => {
    const name = 'pin/once'
    let landLater = async (): Promise<void> => {}
    tapped.onWrite = async (_, land) => {
      landLater = land
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(store.system.write([{ name, value: utf8('done') }]))).toBe('storage_unavailable')
    await tapped.quiet()
    tapped.onWrite = (_, land) => land()
    tapped.onRequireRoom = async () => {}
    tapped.onReopen = async (reopen) => {
      await landLater() // LevelDB reads it from its log.
      await reopen()
    }
    vi.advanceTimersByTime(60_000)
    expect(await codeOf(store.system.get(name))).toBe('storage_unavailable')
    await tapped.quiet()
    expect(text((await store.system.get(name)) ?? utf8('absent'))).toBe('done')
  })

  test('timestamps last until the mark; reads that need none go on, and see all that was acknowledged', async () => {
    const commitTs = await store.tso(1)
    await write(store, commitTs - 1, commitTs, [put('last', '1')])
    breakNextWrite('fails')
    expect(await codeOf(store.prewrite(prewriteOf(10, [put('c')])))).toBe('storage_unavailable')
    const before = await store.tso(1)
    clock.ms += 10_000
    expect(await codeOf(store.tso(1))).toBe('storage_unavailable')
    const ts = await store.readTs()
    expect(await read(store, 'last', ts)).toBe('1')
    expect((await store.scan({ ts, limit: 10, start: utf8('l') })).pairs).toHaveLength(2)
    expect(await codeOf(read(store, 'last', clock.ts()))).toBe('storage_unavailable') // Above the mark: not kept over a crash.
    await makeRoom()
    expect(await store.tso(1)).toBeGreaterThan(Math.max(before, ts))
  })

  /** A write of `key` fails once `behind` waits for its own turn. */
  const failInFrontOf = async (key: string, behind: () => Promise<unknown>): Promise<void> => {
    const arrived = deferred()
    const goOn = deferred()
    tapped.onWrite = async () => {
      arrived.resolve()
      await goOn.promise
      throw new EngineFailure('disk full')
    }
    const first = codeOf(store.prewrite(prewriteOf(10, [put(key, 'new')], { tryOnePc: true })))
    await arrived.promise
    const second = codeOf(behind())
    await tapped.quiet()
    goOn.resolve()
    expect(await Promise.all([first, second])).toEqual(['storage_unavailable', 'storage_unavailable'])
  }

  test('what waited behind the failed write is known not to be there', async () => {
    await failInFrontOf('a', () => store.prewrite(prewriteOf(10, [put('b', 'new')], { tryOnePc: true })))
    expect([await told('a'), await told('b')]).toEqual(['storage_unavailable', 'old'])
  })

  test('a lock whose end waited behind the failed write stands', async () => {
    await store.prewrite(prewriteOf(10, [put('a', 'new')]))
    const commit = () => store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 20 })
    await failInFrontOf('b', commit)
    expect(await told('a', 15)).toBe('key_locked')
    tapped.onWrite = (_, land) => land()
    await makeRoom()
    expect(await codeOf(commit())).toBe('none')
    expect(await told('a', 20)).toBe('new')
  })

  test('no attempt is made before the pause is over', async () => {
    let asked = 0
    tapped.onRequireRoom = async () => {
      asked++
      await noRoom()
    }
    breakNextWrite('fails')
    await codeOf(store.prewrite(prewriteOf(10, [put('c')])))
    for (let i = 0; i < 10; i++) await told('safe')
    await tapped.quiet()
    expect(asked).toBe(1)
    vi.advanceTimersByTime(60_000)
    await Promise.all(Array.from({ length: 10 }, () => told('safe')))
    await tapped.quiet()
    expect(asked).toBe(2)
  })

  test('closing meanwhile loses nothing', async () => {
    breakNextWrite('lands but reports failure')
    await codeOf(store.commit({ keys, startTs: 10, commitTs: 20 }))
    await store.close()
    store = await stores.open({ directory, now: clock.now })
    expect(await read(store, 'safe')).toBe(LONG)
  })
})

describe('a pessimistic lock whose end landed, though the write failed', () => {
  const reads = { keys: [utf8('b')], ranges: [] }
  const endings = [
    { name: 'only locked', mutation: { op: 'lock', key: utf8('a') } as const, rest: {}, reopens: 'at once' },
    { name: 'written after validating reads', mutation: put('a'), rest: { reads }, reopens: 'later' },
  ]
  test.each(endings)('$name, opened again $reopens: it does not come back', async ({ mutation, rest, reopens }) => {
    vi.useFakeTimers({ toFake: ['performance'] })
    await store.acquirePessimisticLock({
      keys: [utf8('a')],
      primary: utf8('a'),
      startTs: 10,
      forUpdateTs: 10,
      lockTtl: 3000,
    })
    tapped.onReopen = async (reopen) => {
      tapped.onReopen = (again) => again()
      if (reopens === 'later') throw new EngineFailure('still full')
      await reopen()
    }
    breakNextWrite('lands but reports failure')
    const commit = { tryOnePc: true, forUpdateTs: 10, pessimisticActions: ['do'] as const, ...rest }
    expect(await codeOf(store.prewrite(prewriteOf(10, [mutation], commit)))).toBe('storage_unavailable')
    vi.advanceTimersByTime(60_000)
    store.upkeep.probe()
    await tapped.quiet()
    expect(store.upkeep.probe()).toBe(true)
    expect(store.locks.count).toBe(0)
    const status = { primary: utf8('a'), lockTs: 10, callerStartTs: 0, currentTs: TIMESTAMP_MAX }
    expect(await store.checkTxnStatus(status)).toMatchObject({ status: 'committed' })
  })
})

test('the log is told once that writes are refused and once that they are accepted again, without a request between', {
  tags: ['long'],
}, async () => {
  const told: string[] = []
  const engine = new TappedEngine()
  const onWritable = (message: string, isWritable: boolean): void => void told.push(`${isWritable}: ${message}`)
  const failing = await stores.open({ openEngine: engine.open, now: clock.now, onWritable })
  engine.onWrite = async () => {
    throw new EngineFailure('disk full')
  }
  let reopenings = 0
  const accepted = new Promise<void>((resolve) => {
    engine.onReopen = async (reopen) => {
      if (++reopenings === 1) throw new EngineFailure('still full')
      engine.onWrite = (_, land) => land()
      await reopen()
      resolve()
    }
  })
  const call = () => failing.prewrite(prewriteOf(5, [put('a')], { tryOnePc: true, minCommitTs: clock.ts(5) }))
  for (const outcome of await Promise.allSettled([call(), call(), call()]))
    expect(outcome.status === 'rejected' && failing.upkeep.isReported(outcome.reason)).toBe(true)
  await accepted
  await engine.quiet()
  expect(failing.upkeep.fault).toBeUndefined()
  expect(told).toEqual([
    'false: writes are refused until the disk takes them again: disk full',
    expect.stringMatching(/^true: writes are accepted again, after \d+ s$/),
  ])
})

test('an error that is not the engine’s is not taken for one', async () => {
  tapped.onWrite = async () => {
    throw new TypeError('a defect')
  }
  await expect(store.prewrite(prewriteOf(10, [put('a')]))).rejects.toThrow(TypeError)
  tapped.onWrite = (_, land) => land()
  await tapped.quiet()
  expect(await read(store, 'a', 20)).toBeUndefined()
  expect(store.locks.count).toBe(0)
})

test.each<[string, (store: CompleteStore, clock: TestClock) => Promise<unknown>]>([
  [
    'a write',
    (store, clock) => store.prewrite(prewriteOf(5, [put('a')], { tryOnePc: true, minCommitTs: clock.ts(5) })),
  ],
  ['a read of what has expired', (store) => store.batchGet({ keys: [utf8('expired')] })],
])('%s whose mark cannot be saved is rejected, and nothing else', async (_, call) => {
  const unhandled: unknown[] = []
  const listen = (error: unknown): void => {
    unhandled.push(error)
  }
  process.on('unhandledRejection', listen)
  try {
    const clock = new TestClock()
    const engine = new TappedEngine()
    const failing = await stores.open({ openEngine: engine.open, now: clock.now })
    const expiring = { ...put('expired'), expireTs: clock.ts() + timestampFromMs(9000) }
    await failing.prewrite(prewriteOf(await failing.tso(1), [expiring], { tryOnePc: true, linearizable: true }))
    await failing.get({ key: utf8('expired') }) // It is in the cache.
    clock.ms += 10_000 // The saved mark is behind the clock now.
    engine.onWrite = async () => {
      throw new EngineFailure('disk full')
    }
    expect(await codeOf(call(failing, clock))).toBe('storage_unavailable')
    await new Promise((resolve) => setImmediate(resolve))
    expect(unhandled).toEqual([])
  } finally {
    process.off('unhandledRejection', listen)
  }
})
