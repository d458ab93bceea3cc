import { describe, expect, test } from 'vitest'
import { Database } from '../../src/database/database.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { Clock } from '../../src/oracle/clock.js'
import { Oracle } from '../../src/oracle/oracle.js'
import { AnswerBudget } from '../../src/store/answer-budget.js'
import type { Changed, Expected, RowWrite, Table } from '../../src/store/table/layout/table.js'
import { TableStore } from '../../src/store/table/table-store.js'
import type { OneShot } from '../../src/txn/one-shot.js'
import { codeOf, text, turn, utf8 } from '../store/support.js'
import { MemoryTable } from '../store/table/memory-table.js'

/** A process that is killed: from then on none of its calls is made or answered. */
class Killable implements Table {
  killed: 'alive' | 'now' = 'alive'
  /** Changes that are made before it is killed. */
  changesLeft = Number.POSITIVE_INFINITY
  readonly #table: MemoryTable

  constructor(table: MemoryTable) {
    this.#table = table
  }
  get engine(): Table['engine'] {
    return this.#table.engine
  }
  get calls(): Table['calls'] {
    return this.#table.calls
  }
  get inFlight(): Table['inFlight'] {
    return this.#table.inFlight
  }
  async rows(request: Parameters<Table['rows']>[0]) {
    await this.#alive()
    return this.#table.rows(request)
  }
  async walk(request: Parameters<Table['walk']>[0]) {
    await this.#alive()
    return this.#table.walk(request)
  }
  async change(key: Buffer, expected: Expected, writes: readonly RowWrite[]): Promise<Changed> {
    if (--this.changesLeft < 0) this.killed = 'now'
    await this.#alive()
    return this.#table.change(key, expected, writes)
  }
  async close(): Promise<void> {}
  async #alive(): Promise<void> {
    if (this.killed === 'now') await new Promise(() => {})
  }
}

const onError = (): void => {}

async function servers(count: number) {
  const table = new MemoryTable()
  const time = { ms: 1_700_000_000_000 }
  const clock = new Clock({ now: () => time.ms, monotonicNow: () => time.ms })
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  const opened = []
  for (let i = 0; i < count; i++) {
    const own = new Killable(table)
    const answers = new AnswerBudget(DEFAULT_LIMITS)
    const store = new TableStore({
      ...{ table: own, oracle, clock, answers },
      cursorSecret: utf8('secret'),
      cacheBytesMax: 2 ** 20,
      knownToAllMs: 0,
    })
    opened.push({ own, store, database: await Database.open(store, { limits: DEFAULT_LIMITS, onError }) })
  }
  return { time, servers: opened }
}

/** Adds one to two counters. */
function adding(key: string, fingerprint = 'add'): OneShot {
  return {
    checks: [],
    ops: ['a', 'b'].map((name) => ({ op: 'increment', key: utf8(name), by: 1 })),
    maxRetries: 100,
    lockWaitMs: 10_000,
    idempotency: { key: utf8(key), mayWrite: true, fingerprint: utf8(fingerprint) },
  }
}

async function valueOfA(database: Database): Promise<string> {
  const found = await database.get({ key: utf8('a') }, () => ({ lockWaitMs: 10_000 }))
  return found.found ? text(found.value) : ''
}

describe('outcomes of a store that servers share', () => {
  test('requests under one key at several servers at once take effect once, with one answer', async () => {
    const { servers: all } = await servers(3)
    const once = await Promise.all(all.map(({ database }) => database.transact(adding('k'))))
    expect(new Set(once.map(({ answer }) => answer.commitTs)).size).toBe(1)
    expect(once.filter(({ isReplayed }) => !isReplayed)).toHaveLength(1)
    for (const { database } of all) expect(await valueOfA(database)).toBe('1')
  })

  test('another request under the key is refused, on another server too', async () => {
    const { servers: all } = await servers(2)
    await all[0]?.database.transact(adding('k'))
    expect(await codeOf(all[1]?.database.transact(adding('k', 'other')) ?? Promise.resolve())).toBe(
      'idempotency_mismatch',
    )
  })

  test('the key of a request that can not commit any more is free for another one', async () => {
    const { time, servers: all } = await servers(2)
    const [first, second] = all
    if (first === undefined || second === undefined) throw new Error('there are two')
    first.own.changesLeft = 2 // Two of three rows are locked.
    void first.database.transact(adding('k')).catch(() => {})
    for (let i = 0; i < 300; i++) await turn()
    time.ms += 60_000
    expect((await second.database.transact(adding('k', 'other'))).isReplayed).toBe(false)
    expect(await valueOfA(second.database)).toBe('1')
  })

  test('the key of a request that was refused is free at once', async () => {
    const { servers: all } = await servers(2)
    const [first, second] = all
    if (first === undefined || second === undefined) throw new Error('there are two')
    const put = (key: string): OneShot => ({
      ...adding('k', key),
      ops: [{ op: 'put', key: utf8(key), value: utf8('1') }],
      lockWaitMs: 0,
    })
    const startTs = await second.store.tso(1)
    const lock = { primary: utf8('a'), startTs, lockTtl: 20_000 }
    const { store } = second
    await store.prewrite({ ...lock, mutations: [{ op: 'put', key: utf8('a'), value: utf8('theirs') }] })
    expect(await codeOf(first.database.transact(put('a')))).toBe('key_locked')
    expect((await second.database.transact(put('b'))).isReplayed).toBe(false)
  })

  // The changes of the request: three prewrites, the primary's commit, the other key's, the outcome's.
  test.each([0, 1, 2, 3, 4, 5, 6])(
    'a server that is killed after %i changes: a repeat elsewhere makes it once',
    async (left) => {
      const { time, servers: all } = await servers(2)
      const [first, second] = all
      if (first === undefined || second === undefined) throw new Error('there are two')
      first.own.changesLeft = left
      void first.database.transact(adding('k')).catch(() => {})
      for (let i = 0; i < 300; i++) await turn()
      time.ms += 60_000 // Whatever locks are left have expired.
      const once = await second.database.transact(adding('k'))
      expect(await valueOfA(second.database)).toBe('1')
      const again = await second.database.transact(adding('k'))
      expect(again).toEqual({ answer: once.answer, isReplayed: true })
      expect(once.answer.commitTs).toBeGreaterThan(0)
    },
  )

  // Without its records, a transaction that has committed looks like one that has never begun.
  test.each([0, 1, 2, 3, 4, 5, 6])(
    'a server that is killed after %i changes: a repeat makes it once, after a collection too',
    async (left) => {
      const { time, servers: all } = await servers(2)
      const [first, second] = all
      if (first === undefined || second === undefined) throw new Error('there are two')
      const { database } = second
      first.own.changesLeft = left
      void first.database.transact(adding('k')).catch(() => {})
      for (let i = 0; i < 300; i++) await turn()
      time.ms += 60_000
      const wasDone = (await valueOfA(database)) === '1'
      const ops = ['a', 'b'].map((name) => ({ op: 'delete' as const, key: utf8(name) }))
      await database.transact({ ...adding('k'), ops, idempotency: undefined })
      time.ms += 1000
      await database.gc(await second.store.tso(1))
      const nothing = { lock: null, writes: [], values: [] }
      for (const key of ['a', 'b']) expect(await second.store.mvccGetByKey({ key: utf8(key) })).toEqual(nothing)
      expect(await database.transact(adding('k'))).toMatchObject({ isReplayed: wasDone })
      expect(await valueOfA(database)).toBe(wasDone ? '' : '1')
    },
  )
})
