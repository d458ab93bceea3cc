import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Database } from '../../src/database/database.js'
import type { KvError } from '../../src/errors/kv-error.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Version } from '../../src/percolator/api.js'
import { decodeKey } from '../../src/percolator/codec/key.js'
import { CF_LOG, META } from '../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore, Store } from '../../src/store/store.js'
import type { OneShot, OneShotAnswer } from '../../src/txn/one-shot.js'
import type { Op } from '../../src/txn/op.js'
import {
  atOnce,
  codeOf,
  EngineFailure,
  prewriteOf,
  put as putOf,
  read,
  TappedEngine,
  TestClock,
  testStores,
  text,
  turn,
  utf8,
  WriteGate,
  watch,
  write,
} from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'
import { openTableStore } from '../store/table/open-table-store.js'

const stores = testStores()
let tapped: TappedEngine
let clock: TestClock
let store: CompleteStore
let database: Database

beforeEach(async () => {
  tapped = new TappedEngine()
  clock = new TestClock()
  store = await stores.open({ openEngine: tapped.open, now: clock.now })
  database = await databaseOn(store)
})

const databases: Database[] = []
afterEach(async () => {
  vi.useRealTimers()
  for (const each of databases.splice(0)) await each.drain() // The stores are closed by those who opened them.
})

async function databaseOn(store: Store): Promise<Database> {
  const opened = await Database.open(store, { limits: DEFAULT_LIMITS, onError: () => {} })
  databases.push(opened)
  return opened
}

const put = (key: string, value = `value of ${key}`): Op => ({ op: 'put', key: utf8(key), value: utf8(value) })
const del = (key: string): Op => ({ op: 'delete', key: utf8(key) })
const requestOf = (ops: readonly Op[], rest: Partial<OneShot> = {}): OneShot => ({
  checks: [],
  ops,
  maxRetries: 0,
  lockWaitMs: 0,
  ...rest,
})

/** Runs it now. @returns undefined when it was not taken. @throws its refusal. */
function now(ops: readonly Op[], rest: Partial<OneShot> = {}, on = database): Promise<OneShotAnswer> | undefined {
  let calls = 0
  let resolve: (answer: OneShotAnswer) => void
  let reject: (error: unknown) => void
  const answered = new Promise<OneShotAnswer>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  const isTaken = on.transactSync(requestOf(ops, rest), (error, answer) => {
    expect(++calls).toBe(1)
    answer === undefined ? reject(error) : resolve(answer)
  })
  expect(calls).toBe(0) // Never in the same turn.
  return isTaken ? answered : undefined
}

/** The answer of a transaction that must be taken. */
function taken(ops: readonly Op[]): Promise<OneShotAnswer> {
  const answered = now(ops)
  if (answered === undefined) throw new Error('it was not taken')
  return answered
}

describe('taken', () => {
  test('puts and deletes: the last op on a key counts', async () => {
    await taken([put('a'), put('b')])
    const { startTs, commitTs = 0, results } = await taken([del('a'), put('b', '1'), put('c'), put('b', '2')])
    expect(commitTs).toBeGreaterThan(startTs)
    expect(results).toEqual([{}, {}, {}, {}])
    expect([await read(store, 'a'), await read(store, 'b'), await read(store, 'c')]).toEqual([
      undefined,
      '2',
      'value of c',
    ])
    expect(await read(store, 'a', startTs)).toBe('value of a')
    expect(store.locks.count).toBe(0)
  })

  test('a long value', async () => {
    await taken([put('a', 'x'.repeat(1000))])
    expect(await read(store, 'a')).toBe('x'.repeat(1000))
  })

  test('requests of one turn share a write', async () => {
    const writes = tapped.writes.length
    await Promise.all(['a', 'b', 'c'].map((key) => taken([put(key)])))
    expect(tapped.writes.length).toBe(writes + 1)
  })

  test('`transact` takes it too', async () => {
    const gate = new WriteGate(tapped)
    const writing = database.transact(requestOf([put('a')]))
    expect(store.figures.writeQueue?.batches).toBe(1)
    gate.open()
    expect((await writing).isReplayed).toBe(false)
  })

  test('again and again on one key, each after the answer of the last', async () => {
    let last = 0
    for (let i = 0; i < 5; i++) {
      const { startTs, commitTs = 0 } = await taken([put('a', String(i))])
      expect(startTs).toBeGreaterThan(last)
      last = commitTs
    }
    expect(await read(store, 'a')).toBe('4')
  })
})

