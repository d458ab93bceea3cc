import { keyText } from '../bytes/key-text.js'
import type { KvError } from '../errors/kv-error.js'
import type { WaitForEntry } from '../errors/registry.js'
import { onAbort } from '../event-loop/on-abort.js'
import { TIMER_MS_MAX } from '../limits.js'
import type { Histogram } from '../meters/histogram.js'
import type { Timestamp } from '../timestamp.js'
import { deadlock, waitCircle } from './wait-circle.js'

/** TiKV's default of `pessimistic-txn.wake-up-delay-duration`. */
const WAKE_UP_DELAY_MS = 20

/** Limit on the bytes of keys in `edges`, which are made and answered in one turn of the event loop. */
export const EDGE_BYTES_MAX = 256 * 1024

/** The right to try for a key. One waiter per key has it, and must end it in a `finally`. */
export interface Turn {
  /**
   * Ends the turn, whether or not the lock was taken. Idempotent. Call before waiting again, for this key or another one: until
   * then no other waiter is woken for the key.
   */
  done(): void
}

export interface LockWaitOptions {
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
}

interface Waiter {
  readonly startTs: Timestamp
  /** Sequence number over all waiters. */
  readonly arrival: number
  readonly beganMs: number
  readonly queue: Queue
  disarm: () => void
  readonly resolve: (turn: Turn | undefined) => void
  readonly reject: (error: unknown) => void
}

/**
 * The waiters of one key. While there are waiters, the key has a holder, or a claimant is trying, or a timer is running. The end
 * of each of the three wakes the next waiter, so no waiter is forgotten.
 */
interface Queue {
  readonly key: Uint8Array
  readonly text: string
  /** Ordered by start_ts, then by arrival. */
  readonly waiters: Waiter[]
  /** The waiter that was woken and has not ended its turn. It has left `waiters`. */
  claimant: Waiter | undefined
  timer: NodeJS.Timeout | undefined
}

/**
 * Requests that wait for the locks of other transactions: one queue per key, and the wait-for graph over all of them.
 *
 * The graph is not stored. A waiter knows its key and a key knows its holder, so a new holder of a lock changes the
 * edges of all its waiters at no cost. The graph has no cycles except those that are being reported, because an edge
 * appears in only two ways: a wait begins, or a lock is taken on a key with waiters. `enqueue` checks for a cycle in
 * the first case and `acquired` in the second. A woken waiter does not hold the lock yet and blocks no request: if it
 * takes the lock, `acquired` checks then; if it does not, there was no deadlock.
 *
 * @see TiKV `storage/lock_manager/lock_waiting_queue.rs`.
 */
export class LockWaits {
  readonly #holderOf: (key: Uint8Array) => Timestamp | undefined
  readonly #wakeUpDelayMs: number
  readonly #waited: Histogram | undefined
  readonly #queues = new Map<string, Queue>()
  /** Waits by transaction; more than one only if it sends requests concurrently. */
  readonly #waits = new Map<Timestamp, Set<Waiter>>()
  #size = 0
  #arrivals = 0
  #closedWith: Error | undefined

  /**
   * @param holderOf returns the start_ts of the present lock on a key.
   * @param options `waited` observes the seconds of each wait.
   */
  constructor(
    holderOf: (key: Uint8Array) => Timestamp | undefined,
    options: { readonly wakeUpDelayMs?: number; readonly waited?: Histogram } = {},
  ) {
    this.#holderOf = holderOf
    this.#waited = options.waited
    this.#wakeUpDelayMs = options.wakeUpDelayMs ?? WAKE_UP_DELAY_MS
  }

  /** Number of waiting requests, without those that were woken. */
  get size(): number {
    return this.#size
  }

  /** True without waiters, open turns and timers. */
  get isIdle(): boolean {
    return this.#queues.size === 0 && this.#waits.size === 0
  }

