import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { KvError } from '../../../src/client/index.js'
import { HeldLeases } from '../../../src/client/leases/held-leases.js'
import { AWAY, FakeLeases, HELD, LOST, untilAborted } from './fake-leases.js'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const TTL_MS = 9000

let backend: FakeLeases
let leases: HeldLeases
beforeEach(() => {
  backend = new FakeLeases()
  leases = new HeldLeases(backend)
})

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms)

function acquire(rest: { waitMs?: number; holder?: string; signal?: AbortSignal } = {}) {
  const acquiring = leases.acquire('leader', { ttlMs: TTL_MS, ...rest })
  acquiring.catch(() => {})
  return acquiring
}

test('without a wait another holder is an error at once', async () => {
  const acquiring = acquire()
  await pass(0)
  expect(backend.last).toMatchObject({ waitMs: 0, ttlMs: TTL_MS })
  backend.last.fail(HELD)
  await expect(acquiring).rejects.toBe(HELD)
  expect(backend.removed).toEqual([])
})

test('long waits are several requests under one name, and none is longer than servers allow', async () => {
  const acquiring = acquire({ waitMs: 100_000 })
  await pass(0)
  expect(backend.last.waitMs).toBe(60_000)
  await pass(60_000)
  backend.last.fail(HELD)
  await pass(0)
  expect(backend.last.waitMs).toBe(40_000)
  expect(backend.last.holder).toBe(backend.asked[0]?.holder)
  await pass(40_000)
  backend.last.fail(HELD)
  await expect(acquiring).rejects.toBe(HELD)
  expect(backend.asked).toHaveLength(2)
})

test('a wait without an end goes on, with pauses where the server lets nobody wait', async () => {
  void acquire({ waitMs: Number.POSITIVE_INFINITY })
  await pass(0)
  for (let i = 0; i < 1000; i++) {
    backend.last.fail(HELD)
    await pass(100)
  }
  expect(backend.asked.length).toBeGreaterThan(10)
  expect(backend.asked.length).toBeLessThan(100)
  expect(backend.last.waitMs).toBe(60_000)
})

test('after a wait of more than a third of the TTL the lease is renewed before it is relied on', async () => {
  const acquiring = acquire({ waitMs: 60_000, holder: 'a' })
  await pass(30_000)
  backend.last.grant()
  await pass(0)
  expect(backend.last).toMatchObject({ holder: 'a', fence: 7 })
  expect(backend.last.waitMs).toBeUndefined()
  backend.last.grant()
  const lease = await acquiring
  expect(backend.asked).toHaveLength(2)
  await pass(TTL_MS / 3)
  expect([lease.signal.aborted, backend.asked.length]).toEqual([false, 3])
})

test('a grant that was lost before its answer came is waited for again', async () => {
  const acquiring = acquire({ waitMs: 60_000 })
  await pass(30_000)
  backend.last.grant()
  await pass(0)
  backend.last.fail(LOST)
  await pass(0)
  expect(backend.last.waitMs).toBe(30_000)
  backend.last.grant({ fence: 11 })
  expect(await acquiring).toMatchObject({ fence: 11 })
})

test('answers that take longer than the lease lives are no lease, and it is given back', async () => {
  const acquiring = acquire()
  await pass(TTL_MS)
  backend.last.grant()
  await pass(TTL_MS)
  backend.last.grant()
  await expect(acquiring).rejects.toMatchObject({ code: 'deadline_exceeded' })
  expect(backend.removed).toEqual([{ holder: backend.last.holder, fence: undefined }])
})

test('a server that goes away during the wait is waited for', async () => {
  const acquiring = acquire({ waitMs: 60_000 })
  await pass(1000)
  backend.last.fail(HELD)
  for (let i = 0; i < 3; i++) {
    await pass(5000)
    backend.last.fail(AWAY)
  }
  await pass(1000)
  backend.last.grant()
  expect(await acquiring).toMatchObject({ fence: 7 })
})

test('a server that was never reached is not waited for', async () => {
  const acquiring = acquire({ waitMs: 60_000 })
  await pass(0)
  backend.last.fail(AWAY)
  await expect(acquiring).rejects.toBe(AWAY)
})

test('a signal ends the wait, and what may have been granted is given back', async () => {
  const waitMs = Number.POSITIVE_INFINITY
  const stop = new AbortController()
  const acquiring = acquire({ waitMs, signal: stop.signal })
  await pass(1000)
  stop.abort(new Error('enough'))
  await expect(acquiring).rejects.toThrow('enough')
  expect(backend.removed).toEqual([{ holder: backend.last.holder, fence: undefined }])
  const later = acquire({ waitMs, signal: stop.signal })
  await expect(later).rejects.toThrow('enough')
  expect(backend.asked).toHaveLength(1)
})

test('of a holder who has a name nothing is given back', async () => {
  const stop = new AbortController()
  const acquiring = acquire({ waitMs: 1000, holder: 'a', signal: stop.signal })
  await pass(0)
  stop.abort()
  await expect(acquiring).rejects.toThrow()
  expect(backend.removed).toEqual([])
})

test('what is given back is not waited for longer than a second', async () => {
  const stop = new AbortController()
  backend.onRemove = untilAborted
  const acquiring = acquire({ waitMs: 1000, signal: stop.signal })
  await pass(0)
  stop.abort(new Error('enough'))
  await pass(1000)
  await expect(acquiring).rejects.toThrow('enough')
})

test('the end of the database ends the wait', async () => {
  const acquiring = acquire({ waitMs: Number.POSITIVE_INFINITY })
  await pass(1000)
  await leases.close(new TypeError('this connection is closed'))
  await expect(acquiring).rejects.toThrow('this connection is closed')
})

test('a refusal is not waited for', async () => {
  const forbidden = new KvError('forbidden', 'the token may not', {} as never)
  const acquiring = acquire({ waitMs: Number.POSITIVE_INFINITY })
  await pass(0)
  backend.last.fail(forbidden)
  await expect(acquiring).rejects.toBe(forbidden)
})
