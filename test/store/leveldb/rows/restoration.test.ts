import { expect, test } from 'vitest'
import { invalid } from '../../../../src/errors/kv-error.js'
import { openLevelDb } from '../../../../src/store/leveldb/directory/open-level-db.js'
import type { Engine } from '../../../../src/store/leveldb/engine/engine.js'
import { CF_NEWEST, META_RESTORE } from '../../../../src/store/leveldb/records/keyspace.js'
import { repairDirectory } from '../../../../src/store/leveldb/repair/repair-directory.js'
import type { Store } from '../../../../src/store/store.js'
import {
  codeOf,
  deferred,
  EngineFailure,
  put,
  read,
  TappedEngine,
  TestClock,
  testStores,
  utf8,
  write,
} from '../../support.js'

const stores = testStores()

async function start() {
  const tapped = new TappedEngine()
  const clock = new TestClock()
  let looked = deferred()
  looked.resolve()
  /** Look-ups of keys wait. */
  const hold = () => {
    looked = deferred()
    return looked
  }
  const openEngine = async (directory: string): Promise<Engine> => {
    const engine = await tapped.open(directory)
    const get = async (key: Buffer) => {
      if (key[0] === CF_NEWEST) await looked.promise
      return engine.get(key)
    }
    return { ...engine, get }
  }
  const store = await stores.open({ openEngine, now: clock.now })
  const source = { id: 'ab'.repeat(16), ts: clock.ts() }
  async function* blocks(end?: Promise<void>) {
    yield [{ key: utf8('a'), value: utf8('restored'), commitTs: source.ts }]
    yield []
    await end
  }
  const restore = (end?: Promise<void>) => store.upkeep.restore(source, blocks(end), false)
  return { tapped, store, restore, hold }
}
async function expectOpen(store: Store): Promise<void> {
  expect(store.upkeep.restoring).toBeUndefined()
  expect(await read(store, 'a')).toBeUndefined()
}

test('a write that fails when it begins opens the database again, for all: it ends, and changes nothing', async () => {
  const { tapped, store, restore } = await start()
  const { promise, reject } = deferred()
  const reached = deferred()
  tapped.onWrite = (_, land) => {
    tapped.onWrite = (_next, landNext) => landNext()
    reached.resolve()
    return promise.then(land)
  }
  const failing = codeOf(store.system.write([{ name: 'pin/any', value: utf8('thing') }]))
  await reached.promise
  const restored = codeOf(restore())
  while (store.upkeep.restoring === undefined) await tapped.quiet()
  reject(new EngineFailure('an error'))
  expect([await failing, await restored]).toEqual(['storage_unavailable', 'storage_unavailable'])
  await expectOpen(store)
  const ts = await store.tso(2)
  await write(store, ts - 1, ts, [put('a', 'mine')])
  expect(await codeOf(restore())).toBe('precondition_failed')
})

test('a full disk when it begins: it ends, and reads go on', async () => {
  const { tapped, store, restore } = await start()
  tapped.onRequireRoom = () => Promise.reject(new Error('no room'))
  tapped.onWrite = () => Promise.reject(new EngineFailure('disk full'))
  expect(await codeOf(restore())).toBe('storage_unavailable')
  await expectOpen(store)
})

test('its end, when it lands though the write failed, shuts out what began before', async () => {
  const { tapped, store, restore } = await start()
  const before = await store.tso(1)
  tapped.onWrite = async ({ ops }, land) => {
    await land()
    if (ops.some(({ type, key }) => type === 'del' && key.includes('restore'))) throw new EngineFailure('an error')
  }
  expect(await codeOf(restore())).toBe('storage_unavailable')
  expect(store.upkeep.restoring).toBeUndefined()
  expect(await codeOf(read(store, 'a', before))).toBe('ts_below_safe_point')
  expect(await read(store, 'a')).toBe('restored')
})

test('a read that is on its way when it begins sees nothing of it: it may yet come to nothing', async () => {
  const { store, restore, hold } = await start()
  const looked = hold()
  const reading = codeOf(read(store, 'a'))
  const end = deferred()
  const restored = restore(end.promise)
  while (store.upkeep.restoring?.pairs !== 1) await new Promise((resolve) => setImmediate(resolve))
  looked.resolve()
  expect(await reading).toBe('storage_unavailable')
  end.resolve()
  await restored
  expect(await read(store, 'a')).toBe('restored')
})

test('cut off, and its record damaged: a repair takes what there is for no whole store', async () => {
  const directory = await stores.directory()
  const store = await stores.open({ directory })
  const source = { id: 'ab'.repeat(16), ts: 100 }
  async function* cutOff() {
    yield [{ key: utf8('a'), value: utf8('restored'), commitTs: 50 }]
    throw invalid('body', 'it was cut off')
  }
  const whole = () => (async function* () {})()
  expect(await codeOf(store.upkeep.restore(source, cutOff(), false))).toBe('invalid_argument')
  await store.close()
  const engine = await openLevelDb(directory)
  await engine.write([{ type: 'put', key: META_RESTORE, value: Buffer.from('damage') }], true)
  await engine.close()

  await repairDirectory(directory, { say: () => {}, isDryRun: false, keepsCopy: false })
  const repaired = await stores.open({ directory })
  expect(await codeOf(read(repaired, 'a'))).toBe('storage_unavailable')
  expect(await codeOf(repaired.upkeep.restore(source, whole(), false))).toBe('precondition_failed')
  await repaired.upkeep.restore(source, whole(), true)
  expect(await read(repaired, 'a')).toBeUndefined()
})
