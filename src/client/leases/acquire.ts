import { Backoff } from '../../coordinator/backoff.js'
import { isUncertain } from '../../coordinator/uncertain.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import { backgroundTimer } from '../../event-loop/background-timer.js'
import { LEASE_WAIT_MS_MAX } from '../../limits.js'
import { newHolderName } from './holder-name.js'
import type { Grant, LeaseBackend } from './lease.js'
import type { LeaseOptions } from './lease-options.js'
import { termOf } from './lease-term.js'

export interface AcquireBackend extends LeaseBackend {
  isAway(error: unknown): boolean
}

/** Pauses while the database is away, or lets no more requests wait. */
const PAUSE_MS_FIRST = 100
const PAUSE_MS_MAX = 5000
/** Longest time for giving back a lease that may have been granted to a caller who no longer wants it. */
export const GIVE_BACK_MS_MAX = 1000

/**
 * Waits for a lease. @throws KvError `lease_held` when the time is over; the signal's reason; ConnectionError when the server
 * was never reached.
 */
export async function acquire(
  backend: AcquireBackend,
  name: string,
  { ttlMs, waitMs = 0, holder }: LeaseOptions,
  signal: AbortSignal,
): Promise<Grant> {
  const own = holder ?? newHolderName()
  try {
    return await waitFor(backend, name, { holder: own, ttlMs, endsAtMs: backend.now() + waitMs, signal })
  } catch (error) {
    // The lease may have been granted. Under a name chosen by the caller another call may hold it as well, and keeps it.
    const isLeft = isUncertain(error) || isKvError(error, 'deadline_exceeded')
    if (holder === undefined && isLeft) await giveBack(backend, name, own)
    throw error
  }
}

interface Wish {
  readonly holder: string
  readonly ttlMs: number
  /** By `now` of the backend. */
  readonly endsAtMs: number
  readonly signal: AbortSignal
}

async function waitFor(backend: AcquireBackend, name: string, wish: Wish): Promise<Grant> {
  const { endsAtMs, signal } = wish
  const pauses = new Backoff(PAUSE_MS_FIRST, PAUSE_MS_MAX)
  for (let wasReached = false; ; ) {
    signal.throwIfAborted()
    const sentAtMs = backend.now()
    const waitMs = Math.ceil(Math.min(LEASE_WAIT_MS_MAX, Math.max(0, endsAtMs - sentAtMs)))
    try {
      return await renewedIfOld(backend, name, wish, await put(backend, name, wish, { waitMs }))
    } catch (error) {
      if (signal.aborted) throw signal.reason
      const isOver = backend.now() >= endsAtMs
      const isTaken = isKvError(error, 'lease_held') || isKvError(error, 'precondition_failed')
      if (isOver || !(isTaken || (backend.isAway(error) && (wasReached || isUncertain(error))))) throw error
      wasReached = true
      // The server let the request wait for as long as it asked to.
      if (isTaken && backend.now() - sentAtMs >= waitMs / 2) continue
    }
    await pauses.wait(Math.max(0, endsAtMs - backend.now()), signal)
  }
}

/**
 * Renews a grant that is old: its term counts from the request, and so includes the wait. @throws KvError `precondition_failed`
 * when the term is over already; `deadline_exceeded` when answers take longer than the term.
 */
async function renewedIfOld(backend: AcquireBackend, name: string, wish: Wish, grant: Grant): Promise<Grant> {
  const { ttlMs } = wish
  if (backend.now() < termOf(grant.sentAtMs, ttlMs).renewAtMs) return grant
  const renewed = await put(backend, name, wish, { fence: grant.state.fence })
  if (backend.now() < termOf(renewed.sentAtMs, ttlMs).endsAtMs) return renewed
  throw new KvError('deadline_exceeded', `the lease ${name} ends before the answers of the server arrive`, {})
}

async function put(
  { leases, during, now }: AcquireBackend,
  name: string,
  { holder, ttlMs, signal }: Wish,
  rest: { readonly waitMs?: number; readonly fence?: number },
): Promise<Grant> {
  const sentAtMs = now()
  const state = await during(() => leases.put(name, { holder, ttlMs, signal, ...rest }))
  return { state: { ...state, ttlMs }, sentAtMs }
}

async function giveBack({ leases, during }: AcquireBackend, name: string, holder: string): Promise<void> {
  const stop = new AbortController()
  const end = backgroundTimer(GIVE_BACK_MS_MAX, () => stop.abort())
  await during(() => leases.remove(name, holder, undefined, stop.signal)).catch(() => {})
  end()
}