describe('with reads that are in memory', () => {
  const exists = (key: string, is: boolean) => ({ key: utf8(key), exists: is })
  const get = (key: string): Op => ({ op: 'get', key: utf8(key) })
  const insert = (key: string): Op => ({ op: 'insert', key: utf8(key), value: utf8('inserted') })
  const increment = (key: string): Op => ({ op: 'increment', key: utf8(key), by: 2 })

  beforeEach(async () => {
    await taken([put('a', 'old'), put('n', '40')])
    for (const key of ['a', 'n', 'absent', 'none']) await read(store, key)
  })

  test('checks, gets, inserts and increments', async () => {
    const { commitTs } = (await database.get({ key: utf8('a') }, () => ({ lockWaitMs: 0 }))) as Version
    const checks = [exists('absent', false), { key: utf8('a'), commitTs }]
    const ops = [
      get('a'),
      get('none'),
      insert('absent'),
      get('absent'),
      increment('n'),
      increment('n'),
      del('a'),
      get('a'),
    ]
    const { results, startTs } = await (now(ops, { checks }) as Promise<OneShotAnswer>)
    const inserted = { found: true, value: utf8('inserted'), commitTs: undefined }
    const old = { found: true, value: utf8('old'), commitTs }
    expect(results).toEqual([
      old,
      { found: false },
      {},
      inserted,
      { value: utf8('42') },
      { value: utf8('44') },
      {},
      { found: false },
    ])
    expect([await read(store, 'a'), await read(store, 'absent'), await read(store, 'n')]).toEqual([
      undefined,
      'inserted',
      '44',
    ])
    expect(await read(store, 'n', startTs)).toBe('40')
    expect(store.answers.heldBytes).toBe(0)
  })

  const refused: readonly [string, readonly Op[], Partial<OneShot>][] = [
    ['precondition_failed', [put('b')], { checks: [exists('absent', true)] }],
    ['already_exists', [put('b'), insert('a')], {}],
    ['already_exists', [put('none'), insert('none')], { checks: [exists('absent', false)] }],
    ['invalid_argument', [increment('n'), increment('a')], {}],
  ]
  test.each(refused)('%s is thrown at once, and nothing is done', async (code, ops, rest) => {
    expect(await codeOf((async () => now(ops, rest))())).toBe(code)
    expect(store.figures.writeQueue.batches).toBe(0)
    expect(store.answers.heldBytes).toBe(0)
    await taken([put('a'), put('b'), put('n')]) // It holds no latch.
  })

  test('transactions that check the same key run together', async () => {
    const checks = [exists('a', true)]
    await Promise.all([now([put('b')], { checks }), now([put('c')], { checks })])
    expect([await read(store, 'b'), await read(store, 'c')]).toEqual(['value of b', 'value of c'])
  })

  test('what they hold is given back when the write fails', async () => {
    tapped.onWrite = () => Promise.reject(new EngineFailure('disk full'))
    expect(await codeOf(now([get('a'), put('b')]))).toBe('storage_unavailable')
    expect(store.answers.heldBytes).toBe(0)
  })

  const left: readonly [string, () => unknown, Partial<OneShot>][] = [
    ['a key that is read is being written', () => taken([put('a')]), {}],
    [
      'a key that is read is written ahead of the clock',
      async () => write(store, await store.tso(1), clock.ts(10_000_000), [putOf('a')]),
      {},
    ],
    [
      'a key that is read is locked',
      async () => store.prewrite(prewriteOf(await store.tso(1), [putOf('x'), putOf('a')])),
      {},
    ],
    ['its reads have to be validated', () => {}, { isolation: 'serializable' }],
  ]
  test.each(left)('left to `transact`: %s', async (_, arrange, rest) => {
    const arranged = arrange()
    if (rest.isolation === undefined && _ !== 'a key that is read is being written') await arranged
    expect(now([get('a'), put('b')], rest)).toBeUndefined()
    expect(store.answers.heldBytes).toBe(0)
    await arranged
    await taken([put('b')])
  })

  test('left to `transact`: many reads', async () => {
    const keys = Array.from({ length: 17 }, (_, i) => `k${i}`)
    for (const key of keys) await read(store, key)
    expect(now([put('b'), ...keys.map(get)])).toBeUndefined()
    await now([put('b'), ...keys.slice(1).map(get)])
    expect(await read(store, 'b')).toBe('value of b')
  })
})

