import { expect, test } from 'vitest'
import { codeOf, failureOf, prewriteOf, put, START_MS, testStores, utf8 } from '../../support.js'

const stores = testStores()
const HOUR_MS = 3_600_000

/** A wall clock that jumps an hour, and nobody has asked the time since. */
async function jumped(prepare: (store: Awaited<ReturnType<typeof stores.open>>, startTs: number) => Promise<unknown>) {
  let wallMs = START_MS
  const store = await stores.open({ now: () => wallMs, monotonicNow: () => 0 })
  const startTs = await store.tso(1)
  await prepare(store, startTs)
  const inFuture = (await store.tso(1)) + 2 * HOUR_MS * 2048
  wallMs += HOUR_MS
  return { store, startTs, inFuture }
}

test('a jump of the clock that a cleanup is the first to notice makes no lock older', async () => {
  const { store, startTs, inFuture } = await jumped((store, ts) => store.prewrite(prewriteOf(ts, [put('a')])))
  expect(await codeOf(store.cleanup({ key: utf8('a'), startTs, currentTs: inFuture }))).toBe('key_locked')
})

test('nor one that a prewrite is the first to notice', async () => {
  const { store, startTs, inFuture } = await jumped(async () => {})
  const rest = { useAsyncCommit: true, secondaries: [], minCommitTs: inFuture }
  await store.prewrite(prewriteOf(startTs, [put('a')], rest))
  const { locks } = await store.scanLock({ maxTs: await store.tso(1) })
  expect(locks[0]?.ttl).toBe(HOUR_MS + 3000)
})

test('a reader who meets a lock, and then asks for the time, sees its age without the jump', async () => {
  const { store, startTs } = await jumped((store, ts) => store.prewrite(prewriteOf(ts, [put('a')])))
  const met = await failureOf(store.get({ key: utf8('a'), ts: startTs }))
  expect(met).toMatchObject({ code: 'key_locked', fields: { lock: { ttl: HOUR_MS + 3000 } } })
})
