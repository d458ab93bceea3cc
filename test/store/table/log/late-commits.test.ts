import { expect, test } from 'vitest'
import { isKvError } from '../../../../src/errors/kv-error.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import { CHUNKS_RANGE } from '../../../../src/store/table/log/log-rows.js'
import { ServerLog } from '../../../../src/store/table/log/server-log.js'
import { utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'

/** A server's log, whose beats come with `beat`. */
function world() {
  const table = new MemoryTable()
  const time = { last: 0 }
  const source = {
    get last() {
      return time.last
    },
    next: async () => ++time.last,
  }
  const beats: (() => void)[] = []
  const pause = (ms: number): Promise<void> =>
    ms < 100 ? Promise.resolve() : new Promise((resolve) => void beats.push(resolve))
  const elapsedMs = (): number => 0
  const server = new ServerLog({ table, source, elapsedMs, pause })
  return {
    ...{ table, time, server, source },
    reader: () => new LogReader({ table, source, end: async () => 0, elapsedMs }),
    async beat(): Promise<void> {
      for (const call of beats.splice(0)) call()
      await expect.poll(() => beats.length, { interval: 1 }).toBe(1)
    },
  }
}

const commitAt = (commitTs: number) => ({ startTs: commitTs - 1, commitTs, primary: utf8('k') })

test('a commit_ts that is held is not closed, however long its keys are looked for', async () => {
  const { server, source, beat, reader } = world()
  await server.prepare()
  const commit = commitAt(await source.next())
  const release = await server.hold(commit)
  for (let i = 0; i < 5; i++) await beat()
  const one = reader()
  expect(await one.poll()).toBeLessThan(commit.commitTs)
  const settle = await server.decide({ ...commit, keys: [utf8('k')] })
  release()
  settle(true)
  for (let i = 0; i < 3; i++) await beat()
  expect(await one.poll()).toBeGreaterThanOrEqual(commit.commitTs)
})

test('a log closes later for clients whose commits came too late, and sooner again once none does', {
  tags: ['long'],
}, async () => {
  const { server, source, beat, reader } = world()
  await server.prepare()
  const slow = async (): Promise<boolean> => {
    const commit = commitAt(await source.next())
    for (let i = 0; i < 6; i++) await beat()
    try {
      ;(await server.decide({ ...commit, keys: [utf8('k')] }))(true)
      return true
    } catch (error) {
      if (isKvError(error, 'commit_ts_expired')) return false
      throw error
    }
  }
  const tries: boolean[] = []
  while (tries.at(-1) !== true && tries.length < 10) tries.push(await slow())
  expect(tries[0]).toBe(false)
  expect(tries.at(-1)).toBe(true)
  for (let i = 0; i < 1000; i++) {
    ;(await server.decide({ ...commitAt(await source.next()), keys: [] }))(true)
    await beat()
  }
  const now = source.last
  await beat()
  await beat()
  expect(await reader().poll()).toBeGreaterThanOrEqual(now)
})

test('a client that makes up an old commit_ts does not make the log close later', async () => {
  const { server, time, source, beat, reader } = world()
  time.last = 2 ** 41 // Of some time after 10.
  await server.prepare()
  await beat()
  for (let i = 0; i < 10; i++)
    await expect(server.decide({ ...commitAt(10), keys: [] })).rejects.toMatchObject({ code: 'commit_ts_expired' })
  const now = source.last
  await beat()
  await beat()
  expect(await reader().poll()).toBeGreaterThanOrEqual(now)
})

test('what waits for an append is shared out by its bytes, and a transaction with too many is refused', async () => {
  const { table, server, source } = world()
  await server.prepare()
  const key = utf8('k'.repeat(4000))
  const keys = Array.from({ length: 150 }, () => key)
  const commits = await Promise.all(Array.from({ length: 8 }, async () => commitAt(await source.next())))
  for (const settle of await Promise.all(commits.map((commit) => server.decide({ ...commit, keys })))) settle(true)
  await server.close()
  const rows = await table.rows({ ranges: [CHUNKS_RANGE], columns: [{ family: 'd' }] })
  const cells = rows.flatMap((row) => row.cells.map(({ value }) => value.length))
  expect(cells.length).toBeGreaterThan(4)
  expect(Math.max(...cells)).toBeLessThan(2.5 * 1024 * 1024)
  const large = Array.from({ length: 9000 }, () => key)
  await expect(server.decide({ ...commitAt(await source.next()), keys: large })).rejects.toMatchObject({
    code: 'payload_too_large',
  })
})

test('the rows of a log are swept away while it begins, and an answer is lost: another log takes the commit', async () => {
  const table = new MemoryTable()
  let isFirst = true
  const swept = new Proxy(table, {
    get(target, name) {
      if (name === 'change' && isFirst)
        return async () => {
          isFirst = false
          return 'refused'
        }
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  let last = 0
  const source = {
    get last() {
      return last
    },
    next: async () => ++last,
  }
  const pause = async (ms: number): Promise<void> => (ms < 250 ? undefined : new Promise(() => {}))
  const log = new ServerLog({ table: swept, source, pause, beatMs: 250 })
  const commitTs = 10
  await log.decide({ startTs: 9, commitTs, primary: utf8('k'), keys: [utf8('k')] })
  expect(isFirst).toBe(false)
})
