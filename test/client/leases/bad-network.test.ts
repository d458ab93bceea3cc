import { expect, test } from 'vitest'
import { type Connection, isKvError, type Lease } from '../../../src/client/index.js'
import { connectTo } from '../../coordinator/support.js'
import { testServers } from '../../http/support.js'
import { type Fate, FaultyNetwork } from '../http/faulty-fetch.js'

const start = testServers()
const FATES: readonly Fate[] = ['lose_answer', 'arrive', 'lose_request', 'twice', 'arrive', 'busy', 'arrive']
const STEPS = 4
const TURNS = 3

/** A step of the work: the log has the fence of each, in the order of their commits. */
async function step(db: Connection, lease: Lease): Promise<void> {
  await db.transaction(
    async (txn) => {
      const n = await txn.increment('steps')
      await txn.put(`log/${String(n).padStart(4, '0')}`, String(lease.fence))
    },
    { leases: [lease] },
  )
}

test('over a bad network leaders never take turns within one fence, and one that is cut off is followed by another', async () => {
  const server = await start()
  let next = 0
  let dead = 0
  const workers = Array.from({ length: 4 }, async (_, id) => {
    let isCutOff = false
    const network = new FaultyNetwork(() => (isCutOff ? 'lose_request' : (FATES[next++ % FATES.length] ?? 'arrive')))
    const db = await connectTo(server, { fetch: network.fetch, retryMs: 5000 })
    for (let turn = 0; turn < TURNS; turn++) {
      const lease = await db.lease('leader', { ttlMs: 2000, waitMs: 50_000 })
      try {
        for (let i = 0; i < STEPS; i++) await step(db, lease)
      } catch (error) {
        if (!isKvError(error, 'precondition_failed')) throw error
        expect(lease.signal.aborted).toBe(true)
      }
      if (id === 0 && turn === 1) {
        isCutOff = true
        dead++
        return db.close()
      }
      await lease.release()
    }
    return db.close()
  })
  await Promise.all(workers)
  expect(dead).toBe(1)
  const db = await connectTo(server)
  const fences: number[] = []
  for await (const { value } of db.scan({ prefix: 'log/' })) fences.push(Number(value))
  expect(fences.length).toBeGreaterThan(STEPS * TURNS)
  expect(fences).toEqual(fences.toSorted((a, b) => a - b))
  expect(await db.leases.list()).toEqual([])
})
