import { expect, test } from 'vitest'
import type { FeedTxn } from '../../../../src/changes/rules/changes-api.js'
import type { Database } from '../../../../src/database/database.js'
import { requireObserved } from '../../../../src/http/wire/commit-effects.js'
import type { PrewriteMutation } from '../../../../src/percolator/api.js'
import { changeFormat, NEWEST_FORMAT } from '../../../../src/store/table/format/format-row.js'
import { timestampFromMs } from '../../../../src/timestamp.js'
import { prewriteOf, put, text, utf8 } from '../../support.js'
import { JoinedServers } from '../joined-servers.js'
import { MemoryTable } from '../memory-table.js'
import { PausableTable } from '../pausable-table.js'
import { databasesOn, inLeaps, severalDatabases } from '../several-databases.js'
import { WatchedTable } from '../watched-table.js'

/** So long that it has a cell of its own. */
const LONG = 'long'.repeat(3000)

async function commit({ store }: Database, mutations: readonly PrewriteMutation[]): Promise<number> {
  const startTs = await store.tso(1)
  const primary = mutations[0]?.key ?? utf8('')
  await store.prewrite({ mutations, primary, startTs, lockTtl: 3000, txnSize: mutations.length })
  for (;;)
    try {
      const commitTs = await store.tso(1)
      await store.commit({ keys: mutations.map(({ key }) => key), startTs, commitTs })
      return commitTs
    } catch (error) {
      if ((error as { readonly code?: string }).code !== 'commit_ts_expired') throw error
    }
}

function shown({ changes }: FeedTxn): string {
  return changes
    .map(({ op, key, value, old }) => {
      const before = old === undefined ? '' : `, before: ${old === null ? 'nothing' : text(old.value)}`
      return `${op} ${text(key)}${value === undefined ? '' : ` ${text(value).slice(0, 4)}`}${before}`
    })
    .join('; ')
}

/** The next transactions of a feed. */
async function follow(
  { changes }: Database,
  sinceTs: number,
  count: number,
  options: { readonly oldValues?: boolean; readonly keysOnly?: boolean } = {},
): Promise<string[]> {
  const seen: string[] = []
  for (let at = sinceTs; seen.length < count; ) {
    const page = await changes.page({ ...options, sinceTs: at, waitMs: 1000 })
    seen.push(...page.txns.map(shown))
    at = page.nextTs
  }
  return seen.slice(0, count)
}

test('a feed at any server has what all servers commit: transactions, removed ranges, and what expires', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [one, two] = databases as [Database, Database]
    await commit(one, [put('before', '1')])
    const { nextTs: since } = await one.changes.page({})
    await commit(one, [put('a', '1'), put('b', LONG)])
    const expireTs = (await two.store.tso(1)) + timestampFromMs(5000)
    await commit(two, [
      { ...put('c', '2'), expireTs },
      { ...put('d', '2'), expireTs },
    ])
    await commit(one, [put('d', '3')])
    await two.store.deleteRange({ start: utf8('a'), end: utf8('b') })
    await commit(two, [
      { op: 'delete', key: utf8('b') },
      { op: 'lock', key: utf8('e') },
    ])
    const expected = [
      'put b long', // The range took the other key.
      'put c 2; put d 2',
      'put d 3',
      'delete_range a',
      'delete b',
      'expire c',
    ]
    for (const database of databases) {
      expect(await follow(database, since, expected.length)).toEqual(expected)
      expect(await follow(database, since, 2, { keysOnly: true })).toEqual(['put b', 'put c; put d'])
      expect((await follow(database, since, 6, { oldValues: true })).slice(2)).toEqual([
        'put d 3, before: 2',
        'delete_range a',
        `delete b, before: ${LONG}`,
        'expire c, before: 2',
      ])
    }
    for (const database of databases) await database.close()
  })
})

