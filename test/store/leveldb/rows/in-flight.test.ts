import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../../../src/store/store.js'
import {
  codeOf,
  prewriteOf,
  put,
  read,
  START_MS,
  TappedEngine,
  testStores,
  text,
  utf8,
  WriteGate,
  watch,
  write,
} from '../../support.js'

/** What requests see of a batch that is being written: decided and published, but not in LevelDB yet. */
const stores = testStores()
let tapped: TappedEngine
let gate: WriteGate
let store: Store

beforeEach(async () => {
  tapped = new TappedEngine()
  store = await stores.open({ openEngine: tapped.open, now: () => START_MS })
  await write(store, 5, 6, [put('a', 'old'), put('b', 'old')])
  gate = new WriteGate(tapped)
})
afterEach(() => gate.open())

const scanAt = async (ts: number): Promise<string[]> =>
  (await store.scan({ ts, limit: 10 })).pairs.map(({ value }) => text(value ?? utf8('')))
const batchAt = async (ts?: number): Promise<string[]> =>
  (await store.batchGet({ keys: [utf8('a'), utf8('b')], ts })).pairs.map(({ value }) => text(value ?? utf8('')))

/** Starts a call whose write is held. */
async function held<T>(call: Promise<T>): Promise<ReturnType<typeof watch<T>>> {
  const watched = watch(call)
  await tapped.quiet()
  expect(watched.isSettled()).toBe(false)
  expect(gate.held).toBe(1)
  return watched
}

async function waiting<T>(call: Promise<T>): Promise<ReturnType<typeof watch<T>>> {
  const watched = watch(call)
  await tapped.quiet()
  expect(watched.isSettled()).toBe(false)
  return watched
}

describe('1PC', () => {
  const onePc = (startTs: number) =>
    store.prewrite(prewriteOf(startTs, [put('a', 'new'), put('b', 'new')], { tryOnePc: true }))

  test('a reader at or above its commit_ts waits for the batch and sees it', async () => {
    const writing = await held(onePc(10)) // Commits at 11.
    const readers = [
      await waiting(read(store, 'a', 11)),
      await waiting(read(store, 'b', 500)),
      await waiting(scanAt(11)),
      await waiting(batchAt(11)),
    ]
    gate.release()
    expect(await writing.promise).toEqual({ onePcCommitTs: 11 })
    expect(await Promise.all(readers.map(({ promise }) => promise))).toEqual([
      'new',
      'new',
      ['new', 'new'],
      ['new', 'new'],
    ])
  })

  test('a reader below its commit_ts does not wait', async () => {
    const writing = await held(onePc(10))
    expect(await read(store, 'a', 10)).toBe('old')
    expect(await scanAt(10)).toEqual(['old', 'old'])
    expect(await batchAt(10)).toEqual(['old', 'old'])
    gate.release()
    await writing.promise
  })

  test('a reader that came first puts the commit_ts above itself', async () => {
    expect(await read(store, 'a', 500)).toBe('old')
    const writing = await held(onePc(10))
    expect(await read(store, 'a', 500)).toBe('old')
    gate.release()
    expect(await writing.promise).toEqual({ onePcCommitTs: 501 })
    expect(await read(store, 'a', 500)).toBe('old')
    expect(await read(store, 'a', 501)).toBe('new')
  })

  test.each(['get', 'batch_get', 'scan', 'scan_lock', 'check_txn_status'] as const)(
    '%s counts as such a reader',
    async (call) => {
      if (call === 'get') await read(store, 'nobody', 500)
      else if (call === 'batch_get') await batchAt(500)
      else if (call === 'scan') await scanAt(500)
      else if (call === 'scan_lock') await store.scanLock({ maxTs: 500 })
      else {
        const status = { primary: utf8('x'), lockTs: 300, callerStartTs: 500, currentTs: 400, rollbackIfNotExist: true }
        const checking = store.checkTxnStatus(status)
        await tapped.quiet()
        gate.release()
        await checking
      }
      const writing = await held(onePc(10))
      gate.release()
      expect(await writing.promise).toEqual({ onePcCommitTs: 501 })
    },
  )

  test('the latest read answers the old value, whole or not at all', async () => {
    const writing = await held(onePc(10))
    expect(await read(store, 'a')).toBe('old')
    expect(await batchAt()).toEqual(['old', 'old'])
    gate.release()
    await writing.promise
    expect(await batchAt()).toEqual(['new', 'new'])
  })

  test('its keys are not reported as locks, and nobody resolves them', async () => {
    const writing = await held(onePc(10))
    expect(await store.scanLock({ maxTs: 1000 })).toEqual({ locks: [] })
    expect(await store.resolveLock({ txns: [{ startTs: 10, commitTs: 0 }] })).toEqual({ resolved: 0 })
    gate.release()
    await writing.promise
    expect(await read(store, 'a')).toBe('new')
  })

  test('a writer of the same key waits, and conflicts', async () => {
    const writing = await held(onePc(10))
    const second = await waiting(codeOf(store.prewrite(prewriteOf(9, [put('a')]))))
    gate.release()
    await writing.promise
    expect(await second.promise).toBe('write_conflict')
  })

  test('a long value is seen together with its record', async () => {
    const long = 'x'.repeat(1000)
    const writing = await held(store.prewrite(prewriteOf(10, [put('a', long)], { tryOnePc: true })))
    const reader = await waiting(read(store, 'a', 20))
    gate.release()
    await writing.promise
    expect(await reader.promise).toBe(long)
  })
})