  /** start_ts of the waiter that was woken for this key and has not ended its turn. */
  claimant(key: Uint8Array): Timestamp | undefined {
    return this.#queueOf(key)?.claimant?.startTs
  }

  /**
   * Waits for `key`. The lowest start_ts is served first, and requests of one transaction in order of arrival. The request is in
   * the queue before this returns, so a caller that holds the key's latch misses no release.
   * @returns a turn, which the caller must end; undefined after `timeoutMs`. Rejects with the signal's reason, with `deadlock` as
   *   described at `acquired`, or with the error of `close`. Neither the timeout nor the signal revokes a turn that was granted.
   * @throws KvError `deadlock`, synchronously, when the wait would close a cycle; the wait does not begin. `lockTs` is the holder
   *   of `key`, `lockKey` is `key`, and `waitChain` is the circle that `waitCircle` finds.
   */
  enqueue(key: Uint8Array, startTs: Timestamp, { timeoutMs, signal }: LockWaitOptions): Promise<Turn | undefined> {
    if (this.#closedWith !== undefined) return Promise.reject(this.#closedWith)
    if (signal?.aborted) return Promise.reject(signal.reason)
    const deadlock = this.#deadlock(key, startTs)
    if (deadlock !== undefined) throw deadlock
    return new Promise((resolve, reject) => {
      const arrival = this.#arrivals++
      const beganMs = performance.now()
      const queue = this.#makeQueue(key)
      const waiter: Waiter = { startTs, arrival, beganMs, queue, disarm: () => {}, resolve, reject }
      const timeout = setTimeout(() => this.#end(waiter, resolve, undefined), Math.min(timeoutMs, TIMER_MS_MAX))
      const unlisten = onAbort(signal, () => this.#end(waiter, reject, signal?.reason))
      waiter.disarm = () => {
        clearTimeout(timeout)
        unlisten()
      }
      this.#join(waiter)
      this.#wakeLater(waiter.queue) // The lock may have been released before this call.
    })
  }

  /**
   * Call when the lock on `key` is gone. Wakes the first waiter, unless a woken one is still trying. A needless call costs one
   * failed try; without a necessary call the waiters run into their timeouts.
   */
  released(key: Uint8Array): void {
    const queue = this.#queueOf(key)
    if (queue !== undefined && queue.claimant === undefined) this.#wakeFirst(queue)
  }

  /**
   * Call when `startTs` has taken a lock of any kind, after `holderOf` reports it. If other requests of this transaction wait for
   * other keys, the waiters for this lock may now close cycles. Such waits end with `deadlock`.
   */
  acquired(startTs: Timestamp): void {
    const waits = this.#waits.get(startTs)
    if (waits === undefined) return
    for (const waiter of [...waits]) {
      const deadlock = this.#deadlock(waiter.queue.key, startTs)
      if (deadlock !== undefined) this.#end(waiter, waiter.reject, deadlock)
    }
  }

  /**
   * The present wait-for edges: at most `limit`, and fewer when their keys are long. A waiter for a free key is about to be
   * woken, and has no edge.
   */
  edges(limit: number): WaitForEntry[] {
    const edges: WaitForEntry[] = []
    let bytes = 0
    for (const { key, waiters } of this.#queues.values()) {
      const waitForTxn = this.#holderOf(key)
      if (waitForTxn === undefined) continue
      for (const { startTs: txn } of waiters) {
        if (edges.length >= limit || bytes >= EDGE_BYTES_MAX) return edges
        if (txn === waitForTxn) continue
        edges.push({ txn, waitForTxn, key })
        bytes += key.length
      }
    }
    return edges
  }

  /** Ends all present and later waits with `error`. Open turns can still be ended. */
  close(error: Error): void {
    this.#closedWith ??= error
    for (const waits of [...this.#waits.values()])
      for (const waiter of [...waits]) this.#end(waiter, waiter.reject, this.#closedWith)
  }

  #queueOf(key: Uint8Array): Queue | undefined {
    return this.#queues.size === 0 ? undefined : this.#queues.get(keyText(key))
  }

  #makeQueue(key: Uint8Array): Queue {
    const text = keyText(key)
    const found = this.#queues.get(text)
    if (found !== undefined) return found
    const made: Queue = { key, text, waiters: [], claimant: undefined, timer: undefined }
    this.#queues.set(text, made)
    return made
  }

  #join(waiter: Waiter): void {
    const { waiters } = waiter.queue
    waiters.splice(placeOf(waiters, waiter), 0, waiter)
    const waits = this.#waits.get(waiter.startTs)
    if (waits === undefined) this.#waits.set(waiter.startTs, new Set([waiter]))
    else waits.add(waiter)
    this.#size++
  }

  #leave(waiter: Waiter): void {
    waiter.disarm()
    const { waiters } = waiter.queue
    waiters.splice(placeOf(waiters, waiter), 1)
    const waits = this.#waits.get(waiter.startTs)
    waits?.delete(waiter)
    if (waits?.size === 0) this.#waits.delete(waiter.startTs)
    this.#size--
    this.#waited?.observe((performance.now() - waiter.beganMs) / 1000)
  }

  #end<T>(waiter: Waiter, settle: (outcome: T) => void, outcome: T): void {
    this.#leave(waiter)
    this.#forgetIfIdle(waiter.queue)
    settle(outcome)
  }