describe('left to `transact`', () => {
  const key = utf8('a')
  const idempotency = { key: utf8('once'), mayWrite: true, fingerprint: utf8('f') }
  const requests: readonly [string, readonly Op[], Partial<OneShot>][] = [
    ['no ops', [], {}],
    ['a check', [put('b')], { checks: [{ key, exists: false }] }],
    ['a get', [put('b'), { op: 'get', key }], {}],
    ['an insert', [{ op: 'insert', key, value: utf8('1') }], {}],
    ['an increment', [{ op: 'increment', key, by: 1 }], {}],
    [
      'a scan',
      [put('b'), { op: 'scan', start: undefined, end: undefined, limit: 1, reverse: false, keyOnly: true }],
      {},
    ],
    ['many ops', Array.from({ length: 65 }, (_, i) => put(`k${i}`)), {}],
    ['an idempotency key', [put('b')], { idempotency }],
    ['an aborted signal', [put('b')], { signal: AbortSignal.abort(new Error('gone')) }],
  ]
  test.each(requests)('%s', async (_, ops, rest) => {
    expect(now(ops, rest)).toBeUndefined()
    expect(store.figures.writeQueue?.batches).toBe(0)
  })

  const states: readonly [string, () => Promise<unknown>][] = [
    ['a key is locked', () => store.prewrite(prewriteOf(10, [putOf('a')]))],
    [
      'a key is locked in memory',
      () => store.acquirePessimisticLock({ keys: [key], primary: key, startTs: 10, forUpdateTs: 10, lockTtl: 1000 }),
    ],
    ['a key is written ahead of the clock', () => write(store, 5, clock.ts(10_000_000), [putOf('a')])],
    [
      'a key is held',
      async () => void store.exclusive({ written: ['a'], read: [], isAlone: false }, () => new Promise(() => {})),
    ],
    [
      'a key is held by several that only read it',
      async () => void store.exclusive({ written: [], read: ['a'], isAlone: false }, () => new Promise(() => {})),
    ],
    [
      'the mark has to be saved first',
      async () => {
        clock.ms += 10_000
      },
    ],
    ['the safe point is ahead of the start', () => store.upkeep.raiseSafePoint(store.time.clock() + 2000)],
    [
      'writes are refused',
      async () => {
        tapped.onWrite = () => Promise.reject(new EngineFailure('disk full'))
        tapped.onRequireRoom = () => Promise.reject(new EngineFailure('disk full'))
        expect(await codeOf(database.transact(requestOf([put('x')])))).toBe('storage_unavailable')
      },
    ],
    ['the store is closed', () => store.close()],
  ]
  test.each(states)('%s', async (_, arrange) => {
    await arrange()
    const { batches } = store.figures.writeQueue
    const { count } = store.locks
    expect(now([put('b'), put('a')])).toBeUndefined()
    expect(store.locks.count).toBe(count)
    // A save of the mark may be on its way.
    expect(store.figures.writeQueue.batches).toBeLessThanOrEqual(batches + 1)
    await store.exclusive({ written: ['b'], read: [], isAlone: false }, async () => {}) // It holds no latch.
  })

  test('a restore is incomplete', async () => {
    let letEnd = (): void => {}
    const blocks = async function* () {
      yield [{ key, value: utf8('1'), commitTs: 5 }]
      await new Promise<void>((resolve) => {
        letEnd = resolve
      })
    }
    const restoring = store.upkeep.restore({ id: '0'.repeat(32), ts: 10 }, blocks(), false)
    await tapped.quiet()
    expect(store.upkeep.restoring).toBeDefined()
    expect(now([put('b')])).toBeUndefined()
    letEnd()
    await restoring
  })

  test('a store that has no such call', async () => {
    const table = await openTableStore(new MemoryTable())
    const other = await databaseOn(table)
    expect(now([put('a')], {}, other)).toBeUndefined()
    await other.transact(requestOf([put('a', '1')]))
    expect(await read(table, 'a')).toBe('1')
  })
})

