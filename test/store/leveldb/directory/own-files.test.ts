import { rmSync, type StatSyncOptions } from 'node:fs'
import { copyFile, link, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { DataDirectoryError } from '../../../../src/store/leveldb/data-directory-error.js'
import * as holding from '../../../../src/store/leveldb/directory/directory-hold.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { DirectoryLost, OwnFiles, ownedEngine } from '../../../../src/store/leveldb/directory/own-files.js'
import type { Store } from '../../../../src/store/store.js'
import { codeOf, prewriteOf, put, read, testStores } from '../../support.js'

vi.mock('../../../../src/store/leveldb/directory/directory-hold.js', async (importOriginal) => {
  const original = await importOriginal<typeof holding>()
  return { ...original, holdDirectory: vi.fn(original.holdDirectory) }
})

const looks = vi.hoisted(() => ({
  /** Whether listings of a directory miss its logs, as one that is made while LevelDB changes it may. */
  missLogs: false,
  /** Called after each look at a file. */
  after: (_path: string): void => {},
}))
vi.mock('node:fs', async (importOriginal) => {
  const original = await importOriginal<typeof import('node:fs')>()
  const readdirSync = (path: string): string[] =>
    original.readdirSync(path).filter((name) => !(looks.missLogs && name.endsWith('.log')))
  const statSync = (path: string, options?: StatSyncOptions) => {
    const found = original.statSync(path, options)
    looks.after(path)
    return found
  }
  return { ...original, readdirSync, statSync }
})

afterEach(() => {
  looks.missLogs = false
  looks.after = () => {}
})

const stores = testStores()
const write = async (store: Store, key: string, value?: string | Buffer): Promise<unknown> =>
  store.prewrite(prewriteOf(await store.tso(1), [put(key, value)], { tryOnePc: true }))

async function opened() {
  const directory = join(await stores.directory(), 'db')
  const ended: string[] = []
  let end: (message: string) => void = () => {}
  const hasEnded = new Promise<string>((resolve) => {
    end = resolve
  })
  const onEnd = (message: string): void => {
    ended.push(message)
    end(message)
  }
  const store = await stores.open({ directory, onEnd })
  await write(store, 'first')
  return { directory, store, ended, hasEnded }
}

async function named(directory: string, pattern: RegExp): Promise<string> {
  const names = (await readdir(directory)).filter((name) => pattern.test(name))
  return names.sort().at(-1) as string
}

/** In place of the old one, another file with the same bytes. */
async function replace(path: string): Promise<void> {
  await copyFile(path, `${path}.new`)
  await rename(`${path}.new`, path)
}

/** Where `lose` takes more than one step, a look may come between them. */
const LOSSES: { name: string; lose: (directory: string) => Promise<void>; says: RegExp; isAtOnce: boolean }[] = [
  { name: 'LOCK deleted', lose: (at) => rm(join(at, 'LOCK')), says: /LOCK is gone$/, isAtOnce: true },
  { name: 'LOCK replaced', lose: (at) => replace(join(at, 'LOCK')), says: /LOCK is another file$/, isAtOnce: true },
  { name: 'the directory deleted', lose: (at) => rm(at, { recursive: true }), says: / is gone$/, isAtOnce: true },
  { name: 'the directory moved', lose: (at) => rename(at, `${at}.old`), says: /LOCK is gone$/, isAtOnce: true },
  {
    name: 'another directory in its place',
    async lose(at) {
      await rename(at, `${at}.old`)
      await mkdir(at)
      for (const name of await readdir(`${at}.old`)) await copyFile(join(`${at}.old`, name), join(at, name))
    },
    says: /LOCK is (?:gone|another file)$/,
    isAtOnce: true,
  },
  { name: 'CURRENT deleted', lose: (at) => rm(join(at, 'CURRENT')), says: /CURRENT is gone$/, isAtOnce: false },
  {
    name: 'the MANIFEST deleted',
    lose: async (at) => rm(join(at, await named(at, /^MANIFEST/))),
    says: /MANIFEST-\d+ is gone$/,
    isAtOnce: false,
  },
  {
    name: 'the log deleted',
    lose: async (at) => rm(join(at, await named(at, /\.log$/))),
    says: /\d+\.log is gone$/,
    isAtOnce: false,
  },
  {
    name: 'the log replaced',
    lose: async (at) => replace(join(at, await named(at, /\.log$/))),
    says: /\d+\.log is another file$/,
    isAtOnce: false,
  },
]

test('a change is noticed without any request, said once, and everything is refused', { tags: ['long'] }, () =>
  Promise.all(
    LOSSES.map(async ({ lose, says }) => {
      const { directory, store, ended, hasEnded } = await opened()
      await lose(directory)
      expect(await hasEnded).toMatch(says)
      expect([store.upkeep.probe(), store.upkeep.fault]).toEqual([false, ended[0]])
      expect(await codeOf(write(store, 'later'))).toBe('storage_unavailable')
      expect(await codeOf(read(store, 'first'))).toBe('storage_unavailable')
      expect(await codeOf(store.scan({ ts: 1, limit: 1 }))).toBe('storage_unavailable')
      expect(store.upkeep.probe()).toBe(false)
      await store.close()
      expect(ended).toHaveLength(1)
    }),
  ),
)

test.each(LOSSES)('$name: no write is acknowledged', async ({ lose, isAtOnce }) => {
  const { directory, store, ended } = await opened()
  await lose(directory)
  for (;;) {
    const isKnown = isAtOnce || ended.length > 0
    if ((await codeOf(write(store, 'later'))) === 'storage_unavailable') break
    expect(isKnown).toBe(false)
  }
  expect(ended).toHaveLength(1)
})

test.each([
  ['', false],
  [', also where listings miss those that are there', true],
])('other files may come and go, and logs with them%s', async (_, missesLogs) => {
  const { directory, store, ended } = await opened()
  looks.missLogs = missesLogs
  const log = await named(directory, /\.log$/)
  for (let i = 0; i < 12; i++) await write(store, `key${i}`, Buffer.alloc(1_000_000, i))
  while ((await readdir(directory)).includes(log)) await write(store, 'more')
  await write(store, 'last')
  expect([ended, store.upkeep.probe()]).toEqual([[], true])
})

test('a log that LevelDB deletes just after a look at it is not lost', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'performance'] })
  const directory = await stores.directory()
  for (const name of ['LOCK', 'MANIFEST-000002', '000003.log']) await writeFile(join(directory, name), '')
  await writeFile(join(directory, 'CURRENT'), 'MANIFEST-000002\n')
  const lost: string[] = []
  const files = new OwnFiles(directory, (message) => lost.push(message))
  try {
    await writeFile(join(directory, '000005.log'), '')
    looks.after = (path) => {
      if (path.endsWith('000003.log')) rmSync(path, { force: true })
    }
    vi.advanceTimersByTime(2000)
    expect(await readdir(directory)).not.toContain('000003.log')
    expect(lost).toEqual([])
  } finally {
    files.stop()
    vi.useRealTimers()
  }
})