  #wakeFirst(queue: Queue): void {
    const waiter = queue.waiters[0]
    if (waiter === undefined) return
    this.#stopTimer(queue)
    this.#leave(waiter)
    queue.claimant = waiter
    waiter.resolve({
      done: () => {
        if (queue.claimant !== waiter) return
        queue.claimant = undefined
        this.#wakeLater(queue)
        this.#forgetIfIdle(queue)
      },
    })
  }

  /**
   * Wakes the first waiter of a free key after a delay, unless the key is locked by then. A waiter whose try failed will probably
   * come back with a higher for_update_ts. Waking all others at once would make all of them conflict.
   */
  #wakeLater(queue: Queue): void {
    if (queue.waiters.length === 0 || queue.claimant !== undefined || queue.timer !== undefined) return
    if (this.#holderOf(queue.key) !== undefined) return
    queue.timer = setTimeout(() => {
      queue.timer = undefined
      if (this.#holderOf(queue.key) === undefined) this.#wakeFirst(queue)
    }, this.#wakeUpDelayMs)
    queue.timer.unref() // The timeouts of the waiters keep the process alive while they wait.
  }

  #stopTimer(queue: Queue): void {
    clearTimeout(queue.timer)
    queue.timer = undefined
  }

  #forgetIfIdle(queue: Queue): void {
    if (queue.waiters.length > 0) return
    this.#stopTimer(queue)
    if (queue.claimant === undefined) this.#queues.delete(queue.text)
  }

  #deadlock(key: Uint8Array, startTs: Timestamp): KvError<'deadlock'> | undefined {
    const waitForTxn = this.#holderOf(key)
    if (waitForTxn === undefined) return undefined
    const circle = waitCircle({ txn: startTs, waitForTxn, key }, (txn) => this.#waitsOf(txn))
    return circle && deadlock(circle)
  }

  *#waitsOf(txn: Timestamp): Iterable<WaitForEntry> {
    for (const { queue } of this.#waits.get(txn) ?? []) {
      const waitForTxn = this.#holderOf(queue.key)
      if (waitForTxn !== undefined) yield { txn, waitForTxn, key: queue.key }
    }
  }
}

function placeOf(waiters: readonly Waiter[], waiter: Waiter): number {
  let low = 0
  let high = waiters.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(waiters[middle] as Waiter, waiter)) low = middle + 1
    else high = middle
  }
  return low
}

function isBefore(a: Waiter, b: Waiter): boolean {
  return a.startTs === b.startTs ? a.arrival < b.arrival : a.startTs < b.startTs
}
