import { expect, test } from 'vitest'
import { LockResolver } from '../../../src/coordinator/lock-resolver.js'
import { KvError } from '../../../src/errors/kv-error.js'
import { sleep } from '../../../src/event-loop/sleep.js'
import { collectGarbage } from '../../../src/gc/collect-garbage.js'
import { DEFAULT_LIMITS } from '../../../src/limits.js'
import { Clock } from '../../../src/oracle/clock.js'
import { Oracle } from '../../../src/oracle/oracle.js'
import { reservedKey } from '../../../src/percolator/codec/reserved-key.js'
import { AnswerBudget } from '../../../src/store/answer-budget.js'
import { RECORD } from '../../../src/store/table/layout/layout.js'
import { rowKeyOfSystem } from '../../../src/store/table/layout/row-keys.js'
import type { ColumnRange, Table } from '../../../src/store/table/layout/table.js'
import { encodeSafePoint } from '../../../src/store/table/rows/safe-point-record.js'
import { TableStore } from '../../../src/store/table/table-store.js'
import { type Timestamp, timestampFromMs } from '../../../src/timestamp.js'
import { codeOf, del, prewriteOf, put, read, utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps } from './several-databases.js'
import { WatchedTable } from './watched-table.js'

const COMMITS = Number(process.env['PERKV_TEST_TXNS'] ?? 3000)
const FAMILIES: readonly ColumnRange[] = (['l', 'w', 'r', 'd', 'v'] as const).map((family) => ({ family }))

/** Servers on one table, with one oracle. */
async function servers(count: number, knownToAllMs?: number) {
  const table = new MemoryTable()
  const clock = new Clock({})
  const oracle = new Oracle({ savedMark: 0, save: async () => {}, clock })
  const all = Array.from({ length: count }, () => {
    const own = new WatchedTable(table)
    const answers = new AnswerBudget(DEFAULT_LIMITS)
    const rest = { cursorSecret: utf8('secret'), cacheBytesMax: 2 ** 20, knownToAllMs }
    return { own, store: new TableStore({ table: own, oracle, clock, answers, ...rest }) }
  })
  return { table, oracle, all: all as [(typeof all)[number], (typeof all)[number]] }
}

const cellsOf = async (table: Table, key: string) => {
  const [row] = await table.rows({ keys: [utf8(key)], columns: FAMILIES })
  return row?.cells ?? []
}

/** A transaction of one key. */
async function commit(store: TableStore, mutation: ReturnType<typeof put>): Promise<Timestamp> {
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [mutation]))
  const commitTs = await store.tso(1)
  await store.commit({ keys: [mutation.key], startTs, commitTs })
  return commitTs
}

test('a safe point is known to all servers before anything is removed', async () => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [first, second] = all
    await first.store.start()
    await second.store.start()
    const old = await commit(first.store, put('a', 'old'))
    const safePoint = await commit(first.store, put('a', 'new'))
    const begin = performance.now()
    let removed: number | undefined
    const collecting = first.store.upkeep.collect(safePoint).then((count) => {
      removed = count
    })
    await sleep(5000)
    // Refused everywhere, and still there.
    for (const { store } of all) {
      expect(store.safePoint).toBe(safePoint)
      expect(await codeOf(read(store, 'a', old))).toBe('ts_below_safe_point')
      expect(await codeOf(store.prewrite(prewriteOf(old, [put('b')])))).toBe('ts_below_safe_point')
      expect(await read(store, 'a', safePoint)).toBe('new')
    }
    expect((await second.store.mvccGetByKey({ key: utf8('a') })).writes).toHaveLength(2)
    expect(removed).toBeUndefined()
    await collecting
    expect(removed).toBe(1)
    expect(performance.now() - begin).toBeGreaterThanOrEqual(60_000)
    expect((await second.store.mvccGetByKey({ key: utf8('a') })).writes).toHaveLength(1)
    for (const { store } of all) await store.close()
  })
})

