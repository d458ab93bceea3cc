import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isKvError } from '../../../src/errors/kv-error.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { Oracle } from '../../../src/oracle/oracle.js'
import type { ValuedPair } from '../../../src/percolator/api.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import type {
  Changed,
  Expected,
  RowsRequest,
  RowWrite,
  Table,
  TableRow,
  WalkedRows,
  WalkRequest,
} from '../../../src/store/table/layout/table.js'
import { RestoreGate } from '../../../src/store/table/restore/restore-gate.js'
import { TableStore } from '../../../src/store/table/table-store.js'
import { Random } from '../../anomalies/random.js'
import { codeOf, failureOf, prewriteOf, put, read, text, utf8, write } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { inLeaps } from './several-databases.js'

const RUNS = Number(process.env['PERKV_TEST_RUNS'] ?? 30)
const LONG = 'long '.repeat(2000)
const [ONE, OTHER] = ['ab'.repeat(16), 'cd'.repeat(16)]

/** The table of one server, which may be stopped for a while: the calls that it is about to send wait. */
class PausableTable implements Table {
  readonly #table: Table
  #isPaused = false
  #waiting: (() => void)[] = []

  constructor(table: Table) {
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
  /** How many calls wait. */
  get held(): number {
    return this.#waiting.length
  }
  pause(): void {
    this.#isPaused = true
  }
  goOn(): void {
    this.#isPaused = false
    for (const each of this.#waiting.splice(0)) each()
  }
  async rows(request: RowsRequest): Promise<readonly TableRow[]> {
    return this.#table.rows(request)
  }
  async walk(request: WalkRequest): Promise<WalkedRows> {
    return this.#table.walk(request)
  }
  async change(key: Buffer, expected: Expected, writes: readonly RowWrite[]): Promise<Changed> {
    if (this.#isPaused) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    return this.#table.change(key, expected, writes)
  }
  async close(): Promise<void> {}
}

interface Server {
  readonly table: PausableTable
  readonly store: TableStore
}

function servers(table: MemoryTable, count: number): Server[] {
  const clock = new Clock({})
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  return Array.from({ length: count }, () => {
    const own = new PausableTable(table)
    const store = new TableStore({
      ...{ table: own, oracle, clock, answers: new AnswerBudget(DEFAULT_LIMITS) },
      restoreGate: new RestoreGate(own),
      cursorSecret: utf8('secret'),
      cacheBytesMax: 100_000,
    })
    return { table: own, store }
  })
}

const pair = (key: string, value: string, commitTs = 50): ValuedPair => ({
  key: utf8(key),
  value: utf8(value),
  commitTs,
})

async function* blocks(...all: readonly (readonly ValuedPair[])[]): AsyncGenerator<readonly ValuedPair[]> {
  yield* all
}

/** A body whose later blocks come when they are asked for. */
function slowly(...all: readonly (readonly ValuedPair[])[]): {
  readonly body: AsyncGenerator<readonly ValuedPair[]>
  readonly next: () => void
} {
  const waiting: (() => void)[] = []
  let left = 1
  const next = (): void => {
    left++
    waiting.shift()?.()
  }
  async function* body(): AsyncGenerator<readonly ValuedPair[]> {
    for (const each of all) {
      if (left === 0) await new Promise<void>((resolve) => waiting.push(resolve))
      left--
      yield each
    }
    if (left === 0) await new Promise<void>((resolve) => waiting.push(resolve))
  }
  return { body: body(), next }
}

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((next) => setTimeout(next, 1))
}

async function contentOf(store: TableStore): Promise<Record<string, string>> {
  const { pairs } = await store.scan({ ts: await store.readTs(), limit: 1000 })
  return Object.fromEntries(pairs.map(({ key, value }) => [text(key), text(value ?? utf8('?'))]))
}

/** Two servers on a table on which time leaps. */
function onTwo(body: (one: Server, other: Server, table: MemoryTable) => Promise<void>): () => Promise<void> {
  return () => {
    const table = new MemoryTable()
    return inLeaps(table, async () => {
      const [one, other] = servers(table, 2) as [Server, Server]
      await body(one, other, table)
      for (const { store } of [one, other]) await store.close()
    })
  }
}

describe('a restore into a table that several servers serve', () => {
  test(
    'all of them refuse all else until it is complete, and what began before',
    { tags: ['long'] },
    onTwo(async (one, other) => {
      const before = await other.store.tso(1)
      expect(await read(other.store, 'a', before)).toBeUndefined()
      const { body, next } = slowly([pair('a', '1'), pair('b', LONG)], [pair('c', '3')])
      const restoring = one.store.upkeep.restore({ id: ONE, ts: 60 }, body, false)
      await until(() => one.store.upkeep.restoring?.pairs === 2)
      for (const { store } of [one, other])
        for (const call of [
          () => read(store, 'a'),
          () => store.scan({ ts: before, limit: 10 }),
          () => store.batchGet({ keys: [utf8('x')], ts: before }),
          async () => store.tso(1),
          () => store.tsoForClient(1),
          () => store.prewrite(prewriteOf(before, [put('x')])),
          () => store.commit({ keys: [utf8('x')], startTs: before, commitTs: before + 1 }),
          () => store.deleteRange({ start: utf8('a'), end: utf8('z') }),
        ])
          expect(await codeOf(call())).toBe('storage_unavailable')
      expect(other.store.upkeep.restoring).toEqual({
        id: ONE,
        ts: 60,
        lastKey: utf8('b'),
        pairs: 2,
        bytes: LONG.length + 3,
      })
      expect(other.store.upkeep.probe()).toBe(false)
      next()
      next()
      expect(await restoring).toMatchObject({ pairs: 3 })
      await until(() => other.store.upkeep.restoring === undefined)
      for (const { store } of [one, other]) {
        expect(await contentOf(store)).toEqual({ a: '1', b: LONG, c: '3' })
        expect(store.safePoint).toBeGreaterThan(before)
        expect(await codeOf(read(store, 'a', before))).toBe('ts_below_safe_point')
        expect(await codeOf(read(store, 'nothing', before))).toBe('ts_below_safe_point')
        expect(await codeOf(store.scan({ ts: before, limit: 10 }))).toBe('ts_below_safe_point')
        expect(await codeOf(store.batchGet({ keys: [utf8('x')], ts: before }))).toBe('ts_below_safe_point')
        expect(await codeOf(store.prewrite(prewriteOf(before, [put('x')])))).toBe('ts_below_safe_point')
      }
      const startTs = await other.store.tso(1)
      await write(other.store, startTs, await other.store.tso(1), [put('a', 'new')])
      expect(await read(one.store, 'a')).toBe('new')
    }),
  )

  test(
    'a server that starts meanwhile refuses too',
    onTwo(async (one, _, table) => {
      const { body, next } = slowly([pair('a', '1')])
      const restoring = one.store.upkeep.restore({ id: ONE, ts: 60 }, body, false)
      await until(() => one.store.upkeep.restoring?.pairs === 1)
      const [late] = servers(table, 1) as [Server]
      expect(await codeOf(read(late.store, 'a'))).toBe('storage_unavailable')
      next()
      await restoring
      await late.store.close()
    }),
  )

  for (const [name, key] of [
    ['of a key that is in the backup', 'b'],
    ['of another key', 'x'],
  ] as const)
    test(
      `a write that was on its way when it began makes it fail, and is kept: ${name}`,
      { tags: ['long'] },
      onTwo(async (one, other) => {
        const startTs = await other.store.tso(1)
        other.table.pause()
        const late = other.store.prewrite(prewriteOf(startTs, [put(key, 'late')]))
        await until(() => other.table.held === 1)
        const { body, next } = slowly([pair('a', '1')], [pair('b', LONG)])
        const restoring = one.store.upkeep.restore({ id: ONE, ts: 60 }, body, false)
        await until(() => one.store.upkeep.restoring?.pairs === 1)
        other.table.goOn()
        await late
        next()
        next()
        const failure = await failureOf(restoring)
        expect(failure).toMatchObject({ code: 'precondition_failed', fields: { key: utf8(key), commitTs: 0 } })
        expect(failure.message).toContain('while the restore began')
        // It goes no further, and its half is not to be seen.
        const commitTs = startTs + 1
        expect(await codeOf(other.store.commit({ keys: [utf8(key)], startTs, commitTs }))).toBe('storage_unavailable')
        expect(
          await codeOf(one.store.upkeep.restore({ id: ONE, ts: 60 }, blocks([pair('a', '1'), pair('b', LONG)]), false)),
        ).toBe('precondition_failed')
        // Anew: what was restored goes, and what was written stays.
        const again = await failureOf(one.store.upkeep.restore({ id: ONE, ts: 60 }, blocks([pair('a', '1')]), true))
        expect(again.message).toContain('the store is not empty')
        await until(() => other.store.upkeep.restoring === undefined)
        await other.store.commit({ keys: [utf8(key)], startTs, commitTs })
        expect(await contentOf(one.store)).toEqual({ [key]: 'late' })
      }),
    )

  test(
    'another server goes on with it, and the one that was stopped in the middle of it does not',
    onTwo(async (one, other) => {
      const first = slowly([pair('a', '1')], [pair('b', '2')], [pair('c', '3')])
      const stopped = one.store.upkeep.restore({ id: ONE, ts: 60 }, first.body, false)
      stopped.catch(() => {})
      await until(() => one.store.upkeep.restoring?.pairs === 1)
      one.table.pause()
      first.next()
      await until(() => one.table.held === 1)
      const whole = blocks([pair('a', '1'), pair('b', '2')], [pair('c', '3')])
      expect(await other.store.upkeep.restore({ id: ONE, ts: 60 }, whole, false)).toMatchObject({ pairs: 3 })
      const startTs = await other.store.tso(1)
      await write(other.store, startTs, await other.store.tso(1), [put('b', 'new'), put('d', '4')])
      one.table.goOn()
      first.next()
      first.next()
      expect(await codeOf(stopped)).toBe('storage_unavailable')
      expect(await contentOf(other.store)).toEqual({ a: '1', b: 'new', c: '3', d: '4' })
    }),
  )

  test(
    'another backup takes its place, and nothing of the first is left',
    onTwo(async (one, other) => {
      const first = slowly([pair('a', LONG)], [pair('b', '2'), pair('z', '26')])
      const stopped = one.store.upkeep.restore({ id: ONE, ts: 60 }, first.body, false)
      stopped.catch(() => {})
      await until(() => one.store.upkeep.restoring?.pairs === 1)
      const second = (restart: boolean) =>
        other.store.upkeep.restore({ id: OTHER, ts: 70 }, blocks([pair('b', 'two')], [pair('c', 'three')]), restart)
      expect(await codeOf(second(false))).toBe('precondition_failed')
      const done = second(true)
      await until(() => other.store.upkeep.restoring !== undefined && other.store.upkeep.restoring.pairs === 1)
      first.next()
      first.next()
      expect(await codeOf(stopped)).toBe('storage_unavailable')
      expect(await done).toMatchObject({ id: OTHER, pairs: 2 })
      await until(() => one.store.upkeep.restoring === undefined)
      expect(await contentOf(one.store)).toEqual({ b: 'two', c: 'three' })
    }),
  )

  test(
    'rows that hold a revision alone count as empty',
    onTwo(async (one, other) => {
      const startTs = await other.store.tso(1)
      const lock = { keys: [utf8('a'), utf8('n')], primary: utf8('a'), startTs, forUpdateTs: startTs, lockTtl: 3000 }
      await other.store.acquirePessimisticLock(lock)
      await other.store.pessimisticRollback({ keys: lock.keys, startTs, forUpdateTs: startTs })
      await one.store.upkeep.restore({ id: ONE, ts: 60 }, blocks([pair('a', '1')]), false)
      expect(await contentOf(one.store)).toEqual({ a: '1' })
    }),
  )

  test(
    'a locked key counts as not empty, and a restore that is refused lets the others serve on',
    onTwo(async (one, other) => {
      const startTs = await other.store.tso(1)
      await other.store.prewrite(prewriteOf(startTs, [put('a')]))
      expect(await codeOf(one.store.upkeep.restore({ id: ONE, ts: 60 }, blocks([pair('b', '1')]), false))).toBe(
        'precondition_failed',
      )
      await other.store.commit({ keys: [utf8('a')], startTs, commitTs: await other.store.tso(1) })
      expect(await read(other.store, 'a')).toBe('value of a')
    }),
  )

  test(
    'a marker that was put beside a write, by a server that was killed then, goes with the next try',
    onTwo(async (one, other) => {
      const startTs = await other.store.tso(1)
      const source = { id: ONE, ts: 60 }
      one.table.pause()
      const first = one.store.upkeep.restore(source, blocks([pair('a', '1')]), false)
      first.catch(() => {})
      await until(() => one.table.held === 1)
      await other.store.prewrite(prewriteOf(startTs, [put('a')]))
      one.table.goOn() // The marker, and nothing else.
      one.table.pause()
      await until(() => other.store.upkeep.restoring !== undefined)
      expect(await codeOf(other.store.upkeep.restore(source, blocks([pair('a', '1')]), false))).toBe(
        'precondition_failed',
      )
      await other.store.commit({ keys: [utf8('a')], startTs, commitTs: await other.store.tso(1) })
      expect(await contentOf(other.store)).toEqual({ a: 'value of a' })
      one.table.goOn()
      expect(await codeOf(first)).not.toBe('none')
    }),
  )

  test(
    'a backup from the future is refused, and one of the next seconds is waited for',
    onTwo(async (one) => {
      const now = await one.store.tso(1)
      const restore = (ts: number) => one.store.upkeep.restore({ id: ONE, ts }, blocks([pair('a', '1')]), false)
      expect(await codeOf(restore(now + 2 ** 11 * 60_000))).toBe('invalid_argument')
      expect(await restore(now + 2 ** 11 * 2000)).toMatchObject({ pairs: 1 })
      expect(await one.store.tso(1)).toBeGreaterThan(now + 2 ** 11 * 2000)
    }),
  )
})

const FATES: readonly Fate[] = ['not done', 'done, answer lost', 'late']
const EXPECTED = ['precondition_failed', 'storage_unavailable', 'invalid_argument'] as const
const REFUSALS = [
  'storage_unavailable',
  'write_conflict',
  'key_locked',
  'txn_lock_not_found',
  'ts_below_safe_point',
  'overloaded',
] as const

/** A backup of some keys; bodies of it break off now and then. */
async function* broken(random: Random, all: readonly ValuedPair[]): AsyncGenerator<readonly ValuedPair[]> {
  for (let from = 0; from < all.length; from += 3) {
    if (random.chance(0.15)) throw new Error('broken off')
    yield all.slice(from, from + 3)
  }
}

async function race(seed: number, faults: number): Promise<void> {
  const random = new Random(seed)
  const fate = (): Fate => (random.chance(faults) ? (FATES[random.below(FATES.length)] as Fate) : 'done')
  const table = new MemoryTable(fate, () => random.below(4))
  await inLeaps(table, async () => {
    const all = servers(table, 3)
    const backup = Array.from({ length: 12 }, (_, i) =>
      pair(`k${String(i).padStart(2, '0')}`, i % 4 === 0 ? LONG : `${i}`),
    )
    const acknowledged = new Map<string, number>()
    let isOver = false
    const landLate = (): void => {
      while (random.chance(0.5)) table.late.splice(random.below(table.late.length + 1), 1)[0]?.()
    }
    const any = (): TableStore => (all[random.below(all.length)] as Server).store
    /** Writes now and then, each with the whole of its calls at any server. */
    const writer = async (name: string): Promise<void> => {
      for (let i = 0; !isOver; i++) {
        await new Promise((next) => setTimeout(next, random.below(8000)))
        const key = random.chance(0.5) ? `k${String(random.below(12)).padStart(2, '0')}` : `${name}${i}`
        try {
          const startTs = await any().tso(1)
          await any().prewrite(prewriteOf(startTs, [put(key, name)]))
          const commitTs = await any().tso(1)
          await any().commit({ keys: [utf8(key)], startTs, commitTs })
          acknowledged.set(key, Math.max(commitTs, acknowledged.get(key) ?? 0))
        } catch (error) {
          if (!REFUSALS.some((code) => isKvError(error, code))) throw error
        }
        landLate()
      }
    }
    const writers = [writer('x'), writer('y')]
    let hasRestored = false
    for (let tries = 0; !hasRestored && tries < 8; tries++) {
      const restart = random.chance(0.3)
      try {
        await any().upkeep.restore({ id: ONE, ts: 60 }, tries < 6 ? broken(random, backup) : blocks(backup), restart)
        hasRestored = true
      } catch (error) {
        if (!EXPECTED.some((code) => isKvError(error, code)) && (error as Error).message !== 'broken off') throw error
      }
      landLate()
    }
    isOver = true
    await Promise.all(writers)
    for (const land of table.late.splice(0)) land()
    // What a restore has left that could not be completed goes, and lets everybody in.
    if (!hasRestored)
      await any()
        .upkeep.restore({ id: ONE, ts: 60 }, blocks(), true)
        .catch(() => {})
    const { store } = all[0] as Server
    await until(() => store.upkeep.restoring === undefined)
    await store.readTs() // Its copy of the safe point is not older than the restore.
    for (const [key, commitTs] of acknowledged) {
      const found = await Promise.resolve(store.get({ key: utf8(key) })).catch(async (error: unknown) => {
        if (!isKvError(error, 'key_locked')) throw error
        return store.get({ key: utf8(key), ts: commitTs }) // Of a transaction that was given up.
      })
      expect([key, found.found && found.commitTs >= commitTs]).toEqual([key, true])
    }
    if (hasRestored)
      for (const { key, value } of backup)
        if (!acknowledged.has(text(key)))
          expect(await store.get({ key, ts: store.safePoint })).toMatchObject({ found: true, value })
    for (const server of all) await server.store.close()
  })
}

test('property: whatever is cut off, lost or late, no acknowledged write is lost, and a restore is whole or not to be seen', {
  tags: ['long'],
  timeout: 300_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(), fc.constantFrom(0, 0.05, 0.15), (seed, faults) => race(seed, faults)),
    { numRuns: RUNS },
  )
})
