import { expect, test } from 'vitest'
import type { Change } from '../../../../src/percolator/change.js'
import { META_MARK } from '../../../../src/store/leveldb/records/keyspace.js'
import type { CompleteStore } from '../../../../src/store/store.js'
import { codeOf, EngineFailure, prewriteOf, put, TappedEngine, testStores, text, utf8, write } from '../../support.js'

const stores = testStores()

/** More than go in one batch. */
const KEYS = 600

async function filled(engine: TappedEngine): Promise<CompleteStore> {
  const store = await stores.open({ openEngine: engine.open })
  const [startTs, commitTs] = [await store.tso(1), await store.tso(1)]
  await write(
    store,
    startTs,
    commitTs,
    Array.from({ length: KEYS }, (_, i) => put(`k/${String(i).padStart(3, '0')}`)),
  )
  return store
}

/** Calls `write` for each write but those of the oracle, which come whenever a slow machine needs them. */
function onWrites(engine: TappedEngine, write: TappedEngine['onWrite']): void {
  engine.onWrite = (seen, land) => (seen.ops.some(({ key }) => key.equals(META_MARK)) ? land() : write(seen, land))
}

async function removals(store: CompleteStore): Promise<Change[]> {
  const found: Change[] = []
  for await (const { changes } of store.log.read({ since: 0, upTo: await store.tso(1), keysOnly: true }))
    found.push(...changes.filter(({ type }) => type === 'delete_range'))
  return found
}

test.each(['nothing', 'all'])(
  'a long removal goes on after a step that failed, of which %s landed, and holds resolved_ts until it is done',
  async (landed) => {
    const engine = new TappedEngine()
    const store = await filled(engine)
    const before = store.log.resolve()
    let writes = 0
    let resolved = 0
    onWrites(engine, async (_, land) => {
      if (++writes > 2) resolved = store.log.resolve()
      const fails = writes === 2
      if (!fails || landed === 'all') await land()
      if (!fails) return
      throw new EngineFailure('disk full')
    })
    expect(await codeOf(store.deleteRange({ start: utf8('k/'), end: utf8('k0') }))).toBe('storage_unavailable')
    const [change] = await removals(store)
    expect(change).toMatchObject({ key: utf8('k/'), end: utf8('k0') })
    await expect.poll(() => store.log.resolve()).toBeGreaterThanOrEqual(change?.commitTs ?? 0)
    expect((await store.scan({ start: utf8('k/'), limit: KEYS, ts: await store.tso(1) })).pairs).toEqual([])
    expect((await removals(store)).length).toBe(1)
    expect(resolved).toBeGreaterThanOrEqual(before)
    expect(resolved).toBeLessThan(change?.commitTs ?? 0)
  },
)

test('a removal whose first write did not land is none, and holds nothing', async () => {
  const engine = new TappedEngine()
  const store = await filled(engine)
  onWrites(engine, async () => {
    engine.onWrite = (_, land) => land()
    throw new EngineFailure('disk full')
  })
  expect(await codeOf(store.deleteRange({ start: utf8('k/'), end: utf8('k0') }))).toBe('storage_unavailable')
  const ts = await store.tso(1)
  await expect.poll(() => store.log.resolve()).toBeGreaterThanOrEqual(ts)
  expect(await removals(store)).toEqual([])
  expect((await store.scan({ start: utf8('k/'), limit: KEYS, ts })).pairs).toHaveLength(KEYS)
})

test('resolved_ts does not pass a short removal of which nobody knows whether it landed', async () => {
  const engine = new TappedEngine()
  const store = await stores.open({ openEngine: engine.open })
  const before = store.log.resolve()
  engine.onRequireRoom = () => Promise.reject(new EngineFailure('disk full')) // The database is not opened again.
  onWrites(engine, async (_, land) => {
    await land()
    throw new EngineFailure('no answer')
  })
  expect(await codeOf(store.deleteRange({ start: utf8('k/'), end: utf8('k0') }))).toBe('storage_unavailable')
  expect(store.log.resolve()).toBe(before)
})

test('a long removal goes on by itself after reads that failed', { tags: ['long'] }, async () => {
  const engine = new TappedEngine()
  const store = await filled(engine)
  let failures = 0
  onWrites(engine, (_, land) => {
    engine.onNext = () => {
      if (++failures === 3) engine.onNext = () => {}
      throw new EngineFailure('input/output error')
    }
    engine.onWrite = (_, land) => land()
    return land()
  })
  expect(await codeOf(store.deleteRange({ start: utf8('k/'), end: utf8('k0') }))).toBe('storage_unavailable')
  const ts = await store.tso(1)
  await expect.poll(() => store.log.resolve()).toBeGreaterThanOrEqual(ts)
  expect(failures).toBe(3)
  expect((await store.scan({ start: utf8('k/'), limit: KEYS, ts })).pairs).toEqual([])
})

test('a key whose first version is committed while a long removal runs is removed, if that is below it', {
  tags: ['long'],
}, async () => {
  const engine = new TappedEngine()
  const store = await filled(engine)
  store.log.resolve()
  const [startTs, commitTs] = [await store.tso(1), await store.tso(1)]
  const keys = [utf8('k/zz')]
  await store.prewrite(prewriteOf(startTs, [put('k/zz')]))
  let writes = 0
  let committing: Promise<unknown> | undefined
  onWrites(engine, async (_, land) => {
    await land()
    if (++writes === 2) committing = codeOf(store.commit({ keys, startTs, commitTs }))
  })
  await store.deleteRange({ start: utf8('k/'), end: utf8('k0') })
  await committing
  expect(await store.get({ key: utf8('k/zz'), ts: await store.tso(1) })).toMatchObject({ found: false })
})

test.each(['one phase', 'async commit'])(
  'what a transaction of a %s that began before a long removal commits while that runs stays, also where nobody reads the feed',
  async (how) => {
    const engine = new TappedEngine()
    const store = await filled(engine)
    const startTs = await store.tso(1)
    await store.tso(10)
    const [last, other] = [`k/${KEYS - 1}`, 'other']
    let writes = 0
    let committing: Promise<unknown> | undefined
    onWrites(engine, async (_, land) => {
      await land()
      if (++writes === 1) committing = commit()
    })
    const commit = async (): Promise<void> => {
      if (how === 'one phase')
        return void (await store.prewrite(prewriteOf(startTs, [put(other), put(last, 'new')], { tryOnePc: true })))
      const rest = { useAsyncCommit: true, secondaries: [utf8(last)] }
      const { minCommitTs = 0 } = await store.prewrite(prewriteOf(startTs, [put(other), put(last, 'new')], rest))
      await store.commit({ keys: [utf8(other), utf8(last)], startTs, commitTs: minCommitTs })
    }
    await store.deleteRange({ start: utf8('k/'), end: utf8('k0') })
    await committing
    const { pairs } = await store.scan({ limit: KEYS, ts: await store.tso(1) })
    expect(pairs.map(({ key }) => text(key))).toEqual([last, other])
  },
)
