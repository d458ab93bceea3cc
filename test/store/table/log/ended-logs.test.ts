import { expect, test } from 'vitest'
import { isKvError } from '../../../../src/errors/kv-error.js'
import type { Table } from '../../../../src/store/table/layout/table.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import type { CommittedTxn } from '../../../../src/store/table/log/log-record.js'
import { chunkIs, chunkRow, headWrites, LOGS_COLUMNS, LOGS_RANGE } from '../../../../src/store/table/log/log-rows.js'
import { ServerLog } from '../../../../src/store/table/log/server-log.js'
import { utf8 } from '../../support.js'
import { type Fate, MemoryTable } from '../memory-table.js'
import { PausableTable } from '../pausable-table.js'
import { inLeaps } from '../several-databases.js'

/** A server's log and a reader, whose time is set by hand. Beats come with `beat`. */
function world(fate: () => Fate = () => 'done') {
  const shared = new MemoryTable(fate)
  const table = new PausableTable(shared)
  const time = { ms: 0, last: 0 }
  const source = {
    get last() {
      return time.last
    },
    next: async () => ++time.last,
  }
  const elapsedMs = (): number => time.ms
  const beats: (() => void)[] = []
  const pause = (ms: number): Promise<void> =>
    ms < 100 ? Promise.resolve() : new Promise((resolve) => void beats.push(resolve))
  const outcomes = new Map<number, number>()
  const end = async ({ startTs }: { readonly startTs: number }): Promise<number> => outcomes.get(startTs) ?? 0
  const reader = (on: Table = shared, ends = end): LogReader =>
    new LogReader({ table: on, source, end: ends, elapsedMs })
  const serverOn = (on: Table): ServerLog => new ServerLog({ table: on, source, elapsedMs, pause, chunkEntriesMax: 3 })
  return {
    ...{ shared, table, outcomes, reader, serverOn, server: serverOn(table), another: serverOn(shared) },
    /** Lets beats pass until everything so far is closed. @returns resolved_ts */
    async closed(reader: LogReader): Promise<number> {
      const passed = time.last
      const beat = (): Promise<number> => {
        for (const call of beats.splice(0)) call()
        return reader.poll()
      }
      await expect.poll(beat, { interval: 2 }).toBeGreaterThanOrEqual(passed)
      return reader.resolved
    },
    newest: () => time.last,
    /** The next commit_ts that a log takes. */
    async commit(server: ServerLog, key: string): Promise<(isCommitted: boolean) => void> {
      for (;;)
        try {
          const commitTs = await source.next()
          return await server.decide({ startTs: commitTs - 1, commitTs, primary: utf8(key), keys: [utf8(key)] })
        } catch (error) {
          if (!isKvError(error, 'commit_ts_expired')) throw error
        }
    },
    /** So long that a log which stands still is ended at the next look. */
    async silence(reader: LogReader): Promise<void> {
      await reader.poll()
      time.ms += 60_000
      await reader.poll()
    },
  }
}

async function all(reader: LogReader, since = 0): Promise<{ keys: string[] }> {
  const upTo = await reader.poll()
  const txns: CommittedTxn[] = []
  for await (const page of reader.pages(since, upTo)) txns.push(...page.txns)
  return { keys: txns.map(({ keys }) => keys.map((key) => Buffer.from(key)).join()) }
}

test('what a dead server has decided holds readers back until its log is ended, and is then as its primary says', async () => {
  const { server, reader, commit, outcomes, silence, newest } = world()
  ;(await commit(server, 'told'))(true)
  await commit(server, 'committed')
  const commitTs = newest()
  outcomes.set(commitTs - 1, commitTs)
  await commit(server, 'not committed')
  await commit(server, 'committed by another')
  outcomes.set(newest() - 1, newest() + 1)
  const [one, two] = [reader(), reader()]
  expect(await one.poll()).toBeLessThan(commitTs)
  expect((await all(one)).keys).toEqual([])
  await Promise.all([silence(one), silence(two)])
  for (const each of [one, two, reader()]) expect((await all(each)).keys).toEqual(['told', 'committed'])
})

test('a server whose log was ended while it stood still decides in another log, above what readers have passed', async () => {
  const { server, table, reader, commit, silence, closed } = world()
  const one = reader()
  ;(await commit(server, 'a'))(true)
  table.pause()
  const late = commit(server, 'b')
  await silence(one)
  const passed = await one.poll()
  table.goOn()
  ;(await late)(true)
  expect(await closed(one)).toBeGreaterThan(passed)
  expect((await all(one, passed)).keys).toEqual(['b'])
})

test('a server that stood still until its log was ended and removed begins another', async () => {
  const { server, another, table, reader, commit, silence, shared } = world()
  const one = reader()
  for (const key of ['a', 'b', 'c', 'd']) (await commit(server, key))(true)
  table.pause()
  const late = commit(server, 'e')
  await silence(one)
  const passed = await one.poll()
  await one.trim(passed)
  expect(
    (await shared.rows({ ranges: [{ start: Buffer.of(0, 0), end: undefined }], columns: [{ family: 'o' }] })).length,
  ).toBe(0)
  table.goOn()
  ;(await late)(true)
  ;(await commit(another, 'f'))(true)
  await server.close()
  await another.close()
  expect((await all(one, passed)).keys.sort()).toEqual(['e', 'f'])
})