describe('while it is being written', () => {
  test('readers below it pass, readers above it wait, the latest is the old value', async () => {
    await taken([put('a', 'old'), put('b', 'old')])
    const before = await store.tso(1)
    const gate = new WriteGate(tapped)
    const writing = watch(taken([put('a', 'new'), put('b', 'new')]))
    const after = await store.tso(1)
    const scanned = watch(store.scan({ ts: after, limit: 10 }))
    const above = watch(Promise.all(['a', 'b'].map((key) => read(store, key, after))))
    await tapped.quiet()
    expect(gate.held).toBe(1)
    expect([writing, scanned, above].map(({ isSettled }) => isSettled())).toEqual([false, false, false])
    expect(await read(store, 'a', before)).toBe('old')
    expect(await read(store, 'b')).toBe('old')
    expect(await store.scanLock({ maxTs: after })).toEqual({ locks: [] })
    gate.open()
    expect(await above.promise).toEqual(['new', 'new'])
    expect((await scanned.promise).pairs.map(({ value }) => value?.toString())).toEqual(['new', 'new'])
    expect((await writing.promise).commitTs).toBeLessThan(after)
  })

  test('another writer of a key waits for it, and commits above it', async () => {
    const gate = new WriteGate(tapped)
    const first = taken([put('a', '1'), put('b', '1')])
    expect(now([put('b', '2')])).toBeUndefined()
    const second = watch(database.transact(requestOf([put('b', '2')])))
    const third = watch(codeOf(store.prewrite(prewriteOf(1, [putOf('a')]))))
    await tapped.quiet()
    expect([second, third].map(({ isSettled }) => isSettled())).toEqual([false, false])
    gate.open()
    const { commitTs = 0 } = await first
    expect((await second.promise).answer.commitTs).toBeGreaterThan(commitTs)
    expect(await third.promise).toBe('write_conflict')
    expect([await read(store, 'a'), await read(store, 'b')]).toEqual(['1', '2'])
  })

  test('a cached version is not answered to a reader above it, and is the new one afterwards', async () => {
    await taken([put('a', 'old')])
    await read(store, 'a')
    expect(atOnce(store.get({ key: utf8('a') }))).toMatchObject({ found: true, value: utf8('old') })
    const gate = new WriteGate(tapped)
    const writing = taken([put('a', 'new')])
    expect(atOnce(store.get({ key: utf8('a'), ts: await store.tso(1) }))).toBeUndefined()
    gate.open()
    await writing
    expect(atOnce(store.get({ key: utf8('a') }))).toMatchObject({ found: true, value: utf8('new') })
  })
})

