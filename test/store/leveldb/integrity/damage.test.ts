import { copyFile, link, mkdir, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { DataDirectoryError } from '../../../../src/store/leveldb/data-directory-error.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { crc32c, maskedCrc } from '../../../../src/store/leveldb/files/crc32c.js'
import { readLog } from '../../../../src/store/leveldb/files/log-file.js'
import { openLevelDbStore } from '../../../../src/store/leveldb/leveldb-store.js'
import type { Store } from '../../../../src/store/store.js'
import { codeOf, makeDirectory, prewriteOf, put, read, START_MS } from '../../support.js'

let root: string
let copies = 0
beforeAll(async () => {
  root = await makeDirectory()
})
afterAll(() => rm(root, { recursive: true, force: true }))

const options = { durability: 'async', now: () => START_MS } as const
const open = (directory: string): Promise<Store> => openLevelDbStore({ ...options, directory })

/** As a kill would leave the directory at this moment. LevelDB never changes a table, so that a link does for a copy. */
async function copyOf(directory: string): Promise<string> {
  const copy = join(root, `copy${copies++}`)
  await mkdir(copy)
  for (const name of await readdir(directory))
    await (name.endsWith('.ldb') ? link : copyFile)(join(directory, name), join(copy, name))
  return copy
}

async function nameOf(directory: string, pattern: RegExp): Promise<string> {
  const names = (await readdir(directory)).filter((name) => pattern.test(name)).sort()
  return join(directory, names.at(-1) as string)
}

async function change(path: string, edit: (bytes: Buffer) => Buffer): Promise<void> {
  await writeFile(path, edit(await readFile(path)))
}

const flipped = (at: number) => (bytes: Buffer) => {
  const changed = Buffer.from(bytes)
  changed.writeUInt8((changed[at] as number) ^ 0x10, at)
  return changed
}

/** Refused in one line, and every file still as it was. */
async function expectRefused(directory: string, what: RegExp): Promise<void> {
  const contents = async () => {
    const names = (await readdir(directory)).filter((name) => !/^LO/.test(name)) // LOCK, and what LevelDB logs.
    return Promise.all(names.map(async (name) => [name, (await readFile(join(directory, name))).toString('base64')]))
  }
  const before = await contents()
  const failure = await open(directory).catch((error: unknown) => error)
  expect(failure).toBeInstanceOf(DataDirectoryError)
  const { message } = failure as Error
  expect(message.replaceAll('\n', '(line feed)')).toMatch(
    /^the database in .* is damaged: .*; run perkv check and perkv repair, or restore a back-up$/,
  )
  expect(message).toMatch(what)
  expect(await contents()).toEqual(before)
}

const DAMAGED_RECORD = /damaged: \d+\.log: the record at offset \d+ is damaged, with \d+ sound ones behind it/

/** As LevelDB writes it, into the first block of a log. */
function logRecordOf(bytes: Buffer, type = 1): Buffer {
  const header = Buffer.alloc(7)
  header.writeUInt16LE(bytes.length, 4)
  header.writeUInt8(type, 6)
  header.writeUInt32LE(maskedCrc(crc32c(Buffer.concat([header.subarray(6), bytes]))), 0)
  return Buffer.concat([header, bytes])
}

/** How many of the writes are there: the first so many, each whole. Writes go on afterwards. */
async function countIn(directory: string, lengths: readonly number[]): Promise<number> {
  const store = await open(directory)
  try {
    const found = await Promise.all(
      lengths.map(async (length, i) => {
        const [a, b] = [await read(store, `${i}/a`), await read(store, `${i}/b`)]
        expect([a, b]).toEqual(a === undefined ? [undefined, undefined] : [String(i), 'x'.repeat(length)])
        return a !== undefined
      }),
    )
    const count = found.lastIndexOf(true) + 1
    expect(found).toEqual(lengths.map((_, i) => i < count))
    await writeAt(store, lengths.length, 10)
    return count
  } finally {
    await store.close()
  }
}

async function writeAt(store: Store, i: number, length: number): Promise<void> {
  const mutations = [put(`${i}/a`, String(i)), put(`${i}/b`, 'x'.repeat(length))]
  await store.prewrite(prewriteOf(await store.tso(1), mutations, { tryOnePc: true }))
}

describe('the log', () => {
  /** Shorter and longer than a block of the log, and right up to its border. */
  const LENGTHS = [10, 300, 20_000, 100_000, 32_600, 5, 40_000, 20]
  let directory: string
  let store: Store
  /** Where the record of each write ends. */
  const ends: number[] = []
  const logOf = (copy: string): Promise<string> => nameOf(copy, /\.log$/)

  beforeAll(async () => {
    directory = join(root, 'small')
    store = await open(directory)
    for (const [i, length] of LENGTHS.entries()) {
      await writeAt(store, i, length)
      ends.push((await readFile(await logOf(directory))).length)
    }
  })
  afterAll(() => store.close())

  test('cut off anywhere: whole writes are left, from the first on, as after a crash in the midst of one', {
    tags: ['long'],
  }, async () => {
    const borders = [32_768, 65_536, 98_304].flatMap((at) => [at - 1, at, at + 7])
    const around = ends.flatMap((end) => [end - 1, end, end + 7])
    const size = ends.at(-1) as number
    for (const at of new Set([0, 1, 7, 100, ...borders, ...around])) {
      if (at > size) continue
      const copy = await copyOf(directory)
      await truncate(await logOf(copy), at)
      expect([at, await countIn(copy, LENGTHS)]).toEqual([at, ends.filter((end) => end <= at).length])
    }
  })

  test.each([6, 100, 40_000])('%i bytes of garbage behind it are dropped, and nothing else', async (length) => {
    for (const byte of [0, 1]) {
      const copy = await copyOf(directory)
      await change(await logOf(copy), (log) => Buffer.concat([log, Buffer.alloc(length, byte)]))
      expect(await countIn(copy, LENGTHS)).toBe(LENGTHS.length)
    }
  })

  test('a flipped bit in any write but the last is refused', { tags: ['long'] }, async () => {
    for (const end of ends.slice(0, -1)) {
      for (const at of [end - 1, end - 30]) {
        const copy = await copyOf(directory)
        await change(await logOf(copy), flipped(at))
        await expectRefused(copy, DAMAGED_RECORD)
      }
    }
  })

  test('a flipped bit in a record’s length, which LevelDB takes for the end of the log', async () => {
    const log = await readFile(await logOf(directory))
    const lastBlock = log.length - (log.length % 32_768)
    const inLastBlock = ends.slice(0, -1).filter((end) => end >= lastBlock)
    expect(inLastBlock.length).toBeGreaterThan(0)
    for (const end of inLastBlock) {
      const copy = await copyOf(directory)
      const before = ends[ends.indexOf(end) - 1] as number
      const at = Math.max(before, lastBlock) + 5 // The length's upper byte.
      await change(await logOf(copy), (bytes) => Buffer.from(bytes).fill(0x70, at, at + 1))
      await expectRefused(copy, DAMAGED_RECORD)
    }
  })

  test('a value that looks like a log is none, where a crash cut it off', async () => {
    const full = join(root, 'inner')
    const inner = await open(full)
    const value = await readFile(await logOf(directory))
    for (let i = 0; i < 20; i++) await writeAt(inner, 0, 10) // So that its batches have other numbers.
    const { length } = await readFile(await logOf(full))
    await inner.prewrite(prewriteOf(await inner.tso(1), [put('log', value.subarray(0, 18_000))], { tryOnePc: true }))
    const copy = await copyOf(full)
    await inner.close()
    await truncate(await logOf(copy), length + 17_000)
    expect(await countIn(copy, [10])).toBe(1)
  })

  test('in the last, it looks like a write that a crash cut off', async () => {
    const copy = await copyOf(directory)
    await change(await logOf(copy), flipped((ends.at(-1) as number) - 1))
    expect(await countIn(copy, LENGTHS)).toBe(LENGTHS.length - 1)
  })

  test('zeros in place of a block are refused, and so is a log that jumps', async () => {
    const zeroed = await copyOf(directory)
    await change(await logOf(zeroed), (log) => Buffer.from(log).fill(0, 32_768, 65_536))
    await expectRefused(zeroed, DAMAGED_RECORD)

    const jumping = await copyOf(directory)
    const records = readLog(await readFile(await logOf(directory))).records.map(({ payload }) => payload)
    const short = records.filter(({ length }) => length < 1000) // One block takes them all.
    await writeFile(await logOf(jumping), Buffer.concat(short.map((bytes) => logRecordOf(bytes))))
    await expectRefused(jumping, /\d+\.log: the record at offset \d+ does not follow the one before it/)
  })

  test('the first of two, cut off at its beginning', async () => {
    const copy = await copyOf(directory)
    const path = await logOf(copy)
    const log = await readFile(path)
    const { records } = readLog(log)
    const first = records.find(({ offset }) => offset >= (ends[0] as number))?.offset as number
    await writeFile(path, '')
    const number = Number(/(\d+)\.log$/.exec(path)?.[1]) + 90
    const rest = log.subarray(first, 20_000)
    await writeFile(join(copy, `${String(number).padStart(6, '0')}.log`), rest)
    await expectRefused(copy, /\d+\.log: the record at offset 0 does not follow the one before it/)
  })

  test('that is damaged when the engine is opened again is refused as well', async () => {
    const copy = await copyOf(directory)
    const engine = await openLevelDb(copy)
    for (const i of [1, 2, 3]) await engine.write([{ type: 'put', key: Buffer.of(i), value: Buffer.of(i) }], false)
    const whole = await readFile(await logOf(copy))
    await change(await logOf(copy), flipped(10))
    await expect(engine.reopen()).rejects.toThrow(DAMAGED_RECORD)
    await writeFile(await logOf(copy), whole)
    await engine.reopen()
    expect(await engine.get(Buffer.of(3))).toEqual(Buffer.of(3))
    await engine.close()
  })

  test('missing, it is missed', async () => {
    const copy = await copyOf(directory)
    await rm(await logOf(copy))
    await expectRefused(copy, /damaged: \d+\.log: it is missing/)
  })
})

describe('the other files', () => {
  const LENGTHS = Array.from({ length: 8 }, () => 1_000_000)
  let directory: string
  let store: Store
  beforeAll(async () => {
    directory = join(root, 'large')
    store = await open(directory)
    for (const [i, length] of LENGTHS.entries()) await writeAt(store, i, length)
    await store.close()
    store = await open(directory) // Its manifest starts over, with tables.
    for (const [i, length] of LENGTHS.entries()) await writeAt(store, i, length)
    await store.upkeep.collect(await store.tso(1))
  })
  afterAll(() => store.close())

  test('without CURRENT, LevelDB would begin a new database and delete the old one: refused', async () => {
    const copy = await copyOf(directory)
    await rm(join(copy, 'CURRENT'))
    await expectRefused(copy, /damaged: CURRENT: it is missing/)
  })

  test.each([
    ['empty', '', /CURRENT: it names no MANIFEST/],
    ['of another directory', 'MANIFEST-999999\n', /MANIFEST-999999: it is missing/],
    ['no name', '\0\0\0', /CURRENT: it names no MANIFEST/],
  ])('a CURRENT that is %s', async (_, content, what) => {
    const copy = await copyOf(directory)
    await writeFile(join(copy, 'CURRENT'), content)
    await expectRefused(copy, what)
  })

  test('without the manifest', async () => {
    const copy = await copyOf(directory)
    await rm(await nameOf(copy, /^MANIFEST/))
    await expectRefused(copy, /MANIFEST-\d+: it is missing/)
  })

  test('a manifest whose last record a crash left half written: all is there', { tags: ['long'] }, async () => {
    const manifest = await readFile(await nameOf(directory, /^MANIFEST/))
    const payload = readLog(manifest).records.at(-1)?.payload as Buffer
    const edit = logRecordOf(payload)
    const half = edit.length >> 1
    const zeros = Buffer.alloc(half)
    const ENDS: readonly Buffer[] = [
      edit.subarray(0, 3),
      edit.subarray(0, half),
      zeros,
      Buffer.concat([edit.subarray(0, half), Buffer.alloc(edit.length - half)]), // These two LevelDB refuses.
      Buffer.concat([logRecordOf(payload, 2), zeros]),
    ]
    for (const [i, end] of ENDS.entries()) {
      const copy = await copyOf(directory)
      await change(await nameOf(copy, /^MANIFEST/), (bytes) => Buffer.concat([bytes, end]))
      expect([i, await countIn(copy, LENGTHS)]).toEqual([i, LENGTHS.length])
    }
  })

  test('a manifest cut off, or with a flipped bit, anywhere: refused, or all is there', {
    tags: ['long'],
  }, async () => {
    const { length } = await readFile(await nameOf(directory, /^MANIFEST/))
    const offsets = Array.from({ length: 16 }, (_, i) => Math.floor((i * length) / 16))
    let refused = 0
    for (const at of offsets) {
      for (const edit of [(bytes: Buffer) => bytes.subarray(0, at), flipped(at)]) {
        const copy = await copyOf(directory)
        await change(await nameOf(copy, /^MANIFEST/), edit)
        const outcome = await countIn(copy, LENGTHS).catch((error: unknown) => error)
        if (outcome instanceof DataDirectoryError) refused++
        else expect([at, outcome]).toEqual([at, LENGTHS.length])
      }
    }
    expect(refused).toBeGreaterThan(offsets.length)
  })

  test('a manifest that LevelDB takes for cut off, in front of what it could read', async () => {
    const copy = await copyOf(directory)
    await change(await nameOf(copy, /^MANIFEST/), (manifest) => {
      const second = 7 + manifest.readUInt16LE(4)
      return Buffer.from(manifest).fill(0x70, second + 5, second + 6) // Its length's upper byte.
    })
    await expectRefused(copy, /damaged: MANIFEST-\d+: the record at offset \d+ is damaged/)
  })

  test('a table that is missing', async () => {
    const names = (await readdir(directory)).filter((name) => name.endsWith('.ldb'))
    for (const name of names) {
      const copy = await copyOf(directory)
      await rm(join(copy, name))
      await expectRefused(copy, /\d+\.ldb: it is missing/)
    }
  })

  test('a table cut off: no start, or an error for what was in it, never another answer', async () => {
    const names = (await readdir(directory)).filter((name) => name.endsWith('.ldb'))
    for (const name of names) {
      const copy = await copyOf(directory)
      const table = await readFile(join(copy, name))
      await rm(join(copy, name)) // A link.
      await writeFile(join(copy, name), table.subarray(0, table.length >> 1))
      const opened = await open(copy).catch((error: unknown) => error)
      if (opened instanceof DataDirectoryError) continue
      const damaged = opened as Store
      try {
        for (const i of LENGTHS.keys()) {
          const code = await codeOf(read(damaged, `${i}/b`))
          if (code === 'none') expect((await read(damaged, `${i}/b`))?.length).toBe(LENGTHS[i])
          else expect(code).toBe('storage_unavailable')
        }
      } finally {
        await damaged.close()
      }
    }
  })
})
