import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { KeyPolling } from '../../../src/store/table/waits/key-polling.js'
import type { Op } from '../../../src/txn/op.js'
import { utf8 } from '../support.js'
import { MemoryTable } from './memory-table.js'
import { inLeaps, severalDatabases } from './several-databases.js'

const REVISION = { family: 'v', qualifier: Buffer.from('r') } as const
const LOOK_MS = 500
const NOTHING_DEAD = { met: () => {} }

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
})
afterEach(() => {
  vi.useRealTimers()
})

class Listener {
  told: string[] = []
  constructor(readonly watched: string[]) {}
  *keys() {
    for (const key of this.watched) yield utf8(key)
  }
  changed(key: Uint8Array) {
    this.told.push(Buffer.from(key).toString())
  }
  take(): string[] {
    return this.told.splice(0)
  }
}

async function look(table: MemoryTable): Promise<void> {
  vi.advanceTimersByTime(LOOK_MS)
  for (let idle = 0; idle < 5; ) {
    await new Promise((next) => setImmediate(next))
    idle = table.inFlight.calls === 0 ? idle + 1 : 0
  }
}

const write = (table: MemoryTable, key: string, revision: string) =>
  table.put(Buffer.from(key), [{ ...REVISION, value: Buffer.from(revision) }])

test('a key is told of once at first, and whenever its row has changed, also from and to absent', async () => {
  const table = new MemoryTable()
  const listener = new Listener(['a', 'b'])
  const end = new KeyPolling(table, NOTHING_DEAD).watch(listener)
  await write(table, 'a', '1')
  await look(table)
  expect(listener.take()).toEqual(['a', 'b'])
  await look(table)
  expect(listener.take()).toEqual([])
  await write(table, 'a', '2')
  await write(table, 'b', '1')
  await write(table, 'c', '1')
  listener.watched.push('c')
  await look(table)
  expect(listener.take()).toEqual(['a', 'b', 'c'])
  table.remove([Buffer.from('b')])
  await look(table)
  expect(listener.take()).toEqual(['b'])
  end()
  await write(table, 'a', '3')
  await look(table)
  expect(listener.take()).toEqual([])
})

test('what changes while Bigtable does not answer is told of afterwards', async () => {
  const table = new MemoryTable()
  const listener = new Listener(['a', 'b'])
  new KeyPolling(table, NOTHING_DEAD).watch(listener)
  await look(table)
  listener.take()
  const rows = vi.spyOn(table, 'rows').mockRejectedValue(new Error('away'))
  await write(table, 'a', '1')
  await look(table)
  expect(listener.take()).toEqual([])
  rows.mockRestore()
  await look(table)
  expect(listener.take()).toEqual(['a'])
})

test('ten thousand keys take ten calls per look', async () => {
  const table = new MemoryTable()
  const listener = new Listener(Array.from({ length: 10_000 }, (_, i) => `key${i}`))
  new KeyPolling(table, NOTHING_DEAD).watch(listener)
  await look(table)
  expect(table.calls.read).toBe(10)
  expect(new Set(listener.take()).size).toBe(10_000)
})

test('a watch at one server sees what another one commits', async () => {
  vi.useRealTimers()
  const table = new MemoryTable()
  await inLeaps(table, async () => {
    const [watching, writing] = (await severalDatabases(table, 2)) as [Database, Database]
    const key = utf8('k')
    const seen: (string | undefined)[] = []
    const commit = (op: Op) => writing.transact({ checks: [], ops: [op], maxRetries: 0, lockWaitMs: 0 })
    const put = (value: string) => commit({ op: 'put', key, value: utf8(value) })
    for await (const state of watching.changes.watch({ key })) {
      seen.push(state.found ? Buffer.from(state.value).toString() : undefined)
      if (seen.length === 1) await put('one')
      else if (seen.length === 2) await put('two')
      else if (seen.length === 3) await commit({ op: 'delete', key })
      else break
    }
    expect(seen).toEqual([undefined, 'one', 'two', undefined])
    await Promise.all([watching.close(), writing.close()])
  })
})
