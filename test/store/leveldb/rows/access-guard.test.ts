import { describe, expect, test } from 'vitest'
import type { MayAccess } from '../../../../src/percolator/access.js'
import type { PrewriteRequest } from '../../../../src/percolator/api.js'
import type { Store } from '../../../../src/store/store.js'
import { codeOf, put, TappedEngine, testStores, text, utf8, WriteGate } from '../../support.js'

const stores = testStores()
const mayAccess: MayAccess = (key) => text(key).startsWith('app/')

describe('while a batch is being written', () => {
  async function gated(): Promise<{ store: Store; gate: WriteGate; tapped: TappedEngine }> {
    const tapped = new TappedEngine()
    const store = await stores.open({ openEngine: tapped.open })
    const gate = new WriteGate(tapped)
    gate.open()
    return { store, gate, tapped }
  }
  const lock = async (store: Store, names: readonly string[], rest: Partial<PrewriteRequest> = {}) => {
    const startTs = await store.tso(1)
    const request = { primary: utf8(names[0] ?? ''), startTs, lockTtl: 3000, ...rest }
    await store.prewrite({ ...request, mutations: names.map((name) => put(name)) })
    return startTs
  }

  test('a primary elsewhere says nothing before its commit is on disk', async () => {
    const { store, gate, tapped } = await gated()
    const startTs = await lock(store, ['secret/p', 'app/s'])
    const commitTs = await store.tso(1)
    gate.shut()
    const committing = store.commit({ keys: [utf8('secret/p')], startTs, commitTs })
    await tapped.quiet()
    const follow = () => store.resolveLock({ txns: [{ startTs, commitTs }], keys: [utf8('app/s')], mayAccess })
    expect(await codeOf(follow())).toBe('forbidden')
    gate.open()
    await committing
    expect(await follow()).toEqual({ resolved: 1 })
  })

  test('a secondary goes with a primary that the same caller commits', async () => {
    const { store, gate, tapped } = await gated()
    const startTs = await lock(store, ['app/p', 'app/s'], { useAsyncCommit: true, secondaries: [utf8('app/s')] })
    const commitTs = (await store.tso(1)) + 1
    gate.shut()
    const commits = ['app/p', 'app/s'].map((name) => store.commit({ keys: [utf8(name)], startTs, commitTs, mayAccess }))
    await tapped.quiet()
    gate.open()
    expect(await Promise.all(commits)).toEqual([{ commitTs }, { commitTs }])
  })
})
