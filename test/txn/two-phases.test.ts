import { expect, test, vi } from 'vitest'
import { Coordinator } from '../../src/coordinator/coordinator.js'
import type { TracedRequest } from '../../src/http/connections/traced-requests.js'
import { DEFAULT_LIMITS } from '../../src/limits.js'
import { commitOptionsOf } from '../../src/txn/commit-options.js'
import { OneShots } from '../../src/txn/one-shots.js'
import { Outcomes } from '../../src/txn/outcomes.js'
import { sendTo, testServers } from '../http/support.js'
import { read, testStores, utf8 } from '../store/support.js'
import { inTwoPhases } from '../store/two-phases.js'

/** The tests of transactions that the server runs for its clients, on a store without one-phase commit. */
vi.mock('../../src/store/leveldb/leveldb-store.js', async (importOriginal) => {
  const original = await importOriginal<typeof import('../../src/store/leveldb/leveldb-store.js')>()
  const { inTwoPhasesLatched } = await import('../store/two-phases.js')
  type Options = Parameters<typeof original.openLevelDbStore>[0]
  const openLevelDbStore = async (options: Options) => inTwoPhasesLatched(await original.openLevelDbStore(options))
  return { ...original, openLevelDbStore }
})

// On a shared table, which commits in two phases too, CI runs these (test/bigtable/http-suite.mjs).
if (process.env['PERKV_TEST_LONG']) {
  await import('../http/routes/txn.test.js')
  await import('../http/routes/kv.test.js')
  await import('../http/idempotency.test.js')
  await import('../http/serializable.test.js')
  await import('../http/locks.test.js')
  await import('../http/start-ts-collision.test.js')
  await import('./blind-writes.test.js')
}

const start = testServers()
const stores = testStores()

test('what the store does not offer is refused', async () => {
  const server = await start()
  const status = (await server.get('/v1/status')).json()
  expect(status).toMatchObject({
    store: 'two-phases',
    capabilities: { one_phase_commit: false, compact: false, lock_count: false },
    writable: true,
  })
  expect(status.counts).not.toHaveProperty('locks')
  expect((await server.send('POST', '/v1/admin/compact')).json()).toMatchObject({ status: 501, code: 'not_supported' })
  expect((await server.get('/readyz')).statusCode).toBe(200)
})

test('the second phase of a commit counts as writing', async () => {
  const ended: TracedRequest[] = []
  const server = await start({ traces: { ended: (request) => void ended.push(request) } })
  const port = await server.listen()
  const begun = await sendTo({ port }, 'POST', '/v1/txn/begin', { 'content-type': 'application/json' }, '{}')
  const txn = `/v1/txn/${JSON.parse(begun.body).txn}`
  await sendTo({ port }, 'PUT', `${txn}/kv/a`, {}, 'value')
  const { commit_ts: commitTs } = JSON.parse((await sendTo({ port }, 'POST', `${txn}/commit`, {})).body)
  await sendTo({ port }, 'PUT', '/v1/kv/b', {}, 'value')
  for (const route of ['/v1/txn/:txn/commit', '/v1/kv/:key']) {
    const { stages } = await vi.waitFor(() => {
      const found = ended.find((request) => request.route === route)
      if (found === undefined) throw new Error(`no ${route} has ended`)
      return found
    })
    expect(stages?.txn, route).toMatchObject({ kind: '2pc', ...(route.endsWith('commit') && { commitTs }) })
    expect(
      stages?.intervals?.filter(({ stage }) => stage === 'writeMs'),
      route,
    ).toHaveLength(2)
  }
})

test('without latches increments of one key lose to each other, and none is lost', async () => {
  const store = inTwoPhases(await stores.open())
  const coordinator = new Coordinator(store, commitOptionsOf(store.traits))
  const oneShots = new OneShots(store, coordinator, new Outcomes(store, coordinator, DEFAULT_LIMITS))
  const ops = [{ op: 'increment' as const, key: utf8('n'), by: 1 }]
  const increment = () => oneShots.run({ checks: [], ops, maxRetries: 1000, lockWaitMs: 60_000 })
  await Promise.all(Array.from({ length: 20 }, increment))
  expect(await read(store, 'n')).toBe('20')
})
