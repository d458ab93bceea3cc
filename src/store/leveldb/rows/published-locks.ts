import type { KvError } from '../../../errors/kv-error.js'
import { SLICE_ITEMS } from '../../../limits.js'
import type { PrewriteRequest } from '../../../percolator/api.js'
import type { Lock } from '../../../percolator/lock.js'
import type { Mutation } from '../../../percolator/row.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import type { LockWaits } from '../../lock-waits.js'
import type { LockTable } from '../memory/lock-table.js'
import type { RecentWrites } from '../memory/recent-writes.js'
import type { VersionCache } from '../memory/version-cache.js'

export interface InMemory {
  readonly locks: LockTable
  readonly waits: LockWaits
  readonly cache: VersionCache
  readonly recent: RecentWrites
}

/**
 * The locks of one batch in the lock table, from before it is written until its outcome is known. New locks are put before the
 * write and old locks removed after it. Callers call `finalize`, `withdraw` or `doubt`, and then `end`.
 */
export class PublishedLocks {
  readonly #memory: InMemory
  readonly #mutations: readonly Mutation[]
  /** `#before[i]` is the previous lock on the key of `#mutations[i]`. */
  readonly #before: readonly (Lock | undefined)[]
  readonly #pending: Promise<void>
  #resolve: () => void = () => {}

  /**
   * Publishes the locks in this turn of the event loop.
   * @param onePc see `WriteOptions`.
   * @param pending fulfilled after the end of these locks, which then need no `end`. Several batches may share it.
   */
  constructor(
    memory: InMemory,
    mutations: readonly Mutation[],
    onePc: PrewriteRequest | undefined,
    pending?: Promise<void>,
  ) {
    this.#memory = memory
    this.#mutations = mutations
    this.#pending =
      pending ??
      new Promise<void>((resolve) => {
        this.#resolve = resolve
      })
    this.#before = mutations.map((mutation) => this.#publish(mutation, onePc))
  }

  /** @returns the previous lock of the key, for `withdraw`. */
  #publish(mutation: Mutation, onePc: PrewriteRequest | undefined): Lock | undefined {
    const { locks, cache } = this.#memory
    const { key } = mutation
    if (mutation.type === 'put-write' || mutation.type === 'delete-write') cache.suspend(key)
    const entry = locks.get(key)
    const before = entry?.lock
    if (mutation.type === 'put-lock' && (entry === undefined || entry.lock.type === 'pessimistic'))
      locks.put(key, mutation.lock, this.#pending)
    else if (mutation.type === 'put-write' && onePc !== undefined && mutation.write.type !== 'lock')
      locks.put(key, inFlightLock(key, onePc, mutation.write.commitTs), this.#pending)
    else if (entry !== undefined && (mutation.type === 'put-lock' || mutation.type === 'delete-lock'))
      entry.pending = this.#pending
    return before
  }

  /** Call after the write. Works key by key: until its key's turn, a reader still finds the pending lock, or reads LevelDB. */
  *finalize(): Generator<void, void, void> {
    for (let i = 0; i < this.#mutations.length; i++) {
      if (i % SLICE_ITEMS === SLICE_ITEMS - 1) yield
      this.#finalize(this.#mutations[i] as Mutation)
    }
  }

  #finalize(mutation: Mutation): void {
    const { locks, cache } = this.#memory
    const { key } = mutation
    if (mutation.type === 'delete-write') cache.forget(key)
    else if (mutation.type === 'put-write') this.#renew(key, mutation.write)
    if (mutation.type === 'put-lock') locks.put(key, mutation.lock)
    else if (mutation.type === 'delete-lock') this.#unlock(key)
    else if (mutation.type === 'put-write' && locks.get(key)?.pending === this.#pending) {
      // Only the in-flight lock of 1PC. A stored lock is removed by its own `delete-lock`.
      if (locks.get(key)?.lock.txnSize === IN_FLIGHT) this.#unlock(key)
    }
  }

  #renew(key: Uint8Array, { type, commitTs, shortValue, expireTs, leaseFence }: WriteRecord): void {
    const { cache, recent } = this.#memory
    if (!cache.has(key)) return
    const isKnown = type === 'delete' || (type === 'put' && shortValue !== undefined)
    if (!isKnown || recent.newest(key) !== commitTs) cache.forget(key)
    else cache.renew(key, { value: shortValue && copyOf(shortValue), commitTs, expireTs, leaseFence })
  }

  #unlock(key: Uint8Array): void {
    const { locks, waits } = this.#memory
    locks.delete(key)
    if (waits.size > 0) waits.released(key)
  }

  /** @param isUndone nothing was written, so the previous locks come back. Otherwise the table has been or will be reloaded. */
  withdraw(isUndone: boolean): void {
    const { locks } = this.#memory
    for (const [i, { key }] of this.#mutations.entries()) {
      if (locks.get(key)?.pending !== this.#pending) continue
      const before = isUndone ? this.#before[i] : undefined
      if (before === undefined) this.#unlock(key)
      else locks.put(key, before)
    }
  }

  /** Refuses requests that have to respect these locks with `why`, until the database is opened again. */
  doubt(why: KvError): void {
    for (const { key } of this.#mutations) {
      const entry = this.#memory.locks.get(key)
      if (entry?.pending !== this.#pending) continue
      entry.isInDoubt = true
      entry.pending = Promise.reject(why)
      entry.pending.catch(() => {})
    }
  }

  /** Lets requests that wait for the batch look again. */
  end(): void {
    this.#resolve()
  }
}

/** Marks the locks of 1PC transactions in flight; no stored lock has a negative size. */
const IN_FLIGHT = -1

/**
 * The lock that readers meet while a 1PC batch is being written. Each key is its own primary, so a read of the latest version
 * passes it: the batch becomes visible in LevelDB all at once.
 */
function inFlightLock(key: Uint8Array, request: PrewriteRequest, commitTs: Timestamp): Lock {
  return {
    type: 'put',
    primary: key,
    startTs: request.startTs,
    ttlMs: request.lockTtl,
    shortValue: undefined,
    expireTs: 0,
    leaseFence: 0,
    forUpdateTs: 0,
    txnSize: IN_FLIGHT,
    minCommitTs: commitTs,
    useAsyncCommit: false,
    secondaries: [],
    rollbackTs: [],
  }
}

export function isInFlight({ txnSize }: Lock): boolean {
  return txnSize === IN_FLIGHT
}

/** The bytes are a view of the request body, which the cache must not keep in memory. */
function copyOf(bytes: Uint8Array): Buffer {
  const copy = Buffer.allocUnsafeSlow(bytes.length)
  copy.set(bytes)
  return copy
}
