import { keyText } from '../../../bytes/key-text.js'
import { isKvError, KvError } from '../../../errors/kv-error.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import type { WaitForEntry } from '../../../errors/registry.js'
import { signalOf, stagesOf } from '../../../event-loop/lazy-signal.js'
import { sleep } from '../../../event-loop/sleep.js'
import { timed } from '../../../event-loop/stages.js'
import { ACQUIRE_WAIT_MS_DEFAULT } from '../../../limits.js'
import type { AcquirePessimisticLockAnswer, AcquirePessimisticLockRequest } from '../../../percolator/api.js'
import { lockWaitTimeout } from '../../../percolator/errors.js'
import { expiresInMs } from '../../../percolator/lock.js'
import { done, refused, sameKey } from '../../../percolator/row.js'
import type { Timestamp } from '../../../timestamp.js'
import { countedRefusal } from '../../calls/counted-refusal.js'
import { afterWait, lockingAnswer, lockingDepthTs, lockKeys, versionsToRead } from '../../calls/lock-keys.js'
import { deadlock } from '../../wait-circle.js'
import type { WakeUps } from '../layout/wake-ups.js'
import type { Reads } from '../rows/reads.js'
import type { TableRows } from '../rows/table-rows.js'
import type { DeadLocks } from './dead-locks.js'
import { keyTopic } from './key-topic.js'
import type { WaitReports } from './wait-reports.js'

const POLL_MS_MIN = 5
const POLL_MS_MAX = 100
/** Waiters of this process that poll a key as often as a single one would. */
const WAITERS_AT_FULL_PACE = 4

const WOKEN = new Error('the lock is gone')

interface Waiter {
  readonly key: Uint8Array
  readonly startTs: Timestamp
  readonly sinceMs: number
  /** Aborted when the lock may be gone. */
  woken: AbortController
  readonly leave: () => void
}

interface KeyWaiters {
  readonly all: Set<Waiter>
  readonly unlisten: () => void
}

export interface PollingLocksSources {
  readonly reports: WaitReports
  readonly dead: DeadLocks
  readonly wakeUps: WakeUps
}

interface ReportedWait {
  readonly wait: WaitForEntry
  /** Aborted with `deadlock`. */
  readonly refused: AbortSignal
  readonly end: () => void
}

/**
 * Pessimistic locks are in the table, and a request that finds a key locked tries again until it is free. When a lock is removed,
 * by this process or by another one that says so, the waiter with the lowest start_ts tries at once; there is no order over all
 * servers. One server of the table knows all waits, and finds circles.
 */
export class PollingLocks {
  readonly #rows: TableRows
  readonly #reads: Reads
  readonly #waiters = new Map<string, KeyWaiters>()
  #waiting = 0
  readonly #closed = new AbortController()

  readonly #reports: WaitReports
  readonly #dead: DeadLocks
  readonly #wakeUps: WakeUps

  constructor(rows: TableRows, reads: Reads, { reports, dead, wakeUps }: PollingLocksSources) {
    this.#rows = rows
    this.#reads = reads
    this.#reports = reports
    this.#dead = dead
    this.#wakeUps = wakeUps
    rows.onUnlock = (key) => wakeUps.tell(keyTopic(key))
  }

  get waiting(): number {
    return this.#waiting
  }

  close(): void {
    this.#reports.close()
    this.#closed.abort(new KvError('storage_unavailable', 'the store is closed', {}))
  }

