import { expect, test } from 'vitest'
import { isKvError } from '../../../../src/errors/kv-error.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import { CHUNKS_RANGE } from '../../../../src/store/table/log/log-rows.js'
import { ServerLog } from '../../../../src/store/table/log/server-log.js'
import { utf8 } from '../../support.js'
import { MemoryTable } from '../memory-table.js'

/** A server's log, whose beats come with `closed`. Time stands. */
function world(chunkEntriesMax = 3) {
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
  const server = new ServerLog({ table, source, elapsedMs, pause, chunkEntriesMax })
  return {
    ...{ table, server },
    reader: () => new LogReader({ table, source, end: async () => 0, elapsedMs }),
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
    /** At the next timestamp that the log takes, which it returns. */
    async decide(key: string): Promise<{ commitTs: number; settle: (isCommitted: boolean) => void }> {
      for (;;)
        try {
          const commitTs = await source.next()
          const commit = { startTs: commitTs - 1, commitTs, primary: utf8('primary'), keys: [utf8(key)] }
          return { commitTs, settle: await server.decide(commit) }
        } catch (error) {
          if (!isKvError(error, 'commit_ts_expired')) throw error
        }
    },
  }
}

async function keysIn(reader: LogReader, since: number): Promise<string[]> {
  const upTo = await reader.poll()
  const keys: string[] = []
  for await (const { txns } of reader.pages(since, upTo))
    for (const txn of txns) keys.push(...txn.keys.map((key) => Buffer.from(key).toString()))
  return keys
}

test('a reader that has not looked while chunks were removed is held back by what is open', async () => {
  const { reader, decide, closed } = world()
  const [resting, collector] = [reader(), reader()]
  ;(await decide('first')).settle(true)
  await closed(resting)
  for (let i = 0; i < 10; i++) (await decide(`${i}`)).settle(true)
  await collector.trim(await closed(collector))
  const open = await decide('open')
  expect(await resting.poll()).toBeLessThan(open.commitTs)
})

test('a collector that has not looked for long does not remove a living log', async () => {
  const { reader, decide, closed } = world()
  const [resting, collector] = [reader(), reader()]
  ;(await decide('first')).settle(true)
  await resting.trim(await closed(resting))
  for (let i = 0; i < 10; i++) (await decide(`${i}`)).settle(true)
  const passed = await closed(collector)
  await collector.trim(passed)
  for (const key of ['a', 'b']) (await decide(key)).settle(true)
  await closed(collector)
  await resting.trim(passed)
  await resting.sweep()
  expect(await keysIn(reader(), passed)).toEqual(['a', 'b'])
})

test('a log that has ended stays while its last chunk has an outcome of an earlier one that readers have not passed', async () => {
  const { server, reader, decide } = world(256)
  const key = 'x'.repeat(70_000)
  const { commitTs, settle } = await decide(key)
  settle(true)
  await server.close()
  await reader().trim(commitTs - 1)
  expect(await keysIn(reader(), commitTs - 1)).toEqual([key])
  await reader().trim(commitTs)
  expect(await keysIn(reader(), 0)).toEqual([])
})

test('two servers may collect at once', async () => {
  const { server, reader, decide, closed } = world()
  for (let i = 0; i < 10; i++) (await decide(`${i}`)).settle(true)
  const passed = await closed(reader())
  await server.close()
  await Promise.all([reader(), reader()].map((each) => each.trim(passed)))
  expect(await keysIn(reader(), 0)).toEqual([])
})

test('a log that has ended is read once, and no more by readers that have passed it', async () => {
  const { table, server, reader, decide } = world()
  const { commitTs, settle } = await decide('a')
  settle(true)
  await server.close()
  const one = reader()
  expect(await keysIn(one, 0)).toEqual(['a'])
  const before = table.calls.read
  for await (const page of one.pages(commitTs, commitTs + 1)) expect(page.txns).toEqual([])
  expect(table.calls.read).toBe(before)
})

test('chunks that a collection has left behind go with the next one', async () => {
  const { table, server, reader, decide, closed } = world()
  for (let i = 0; i < 10; i++) (await decide(`${i}`)).settle(true)
  const passed = await closed(reader())
  const chunks = async (): Promise<number> =>
    (await table.rows({ ranges: [CHUNKS_RANGE], columns: [{ family: 'o' }] })).length
  const all = await chunks()
  const change = table.change.bind(table)
  let left = 1
  table.change = (...args) => (left-- > 0 ? change(...args) : Promise.reject(new Error('killed')))
  await expect(reader().trim(passed)).rejects.toThrow('killed')
  table.change = change
  expect(await chunks()).toBe(all)
  const next = reader()
  await next.trim(passed)
  await next.sweep()
  expect(await chunks()).toBeLessThan(all)
  expect(await keysIn(next, passed)).toEqual([])
  await server.close()
})