test.each([
  ['answers', true],
  ['writes', false],
])('a server that has not seen the safe point for long reads it before it %s', async (_, isRead) => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [first, second] = all
    const old = await commit(second.store, put('a', 'old'))
    const startTs = await second.store.tso(1)
    await commit(second.store, del('a'))
    await first.store.upkeep.collect(await commit(first.store, put('b')))
    await sleep(60_000)
    await first.store.upkeep.collect(await commit(first.store, put('b')))
    expect(await cellsOf(table, 'a')).toEqual([])
    expect(second.store.safePoint).toBe(0)
    if (isRead) expect(await codeOf(read(second.store, 'a', old))).toBe('ts_below_safe_point')
    else expect(await codeOf(second.store.prewrite(prewriteOf(startTs, [put('a')])))).toBe('ts_below_safe_point')
    expect(second.store.safePoint).toBeGreaterThan(0)
    const { pairs } = await second.store.scan({ limit: 10, ts: await second.store.tso(1) })
    expect(pairs.map(({ key }) => String(key))).toEqual(['b'])
    expect(await codeOf(second.store.scan({ limit: 10, ts: old }))).toBe('ts_below_safe_point')
    for (const { store } of all) await store.close()
  })
})

test('without the row of the safe point nothing is read at a timestamp, and nothing written', async () => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [{ store, own }] = all
    const ts = await commit(store, put('a', '1'))
    await sleep(31_000)
    own.onRows = async ({ keys = [] }) => {
      if (keys.some((key) => key.includes('safe-point'))) throw new KvError('storage_unavailable', 'away', {})
    }
    expect(await codeOf(read(store, 'a', ts))).toBe('storage_unavailable')
    expect(await codeOf(store.prewrite(prewriteOf(await store.tso(1), [put('a')])))).toBe('storage_unavailable')
    expect(await read(store, 'a')).toBe('1')
    own.onRows = () => undefined
    expect(await read(store, 'a', ts)).toBe('1')
  })
})

test('a lock that is written late, over a row that is gone, does not bring its version back', async () => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [{ store }, late] = all
    const startTs = await store.tso(1)
    const rest = { primary: utf8('p') }
    await store.prewrite(prewriteOf(startTs, [put('p')], rest))
    // The client sends it to two servers, and one of them is stopped before it writes.
    let goOn: () => void = () => {}
    const isHeld = new Promise<void>((held) => {
      late.own.onChange = (key) => {
        held()
        return key.equals(utf8('k')) ? new Promise((resolve) => (goOn = resolve)) : undefined
      }
    })
    const written = late.store.prewrite(prewriteOf(startTs, [put('k', 'deleted')], rest))
    await isHeld
    await store.prewrite(prewriteOf(startTs, [put('k', 'deleted')], rest))
    await store.commit({ keys: [utf8('p'), utf8('k')], startTs, commitTs: await store.tso(1) })
    const safePoint = await commit(store, del('k'))
    await store.upkeep.collect(safePoint)
    // The servers may not know yet that a late lock does not count.
    expect((await cellsOf(table, 'k')).map(({ family }) => family)).toEqual(['v', 'w'])
    await sleep(60_000)
    expect(await store.upkeep.collect(safePoint)).toBe(1)
    expect(await cellsOf(table, 'k')).toEqual([])
    late.own.onChange = () => undefined
    goOn()
    await written
    expect((await store.scanLock({ maxTs: startTs })).locks).toHaveLength(1)
    // Its primary has committed.
    for (const each of [late.store, store]) {
      const resolver = new LockResolver(each)
      expect(await resolver.resolving(5000, () => read(each, 'k'))).toBeUndefined()
    }
    for (const each of all) await each.store.close()
  })
})

