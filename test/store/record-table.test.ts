import { describe, expect, test } from 'vitest'
import { packRecord, unpackRecord } from '../../src/percolator/codec/record.js'
import { type RecordKind, RecordTable } from '../../src/store/record-table.js'
import { codeOf, EngineFailure, TappedEngine, testStores } from './support.js'
import { MemoryTable } from './table/memory-table.js'
import { openTableStore } from './table/open-table-store.js'

interface Count {
  readonly count: number
}

const COUNTS: RecordKind<Count> = {
  prefix: 'pin/',
  encode: ({ count }) => packRecord([count]),
  decode: (_, record) => ({ count: Number(unpackRecord(record, 'count', 1)[0]) }),
}

const more = (present: Count | undefined): Count => ({ count: (present?.count ?? 0) + 1 })
const same = (present: Count | undefined): Count | undefined => present
const counts = (values: Iterable<Count>): number[] => [...values].map(({ count }) => count).sort()

const stores = testStores()

describe('a write that fails', () => {
  test.each([
    ['has landed', true],
    ['has not landed', false],
  ])('and %s counts as possible until the record is read', { tags: ['long'] }, async (_, lands) => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    const table = new RecordTable(store.system, COUNTS)
    await table.change('a', more)
    engine.onWrite = async (_, land) => {
      if (lands) await land()
      throw new EngineFailure('the disk is full')
    }
    engine.onRequireRoom = async () => {
      throw new EngineFailure('there is no room')
    }
    expect(await codeOf(table.change('a', more))).toBe('storage_unavailable')
    expect(await codeOf(table.change('new', more))).toBe('storage_unavailable') // It was not written: nothing is in doubt.
    expect(table.get('a')).toEqual({ count: 1 })
    expect(counts(table.possible())).toEqual([1, 2])
    engine.onWrite = (_, land) => land()
    engine.onRequireRoom = async () => {}
    await expect.poll(() => store.upkeep.probe()).toBe(true)
    expect(await table.change('a', same)).toEqual({ count: lands ? 2 : 1 })
    expect(counts(table.possible())).toEqual([lands ? 2 : 1])
  })

  test('is settled with all others, which stay', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    const table = new RecordTable(store.system, COUNTS)
    await table.change('a', more)
    await table.change('a', more)
    engine.onWrite = async (_, land) => {
      await land()
      throw new EngineFailure('the disk is full')
    }
    engine.onRequireRoom = async () => {
      throw new EngineFailure('there is no room')
    }
    expect(await codeOf(table.change('b', more))).toBe('storage_unavailable')
    engine.onWrite = (_, land) => land()
    engine.onRequireRoom = async () => {}
    await expect.poll(() => store.upkeep.probe()).toBe(true)
    expect(table.get('b')).toBeUndefined()
    await table.readInDoubt()
    expect(await table.page({ limit: 2 }, () => true)).toEqual({ items: [{ count: 2 }, { count: 1 }], next: undefined })
  })

  test('and is settled at once is known at once', async () => {
    const engine = new TappedEngine()
    const store = await stores.open({ openEngine: engine.open })
    const table = new RecordTable(store.system, COUNTS)
    engine.onWrite = async (_, land) => {
      await land()
      engine.onWrite = (_, later) => later()
      throw new EngineFailure('the disk was full')
    }
    expect(await codeOf(table.change('a', more))).toBe('storage_unavailable')
    expect(counts(table.possible())).toEqual([1])
    expect(table.get('a')).toEqual({ count: 1 })
  })
})

