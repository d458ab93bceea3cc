import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { ClassicLevel } from 'classic-level'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { requireOwn } from '../../../../src/store/leveldb/directory/require-own.js'
import { crc32c, maskedCrc } from '../../../../src/store/leveldb/files/crc32c.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import { makeDirectory, prewriteOf, put } from '../../support.js'

let directory: string
beforeEach(async () => {
  directory = join(await makeDirectory(), 'db')
})
afterEach(() => rm(join(directory, '..'), { recursive: true, force: true }))

async function levelDb(body: (db: ClassicLevel) => Promise<void>): Promise<void> {
  const db = new ClassicLevel(directory)
  await db.open()
  await body(db)
  await db.close()
}

/** Everything that a visitor could change. */
async function stateOf(): Promise<unknown> {
  const files = (await readdir(directory)).sort()
  return Promise.all(
    files.map(async (file) => {
      const [{ mtimeMs, ino }, bytes] = await Promise.all([
        stat(join(directory, file)),
        readFile(join(directory, file)),
      ])
      return { file, mtimeMs, ino, bytes: bytes.toString('base64') }
    }),
  )
}

const NOT_OURS = /is a LevelDB, but not PerKV's$/
const FOREIGN: readonly { readonly name: string; readonly make: () => Promise<void>; readonly says?: RegExp }[] = [
  { name: 'records in the log', make: () => levelDb((db) => db.put('key', 'value')) },
  {
    name: 'records in tables, some of them next to those of PerKV',
    make: () =>
      levelDb(async (db) => {
        for (const key of ['a', 'mformas', 'mformat\0', 'moracle/', 'z']) await db.put(key, 'v'.repeat(5000))
        await db.compactRange('', '~')
      }),
  },
  {
    name: 'keys in an order of its own',
    make: async () => {
      await levelDb((db) => db.put('mformat', 'x'))
      const manifest = join(directory, (await readFile(join(directory, 'CURRENT'), 'latin1')).trim())
      const bytes = await readFile(manifest)
      bytes.write('X', bytes.indexOf('leveldb.BytewiseComparator'))
      const record = bytes.subarray(6, 7 + bytes.readUInt16LE(4)) // Its type and what it holds.
      bytes.writeUInt32LE(maskedCrc(crc32c(record)), 0)
      await writeFile(manifest, bytes)
    },
  },
  {
    name: 'a RocksDB',
    make: async () => {
      await levelDb((db) => db.put('key', 'value'))
      await writeFile(join(directory, 'IDENTITY'), 'x')
    },
    says: /RocksDB/,
  },
]

describe.each(FOREIGN)('a LevelDB of another program: $name', ({ make, says = NOT_OURS }) => {
  test('is refused by all who open directories, and nothing of it changes', async () => {
    await make()
    const before = await stateOf()
    const nothing = { say: () => {}, onLoss: () => {}, onFinding: () => {} }
    await expect(openLevelDbStore({ directory, durability: 'sync' })).rejects.toThrow(says)
    await expect(checkDirectory(directory, nothing)).rejects.toThrow(says)
    await expect(repairDirectory(directory, { ...nothing, isDryRun: false, keepsCopy: false })).rejects.toThrow(says)
    expect(await stateOf()).toEqual(before)
  })
})

test("PerKV's own is told wherever its records are: in the log, in tables, with nothing else, and damaged", async () => {
  const store = await openLevelDbStore({ directory, durability: 'sync' })
  await requireOwn(directory)
  for (let i = 0; i < 50; i++) await store.prewrite(prewriteOf(await store.tso(1), [put(`k${i}`)], { tryOnePc: true }))
  await store.close()
  await requireOwn(directory)
  await levelDb((db) => db.compactRange('', '~'))
  await requireOwn(directory)
  for (const file of await readdir(directory))
    if (file.endsWith('.ldb')) await writeFile(join(directory, file), 'damaged') // perkv repair is for these.
  await requireOwn(directory)
})

test('an empty LevelDB, and a directory without one, belong to nobody else', async () => {
  await mkdir(directory)
  await requireOwn(directory)
  await levelDb(async () => {})
  await requireOwn(directory)
})