describe('a failed write', () => {
  const disk = { room: false, lands: false }
  beforeEach(() => {
    disk.room = true
    tapped.onRequireRoom = async () => {
      if (!disk.room) throw new EngineFailure('disk full')
    }
  })
  function failNextWrite(): void {
    tapped.onWrite = async (_, land) => {
      tapped.onWrite = (_, later) => later()
      if (disk.lands) await land()
      throw new EngineFailure('I/O error')
    }
  }

  test.each([true, false])('landed: %s. The callers are told, and the keys are free again', async (lands) => {
    await taken([put('a', 'old')])
    disk.lands = lands
    failNextWrite()
    const failed = ['a', 'b'].map((key) => codeOf(taken([put(key, 'new')])))
    expect(await Promise.all(failed)).toEqual(['storage_unavailable', 'storage_unavailable'])
    expect(store.locks.count).toBe(0)
    expect(await read(store, 'a')).toBe(lands ? 'new' : 'old')
    await taken([put('a', 'newer')])
    expect(await read(store, 'a')).toBe('newer')
  })

  test('without room to open again: reads of its keys are refused, reads below it are answered', async () => {
    await taken([put('a', 'old')])
    const before = await store.tso(1)
    disk.room = false
    failNextWrite()
    expect(await codeOf(taken([put('a', 'new')]))).toBe('storage_unavailable')
    expect(await codeOf(read(store, 'a'))).toBe('storage_unavailable')
    expect(await read(store, 'a', before)).toBe('old')
  })

  test('a reader that waits for it looks again', async () => {
    failNextWrite()
    const gate = watch(codeOf(taken([put('a', 'new')])))
    const reading = read(store, 'a', await store.tso(1))
    expect(await gate.promise).toBe('storage_unavailable')
    expect(await reading).toBeUndefined()
  })

  test('what waits behind it was not written', async () => {
    const gate = new WriteGate(tapped)
    const { onWrite } = tapped
    tapped.onWrite = (seen) => onWrite(seen, () => Promise.reject(new EngineFailure('I/O error')))
    const failing = codeOf(taken([put('a')]))
    await turn()
    const behind = taken([put('b')]).catch((error: Error) => error.message)
    gate.release()
    tapped.onWrite = (_, land) => land()
    expect(await failing).toBe('storage_unavailable')
    expect(await behind).toContain('before this was written')
    expect(await read(store, 'b')).toBeUndefined()
    await taken([put('a'), put('b')])
  })
})

test('a transaction that was not taken is not tried again', async () => {
  await store.prewrite(prewriteOf(await store.tso(1), [putOf('locked')]))
  const tries = vi.spyOn(store, 'exclusiveSync')
  const request = requestOf([put('locked')])
  expect(database.transactSync(request, () => {})).toBe(false)
  expect(await codeOf(database.transactAsync(request))).toBe('key_locked')
  expect(tries).toHaveBeenCalledTimes(1)
})

