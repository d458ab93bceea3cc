import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { KvError } from '../../../src/client/index.js'
import { HeldLeases } from '../../../src/client/leases/held-leases.js'
import type { Lease } from '../../../src/client/leases/lease.js'
import { AWAY, FakeLeases, HELD, LOST, untilAborted } from './fake-leases.js'

/** Nothing here waits: the test moves the timers, and the clock with them. */
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

async function held(): Promise<Lease> {
  const acquiring = leases.acquire('leader', { ttlMs: TTL_MS, holder: 'a' })
  await pass(0)
  backend.last.grant()
  return acquiring
}

/** How long after now the signal is aborted, in milliseconds. */
async function abortedAfter(lease: Lease): Promise<number> {
  const { signal } = lease
  const from = backend.now()
  let at: number | undefined
  signal.addEventListener('abort', () => {
    at = backend.now()
  })
  await pass(10 * TTL_MS)
  return (at ?? Number.NaN) - from
}

test('it is renewed at a third of the TTL under its fence, for as long as that goes on', async () => {
  const lease = await held()
  expect(lease).toMatchObject({ name: 'leader', holder: 'a', fence: 7, ttlMs: TTL_MS })
  for (let i = 1; i <= 20; i++) {
    await pass(TTL_MS / 3 - 1)
    expect(backend.asked).toHaveLength(i)
    await pass(1)
    expect(backend.asked).toHaveLength(i + 1)
    expect(backend.last).toMatchObject({ holder: 'a', ttlMs: TTL_MS, fence: 7 })
    backend.last.grant({ expiresAtMs: i })
    await pass(0)
    expect(lease.expiresAt).toEqual(new Date(i))
  }
  expect(lease.signal.aborted).toBe(false)
})

test('under a server that answers nothing the signal is aborted before the TTL is over since the last request that was answered', async () => {
  const lease = await held()
  await pass(TTL_MS / 3)
  const sentAt = backend.now()
  await pass(1000)
  backend.last.grant()
  await pass(0)
  const after = await abortedAfter(lease)
  expect(backend.now() - 10 * TTL_MS + after).toBeLessThan(sentAt + TTL_MS)
  expect(after).toBeGreaterThan(TTL_MS / 2)
  expect(lease.signal.reason).toMatchObject({ code: 'precondition_failed', fields: { lease: 'leader' } })
  expect(lease.signal.reason.message).toContain('no answer within')
})

test('one renewal at a time: what is not answered in a third of the TTL is asked again', async () => {
  const lease = await held()
  await pass(TTL_MS / 3)
  const [, first] = backend.asked
  await pass(TTL_MS / 3 - 1)
  expect(backend.asked).toHaveLength(2)
  await pass(TTL_MS / 30)
  expect(backend.asked).toHaveLength(3)
  // The answer to a request that was given up changes nothing.
  first?.fail(LOST)
  await pass(0)
  expect(lease.signal.aborted).toBe(false)
  backend.last.grant()
  await pass(TTL_MS / 3)
  expect(lease.signal.aborted).toBe(false)
})

test('slow answers count from their requests, and renew in time', async () => {
  const lease = await held()
  await pass(TTL_MS / 3)
  for (let i = 2; i < 20; i++) {
    expect(backend.asked).toHaveLength(i)
    await pass(TTL_MS / 3 - 1)
    backend.last.grant()
    await pass(1) // The next one is due already.
    expect(lease.signal.aborted).toBe(false)
  }
})

test('failures are tried again, with pauses, until the lease is over', async () => {
  const lease = await held()
  let ended = false
  lease.signal.addEventListener('abort', () => {
    ended = true
  })
  await pass(TTL_MS / 3)
  for (let i = 0; i < 10_000 && !ended; i++) {
    if (backend.asked.length > 1) backend.last.fail(AWAY)
    await pass(10)
  }
  expect(ended).toBe(true)
  expect(lease.signal.reason.message).toContain('the server is away')
  const { length } = backend.asked
  expect(length).toBeGreaterThan(4)
  expect(length).toBeLessThan(20)
  await pass(10 * TTL_MS)
  expect(backend.asked).toHaveLength(length)
})

