import { afterEach, expect, test, vi } from 'vitest'
import type { Database } from '../../../src/database/database.js'
import { codeOf, read, utf8 } from '../support.js'
import { type Fate, MemoryTable } from './memory-table.js'
import { databasesOn } from './several-databases.js'
import { WatchedTable } from './watched-table.js'

const ONE_SHOT = { checks: [], maxRetries: 20, lockWaitMs: 20_000 }

interface World {
  readonly databases: readonly [Database, Database]
  /** Of the first server, which commits in one phase. */
  readonly link: WatchedTable
  readonly fates: Fate[]
}

/** Two servers on a table whose rows change together. */
async function openWorld(): Promise<World> {
  const fates: Fate[] = []
  const table = new MemoryTable(() => fates.shift() ?? 'done', undefined, undefined, { isTogether: true })
  const link = new WatchedTable(table)
  const databases = (await databasesOn([link, table])) as [Database, Database]
  return { databases, link, fates }
}

afterEach(() => void vi.restoreAllMocks())

const put = (database: Database, value: string, ...keys: string[]) =>
  database.transact({
    ...ONE_SHOT,
    ops: keys.map((key) => ({ op: 'put', key: utf8(key), value: utf8(value) })),
  })

test('a read at a timestamp waits for the rows that a commit has locked before it, and the latest version does not', async () => {
  const { databases, link } = await openWorld()
  const [one, other] = databases
  await put(one, 'old', 'a', 'b')
  const seen: Promise<unknown>[] = []
  link.onLocked = async () => {
    const ts = await other.store.tso(1)
    expect(await read(other.store, 'a')).toBe('old')
    seen.push(read(other.store, 'b', ts), other.store.scan({ start: utf8('a'), end: utf8('c'), limit: 9, ts }))
  }
  await put(one, 'new', 'a', 'b')
  const [ofGet, ofScan] = await Promise.all(seen)
  expect(ofGet).toBe('new')
  expect(ofScan).toMatchObject({ pairs: [{ value: utf8('new') }, { value: utf8('new') }] })
})

test('who has read before the rows were locked reads the same afterwards', async () => {
  const { databases, link } = await openWorld()
  const [one, other] = databases
  await put(one, 'old', 'a', 'b')
  const reads: number[] = []
  link.onChange = async () => {
    link.onChange = () => undefined
    const ts = await other.store.tso(1)
    expect(await read(other.store, 'a', ts)).toBe('old')
    reads.push(ts)
  }
  await put(one, 'new', 'a', 'b')
  const [ts] = reads as [number]
  expect([await read(other.store, 'a', ts), await read(other.store, 'b', ts)]).toEqual(['old', 'old'])
  expect(await read(other.store, 'a')).toBe('new')
})

test.each([
  ['a key', { keys: [utf8('a')], ranges: [] }],
  ['a range', { keys: [], ranges: [{ start: utf8('a'), end: utf8('b') }] }],
])('whoever has read %s does not commit above a commit that has locked it', async (_, reads) => {
  const { databases, link } = await openWorld()
  const [one, other] = databases
  await put(one, 'old', 'a', 'b')
  const startTs = await other.store.tso(1)
  const validations: Promise<string>[] = []
  link.onLocked = async () => {
    const commitTs = await other.store.tso(1)
    validations.push(codeOf(other.store.validateReads({ startTs, commitTs, ...reads })))
  }
  await put(one, 'new', 'a', 'b')
  expect(await Promise.all(validations)).toEqual(['write_conflict'])
})

test.each<Fate>(['not done', 'done, answer lost', 'late'])('a commit that is %s counts once', async (fate) => {
  const { databases, link, fates } = await openWorld()
  const [one, other] = databases
  await put(one, '1', 'a', 'b')
  let joint = 0
  link.onLocked = async () => {
    if (joint++ === 0) fates.push(fate)
  }
  const ops = ['a', 'b'].map((key) => ({ op: 'increment', key: utf8(key), by: 1 }) as const)
  await one.transact({ ...ONE_SHOT, ops })
  expect(joint).toBeGreaterThan(0)
  expect([await read(other.store, 'a'), await read(other.store, 'b')]).toEqual(['2', '2'])
})

test('a commit whose outcome is unknown when its time is over is not answered as refused', async () => {
  const { databases, link, fates } = await openWorld()
  const [one, other] = databases
  await put(one, '1', 'a')
  const startTs = await one.store.tso(1)
  const { now } = performance
  link.onLocked = async () => {
    fates.push('done, answer lost')
    vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + 60_000)
  }
  const mutations = [{ op: 'put', key: utf8('a'), value: utf8('2') }] as const
  const request = { startTs, primary: utf8('a'), mutations, lockTtl: 3000, tryOnePc: true }
  expect(await codeOf(one.store.prewrite(request))).toBe('storage_unavailable')
  expect(await read(other.store, 'a')).toBe('2')
  link.onLocked = async () => {}
  expect(await one.store.prewrite(request)).toEqual({ onePcCommitTs: expect.any(Number) })
})

test('a check that a key is absent waits for a commit that has locked it before', async () => {
  const { databases, link } = await openWorld()
  const [one, other] = databases
  const codes: Promise<string>[] = []
  link.onLocked = async () => {
    const startTs = await other.store.tso(1)
    const mutations = [
      { op: 'put', key: utf8('x'), value: utf8('1') },
      { op: 'check_not_exists', key: utf8('a') },
    ] as const
    codes.push(codeOf(other.store.prewrite({ startTs, primary: utf8('x'), mutations, lockTtl: 3000 })))
  }
  await put(one, 'new', 'a')
  expect(await Promise.all(codes)).toEqual(['already_exists'])
})
