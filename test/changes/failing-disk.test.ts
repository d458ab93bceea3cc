import { describe, expect, test } from 'vitest'
import { Consumers } from '../../src/changes/consumers.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import type { Store } from '../../src/store/store.js'
import type { Timestamp } from '../../src/timestamp.js'
import { codeOf, EngineFailure, prewriteOf, put, TappedEngine, testStores, utf8 } from '../store/support.js'

const stores = testStores()

async function start() {
  const tapped = new TappedEngine()
  const store = await stores.open({ openEngine: tapped.open })
  const errors: unknown[] = []
  const consumers = await Consumers.open(store, { limits: DEFAULT_LIMITS, onError: (error) => errors.push(error) })
  const { position } = (await consumers.put('copy', { range: { prefix: utf8('doc/') } })).state
  return { tapped, store, consumers, position, errors }
}

/** The next write fails, on disk or not. */
function failNextWrite(tapped: TappedEngine, lands: boolean): void {
  tapped.onWrite = async (_, land) => {
    tapped.onWrite = (_, land) => land()
    if (lands) await land()
    throw new EngineFailure('no answer')
  }
}

async function commit(
  store: Store,
  key: string,
  positions: { consumer: string; from: Timestamp; ts: Timestamp }[] = [],
) {
  const commitEffects = positions.length === 0 ? undefined : { positions }
  const request = { tryOnePc: true, linearizable: true, commitEffects }
  return (await store.prewrite(prewriteOf(await store.tso(1), [put(key)], request))).onePcCommitTs ?? 0
}

describe.each([true, false])('a write that failed, although it is on disk: %j', (lands) => {
  test('of a registration shows what is on disk', async () => {
    const { tapped, consumers } = await start()
    failNextWrite(tapped, lands)
    expect(await codeOf(consumers.put('new', { range: {} }))).toBe('storage_unavailable')
    const again = () =>
      consumers.put('new', { range: {} }).then(
        ({ isNew }) => isNew,
        () => undefined,
      )
    await expect.poll(again).toBe(!lands)
    expect((await consumers.list()).map(({ name }) => name)).toEqual(['copy', 'new'])
  })

  test('of an acknowledgement in a transaction moves the position, or not, with its write', async () => {
    const { tapped, store, consumers, position } = await start()
    const ts = await commit(store, 'doc/1')
    failNextWrite(tapped, lands)
    const step = { consumer: 'copy', from: position, ts }
    expect(await codeOf(commit(store, 'copy/1', [step]))).toBe('storage_unavailable')
    const again = () => codeOf(commit(store, 'copy/1', [step]))
    await expect.poll(again).toBe(lands ? 'write_conflict' : 'none')
    await expect.poll(async () => (await consumers.get('copy')).position).toBe(ts)
  })

  test('of a removal leaves it, or not', async () => {
    const { tapped, consumers } = await start()
    failNextWrite(tapped, lands)
    expect(await codeOf(consumers.remove('copy'))).toBe('storage_unavailable')
    const again = () => codeOf(consumers.remove('copy'))
    await expect.poll(again).toBe(lands ? 'not_found' : 'none')
    expect(await consumers.list()).toEqual([])
  })

  test('of a move by the server is made up for', async () => {
    const { tapped, store, consumers, position, errors } = await start()
    const commitTs = await commit(store, 'other')
    failNextWrite(tapped, lands)
    await consumers.moveOn()
    await expect.poll(() => codeOf(commit(store, 'other/2'))).toBe('none')
    const after = async () => {
      await consumers.moveOn()
      return (await consumers.get('copy')).position
    }
    await expect.poll(after).toBeGreaterThan(commitTs)
    expect(errors).toEqual([])
    const ts = await commit(store, 'doc/1')
    await commit(store, 'copy/1', [{ consumer: 'copy', from: position, ts }])
    expect(await consumers.get('copy')).toMatchObject({ position: ts })
  })
})