test('files that LevelDB makes when it is opened again are its own', async () => {
  const directory = await stores.directory()
  const lost: string[] = []
  const engine = await openLevelDb(directory)
  const owned = ownedEngine(engine, new OwnFiles(directory, (message) => lost.push(message)))
  const current = () => readFile(join(directory, 'CURRENT'), 'latin1')
  const before = await current()
  await owned.reopen()
  expect(await current()).not.toBe(before)
  await owned.write([{ type: 'put', key: Buffer.from('k'), value: Buffer.from('v') }], false)
  expect(lost).toEqual([])
  await rm(join(directory, 'LOCK'))
  await expect(owned.reopen()).rejects.toThrow(DirectoryLost)
  await expect(owned.requireRoom()).rejects.toThrow(DirectoryLost)
  await owned.close()
})

test('so are those of an opening that fails in the end: the next one may succeed', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'performance'] })
  try {
    const directory = await stores.directory()
    const lost: string[] = []
    const engine = await openLevelDb(directory)
    let isDiskBad = true
    const reopen = async (): Promise<void> => {
      await engine.reopen()
      if (isDiskBad) throw new Error('fsync of the directory failed')
    }
    const owned = ownedEngine({ ...engine, reopen }, new OwnFiles(directory, (message) => lost.push(message)))
    await expect(owned.reopen()).rejects.toThrow('fsync of the directory failed')
    vi.advanceTimersByTime(2000)
    expect(lost).toEqual([])
    isDiskBad = false
    await owned.reopen()
    await owned.write([{ type: 'put', key: Buffer.from('k'), value: Buffer.from('v') }], false)
    await owned.close()
  } finally {
    vi.useRealTimers()
  }
})

