import { vi } from 'vitest'

/** The tests of transactions that the server runs for its clients, on a store without one-phase commit. */
vi.mock('../../src/store/leveldb/leveldb-store.js', async (importOriginal) => {
  const original = await importOriginal<typeof import('../../src/store/leveldb/leveldb-store.js')>()
  const { inTwoPhases } = await import('../store/two-phases.js')
  type Options = Parameters<typeof original.openLevelDbStore>[0]
  return {
    ...original,
    openLevelDbStore: async (options: Options) => inTwoPhases(await original.openLevelDbStore(options)),
  }
})

await import('../http/routes/txn.test.js')
await import('../http/routes/kv.test.js')
await import('../http/idempotency.test.js')
await import('../http/serializable.test.js')
await import('../http/locks.test.js')
await import('../http/start-ts-collision.test.js')
await import('./blind-writes.test.js')
