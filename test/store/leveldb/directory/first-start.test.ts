import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type * as syncing from '../../../../src/store/leveldb/directory/sync-directory.js'
import { syncDirectory } from '../../../../src/store/leveldb/directory/sync-directory.js'
import { crc32c, maskedCrc } from '../../../../src/store/leveldb/files/crc32c.js'
import { readLog } from '../../../../src/store/leveldb/files/log-file.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import type { Store } from '../../../../src/store/store.js'
import { makeDirectory, prewriteOf, put, read } from '../../support.js'
import { type DirectoryState, type DiskStep, statesAfterPowerLoss } from '../power-loss.js'

vi.mock('../../../../src/store/leveldb/directory/sync-directory.js', async (importOriginal) => {
  const original = await importOriginal<typeof syncing>()
  return { ...original, syncDirectory: vi.fn(original.syncDirectory) }
})

let root: string
beforeAll(async () => {
  root = await makeDirectory()
})
afterAll(() => rm(root, { recursive: true, force: true }))

const open = (directory: string, durability: 'sync' | 'async' = 'sync'): Promise<Store> =>
  openLevelDbStore({ durability, directory })
const write = async (store: Store, key: string): Promise<unknown> =>
  store.prewrite(prewriteOf(await store.tso(1), [put(key)], { tryOnePc: true }))

/** LevelDB's log of its own doings, and its lock, say nothing about the data. */
const isData = (file: string): boolean => !/^(LOG|LOG\.old|LOCK)$/.test(file)

async function stateOf(directory: string): Promise<DirectoryState> {
  const files = (await readdir(directory)).filter(isData)
  return new Map(await Promise.all(files.map(async (file) => [file, await readFile(join(directory, file))] as const)))
}

/** A record as LevelDB's log has it, in its first block. */
function logRecordOf(bytes: Buffer): Buffer {
  const header = Buffer.alloc(7)
  header.writeUInt16LE(bytes.length, 4)
  header.writeUInt8(1, 6)
  header.writeUInt32LE(maskedCrc(crc32c(Buffer.concat([header.subarray(6), bytes]))), 0)
  return Buffer.concat([header, bytes])
}

/** The comparator, log number 0, next file 2, last sequence 0. */
const FIRST_MANIFEST = logRecordOf(Buffer.from('\x01\x1aleveldb.BytewiseComparator\x02\x00\x03\x02\x04\x00', 'latin1'))

/** What LevelDB does in a new directory, in its order: `DBImpl::NewDB`, `DB::Open`, `SetCurrentFile`. */
function stepsOfAFirstStart(final: DirectoryState): DiskStep[] {
  const create = (file: string, bytes: Buffer): DiskStep[] => [
    { do: 'create', file },
    { do: 'append', file, bytes },
  ]
  const setCurrent = (manifest: number): DiskStep[] => [
    ...create(`00000${manifest}.dbtmp`, Buffer.from(`MANIFEST-00000${manifest}\n`)),
    { do: 'fsync', file: `00000${manifest}.dbtmp` },
    { do: 'rename', file: `00000${manifest}.dbtmp`, to: 'CURRENT' },
  ]
  const log = final.get('000003.log') as Buffer
  const ends = readLog(log).records.map(({ offset }, i, all) => [offset, all[i + 1]?.offset ?? log.length] as const)
  return [
    ...create('MANIFEST-000001', FIRST_MANIFEST), // Without an fsync.
    ...setCurrent(1),
    { do: 'create', file: '000003.log' },
    { do: 'create', file: 'MANIFEST-000002' },
    { do: 'append', file: 'MANIFEST-000002', bytes: final.get('MANIFEST-000002') as Buffer },
    { do: 'fsync names' },
    { do: 'fsync', file: 'MANIFEST-000002' },
    ...setCurrent(2),
    { do: 'unlink', file: 'MANIFEST-000001' },
    { do: 'fsync names' }, // PerKV's own.
    ...ends.flatMap(([from, to]): DiskStep[] => [
      { do: 'append', file: '000003.log', bytes: log.subarray(from, to) },
      { do: 'fsync', file: '000003.log' },
    ]),
  ]
}

test('power loss at any step of a first start leaves a directory that the next start makes a database of', {
  tags: ['long'],
}, async () => {
  const directory = join(root, 'real')
  const store = await open(directory)
  await write(store, 'key')
  const final = await stateOf(directory)
  await store.close()
  const steps = stepsOfAFirstStart(final)
  // The steps are those of the real thing: together they make what it made.
  const [all, ...others] = statesAfterPowerLoss([...steps, { do: 'fsync names' }])
  expect([all, others]).toEqual([final, []])

  const seen = new Set<string>()
  for (let done = 0; done <= steps.length; done++) {
    for (const state of statesAfterPowerLoss(steps.slice(0, done))) {
      const name = [...state].map(([file, bytes]) => `${file}: ${bytes.toString('base64')}`).join(', ')
      if (seen.has(name)) continue
      seen.add(name)
      const copy = join(root, `copy${seen.size}`)
      await mkdir(copy)
      for (const [file, bytes] of state) await writeFile(join(copy, file), bytes)
      const again = await open(copy, 'async').catch((error: Error) => {
        throw new Error(`after ${done} steps, with ${[...state.keys()].join(', ')}: ${error.message}`)
      })
      // The last record is the acknowledged write.
      if (done === steps.length) expect(await read(again, 'key')).toBe('value of key')
      await write(again, 'another')
      expect(await read(again, 'another')).toBe('value of another')
      await again.close()
    }
  }
  expect(seen.size).toBeGreaterThan(50)
})

test('the names of CURRENT and of the log are fsynced before a start is over, and those of all new directories', async () => {
  const directory = join(root, 'above', 'synced')
  const synced: string[] = []
  vi.mocked(syncDirectory).mockImplementation(async (path) => {
    const current = await readFile(join(directory, 'CURRENT'), 'latin1').catch(() => 'nothing')
    synced.push(`${relative(root, path) || 'root'}: ${current.trim()}`)
  })
  const store = await open(directory)
  await store.close()
  const again = await open(directory)
  vi.mocked(syncDirectory).mockReset()
  await again.close()
  expect(synced).toEqual([
    'root: nothing',
    'above: nothing',
    'above/synced: MANIFEST-000002',
    'above: MANIFEST-000002',
    'above/synced: MANIFEST-000004',
    'above: MANIFEST-000004',
  ])
})

test('a database that somebody wrote to is never taken for one that is half made', async () => {
  const directory = join(root, 'used')
  const store = await open(directory)
  await write(store, 'key')
  const files = await stateOf(directory)
  await store.close()
  const damages: [string, (file: string) => Promise<void>][] = [
    ['CURRENT', (file) => rm(file)],
    ['CURRENT', (file) => writeFile(file, 'MANIFEST-000001\n')],
    ['CURRENT', (file) => writeFile(file, '')],
    ['MANIFEST-000002', (file) => rm(file)],
    ['MANIFEST-000002', (file) => writeFile(file, '')],
    ['000003.log', (file) => rm(file)],
  ]
  for (const [i, [file, damage]] of damages.entries()) {
    const copy = join(root, `damaged${i}`)
    await mkdir(copy)
    for (const [name, bytes] of files) await writeFile(join(copy, name), bytes)
    await damage(join(copy, file))
    const before = await stateOf(copy)
    await expect(open(copy)).rejects.toThrow(/is damaged/)
    expect(await stateOf(copy)).toEqual(before)
  }
})