  async acquire(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { waitTimeout = 0, untilExpired = false, signal } = request
    const waitMs = waitTimeout === 0 ? ACQUIRE_WAIT_MS_DEFAULT : Math.max(0, waitTimeout)
    const beganMs = performance.now()
    let waiter: Waiter | undefined
    let wait: ReportedWait | undefined
    try {
      for (;;) {
        try {
          return await this.#try(waiter ? afterWait(request, beganMs) : request)
        } catch (error) {
          if (waitTimeout === -1 || !isKvError(error, 'key_locked')) throw error
          const leftMs = beganMs + waitMs - performance.now()
          const lock = lockOf(error)
          const isOver = untilExpired && expiresInMs({ ...lock, ttlMs: lock.ttl }, this.#rows.now()) === 0
          if (leftMs <= 0 || isOver) throw lockWaitTimeout(lock.key, lock)
          waiter = this.#waiterOf(waiter, request.startTs, lock.key)
          this.#dead.met(lock)
          wait = this.#follow(wait, request.startTs, lock)
          const until = [signalOf(signal), wait?.refused, this.#closed.signal].filter((each) => each !== undefined)
          await timed(stagesOf(signal), 'lockMs', this.#pause(waiter, leftMs, until))
        }
      }
    } catch (error) {
      throw countedRefusal(this.#rows.meters, error)
    } finally {
      wait?.end()
      waiter?.leave()
      if (waiter !== undefined) this.#rows.meters.lockWaits.observe((performance.now() - beganMs) / 1000)
    }
  }

  async #try(request: AcquirePessimisticLockRequest): Promise<AcquirePessimisticLockAnswer> {
    const { keys, startTs, mayAccess, stages } = request
    const acquired = await this.#rows.update({
      ...{ keys, startTs, mayAccess, stages },
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

  /**
   * Reports the transaction that a request waits for now. A transaction that has prewritten waits for no lock before its commit,
   * so waits for it need no report.
   */
  #follow(before: ReportedWait | undefined, txn: Timestamp, lock: LockInfo): ReportedWait | undefined {
    const { key, startTs: waitForTxn } = lock
    const isPessimistic = lock.type === 'pessimistic'
    if (isPessimistic && before?.wait.waitForTxn === waitForTxn && sameKey(before.wait.key, key)) return before
    before?.end()
    if (!isPessimistic) return undefined
    const wait = { txn, waitForTxn, key }
    const refusal = new AbortController()
    const end = this.#reports.begin(wait, async (circle) => {
      if (await this.#stands(circle)) refusal.abort(deadlock(circle))
    })
    return { wait, refused: refusal.signal, end }
  }

  /** True when every lock in the circle is still held. README.md, "Deadlocks", says why that is enough. */
  async #stands(circle: readonly WaitForEntry[]): Promise<boolean> {
    try {
      const holders = await this.#rows.holdersOf(circle.map(({ key }) => key))
      return circle.every(({ waitForTxn }, i) => holders[i] === waitForTxn)
    } catch {
      return false // The table cannot be reached, and the wait goes on.
    }
  }

  #waiterOf(before: Waiter | undefined, startTs: Timestamp, key: Uint8Array): Waiter {
    if (before !== undefined && sameKey(before.key, key)) return before
    before?.leave()
    const text = keyText(key)
    const present = this.#waiters.get(text)
    const { all, unlisten } = present ?? {
      all: new Set<Waiter>(),
      unlisten: this.#wakeUps.listen(keyTopic(key), () => this.#wake(text)),
    }
    if (present === undefined) this.#waiters.set(text, { all, unlisten })
    const leave = (): void => {
      if (!all.delete(waiter) || all.size > 0) return
      unlisten()
      this.#waiters.delete(text)
    }
    const waiter: Waiter = { key, startTs, sinceMs: performance.now(), woken: new AbortController(), leave }
    all.add(waiter)
    return waiter
  }

  async #pause(waiter: Waiter, atMostMs: number, until: readonly AbortSignal[]): Promise<void> {
    const { all } = this.#waiters.get(keyText(waiter.key)) as KeyWaiters
    const patience = this.#wakeUps.patience(performance.now() - waiter.sinceMs)
    this.#waiting++
    try {
      const ms = POLL_MS_MIN + Math.random() * (POLL_MS_MAX - POLL_MS_MIN)
      const signal = AbortSignal.any([...until, waiter.woken.signal])
      await sleep(Math.min(atMostMs, ms * Math.max(patience, all.size / WAITERS_AT_FULL_PACE)), signal)
    } catch (error) {
      if (error !== WOKEN) throw error
    } finally {
      this.#waiting--
      waiter.woken = new AbortController()
    }
  }

  /** Wakes one waiter only, because most others would try in vain. */
  #wake(text: string): void {
    let first: Waiter | undefined
    for (const each of this.#waiters.get(text)?.all ?? [])
      if (first === undefined || each.startTs < first.startTs) first = each
    first?.woken.abort(WOKEN)
  }
}

function lockOf({ fields }: KvError<'key_locked'>): LockInfo {
  const lock = fields.lock ?? fields.locks?.[0]
  if (lock === undefined) throw new Error('a key is locked by nobody')
  return lock
}