test('a consumer of one server is known to the others, and holds their collections back', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [one, two] = databases as [Database, Database]
    const { state } = await one.changes.consumers.put('copy', { range: { prefix: utf8('') } })
    const commitTs = await commit(two, [put('a', '1')])
    await commit(two, [put('a', '2')])
    expect(await two.changes.consumers.get('copy')).toMatchObject({ position: state.position, isLost: false })
    await follow(two, state.position, 2)
    await two.collect({ safePoint: two.store.time.clock() })
    expect(two.store.safePoint).toBeLessThanOrEqual(state.position)
    expect((await two.changes.consumers.ack('copy', commitTs)).position).toBe(commitTs)
    expect((await one.changes.consumers.get('copy')).position).toBe(commitTs)
    expect(await follow(one, commitTs, 1)).toEqual(['put a 2'])
    for (const database of databases) await database.close()
  })
})

test('of two transactions at two servers that go on from one position one commits, and all know its position', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    const [one, two] = databases as [Database, Database]
    const { state } = await one.changes.consumers.put('copy', { range: { prefix: utf8('') } })
    let position = state.position
    const go = (database: Database, key: string, from: number, ts: number): Promise<unknown> =>
      database.transact({
        ...{ checks: [], ops: [{ op: 'put', key: utf8(key), value: utf8('done') }], maxRetries: 0, lockWaitMs: 5000 },
        commitEffects: { positions: [{ consumer: 'copy', from, ts }] },
      })
    for (let round = 0; round < 3; round++) {
      const ts = await commit(two, [put(`a${round}`)])
      const from = position
      for (const { store } of databases) await expect.poll(() => store.log.resolve()).toBeGreaterThanOrEqual(ts)
      const ended = await Promise.allSettled([go(one, `x${round}`, from, ts), go(two, `y${round}`, from, ts)])
      const refused = ended.flatMap((each) => (each.status === 'rejected' ? [each.reason] : []))
      expect(refused).toMatchObject([{ code: 'write_conflict', fields: { reason: 'acknowledged', consumer: 'copy' } }])
      const { pairs } = await one.batchGet({ keys: [utf8(`x${round}`), utf8(`y${round}`)], lockWaitMs: 5000 })
      expect(pairs).toHaveLength(1)
      for (const { changes } of databases) expect((await changes.consumers.get('copy')).position).toBe(ts)
      position = ts
    }
    const before = await one.changes.consumers.reset('copy', state.position)
    expect(before.position).toBe(state.position)
    expect((await two.changes.consumers.get('copy')).position).toBe(state.position)
    await expect(go(two, 'z', position, position)).rejects.toMatchObject({ code: 'write_conflict' })
    await go(two, 'z', state.position, position)
    expect((await one.changes.consumers.get('copy')).position).toBe(position)
    await one.changes.consumers.remove('copy')
    await expect(two.changes.consumers.get('copy')).rejects.toMatchObject({ code: 'not_found' })
    for (const database of databases) await database.close()
  })
})

test('a position that others may still commit below is refused', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const watched = new WatchedTable(table)
    const databases = await databasesOn([watched, table])
    const [one, two] = databases as [Database, Database]
    const { position: from } = (await one.changes.consumers.put('copy', { range: { prefix: utf8('') } })).state
    const startTs = await one.store.tso(1)
    await one.store.prewrite(prewriteOf(startTs, [put('a')]))
    let isHeld = false
    let release = (): void => {}
    const released = new Promise<void>((resolve) => {
      release = resolve
    })
    watched.onChange = (key) => {
      if (text(key) !== 'a') return undefined
      isHeld = true
      return released
    }
    const committing = one.store.commit({ keys: [utf8('a')], startTs, commitTs: await one.store.tso(1) })
    await expect.poll(() => isHeld).toBe(true)
    const commitEffects = { positions: [{ consumer: 'copy', from, ts: await two.store.tso(1) }] }
    const write = { checks: [], ops: [{ op: 'put' as const, key: utf8('k'), value: utf8('v') }] }
    const refused = two.transact({ ...write, maxRetries: 0, lockWaitMs: 5000, commitEffects })
    await expect(refused).rejects.toMatchObject({ code: 'invalid_argument' })
    await two.changes.consumers.refresh('copy')
    await expect(requireObserved(commitEffects, two)).rejects.toMatchObject({ fields: { field: 'positions[0].ts' } })
    release()
    await committing
    for (const database of databases) await database.close()
  })
})