test('the record of a primary stays as long as a lock may ask for it', async () => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [{ store }, other] = all
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('p'), put('k', 'committed')]))
    await store.commit({ keys: [utf8('p')], startTs, commitTs: await store.tso(1) })
    await commit(store, put('p'))
    await store.upkeep.raiseSafePoint(await store.tso(1))
    // Nobody has resolved the lock on `k` yet.
    await commit(store, put('p'))
    expect((await store.mvccGetByKey({ key: utf8('p') })).writes).toHaveLength(3)
    const resolver = new LockResolver(other.store)
    expect(await resolver.resolving(5000, () => read(other.store, 'k'))).toBe('committed')
    const { versionsRemoved } = await collectGarbage(store, await store.tso(1))
    expect(versionsRemoved).toBe(2)
    for (const each of all) await each.store.close()
  })
})

test('a collection that finds nothing can be stopped at every step', async () => {
  const { table, all } = await servers(1, 0)
  const [{ own, store }] = all
  for (let i = 0; i < 500; i++) table.put(utf8(`k${i}`), [{ family: 'd', qualifier: utf8('x'), value: utf8('x') }])
  const end = new AbortController()
  let walks = 0
  own.onWalk = () => {
    walks++
    return undefined
  }
  const pause = async (): Promise<void> => {
    if (walks === 3) end.abort()
  }
  expect(await store.upkeep.collect(await store.tso(1), { pause, signal: end.signal })).toBe(0)
  expect(walks).toBe(3)
  await store.close()
})

test('a row that is left without records is removed after an hour', async () => {
  const { table, all } = await servers(2)
  await inLeaps(table, async () => {
    const [{ store }] = all
    const startTs = await store.tso(1)
    const lock = { keys: [utf8('a')], primary: utf8('a'), startTs, forUpdateTs: startTs, lockTtl: 1000 }
    await store.acquirePessimisticLock(lock)
    await store.pessimisticRollback({ keys: [utf8('a')], startTs, forUpdateTs: startTs })
    expect(await cellsOf(table, 'a')).toHaveLength(1)
    await store.upkeep.collect(await store.tso(1))
    expect(await cellsOf(table, 'a')).toHaveLength(1)
    await sleep(3_601_000)
    await store.upkeep.collect(await store.tso(1))
    expect(await cellsOf(table, 'a')).toHaveLength(0)
    for (const each of all) await each.store.close()
  })
})

test('a long value that is collected between the two reads of a get is read again', async () => {
  const { all } = await servers(2, 0)
  const [{ store, own }, other] = all
  await commit(store, put('a', 'x'.repeat(5000)))
  own.onRows = async ({ columns }) => {
    if (columns[0]?.family !== 'd') return
    own.onRows = () => undefined
    await other.store.upkeep.collect(await commit(other.store, put('a', 'y'.repeat(5000))))
  }
  expect(await read(store, 'a')).toBe('y'.repeat(5000))
})

test('a key that is written again and again keeps a short row, without a walk', {
  tags: ['long'],
  timeout: 3_600_000,
}, async () => {
  const { table, all } = await servers(2, 0)
  const [{ store, own }, collector] = all
  const value = encodeSafePoint({ safePoint: 0, cleared: 0, secondMs: 1 })
  table.put(rowKeyOfSystem('safe-point'), [{ family: 'o', qualifier: RECORD, value }])
  await store.start()
  // Its walk finds nothing, so that only commits remove old records.
  collector.own.onWalk = async ({ orBare }) => {
    if (orBare) throw new Error('no walk')
  }
  const EACH = 250
  let most = 0
  let bytes = 0
  for (let n = 1; n <= COMMITS; n++) {
    const commitTs = await commit(store, put('hot', `${n}`.padEnd(n % 3 === 0 ? 5000 : 100)))
    if (n % 7 === 0) await store.rollback({ keys: [utf8('hot')], startTs: await store.tso(1) })
    if (n % EACH !== 0) continue
    await collector.store.upkeep.collect(commitTs).catch(() => {})
    while ((await store.safePoint) < commitTs) await sleep(1)
    const cells = await cellsOf(table, 'hot')
    most = Math.max(most, cells.length)
    bytes = Math.max(
      bytes,
      cells.reduce((sum, { qualifier, value }) => sum + qualifier.length + value.length, 0),
    )
  }
  if (process.env['PERKV_TEST_REPORT']) console.log(JSON.stringify({ commits: COMMITS, most, bytes, reads: own.reads }))
  // Those of a period and the one before, each with a third of long values and a seventh of rollbacks.
  expect(most).toBeLessThan(2 * EACH * 1.6)
  expect(own.reads).toBeLessThan(COMMITS)
})