test('property: the same requests leave the same records, in one turn or in several', { tags: ['long'] }, async () => {
  // A server ends dead transactions by itself, which on a busy machine would be so in one of two runs.
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  const key = fc.constantFrom('a', 'b', 'c')
  const value = fc.constantFrom('', 'short', 'l'.repeat(300))
  const COUNTER_OPS = ['increment', 'increment', 'min', 'max'] as const
  const op = fc.oneof(
    fc.record({ op: fc.constant('put' as const), key, value }),
    fc.record({ op: fc.constant('delete' as const), key }),
    fc.record({ op: fc.constantFrom(...COUNTER_OPS), key: fc.constantFrom('n', 'a'), by: fc.constantFrom(1, 2, -1) }),
    fc.record({ op: fc.constantFrom('get' as const, 'insert' as const), key }),
  )
  const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined })
  const check = fc.record({
    key,
    exists: maybe(fc.boolean()),
    value: maybe(fc.constantFrom('', 'short')),
    commitTs: maybe(fc.constant(0)),
    commitTsNot: maybe(fc.constant([0])),
  })
  const step = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constant('one-shot' as const),
        ops: fc.array(op, { maxLength: 6 }),
        isSerializable: fc.boolean(),
        checks: fc.array(check, { maxLength: 3 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('lock' as const), key, ttl: fc.constantFrom(0, 1000) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('ahead' as const), key }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('read' as const), key }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('clock' as const), ms: fc.constantFrom(1, 1000, 5000) }) },
  )

  /** A transaction that is not taken may leave out a timestamp: only their order is compared. */
  function byRank(outcome: unknown): unknown {
    const seen = new Set<number>()
    const isTs = (each: unknown): each is number => typeof each === 'number' && each > 1e15
    JSON.stringify(outcome, (_, each) => {
      if (isTs(each)) seen.add(each)
      return each
    })
    const ranks = new Map([...seen].sort((one, other) => one - other).map((ts, rank) => [ts, `ts ${rank}`]))
    return JSON.parse(JSON.stringify(outcome, (_, each) => (isTs(each) ? ranks.get(each) : each)))
  }

  /** All that a client is told. Timestamps in the text differ. */
  const refusal = ({ code, message, fields }: KvError): unknown => [code, message.replace(/\d{12,}/g, 'ts'), fields]

  /** @returns the answers, the keys on disk but those of the oracle, and all records by key. */
  async function outcomeOf(
    steps: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[],
    isSync: boolean,
  ): Promise<unknown> {
    const engine = new TappedEngine()
    const time = new TestClock()
    const one = await stores.open({ openEngine: engine.open, now: time.now, lookUpSlowMs: 1000 })
    if (!isSync) Object.defineProperty(one, 'exclusiveSync', { value: () => false })
    const on = await databaseOn(one)
    const answers: unknown[] = []
    for (const step of steps) {
      if (step.kind === 'clock') time.ms += step.ms
      else if (step.kind === 'read') answers.push(await read(one, step.key).catch(refusal))
      else if (step.kind === 'lock')
        answers.push(await codeOf(one.prewrite(prewriteOf(await one.tso(1), [putOf(step.key)], { lockTtl: step.ttl }))))
      else if (step.kind === 'ahead') {
        const commit = write(one, await one.tso(1), time.ts(3_000_000), [putOf(step.key, 'ahead')])
        answers.push(await codeOf(commit))
      } else {
        const isolation = step.isSerializable ? 'serializable' : 'snapshot'
        const checks = step.checks.map(({ key, value, ...rest }) => {
          return { ...rest, key: utf8(key), value: value === undefined ? undefined : utf8(value) }
        })
        const ops = step.ops.map((each): Op => {
          if ('by' in each) return { ...each, key: utf8(each.key) }
          if (each.op === 'get') return { op: 'get', key: utf8(each.key) }
          if (each.op === 'insert') return { op: 'insert', key: utf8(each.key), value: utf8('inserted') }
          return each.op === 'put' ? put(each.key, each.value) : del(each.key)
        })
        answers.push(await on.transact(requestOf(ops, { checks, isolation })).catch(refusal))
      }
    }
    const records: unknown[] = []
    const iterator = engine.raw.iterator({ gte: Buffer.of(0), lt: Buffer.of(255) })
    for (const [stored] of await iterator.nextv(10_000))
      if (stored[0] !== META && stored[0] !== CF_LOG)
        records.push([String.fromCharCode(stored[0] ?? 0), text(decodeKey(stored))])
    await iterator.close()
    for (const name of ['a', 'b', 'c', 'n']) records.push(await one.mvccGetByKey({ key: utf8(name) }))
    for await (const { changes } of one.log.read({ since: 0, upTo: one.log.newest }))
      records.push(changes.map((change) => ({ ...change, key: text(change.key) })))
    await one.close()
    return byRank([answers, records])
  }

  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
      expect(await outcomeOf(steps, true)).toEqual(await outcomeOf(steps, false))
    }),
    { numRuns: 60 },
  )
})