test('a collection never passes resolved_ts, and what it has passed is refused', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const [database] = (await severalDatabases(table, 1)) as [Database]
    const { nextTs: since } = await database.changes.page({})
    await commit(database, [put('a', '1')])
    await commit(database, [put('a', '2')])
    await follow(database, since, 2)
    const wanted = database.store.time.clock()
    await expect
      .poll(async () => {
        await database.gc(wanted)
        return database.store.safePoint
      })
      .toBe(wanted)
    await expect(database.changes.page({ sinceTs: since })).rejects.toMatchObject({ code: 'ts_below_safe_point' })
    await commit(database, [put('b', '3')])
    expect(await follow(database, wanted, 1)).toEqual(['put b 3'])
    await database.close()
  })
})

test('on a table of an older format there is no feed', async () => {
  const [database] = (await databasesOn([new MemoryTable()], () => 1)) as [Database]
  await expect(database.changes.page({})).rejects.toMatchObject({
    code: 'not_supported',
    message: expect.stringContaining('perkv store upgrade'),
  })
  expect(database.status().capabilities.changes).toBe(false)
  await database.close()
})

test('below its beginning there is no feed, and the refusal says so', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const [database] = (await severalDatabases(table, 1)) as [Database]
    const { changes } = database
    expect(database.status().capabilities.changes).toBe(true)
    await commit(database, [put('a', '1')])
    for (const refused of [
      () => changes.page({ sinceTs: 0 }),
      () => changes.consumers.put('copy', { range: {}, sinceTs: 0 }),
    ])
      await expect(refused()).rejects.toMatchObject({
        code: 'ts_below_safe_point',
        message: expect.stringMatching(/^the feed begins at /),
      })
    await database.close()
  })
})

test('a consumer that two servers register at once is new at one of them', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const databases = await severalDatabases(table, 2)
    for (const { store } of databases) await store.log.begin()
    const puts = databases.map(({ changes }) => changes.consumers.put('copy', { range: { prefix: utf8('') } }))
    expect((await Promise.all(puts)).map(({ isNew }) => isNew).sort()).toEqual([false, true])
    for (const database of databases) await database.close()
  })
})

test('an idle stream is told resolved_ts, and ends in time, while the table does not answer', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const paused = new PausableTable(table)
    const [database] = (await databasesOn([paused])) as [Database]
    const events = database.changes.stream({ heartbeatMs: 100, waitMs: 1000 })
    await events.next()
    paused.pause()
    let beats = 0
    for await (const batch of events) beats += batch.length
    expect(beats).toBeGreaterThan(5)
    paused.goOn()
    await database.close()
  })
})

test('a server serves the feed as soon as it has started', async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    await changeFormat(table, undefined, NEWEST_FORMAT)
    const servers = new JoinedServers(table)
    const serving = { place: 't', newest: NEWEST_FORMAT }
    const first = await servers.start('first', serving)
    const { nextTs: since } = await first.database.changes.page({})
    await commit(first.database, [put('a', '1')])
    // Before it may write in the format of the table.
    const second = await servers.start('second', serving)
    expect(await follow(second.database, since, 1)).toEqual(['put a 1'])
    await second.close()
    await first.close()
  })
})

test('the end of a dead log does not do a delete_range again over what a restore has brought since', {
  tags: ['long'],
}, async () => {
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const dying = new PausableTable(table)
    const [one, two] = (await databasesOn([dying, table])) as [Database, Database]
    await two.store.log.begin()
    const backupTs = await two.store.tso(1)
    await commit(one, [put('k')])
    await one.store.deleteRange({ start: utf8('a'), end: utf8('z') })
    dying.pause() // The outcome is not in its log.
    const restored = { key: utf8('k'), value: utf8('restored'), commitTs: backupTs - 5 }
    async function* blocks() {
      yield [restored]
    }
    const id = '00112233445566778899aabbccddeeff'
    await two.store.upkeep.restore({ id, ts: backupTs }, blocks(), false)
    const ts = await two.store.tso(1)
    await expect.poll(() => two.store.log.resolve(), { interval: 1000, timeout: 200_000 }).toBeGreaterThan(ts)
    const { pairs } = await two.store.batchGet({ keys: [utf8('k')], ts: await two.store.tso(1) })
    expect(pairs.map(({ value }) => value && text(value))).toEqual(['restored'])
    await two.close()
  })
})
