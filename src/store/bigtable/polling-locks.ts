import { keyText } from '../../bytes/key-text.js'
import { isKvError, KvError } from '../../errors/kv-error.js'
import type { LockInfo } from '../../errors/lock-info.js'
import { signalOf, stagesOf } from '../../event-loop/late-signal.js'
import { sleep } from '../../event-loop/sleep.js'
import { timed } from '../../event-loop/stages.js'
import { ACQUIRE_WAIT_MS_DEFAULT } from '../../limits.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../percolator/api.js'
import { lockWaitTimeout } from '../../percolator/errors.js'
import { done, refused } from '../../percolator/row.js'
import { countedRefusal } from '../calls/counted-refusal.js'
import { lockingAnswer, lockingDepthTs, lockKeys, versionsToRead } from '../calls/lock-keys.js'
import type { BigtableRows } from './bigtable-rows.js'
import type { Reads } from './reads.js'

const POLL_MS_MIN = 5
const POLL_MS_MAX = 100
/** Waiters of this process that poll a key as often as one alone would. */
const WAITERS_AT_FULL_PACE = 4

/**
 * Pessimistic locks stand in the table, and whoever finds a key locked looks again until it is free. Nobody knows all waiters, so
 * there is no order among them, and transactions that wait in a circle end by their time-outs.
 */
export class PollingLocks {
  readonly #rows: BigtableRows
  readonly #reads: Reads
  /** Requests of this process that wait for a key. */
  readonly #waiters = new Map<string, number>()
  #waiting = 0
  readonly #closed = new AbortController()

  constructor(rows: BigtableRows, reads: Reads) {
    this.#rows = rows
    this.#reads = reads
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.#waiting
  }

  close(): void {
    this.#closed.abort(new KvError('storage_unavailable', 'the store is closed', {}))
  }

  async acquire(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { waitTimeout = 0, signal } = request
    const waitMs = waitTimeout === 0 ? ACQUIRE_WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const beganMs = performance.now()
    let hasWaited = false
    try {
      for (;;) {
        try {
          return await this.#try(request)
        } catch (error) {
          if (waitTimeout === -1 || !isKvError(error, 'key_locked')) throw error
          const leftMs = beganMs + waitMs - performance.now()
          const lock = lockOf(error)
          if (leftMs <= 0) throw lockWaitTimeout(lock.key, lock)
          hasWaited = true
          await timed(stagesOf(signal), 'lockMs', this.#pause(lock.key, leftMs, signalOf(signal)))
        }
      }
    } catch (error) {
      throw countedRefusal(this.#rows.meters, error)
    } finally {
      if (hasWaited) this.#rows.meters.lockWaits.observe((performance.now() - beganMs) / 1000)
    }
  }

  async #try(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { keys, startTs, reaches, stages } = request
    const acquired = await this.#rows.update({
      ...{ keys, startTs, reaches, stages },
      depth: 'data',
      depthTs: lockingDepthTs(request),
      decide: (rows) => {
        const locking = lockKeys(this.#rows, rows, request, () => false)
        if (locking.kind === 'acquired') return done(locking.keys, locking.mutations)
        if (locking.error === undefined) throw new Error('a key is promised to nobody here')
        return refused(locking.error)
      },
    })
    const read = await Promise.all(versionsToRead(acquired, request).map((version) => this.#reads.pairOf(version)))
    return lockingAnswer(acquired, read, request)
  }

  async #pause(key: Uint8Array, atMostMs: number, signal: AbortSignal | undefined): Promise<void> {
    const text = keyText(key)
    const waiters = (this.#waiters.get(text) ?? 0) + 1
    this.#waiters.set(text, waiters)
    this.#waiting++
    const until = AbortSignal.any([this.#closed.signal, ...(signal === undefined ? [] : [signal])])
    try {
      const ms = POLL_MS_MIN + Math.random() * (POLL_MS_MAX - POLL_MS_MIN)
      await sleep(Math.min(atMostMs, ms * Math.max(1, waiters / WAITERS_AT_FULL_PACE)), until)
    } finally {
      this.#waiting--
      const left = (this.#waiters.get(text) ?? 1) - 1
      if (left === 0) this.#waiters.delete(text)
      else this.#waiters.set(text, left)
    }
  }
}

function lockOf({ fields }: KvError<'key_locked'>): LockInfo {
  const lock = fields.lock ?? fields.locks?.[0]
  if (lock === undefined) throw new Error('a key is locked by nobody')
  return lock
}