test.each([
  { of: 'another fence', error: LOST },
  { of: 'another holder', error: HELD },
])('an answer that tells of $of aborts the signal at once', async ({ error }) => {
  const lease = await held()
  await pass(TTL_MS / 3)
  backend.last.fail(error)
  await pass(0)
  expect(lease.signal.aborted).toBe(true)
  expect(lease.signal.reason).toBe(error)
  await lease.release()
  expect(backend.removed).toEqual([])
  await pass(10 * TTL_MS)
  expect(backend.asked).toHaveLength(2)
})

test('a step of the wall clock changes nothing', async () => {
  const lease = await held()
  for (const at of ['2036-01-01', '1996-01-01']) {
    vi.setSystemTime(new Date(at))
    await pass(TTL_MS / 3)
    expect(lease.signal.aborted).toBe(false)
    backend.last.grant()
    await pass(0)
  }
  expect(backend.asked).toHaveLength(3)
})

test('after a stop of the process whoever looks at the signal first finds it aborted', async () => {
  const lease = await held()
  backend.jumpedMs = TTL_MS * 0.9 - 1
  expect(lease.signal.aborted).toBe(false)
  backend.jumpedMs++
  expect(lease.signal.aborted).toBe(true)
})

test('an answer that was read after a stop of the process does not revive the lease', async () => {
  const lease = await held()
  await pass(TTL_MS / 3)
  backend.jumpedMs = TTL_MS
  backend.last.grant()
  await pass(0)
  expect(lease.signal.aborted).toBe(true)
})

test('timers that are early, and those of a process that was stopped, end the lease when it is over', async () => {
  const early = await held()
  backend.jumpedMs = -0.5
  let reason: unknown
  early.signal.addEventListener('abort', () => {
    reason = early.signal.reason
  })
  await pass(TTL_MS * 0.9)
  expect(reason).toBeUndefined()
  await pass(1)
  expect(reason).toMatchObject({ code: 'precondition_failed' })

  const stopped = await held()
  stopped.signal.addEventListener('abort', () => {
    reason = stopped.signal.reason
  })
  const { length } = backend.asked
  backend.jumpedMs += TTL_MS
  await pass(TTL_MS / 3) // The timer of the renewal is the first to run.
  expect(reason).toBe(stopped.signal.reason)
  expect(backend.asked).toHaveLength(length)
})

test('a release aborts the signal, ends the renewals, and is one request', async () => {
  const lease = await held()
  await pass(TTL_MS / 3)
  await Promise.all([lease.release(), lease.release()])
  await lease.release()
  expect(lease.signal.reason.message).toBe('the lease leader was released')
  expect(backend.removed).toEqual([{ holder: 'a', fence: 7 }])
  await pass(10 * TTL_MS)
  expect(backend.asked).toHaveLength(2)
})

test('a release that fails can be tried again, and one that another holder is told of has succeeded', async () => {
  const lease = await held()
  backend.onRemove = () => Promise.reject(AWAY)
  await expect(lease.release()).rejects.toBe(AWAY)
  backend.onRemove = () => Promise.reject(LOST)
  await lease.release()
  await lease.release()
  expect(backend.removed).toHaveLength(2)
})

test('a refused transaction ends the lease that it was held to, and no other one', async () => {
  const lease = await held()
  leases.refused(LOST, [{ lease: 'leader', fence: 7 }])
  expect(lease.signal.aborted).toBe(false) // The refusal names no lease check.
  const of = (fence: number) =>
    new KvError('precondition_failed', 'no', { failedChecks: [{ index: 0, lease: 'leader', fence }] })
  leases.refused(of(5), [{ lease: 'leader', fence: 6 }]) // Of an older lease.
  leases.refused(of(5), [{ lease: 'other', fence: 7 }])
  expect(lease.signal.aborted).toBe(false)
  const error = of(0)
  leases.refused(error, [{ lease: 'leader', fence: 7 }])
  expect(lease.signal.reason).toBe(error)
})

test('the end of the database releases what is held, and waits a second for a server that does not answer', async () => {
  const lease = await held()
  backend.onRemove = untilAborted
  let isClosed = false
  const closing = leases.close(new TypeError('closed')).then(() => {
    isClosed = true
  })
  await pass(999)
  expect([isClosed, lease.signal.aborted]).toEqual([false, true])
  await pass(1)
  await closing
  await expect(lease.release()).rejects.toMatchObject({ code: 'deadline_exceeded' })
})