describe('commit effects', () => {
  const DOC = utf8('doc/1')

  beforeEach(async () => {
    const quick = { lookUpSlowMs: Number.POSITIVE_INFINITY }
    store = await stores.open({ openEngine: tapped.open, now: clock.now, ...quick })
    database = await databaseOn(store)
  })

  async function claimed(): Promise<number> {
    await database.observers.put('words', { range: { prefix: utf8('doc/') } })
    await taken([put('doc/1')])
    const [notification] = await database.observers.claim('words', { worker: 'w' })
    if (notification === undefined) throw new Error('there is nothing to claim')
    return notification.fence
  }
  const ack = (fence: number) => ({ commitEffects: { acks: [{ observer: 'words', key: DOC, fence }] } })

  test('commit in one turn, with writes and alone', async () => {
    const fence = await claimed()
    const first = await now([put('count')], ack(fence))
    expect(first?.commitTs).toBeGreaterThan(fence)
    expect(await database.observers.get('words')).toMatchObject({ acks: 1, pending: 0 })
    const alone = now([], { commitEffects: { notify: [{ observer: 'words', keys: [DOC] }] } })
    expect((await alone)?.commitTs).toBeGreaterThan(first?.commitTs ?? 0)
    expect(await database.observers.get('words')).toMatchObject({ pending: 1 })
  })

  test('that are refused are refused at once, and not tried again', async () => {
    const fence = await claimed()
    await now([], ack(fence))
    const refusal = { code: 'write_conflict', fields: { reason: 'acknowledged', retryable: false } }
    let refused: unknown
    try {
      void now([put('count')], ack(fence))
    } catch (error) {
      refused = error
    }
    expect(refused).toMatchObject(refusal)
    const exclusive = vi.spyOn(store, 'exclusive')
    const general = database.transactAsync(requestOf([put('count')], { ...ack(fence), maxRetries: 10 }))
    await expect(general).rejects.toMatchObject(refusal)
    expect(exclusive).toHaveBeenCalledTimes(1)
  })

  test('below the safe point are refused at once', async () => {
    const fence = await claimed()
    await store.upkeep.raiseSafePoint(fence + 1)
    const exclusive = vi.spyOn(store, 'exclusive')
    const refused = database.transact(requestOf([put('count')], ack(fence)))
    await expect(refused).rejects.toMatchObject({ code: 'ts_below_safe_point' })
    expect(exclusive.mock.calls.length).toBeLessThan(2)
  })

  test('claim the rows of their cells: while one is written, they wait', async () => {
    const fence = await claimed()
    const gate = new WriteGate(tapped)
    const held = now([put('doc/1', 'newer')])
    expect(now([put('count')], ack(fence))).toBeUndefined()
    expect(now([put('other')], { commitEffects: { notify: [{ observer: 'words', keys: [DOC] }] } })).toBeUndefined()
    gate.open()
    await held
    // What this run has seen of the key stands in its history, which takes a turn to read.
    expect(now([put('count')], ack(fence))).toBeUndefined()
    expect((await database.transact(requestOf([put('count')], ack(fence)))).answer.commitTs).toBeGreaterThan(fence)
    expect(await database.observers.get('words')).toMatchObject({ acks: 1, pending: 1 })
  })

  test('are as many as one turn bears', async () => {
    const fence = await claimed()
    const keys = Array.from({ length: 64 }, (_, i) => utf8(`doc/${i}`))
    const many = { commitEffects: { acks: ack(fence).commitEffects.acks, notify: [{ observer: 'words', keys }] } }
    expect(now([], many)).toBeUndefined()
    expect((await database.transact(requestOf([], many))).answer.commitTs).toBeGreaterThan(fence)
  })
})
