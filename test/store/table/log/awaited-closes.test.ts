import { expect, test } from 'vitest'
import { WakeUps } from '../../../../src/store/table/layout/wake-ups.js'
import { LogReader } from '../../../../src/store/table/log/log-reader.js'
import { CLOSED, ServerLog } from '../../../../src/store/table/log/server-log.js'
import { utf8 } from '../../support.js'
import { MemoryBroadcast } from '../memory-broadcast.js'
import { MemoryTable } from '../memory-table.js'

const BEAT_MS = 250

/** Servers whose beats never come. Other pauses end with `passed`. */
function world() {
  const table = new MemoryTable()
  const time = { last: 0 }
  const source = {
    get last() {
      return time.last
    },
    next: async () => ++time.last,
  }
  const broadcast = new MemoryBroadcast()
  const rests: (() => void)[] = []
  const pause = (ms: number): Promise<void> =>
    ms >= BEAT_MS ? new Promise(() => {}) : new Promise((resolve) => void rests.push(resolve))
  let ms = 0
  const elapsedMs = (): number => (ms += 20) // So appends need not wait for each other.
  const server = (): ServerLog =>
    new ServerLog({ table, source, pause, elapsedMs, beatMs: BEAT_MS, wakeUps: new WakeUps(broadcast) })
  const committed = async (log: ServerLog): Promise<number> => {
    const commitTs = await source.next()
    ;(await log.decide({ startTs: commitTs - 1, commitTs, primary: utf8('k'), keys: [utf8('k')] }))(true)
    return commitTs
  }
  const reader = new LogReader({ table, source, end: async () => 0, elapsedMs: () => 0 })
  return {
    ...{ broadcast, rests, server, committed, reader },
    passed(): void {
      for (const end of rests.splice(0)) end()
    },
  }
}

test('what is committed while a reader is there is closed by all servers without their beats', async () => {
  const { server, committed, reader, broadcast, rests, passed } = world()
  const [one, idle] = [server(), server()]
  await Promise.all([one.prepare(), idle.prepare()])
  let told = 0
  new WakeUps(broadcast).listenAWhile(CLOSED, () => void told++)
  await expect.poll(() => broadcast.texts.length).toBeGreaterThanOrEqual(3) // All have said what they listen for.
  for (let commits = 0; commits < 3; commits++) {
    const before = told
    const ts = await committed(one)
    await expect.poll(() => rests.length).toBe(2)
    expect(await reader.poll()).toBeLessThan(ts) // Clients have time to commit.
    passed()
    await expect.poll(() => reader.poll()).toBeGreaterThanOrEqual(ts)
    await expect.poll(() => told).toBeGreaterThanOrEqual(before + 2)
  }
})

test('commits that come together are closed together, and one that comes too late for that is closed next', async () => {
  const { server, committed, reader, broadcast, rests, passed } = world()
  const one = server()
  await one.prepare()
  new WakeUps(broadcast).listenAWhile(CLOSED, () => {})
  await expect.poll(() => broadcast.texts.length).toBeGreaterThanOrEqual(2)
  await committed(one)
  await expect.poll(() => rests.length).toBe(1)
  let last = 0
  for (let commits = 0; commits < 20; commits++) last = await committed(one)
  expect(rests).toHaveLength(1)
  passed()
  await expect.poll(() => rests.length).toBe(1)
  expect(await reader.poll()).toBeLessThan(last)
  passed()
  await expect.poll(() => reader.poll()).toBeGreaterThanOrEqual(last)
  expect(rests).toHaveLength(0)
})

test('where nobody reads, nothing is closed between beats', async () => {
  const { server, committed, reader, broadcast, rests } = world()
  const one = server()
  await one.prepare()
  await expect.poll(() => broadcast.texts.length).toBe(1)
  const ts = await committed(one)
  expect(rests).toHaveLength(0)
  expect(await reader.poll()).toBeLessThan(ts)
})