describe('prewrite', () => {
  test('its locks stand while they are being written: readers wait, then meet them', async () => {
    const writing = await held(store.prewrite(prewriteOf(10, [put('a', 'new'), put('b', 'new')])))
    const readers = [
      await waiting(codeOf(read(store, 'a', 20))),
      await waiting(codeOf(read(store, 'b'))),
      await waiting(codeOf(scanAt(20))),
      await waiting(codeOf(batchAt(20))),
    ]
    expect(await read(store, 'a')).toBe('old') // The primary: not committed yet.
    expect(await read(store, 'b', 9)).toBe('old')
    gate.release()
    await writing.promise
    expect(await Promise.all(readers.map(({ promise }) => promise))).toEqual(Array(4).fill('key_locked'))
  })

  test('async commit: a reader during the flight cannot slip below min_commit_ts', async () => {
    const request = prewriteOf(10, [put('a', 'new'), put('b', 'new')], {
      useAsyncCommit: true,
      secondaries: [utf8('b')],
    })
    const writing = await held(store.prewrite(request))
    const reader = await waiting(codeOf(read(store, 'b', 11)))
    const latest = await waiting(codeOf(read(store, 'a')))
    expect(await read(store, 'b', 10)).toBe('old')
    gate.release()
    expect(await writing.promise).toEqual({ minCommitTs: 11 })
    expect(await reader.promise).toBe('key_locked')
    expect(await latest.promise).toBe('key_locked')
  })
})

describe('commit', () => {
  beforeEach(async () => {
    gate.open()
    await store.prewrite(prewriteOf(10, [put('a', 'new'), put('b', 'new')]))
    gate.shut()
  })
  const commit = () => store.commit({ keys: [utf8('a'), utf8('b')], startTs: 10, commitTs: 20 })

  test('readers wait for the batch, then see it, or what was before it', async () => {
    const writing = await held(commit())
    const readers = [
      await waiting(read(store, 'a', 20)),
      await waiting(read(store, 'b')),
      await waiting(read(store, 'a', 19)),
      await waiting(scanAt(25)),
      await waiting(batchAt(25)),
    ]
    gate.release()
    expect(await writing.promise).toEqual({ commitTs: 20 })
    const seen = await Promise.all(readers.map(({ promise }) => promise))
    expect(seen).toEqual(['new', 'new', 'old', ['new', 'new'], ['new', 'new']])
  })

  test('the latest read of the primary returns the old value until the batch is written', async () => {
    const writing = await held(commit())
    expect(await read(store, 'a')).toBe('old')
    gate.release()
    await writing.promise
    expect(await read(store, 'a')).toBe('new')
  })

  test('the locks are still there for others', async () => {
    const writing = await held(commit())
    expect(store.locks?.count).toBe(2)
    const rollback = await waiting(codeOf(store.rollback({ keys: [utf8('b')], startTs: 10 })))
    gate.release()
    await writing.promise
    expect(await rollback.promise).toBe('already_committed')
    expect(store.locks?.count).toBe(0)
  })

  test('a rollback in flight: readers wait, then see what was before', async () => {
    const writing = await held(store.rollback({ keys: [utf8('a'), utf8('b')], startTs: 10 }))
    const reader = await waiting(read(store, 'b', 20))
    gate.release()
    await writing.promise
    expect(await reader.promise).toBe('old')
  })
})

describe('check_txn_status', () => {
  test('a pushed min_commit_ts lets nobody pass before it is written', async () => {
    gate.open()
    await store.prewrite(prewriteOf(10, [put('a', 'new')], { minCommitTs: 11 }))
    gate.shut()
    const pushing = await held(
      store.checkTxnStatus({ primary: utf8('a'), lockTs: 10, callerStartTs: 30, currentTs: 30 }),
    )
    const reader = await waiting(read(store, 'a', 30))
    expect((await store.scanLock({ maxTs: 100 })).locks[0]?.minCommitTs).toBe(11)
    gate.release()
    expect((await pushing.promise).lock?.minCommitTs).toBe(31)
    expect(await reader.promise).toBe('old')
    expect(await codeOf(store.commit({ keys: [utf8('a')], startTs: 10, commitTs: 30 }))).toBe('commit_ts_expired')
  })

  test('a heartbeat in flight: a reader waits, and meets the lock', async () => {
    gate.open()
    await store.prewrite(prewriteOf(10, [put('a', 'new')]))
    gate.shut()
    const beating = await held(store.txnHeartBeat({ primary: utf8('a'), startTs: 10, adviseLockTtl: 60_000 }))
    const reader = await waiting(codeOf(read(store, 'a', 30)))
    gate.release()
    await beating.promise
    expect(await reader.promise).toBe('key_locked')
  })
})

describe('groups', () => {
  test('disjoint transactions decided during a write share the next', async () => {
    const first = await held(store.prewrite(prewriteOf(10, [put('x1')], { tryOnePc: true })))
    const rest = ['x2', 'x3', 'x4'].map((key) => watch(store.prewrite(prewriteOf(10, [put(key)], { tryOnePc: true }))))
    await tapped.quiet()
    const before = tapped.writes.length
    gate.release()
    await first.promise
    await tapped.quiet()
    expect(tapped.writes.length).toBe(before + 1)
    expect(tapped.writes.at(-1)?.ops).toHaveLength(7) // Two records per key, and one of the log for all.
    expect(rest.some(({ isSettled }) => isSettled())).toBe(false)
    gate.release()
    await Promise.all(rest.map(({ promise }) => promise))
  })

  test('a reader of one batch does not wait for another', async () => {
    const writing = await held(store.prewrite(prewriteOf(10, [put('a', 'new')], { tryOnePc: true })))
    expect(await read(store, 'b', 500)).toBe('old')
    gate.release()
    await writing.promise
  })
})