test('LOCK deleted while LevelDB is opened again: the directory is lost', async () => {
  const directory = await stores.directory()
  const lost: string[] = []
  const engine = await openLevelDb(directory)
  const reopen = async (): Promise<void> => {
    await link(join(directory, 'LOCK'), `${directory}.lock`) // Else the file system may give its number to the next one.
    await rm(join(directory, 'LOCK'))
    await engine.reopen()
  }
  const owned = ownedEngine({ ...engine, reopen }, new OwnFiles(directory, (message) => lost.push(message)))
  await owned.reopen()
  await expect(owned.requireRoom()).rejects.toThrow(DirectoryLost)
  expect(lost).toHaveLength(1)
  await owned.close()
  await rm(`${directory}.lock`)
})

describe('a second server, after LOCK was deleted', () => {
  test.skipIf(process.platform !== 'linux')('is refused while the first one runs, by any path (Linux)', async () => {
    vi.useFakeTimers({ toFake: ['setInterval'] }) // It lets go of the directory once it has looked.
    const { directory, store } = await opened()
    vi.useRealTimers()
    await symlink(directory, `${directory}.link`)
    await rm(join(directory, 'LOCK'))
    for (const path of [directory, `${directory}.link`]) {
      await expect(stores.open({ directory: path })).rejects.toThrow(DataDirectoryError)
      await expect(stores.open({ directory: path })).rejects.toThrow(/is in use by another process/)
    }
    expect(await readdir(directory)).not.toContain('LOCK')
    await store.close()
    const next = await stores.open({ directory })
    expect(await read(next, 'first')).toBe('value of first')
  })

  test('has every write that the first one acknowledged, also where nothing else keeps it out', {
    tags: ['long'],
  }, async () => {
    // As on another system, or in a container with a network of its own.
    vi.mocked(holding.holdDirectory).mockResolvedValue({ release: async () => {} })
    try {
      for (let round = 0; round < 10; round++) {
        const { directory, store } = await opened()
        await symlink(directory, `${directory}.link`) // LevelDB's lock keeps a path from being opened twice by one process.
        const acknowledged = ['first']
        const writing = async (writer: number): Promise<void> => {
          for (let i = 0; ; i++) {
            const key = `${writer}/${i}`
            if ((await codeOf(write(store, key))) !== 'none') return
            acknowledged.push(key)
          }
        }
        const writers = [0, 1, 2, 3].map(writing)
        while (acknowledged.length < 10 * round) await new Promise((resolve) => setImmediate(resolve))
        await rm(join(directory, 'LOCK'))
        const second = await stores.open({ directory: `${directory}.link` })
        await Promise.all(writers)
        for (const key of acknowledged) expect([key, await read(second, key)]).toEqual([key, `value of ${key}`])
        await write(second, 'more')
      }
    } finally {
      vi.mocked(holding.holdDirectory).mockReset()
    }
  })
})
