import { expect, test } from 'vitest'
import type { KeyState } from '../../src/changes/rules/changes-api.js'
import { LockResolver, type Waiting } from '../../src/coordinator/lock-resolver.js'
import type { Store } from '../../src/store/store.js'
import { prewriteOf, put, testStores, utf8, write } from '../store/support.js'
import { openChanges } from './support.js'

const stores = testStores()

/** More than may be read at once. */
const KEYS = Array.from({ length: 80 }, (_, i) => `locked/${i}`)

/** The primary is another key: readers of the latest pass its lock. */
async function lockAll(store: Store) {
  const startTs = await store.tso(1)
  const mutations = [put('primary'), ...KEYS.map((key) => put(key))]
  await store.prewrite(prewriteOf(startTs, mutations, { lockTtl: 3_600_000 }))
  return { startTs, keys: mutations.map(({ key }) => key) }
}

/** For any wait that it permits, it waits longer than the test runs. */
function patientResolver(store: Store): Pick<LockResolver, 'reading'> {
  const resolver = new LockResolver(store)
  const patient = ({ lockWaitMs, signal }: Waiting): Waiting => ({ lockWaitMs: lockWaitMs * 1000, signal })
  return { reading: (read, waiting) => resolver.reading(read, () => patient(waiting())) }
}

const kindOf = (step: IteratorResult<KeyState, void>): boolean | undefined => step.value?.found

test('keys whose locks live take no place of others, and are read when the locks are gone', {
  tags: ['long'],
}, async () => {
  for (const ending of ['commit', 'rollback'] as const) {
    const store = await stores.open()
    const changes = openChanges(store, {}, { resolver: patientResolver(store) })
    const { startTs, keys } = await lockAll(store)
    const watches = KEYS.map((key) => changes.watch({ key: utf8(key) }))
    const states = watches.map((each) => each.next())
    await write(store, await store.tso(1), await store.tso(1), [put('free')])
    const free = changes.watch({ key: utf8('free') })
    expect(kindOf(await free.next())).toBe(true)
    if (ending === 'commit') await store.commit({ keys, startTs, commitTs: await store.tso(1) })
    else await store.rollback({ keys, startTs })
    expect(new Set((await Promise.all(states)).map(kindOf))).toEqual(new Set([ending === 'commit']))
    changes.close()
  }
})