/** The clock of a server that collects may be ahead of the timestamps that are handed out. */
test('a transaction that begins while locks are looked for is not taken for one that was ended', async () => {
  const { all } = await servers(1, 0)
  const [{ store }] = all
  const beforehand = async (): Promise<void> => {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('p'), put('k', 'committed')]))
    await store.commit({ keys: [utf8('p')], startTs, commitTs: await store.tso(1) })
  }
  await collectGarbage(store, (await store.tso(1)) + timestampFromMs(60_000), { beforehand })
  expect(await new LockResolver(store).resolving(5000, () => read(store, 'k'))).toBe('committed')
})

test('a commit whose answer was lost, and whose record was collected then, is not refused', async () => {
  const { table, all } = await servers(2, 0)
  const [{ own, store }, other] = all
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('p')]))
  const commitTs = await store.tso(1)
  own.change = async (...change) => {
    own.change = (...others) => table.change(...others)
    await table.change(...change)
    const safePoint = await commit(other.store, put('p', 'newer'))
    await collectGarbage(other.store, safePoint)
    await store.upkeep.raiseSafePoint(safePoint)
    return 'unknown'
  }
  expect(await codeOf(store.commit({ keys: [utf8('p')], startTs, commitTs }))).toBe('storage_unavailable')
})

test('a commit that loses the race for a key for long, when its primary is written, is not refused', async () => {
  const { table, all } = await servers(1)
  await inLeaps(table, async () => {
    const [{ own, store }] = all
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [put('p'), put('k')]))
    const request = { keys: [utf8('p'), utf8('k')], startTs, commitTs: await store.tso(1) }
    own.change = async (key, ...change) => (key.equals(utf8('k')) ? 'refused' : table.change(key, ...change))
    expect(await codeOf(store.commit(request))).toBe('storage_unavailable')
    own.change = (...change) => table.change(...change)
    expect(await store.commit(request)).toEqual({ commitTs: request.commitTs })
    await store.close()
  })
})

/** Or the lock would be taken for one of a transaction that never committed, once the record of its primary is gone. */
test('locks on reserved keys are ended too, before the record of their primary goes', async () => {
  const { all } = await servers(1, 0)
  const [{ store }] = all
  const key = reservedKey(utf8('ack/1'))
  const startTs = await store.tso(1)
  await store.prewrite(prewriteOf(startTs, [put('primary'), { op: 'put', key, value: utf8('acknowledged') }]))
  const commitTs = await store.tso(1)
  await store.commit({ keys: [utf8('primary')], startTs, commitTs }) // And its server dies.
  await commit(store, put('primary', 'newer'))
  await collectGarbage(store, await store.tso(1))
  expect((await store.mvccGetByKey({ key: utf8('primary') })).writes).toHaveLength(1)
  expect(await store.get({ key })).toMatchObject({ found: true, value: utf8('acknowledged'), commitTs })
})

test('old versions of reserved keys go as well', async () => {
  const { all } = await servers(1, 0)
  const [{ store }] = all
  const key = reservedKey(utf8('ack/1'))
  for (const value of ['1', '2', '3']) {
    const startTs = await store.tso(1)
    await store.prewrite(prewriteOf(startTs, [{ op: 'put', key, value: utf8(value) }]))
    await store.commit({ keys: [key], startTs, commitTs: await store.tso(1) })
  }
  await collectGarbage(store, await store.tso(1))
  expect((await store.mvccGetByKey({ key })).writes).toHaveLength(1)
  expect(await store.get({ key })).toMatchObject({ found: true, value: utf8('3') })
})