test('collection removes the chunks that it has passed, and a reader finds what is above', async () => {
  const { server, reader, commit, shared, closed } = world()
  const chunks = async (): Promise<number> => {
    const range = { start: Buffer.from('\0\0log/'), end: Buffer.from('\0\0log0') }
    return (await shared.rows({ ranges: [range], columns: [{ family: 'v' }] })).length
  }
  const [one, two] = [reader(), reader()]
  for (let i = 0; i < 10; i++) (await commit(server, `${i}`))(true)
  const passed = await closed(one)
  expect((await all(one)).keys).toHaveLength(10)
  const count = await chunks()
  await one.trim(passed)
  expect(await chunks()).toBeLessThan(count)
  ;(await commit(server, 'after'))(true)
  await server.close()
  expect((await all(two, passed)).keys).toEqual(['after'])
  await expect(all(two, 0)).rejects.toThrow('was removed')
})

test('a log that has ended stays until the commits are passed whose outcomes its last chunk tells', async () => {
  const { server, reader, commit, outcomes, silence, newest } = world()
  for (const key of ['a', 'b']) (await commit(server, key))(true)
  const before = newest()
  await commit(server, 'c') // In the last entry of the first chunk.
  outcomes.set(newest() - 1, newest())
  const [one, two] = [reader(), reader()]
  await silence(one)
  await one.trim(before)
  expect((await all(two, before)).keys).toEqual(['c'])
  await one.trim(newest())
  await expect(all(one, newest())).resolves.toEqual({ keys: [] })
})

test('of two collections at once one removes a log, and the other goes on', async () => {
  const { server, table, reader, commit, silence, newest, shared } = world()
  ;(await commit(server, 'a'))(true)
  table.pause()
  const one = reader()
  await silence(one)
  const rows: Table['rows'] = async (request) => {
    if (request.columns.some(({ family }) => family === 'd')) await one.trim(newest())
    return shared.rows(request)
  }
  const two = reader(Object.assign(new PausableTable(shared), { rows }))
  await two.trim(newest())
  expect((await all(two, newest())).keys).toEqual([])
})

test('a server whose changes are refused because copies of them came first has appended', async () => {
  const { serverOn, reader, commit, shared, closed } = world()
  const change: Table['change'] = async (key, expected, writes) => {
    await shared.change(key, expected, writes)
    return shared.change(key, expected, writes)
  }
  const twice = serverOn(Object.assign(new PausableTable(shared), { change }))
  for (const key of ['a', 'b', 'c', 'd']) (await commit(twice, key))(true)
  const one = reader()
  await closed(one)
  expect((await all(one)).keys).toEqual(['a', 'b', 'c', 'd'])
  expect(await shared.rows({ ranges: [LOGS_RANGE], columns: LOGS_COLUMNS })).toHaveLength(1)
})

test('a chunk whose log has no row is removed, and the log of a living server stays', async () => {
  const { server, reader, commit, shared, closed } = world()
  const orphan = chunkRow('0123456789abcdef', 0)
  const head = { state: 'open' as const, closed: 0, highestBefore: 0, openFrom: 0 }
  await shared.change(orphan, chunkIs(undefined), headWrites(head, Buffer.alloc(16, 1)))
  const one = reader()
  ;(await commit(server, 'a'))(true)
  await one.sweep()
  expect(await shared.rows({ keys: [orphan], columns: [{ family: 'o' }] })).toEqual([])
  ;(await commit(server, 'b'))(true)
  await closed(one)
  expect((await all(one)).keys).toEqual(['a', 'b'])
})

test('an answer that never comes makes the decision fail, and the next one goes to another log', async () => {
  let isAway = false
  const { server, reader, commit, shared, silence, outcomes, newest } = world(() => (isAway ? 'not done' : 'done'))
  ;(await commit(server, 'a'))(true)
  outcomes.set(newest() - 1, newest())
  isAway = true
  await inLeaps(shared, () => expect(commit(server, 'b')).rejects.toMatchObject({ code: 'storage_unavailable' }))
  isAway = false
  ;(await commit(server, 'c'))(true)
  await server.close()
  const one = reader()
  await silence(one)
  expect((await all(one)).keys).toEqual(['a', 'c'])
})

test('a server that goes on while its log is being ended keeps it', async () => {
  const { server, reader, commit, silence, newest } = world()
  await commit(server, 'open')
  let late: unknown
  const one = reader(undefined, async () => {
    late ??= await commit(server, 'late')
    return 0
  })
  await silence(one)
  expect(late).toBeDefined()
  expect(await one.poll()).toBeLessThan(newest())
})

test('a log decides nothing before its row stands', async () => {
  const { server, shared } = world()
  const change = shared.change.bind(shared)
  let write = (): void => {}
  let isAsked = false
  shared.change = async (...args) => {
    if (args[0].toString('latin1').startsWith('\0\0logs/')) {
      isAsked = true
      await new Promise<void>((resolve) => {
        write = resolve
      })
    }
    return change(...args)
  }
  let isPrepared = false
  const preparing = server.prepare()?.then(() => {
    isPrepared = true
  })
  await expect.poll(() => isAsked).toBe(true)
  for (let turns = 0; turns < 20; turns++) await new Promise((next) => setImmediate(next))
  expect(isPrepared).toBe(false)
  write()
  await preparing
})
