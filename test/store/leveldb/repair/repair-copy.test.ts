import { readdir, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { afterAll, expect, test, vi } from 'vitest'
import type * as syncing from '../../../../src/store/leveldb/directory/sync-directory.js'
import { syncDirectory, syncFile } from '../../../../src/store/leveldb/directory/sync-directory.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import { makeDirectory, prewriteOf, put } from '../../support.js'

vi.mock('../../../../src/store/leveldb/directory/sync-directory.js', async (importOriginal) => {
  const original = await importOriginal<typeof syncing>()
  return { syncDirectory: vi.fn(original.syncDirectory), syncFile: vi.fn(original.syncFile) }
})

const root = await makeDirectory()
afterAll(() => rm(root, { recursive: true, force: true }))

test('the copy that a repair keeps is on disk before anything is mended', async () => {
  const directory = join(root, 'db')
  const store = await openLevelDbStore({ durability: 'async', directory })
  await store.prewrite(prewriteOf(await store.tso(1), [put('key')], { tryOnePc: true }))
  await store.close()
  await rm(join(directory, 'CURRENT'))
  const synced: string[] = []
  vi.mocked(syncFile).mockImplementation(async (path) => void synced.push(path))
  vi.mocked(syncDirectory).mockImplementation(async (path) => void synced.push(path))
  await repairDirectory(directory, { say: () => {}, isDryRun: false, keepsCopy: true })
  const [copy] = (await readdir(root)).filter((name) => name.startsWith('db.before-repair'))
  const kept = join(root, String(copy))
  const files = (await readdir(kept)).map((name) => join(kept, name))
  expect(synced.slice(0, files.length).sort()).toEqual(files.sort())
  expect(synced.slice(files.length, files.length + 2)).toEqual([kept, dirname(kept)])
})
