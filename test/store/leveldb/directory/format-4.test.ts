import { copyFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { reservedKey } from '../../../../src/percolator/codec/reserved-key.js'
import { FORMAT_VERSION, formatOp, readFormat } from '../../../../src/store/leveldb/directory/data-directory.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import { type Engine, pagesOf } from '../../../../src/store/leveldb/engine/engine.js'
import { checkDirectory } from '../../../../src/store/leveldb/integrity/check-directory.js'
import { META_FORMAT, META_LOG_START } from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import { EngineFailure, prewriteOf, put, read, TappedEngine, testStores, utf8 } from '../../support.js'
import { EVERYTHING } from './old-format.js'

const stores = testStores()

/** Written by the last version without observers: versions of keys, a lock, the outcome of a request, a pin. */
const WRITTEN = fileURLToPath(new URL('./format-4/', import.meta.url))
/** A second after it was closed. */
const NOW_MS = 1_795_378_403_565
const APPLE = [3676934968283137, 3676934968324097, 3676934968383489]

async function copyOfWritten(): Promise<string> {
  const directory = await stores.directory()
  for (const file of await readdir(WRITTEN)) await copyFile(join(WRITTEN, file), join(directory, file))
  return directory
}

async function raw<T>(directory: string, body: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await openLevelDb(directory)
  try {
    return await body(engine)
  } finally {
    await engine.close()
  }
}

async function entriesOf(directory: string): Promise<string[]> {
  return raw(directory, async (engine) => {
    const entries: string[] = []
    for await (const page of pagesOf(engine, EVERYTHING, 100))
      for (const [key, value] of page)
        if (!key.equals(META_FORMAT) && !key.equals(META_LOG_START))
          entries.push(`${key.toString('hex')} ${value.toString('hex')}`)
    return entries
  })
}

async function expectAsItWas(directory: string): Promise<void> {
  const store = await stores.open({ directory, now: () => NOW_MS })
  expect(await Promise.all(APPLE.map((ts) => read(store, 'apple', ts)))).toEqual(['red', 'green', 'golden'])
  expect(await read(store, 'long')).toBe('x'.repeat(2000))
  const { locks } = await store.scanLock({ maxTs: 2 ** 53 - 1 })
  expect(locks).toMatchObject([{ key: utf8('locked'), startTs: 3676934968389632 }])
  expect((await store.get({ key: reservedKey(utf8('outcome/put once')) })).found).toBe(true)
  expect([...(await store.system.list('pin/')).keys()]).toEqual(['pin/LKI94yO97e33-iNT'])

  const id = await store.tso(1)
  store.observed.register({ id, name: 'fruit', range: {}, maxDepth: 0 })
  const { onePcCommitTs } = await store.prewrite(
    prewriteOf(await store.tso(1), [put('apple', 'brown')], { tryOnePc: true }),
  )
  expect(await store.cells.notifications(id, { after: undefined, limit: 10 })).toEqual([
    { key: utf8('apple'), notification: { changeTs: onePcCommitTs, kind: 'put', depth: 0 } },
  ])
  await store.close()
}

test('a directory of format 4 is told of once, gets the new number and where its log begins, and is observed from then on', async () => {
  const directory = await copyOfWritten()
  const before = await entriesOf(directory)
  const tapped = new TappedEngine()
  const told: unknown[] = []
  const onConvert = (...formats: number[]) => void told.push(formats)
  const openEngine: typeof tapped.open = async (path) => {
    const engine = await tapped.open(path)
    tapped.onWrite = async (_, land) => {
      if (tapped.writes.length > 1) throw new EngineFailure('disk full')
      await land()
    }
    return engine
  }
  await expect(stores.open({ directory, openEngine, onConvert })).rejects.toThrow('disk full')
  const begin = { type: 'put', key: META_LOG_START, value: expect.any(Buffer) }
  expect(tapped.writes[0]).toEqual({ ops: [formatOp(FORMAT_VERSION), begin], sync: true })
  expect(await entriesOf(directory)).toEqual(before)
  await expectAsItWas(directory)
  await (await stores.open({ directory, onConvert })).close()
  expect(told).toEqual([[4, FORMAT_VERSION]])
})

test('check refuses it until then, and a repair converts it', async () => {
  const directory = await copyOfWritten()
  const check = () => checkDirectory(directory, { onFinding: () => {} })
  await expect(check()).rejects.toThrow('has format 4: perkv serve converts it')
  const repaired = await repairDirectory(directory, { say: () => {}, isDryRun: false, keepsCopy: false })
  expect(repaired).toMatchObject({ isSound: true, losses: 0 })
  expect(await raw(directory, readFormat)).toBe(FORMAT_VERSION)
  await expectAsItWas(directory)
  expect((await check()).isSound).toBe(true)
})

test('a directory of the next format is refused by all three, and stays as it is', async () => {
  const directory = await copyOfWritten()
  const next = FORMAT_VERSION + 1
  await raw(directory, (engine) => engine.write([formatOp(next)], true))
  const before = await entriesOf(directory)
  const refusal = `has format ${next}, written by a newer PerKV`
  await expect(stores.open({ directory })).rejects.toThrow(refusal)
  await expect(checkDirectory(directory, { onFinding: () => {} })).rejects.toThrow(refusal)
  const options = { say: () => {}, isDryRun: false, keepsCopy: false }
  await expect(repairDirectory(directory, options)).rejects.toThrow(refusal)
  expect(await entriesOf(directory)).toEqual(before)
  expect(await raw(directory, readFormat)).toBe(next)
})
