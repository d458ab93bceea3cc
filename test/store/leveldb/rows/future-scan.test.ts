import { expect, test, vi } from 'vitest'
import * as timeSlicer from '../../../../src/event-loop/time-slicer.js'
import { TIMESTAMP_MAX } from '../../../../src/timestamp.js'
import { deferred, failureOf, prewriteOf, put, testStores, text, utf8, write } from '../../support.js'

vi.mock('../../../../src/event-loop/time-slicer.js', async (importOriginal) => {
  const original = await importOriginal<typeof timeSlicer>()
  return { ...original, runSliced: vi.fn(original.runSliced) }
})

const stores = testStores()

/** A scan over many locks that is interrupted, while another transaction writes a key behind it and one ahead. */
async function interrupted(reverse: boolean) {
  const store = await stores.open()
  await write(store, await store.tso(1), await store.tso(1), [put('a', 'old'), put('z', 'old')])
  const others = await store.tso(1)
  const keys = Array.from({ length: 5000 }, (_, i) => utf8(`k${i}`))
  const lockTtl = 60_000 // They block no reads.
  await store.acquirePessimisticLock({ keys, primary: utf8('k0'), startTs: others, forUpdateTs: others, lockTtl })
  const startTs = await store.tso(1)

  const [hasBegun, mayGoOn] = [deferred(), deferred()]
  vi.mocked(timeSlicer.runSliced).mockImplementationOnce(async (walk) => {
    expect(walk.next()).toMatchObject({ done: false })
    hasBegun.resolve()
    await mayGoOn.promise
    return timeSlicer.runToEnd(walk)
  })
  const scanned = store.scan({ ts: TIMESTAMP_MAX, limit: 10, reverse })
  await hasBegun.promise
  const [behind, ahead] = reverse ? ['z', 'a'] : ['a', 'z']
  await store.prewrite(prewriteOf(startTs, [put(ahead, 'new'), put(behind, 'new')]))
  const commit = async (key: string) => store.commit({ keys: [utf8(key)], startTs, commitTs: await store.tso(1) })
  await commit(ahead)
  return { scanned, startTs, behind, commit, mayGoOn }
}

test.each([false, true])(
  'a scan of the latest versions shows no half of a transaction (reverse: %s)',
  { tags: ['long'] },
  async (reverse) => {
    const { scanned, startTs, behind, mayGoOn } = await interrupted(reverse)
    mayGoOn.resolve()
    expect(await failureOf(scanned)).toMatchObject({
      code: 'key_locked',
      fields: { locks: [{ key: utf8(behind), startTs }] },
    })
  },
)

test('and all of one that ends meanwhile', async () => {
  const { scanned, behind, commit, mayGoOn } = await interrupted(false)
  await commit(behind)
  mayGoOn.resolve()
  const { pairs } = await scanned
  expect(pairs.map(({ key, value }) => [text(key), value && text(value)])).toEqual([
    ['a', 'new'],
    ['z', 'new'],
  ])
})