test('whoever listens is told of what is read and written, and of what a write in doubt has left', async () => {
  const engine = new TappedEngine()
  const store = await stores.open({ openEngine: engine.open })
  const told: unknown[] = []
  const table = new RecordTable(store.system, COUNTS, (name, value) => told.push([name, value?.count]))
  const others = { name: 'pin/a/other', value: packRecord([7]) } as const
  const kind = {
    ...COUNTS,
    decode: (name: string, bytes: Uint8Array) => (name.includes('/') ? undefined : COUNTS.decode(name, bytes)),
  }
  await table.change(
    'a',
    async (present) => more(present),
    () => [others],
  )
  const again = new RecordTable(store.system, kind, (name, value) => told.push(['again', name, value?.count]))
  expect([...(await again.load()).keys()]).toEqual(['pin/a', 'pin/a/other'])
  await again.load()
  expect([again.size, told.splice(0)]).toEqual([
    1,
    [
      ['a', 1],
      ['again', 'a', 1],
    ],
  ])
  engine.onWrite = async () => {
    throw new EngineFailure('the disk is full')
  }
  engine.onRequireRoom = async () => {
    throw new EngineFailure('there is no room')
  }
  expect(await codeOf(table.change('new', more))).toBe('storage_unavailable')
  expect([table.size, table.get('new'), told]).toEqual([2, undefined, []])
  engine.onWrite = (_, land) => land()
  engine.onRequireRoom = async () => {}
  await expect.poll(() => store.upkeep.probe()).toBe(true)
  await table.change(
    'a',
    () => undefined,
    () => [{ ...others, value: undefined }],
  )
  await table.readInDoubt()
  expect([table.size, told]).toEqual([
    0,
    [
      ['a', undefined],
      ['new', undefined],
    ],
  ])
  expect((await again.load()).size).toBe(0)
})

test('what decides may refuse, and then nothing is changed', async () => {
  const table = new RecordTable((await stores.open()).system, COUNTS)
  const refused = new Error('no')
  const refuse = (): Count => {
    throw refused
  }
  await expect(table.change('a', refuse)).rejects.toBe(refused)
  expect([table.size, [...table.possible()]]).toEqual([0, []])
})

test('a bound on the size holds for two at once that ask for one new name', async () => {
  const table = new RecordTable((await stores.open()).system, COUNTS)
  await table.change('a', more)
  const bounded = async (present: Count | undefined): Promise<Count> => {
    if (table.size > 1) throw new Error('full')
    return more(present)
  }
  const asked = await Promise.allSettled([1, 2, 3].map(() => table.change('b', bounded)))
  expect(asked.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  expect(table.size).toBe(1)
})

test('what changes while all records are read stays as it was changed', async () => {
  const { system } = await stores.open()
  const table = new RecordTable(system, COUNTS)
  for (const name of ['changed', 'removed']) await table.change(name, more)
  const list = system.list.bind(system)
  system.list = async (prefix) => {
    const found = await list(prefix)
    await table.change('removed', () => undefined)
    for (const name of ['changed', 'made']) await table.change(name, () => ({ count: 7 }))
    return found
  }
  await table.load()
  expect([table.get('removed'), counts(table.values())]).toEqual([undefined, [7, 7]])
})

test('changes of several servers at once all count, and each server reads those of the others', async () => {
  const shared = new MemoryTable()
  const [one, other] = [await openTableStore(shared), await openTableStore(shared)]
  const tables = [one, other].map((store) => new RecordTable(store.system, COUNTS))
  const [first, second] = tables as [RecordTable<Count>, RecordTable<Count>]
  await Promise.all(tables.flatMap((table) => [1, 2, 3].map(() => table.change('a', more))))
  await first.change('removed', more)
  await Promise.all(tables.map((table) => table.load()))
  for (const table of tables) expect([table.get('a'), table.size]).toEqual([{ count: 6 }, 2])
  await second.change('removed', () => undefined)
  await first.load()
  expect([...first.values()]).toEqual([{ count: 6 }])
  for (const store of [one, other]) await store.close()
})

test('a record that is read does not count', async () => {
  const store = await stores.open()
  const table = new RecordTable(store.system, COUNTS)
  const read = table.refresh('none')
  expect(table.size).toBe(0)
  expect(await read).toBeUndefined()
})
