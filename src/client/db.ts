import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import type { KvError } from '../errors/kv-error.js'
import { onAbort } from '../event-loop/on-abort.js'
import { withFirstItemRead } from '../event-loop/with-first-item-read.js'
import { LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT, TIMER_MS_MAX } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { CallOptions, Counted } from './autocommit.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, toKey, toKeys, toValue } from './bytes.js'
import type { ChangedTxn } from './changes/changed-txn.js'
import { changesOf } from './changes/changes.js'
import { type ChangesOptions, changesOptions, originOf } from './changes/changes-options.js'
import { Consumers } from './changes/consumers.js'
import { type Watched, type WatchOptions, watchOf, watchOptions } from './changes/watch.js'
import type { DbBackend } from './db-backend.js'
import { type Deadline, deadlineOf, inDoubt, withDeadline, writeWithin } from './deadline.js'
import { EXPIRY_KINDS, type ExpiryOptions, expiryOfTouch, TOUCH_KINDS, type TouchOptions } from './expiry.js'
import { requireIdempotencyKey } from './idempotency-key.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from './key-range.js'
import { HeldLeases } from './leases/held-leases.js'
import type { Lease } from './leases/lease.js'
import { type LeaseOptions, leaseOptions } from './leases/lease-options.js'
import { Leases } from './leases/leases.js'
import { requireLeaseName, requireName } from './name.js'
import type { NamedCallOptions } from './named-calls.js'
import type { Observation } from './observers/observation.js'
import { observationOf, register } from './observers/observe.js'
import { type ObserveBatch, type ObserveOne, type ObserveOptions, observeOptions } from './observers/observe-options.js'
import { observerRangeOf } from './observers/observer-range.js'
import { Observers } from './observers/observers.js'
import { type Absent, BOOLEAN, type Kinds, optionsOf, TEXT, TIMESTAMP } from './options.js'
import { READ_AT_KINDS, type ReadAt, timestampOf } from './read-at.js'
import { runTransaction } from './run-transaction.js'
import { type PageRequest, SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'
import { Snapshot, type SnapshotRead, type Versioned, versioned } from './snapshot.js'
import {
  BEGIN_KINDS,
  type BeginOptions,
  TIMEOUT_KINDS,
  type TimeoutOptions,
  TRANSACTION_KINDS,
  type TransactionOptions,
  WAIT_KINDS,
  type WaitOptions,
} from './transaction-options.js'
import { DELETE_RANGE_KINDS, type DeleteRangeOptions, OpenTxn, type Txn } from './txn.js'
import { type OnceOptions, type VersionCondition, type Write, type WriteConditions, writeOf } from './write.js'

export type ReadOptions<A extends As = As> = WaitOptions &
  TimeoutOptions &
  ReadAt & {
    /** The type in which values are returned. Default `text`. */
    readonly as?: A | undefined
  }

export type PutOptions = WaitOptions & TimeoutOptions & OnceOptions & ExpiryOptions & WriteConditions
export type DeleteOptions = WaitOptions &
  TimeoutOptions &
  OnceOptions &
  (Pick<VersionCondition, 'ifMatch'> | { readonly ifMatch?: Absent })

export interface Written {
  readonly commitTs: Timestamp
}

const READ_KINDS = { ...WAIT_KINDS, ...READ_AT_KINDS }
const DELETE_KINDS: Kinds<DeleteOptions> = {
  ...WAIT_KINDS,
  ...TIMEOUT_KINDS,
  ifMatch: {
    ...TIMESTAMP,
    expected: "a version's commitTs (ifAbsent: true asks for an absent key)",
    isCondition: true,
  },
  idempotencyKey: TEXT,
}
const readOptions = optionsOf<ReadOptions>('a read', { ...READ_KINDS, ...TIMEOUT_KINDS, as: AS })
const putOptions = optionsOf<PutOptions>('put', {
  ...DELETE_KINDS,
  ...EXPIRY_KINDS,
  ifAbsent: { ...BOOLEAN, isCondition: true },
})
const touchOptions = optionsOf<TouchOptions & WaitOptions & TimeoutOptions & OnceOptions>('touch', {
  ...TOUCH_KINDS,
  ...WAIT_KINDS,
  ...TIMEOUT_KINDS,
  idempotencyKey: TEXT,
})
const deleteOptions = optionsOf<DeleteOptions>('delete', DELETE_KINDS)
const scanOptions = optionsOf<ScanOptions & TransactionWaits & ReadAt>('scan', {
  ...SCAN_KINDS,
  ...READ_KINDS,
  ...TIMEOUT_KINDS,
})
type CountOptions = RangeOptions & WaitOptions & TimeoutOptions & ReadAt
const countOptions = optionsOf<CountOptions>('count', { ...RANGE_KINDS, ...READ_KINDS, ...TIMEOUT_KINDS })
const snapshotOptions = optionsOf<TransactionWaits>('snapshot', { ...WAIT_KINDS, ...TIMEOUT_KINDS })
const beginOptions = optionsOf<BeginOptions & TimeoutOptions>('begin', { ...BEGIN_KINDS, ...TIMEOUT_KINDS })
const transactionOptions = optionsOf<TransactionOptions>('transaction', TRANSACTION_KINDS)

type TransactionWaits = WaitOptions & TimeoutOptions
const deleteRangeOptions = optionsOf<DeleteRangeOptions & TransactionWaits>('deleteRange', {
  ...DELETE_RANGE_KINDS,
  ...WAIT_KINDS,
  ...TIMEOUT_KINDS,
})

/** A transactional key-value store, on a server (`connect`) or in this process (`open`). */
export class Db {
  readonly #backend: DbBackend
  readonly #lockWaitMs: number
  readonly #timeoutMs: number | undefined
  readonly #observations = new Map<Observation<As>, Promise<void>>()
  /** The loops of `changes` and `watch`. */
  readonly #loops = new Set<AbortController>()
  #isClosed = false
  /** For programs that claim keys themselves. Others use `observe`. */
  readonly observers: Observers
  /** Durable positions in the changes of ranges, for loops over `changes` with `consumer`. */
  readonly consumers: Consumers
  /** Lists leases and their holders. */
  readonly leases: Leases
  /** @internal */
  protected readonly held: HeldLeases

  /** @internal */
  constructor(backend: DbBackend, lockWaitMs = LOCK_WAIT_MS_DEFAULT, timeoutMs?: number) {
    this.#backend = backend
    this.#lockWaitMs = lockWaitMs
    this.#timeoutMs = timeoutMs
    this.observers = new Observers((call, options) => this.#named(() => call(backend.observers), options))
    this.consumers = new Consumers((call, options) => this.#named(() => call(backend.changes.consumers), options))
    this.leases = new Leases((call, options) => this.#named(() => call(backend.leases), options))
    const { leases, during } = backend
    const isAway = (error: unknown): boolean => backend.isAway(error)
    this.held = new HeldLeases({ leases, during, isAway, now: () => performance.now() })
  }

  // ---- One key

  /** @returns undefined when the key is absent. */
  async get<A extends As = 'text'>(key: Bytes, options: ReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return (await this.getVersion(key, options))?.value
  }

  /** Like `get`, with the `commitTs` of the version, which a later write can pass as `ifMatch`, and its expiry. */
  async getVersion<A extends As = 'text'>(key: Bytes, options: ReadOptions<A> = {}): Promise<Versioned<A> | undefined> {
    readOptions(options)
    const bytes = toKey(key)
    const found = await this.timed(options, (call) => this.#backend.autocommit.get(bytes, timestampOf(options), call))
    return found && versioned(found, options.as ?? ('text' as A), bytes)
  }

  /**
   * Takes effect exactly once, even if the request has to be repeated.
   * @throws KvError `precondition_failed` when a condition does not hold.
   */
  async put(key: Bytes, value: Bytes, options: PutOptions = {}): Promise<Written> {
    putOptions(options)
    return this.#write(writeOf(toKey(key), toValue(value), options), options)
  }

  /**
   * Takes effect exactly once, even if the request has to be repeated. The key may be absent.
   * @throws KvError `precondition_failed` when the condition does not hold.
   */
  async delete(key: Bytes, options: DeleteOptions = {}): Promise<Written> {
    deleteOptions(options)
    return this.#write(writeOf(toKey(key), undefined, options), options)
  }

  /**
   * Writes the present value of a key again with another expiry: a new version, as after a `put`. Takes effect exactly once.
   * @returns undefined when the key is absent; then nothing is written.
   */
  async touch(
    key: Bytes,
    options: TouchOptions & WaitOptions & TimeoutOptions & OnceOptions,
  ): Promise<Written | undefined> {
    const { idempotencyKey, timeoutMs, lockWaitMs, signal, ...expiry } = touchOptions(options)
    if (idempotencyKey !== undefined) requireIdempotencyKey(idempotencyKey)
    const touch = { key: toKey(key), expiry: expiryOfTouch(expiry), idempotencyKey }
    const ends = { timeoutMs, lockWaitMs, signal }
    const commitTs = await this.timedWrite(ends, (call) => this.#backend.autocommit.touch(touch, call))
    return commitTs === undefined ? undefined : { commitTs }
  }

  // ---- Many keys, of one snapshot

  /** @returns the values in the order of the keys, undefined for absent keys. */
  async batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: ReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    readOptions(options)
    const asked = toKeys(keys)
    return this.timed(options, ({ signal }) =>
      this.#readAt({ ...options, signal }, (ts, call) => {
        const reader = this.#backend.coordinator.snapshot(ts, call)
        return batchGetValues(asked, options.as ?? ('text' as A), (some) => reader.batchGet(some))
      }),
    )
  }

  /**
   * Yields the pairs of a range in the order of their keys, all from one snapshot. They are fetched in pages. `timeoutMs` limits
   * each page, so the time that the caller takes does not count.
   */
  async *scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> & WaitOptions & TimeoutOptions & ReadAt = {},
  ): AsyncGenerator<ScanPair<A, K>, void, undefined> {
    keyRangeOf(scanOptions(options)) // Refuses invalid options before a timestamp is requested.
    const { timeoutMs = this.#timeoutMs } = options
    yield* await this.timed(options, ({ signal }) =>
      this.#readAt({ ...options, signal }, (ts, call) => {
        const readPage = (page: PageRequest) =>
          withDeadline(timeoutMs, options.signal, (signal) =>
            this.#backend.during(() => this.#backend.coordinator.snapshot(ts, { ...call, signal }).scan(page)),
          )
        return withFirstItemRead(scanPages<A, K, Timestamp>(options, readPage))
      }),
    )
  }

  /** Counts the keys in a range, including every write that was acknowledged before the call. No pairs are sent. */
  async count(options: CountOptions = {}): Promise<number> {
    countOptions(options)
    const range = keyRangeOf(options)
    return this.timed(options, ({ signal, timeoutMs }) =>
      this.#readAt({ ...options, signal }, async (ts, call) => {
        const { count } = await this.#backend.autocommit.count(range, ts, { ...call, timeoutMs })
        return count
      }),
    )
  }

  /**
   * Like `count`, but does not wait for locks: while a living transaction holds locks in the range, it counts the snapshot just
   * below them.
   */
  async countAsOf(options: CountOptions = {}): Promise<Counted> {
    countOptions(options)
    const range = keyRangeOf(options)
    return this.timed(options, (call) => this.#backend.autocommit.count(range, timestampOf(options), call))
  }

  /**
   * Opens the database at a timestamp or an instant. Default: now. `timeoutMs` limits the call, and each read of the snapshot.
   */
  async snapshot(at?: Timestamp | Date, options: TransactionWaits = {}): Promise<Snapshot> {
    snapshotOptions(options)
    const { timeoutMs = this.#timeoutMs } = options
    const asked = at instanceof Date ? timestampOf({ at }) : timestampOf({ ts: at })
    const ts = asked ?? (await this.timed(options, async ({ signal }) => this.#backend.readTs(signal)))
    const read: SnapshotRead = (given, call) =>
      withDeadline(timeoutMs, given ?? options.signal, async (signal) => {
        const callOptions = this.#callOptions({ ...options, signal })
        return this.#backend.during(() => call(callOptions))
      })
    return new Snapshot(ts, read, this.#backend)
  }

  // ---- Transactions

  /**
   * Runs a function in a transaction and commits it. After a lost race the whole function runs again in a new transaction, so
   * its side effects elsewhere may happen more than once. An error of the function rolls back and is thrown.
   * @throws KvError the last failure, when the retries are used up; Undetermined when it is unknown whether the transaction
   *   committed.
   */
  async transaction<T>(run: (txn: Txn) => T | Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const { retries = MAX_RETRIES_DEFAULT } = transactionOptions(options)
    if (typeof run !== 'function') throw new TypeError('the first argument of transaction must be a function')
    let last: OpenTxn | undefined
    const begin = async (call: CallOptions): Promise<OpenTxn> => {
      last = await this.#begin(options, call)
      return last
    }
    return this.timed(
      options,
      (call) => runTransaction(() => begin(call), run, retries, call.signal),
      (error) => last?.givenUp(error) ?? error,
    )
  }

  /**
   * Deletes the first existing keys of a range in one transaction.
   * @returns their number, and whether more exist: then call again.
   */
  async deleteRange(
    options: DeleteRangeOptions & TransactionWaits,
  ): Promise<{ readonly deleted: number; readonly more: boolean }> {
    const { lockWaitMs, signal, timeoutMs, ...range } = deleteRangeOptions(options)
    return this.transaction((txn) => txn.deleteRange(range as DeleteRangeOptions), { lockWaitMs, signal, timeoutMs })
  }

  /**
   * Begins a transaction that the caller must commit or roll back. It is not retried. After `timeoutMs`, which has no default
   * here, its calls throw `deadline_exceeded`, and a commit that has not begun is refused.
   */
  async begin(options: BeginOptions & TimeoutOptions = {}): Promise<OpenTxn> {
    const { timeoutMs, signal: given } = beginOptions(options)
    const deadline = deadlineOf(timeoutMs, given)
    const { signal } = deadline
    try {
      // The requests for its start_ts and for each read use the time of `connect`; the transaction itself has no time limit by
      // default.
      const readTimeoutMs = timeoutMs === undefined ? this.#timeoutMs : undefined
      const begun = this.call({ ...options, signal }, (call) => this.#begin(options, call, deadline, readTimeoutMs))
      return await withDeadline(readTimeoutMs, undefined, () => begun)
    } catch (error) {
      deadline.end()
      throw error
    }
  }

  async #begin(
    options: BeginOptions,
    call: CallOptions,
    deadline?: Deadline,
    readTimeoutMs?: number,
  ): Promise<OpenTxn> {
    const { mode = 'optimistic', isolation = 'snapshot', acks = [], positions = [], leases = [] } = options
    const { coordinator, during } = this.#backend
    for (const { signal } of leases) signal?.throwIfAborted()
    const held = leases.map(({ name, fence }) => ({ lease: name, fence }))
    const commitEffects = {
      acks: acks.map(({ observer, key, fence }) => ({ observer, key: toKey(key), fence })),
      positions: positions.map(({ consumer, from, ts }) => ({ consumer, from, ts })),
      leases: held.length === 0 ? undefined : held, // Older servers do not know the field.
    }
    const begun = await coordinator.begin({ mode, isolation, lockWaitMs: call.lockWaitMs, signal: call.signal })
    const requireLeases = () => during(() => this.#backend.autocommit.requireLeases(held, call))
    return new OpenTxn(begun, during, {
      commitEffects,
      requireLeases: held.length === 0 ? undefined : requireLeases,
      deadline,
      readTimeoutMs,
      onFailure: (error) => this.held.refused(error, held),
    })
  }

  // ---- Leases

  /**
   * Acquires a lease: nobody else is granted it until it is released, or its holder has not renewed it for `ttlMs`. It is
   * renewed in the background. Pass it to the transactions of the work (`leases`): they commit only while it is held.
   * @throws KvError `lease_held` when another holder has it, after `waitMs`; ConnectionError when the server was never reached.
   *   The call waits for a server that goes away meanwhile.
   */
  async lease(name: string, options: LeaseOptions): Promise<Lease> {
    leaseOptions(options)
    requireLeaseName(name)
    this.#callOptions({})
    const { timeoutMs, waitMs, signal: given, ...asked } = options
    const abandon = (lease: Lease): Promise<void> => lease.release()
    let granting: Promise<Lease> | undefined
    const grant = (signal: AbortSignal | undefined): Promise<Lease> => {
      granting = this.held.acquire(name, { ...asked, waitMs, signal }).catch((error) => {
        throw inDoubt(error)
      })
      return granting
    }
    return withDeadline(this.#afterWait(timeoutMs, waitMs), given, grant, (error) => {
      granting?.then(abandon).catch(() => {}) // The caller would never learn of the grant.
      return inDoubt(error)
    })
  }

  // ---- Observers

  /**
   * Runs a function on every key of a range that changes, in a transaction of its own. Its writes commit together with the
   * acknowledgement of the change, so for each change they take effect exactly once, however many workers observe under this
   * name. Several changes of one key may be run as one. Keys for which the function fails are tried again later, and parked
   * after `maxAttempts` failures.
   * @param name of the observer. It is registered if it does not exist, and gets the given options. `timeoutMs` limits this
   *   registration.
   * @returns a promise that resolves when the signal, or `close`, has stopped it and every run has ended.
   * @throws KvError when it cannot be registered, or claims are refused for good; the error that `onError` throws.
   */
  async observe<A extends As = 'text'>(
    name: string,
    range: RangeOptions,
    run: ObserveOne<A>,
    options?: ObserveOptions<A> & { readonly batch?: undefined },
  ): Promise<void>
  async observe<A extends As = 'text'>(
    name: string,
    range: RangeOptions,
    run: ObserveBatch<A>,
    options: ObserveOptions<A> & { readonly batch: number },
  ): Promise<void>
  async observe<A extends As>(
    name: string,
    range: RangeOptions,
    run: ObserveOne<A> | ObserveBatch<A>,
    options: ObserveOptions<A> = {},
  ): Promise<void> {
    const { signal, lockWaitMs, timeoutMs } = observeOptions(options)
    requireName('observer', name)
    const observed = observerRangeOf(range)
    if (typeof run !== 'function') throw new TypeError('the third argument of observe must be a function')
    const call = this.#callOptions({ lockWaitMs })
    if (signal?.aborted) return
    const observation = observationOf(this.#backend, name, run, options, call.lockWaitMs)
    const unlisten = onAbort(signal, () => observation.stop())
    const registering = this.#named(() => register(this.#backend.observers, name, observed, options), { timeoutMs })
    const ended = registering.then(() => observation.run())
    this.#observations.set(observation, ended)
    try {
      await ended
    } finally {
      this.#observations.delete(observation)
      unlisten()
    }
  }

  // ---- Changes

  /**
   * Yields the transactions that change some keys, in the order of their commits, each exactly once, from the time of the call
   * on or from a past position. With `snapshot` it yields the existing pairs first. When a server goes away, the loop waits for
   * it and continues where it was. It ends when the signal aborts, and at `close`.
   * @throws KvError `ts_below_safe_point` when changes that it has not delivered were collected: then only a snapshot helps.
   *   ConnectionError when the server was never reached.
   */
  async *changes<A extends As = 'text', K extends boolean = false, O extends boolean = false>(
    options: ChangesOptions<A, K, O> = {},
  ): AsyncGenerator<ChangedTxn<A, K, O>, void, undefined> {
    originOf(changesOptions(options))
    yield* this.#loop(options.signal, (signal) => changesOf(this.#backend, options, signal, this.#timeoutMs))
  }

  /**
   * Yields the present state of a key, then the latest one whenever it has changed. A slow loop misses states in between. The
   * loop waits for a server that goes away. It ends when the signal is aborted, and at `close`.
   * @throws ConnectionError when the server was never reached.
   */
  async *watch<A extends As = 'text'>(
    key: Bytes,
    options: WatchOptions<A> = {},
  ): AsyncGenerator<Watched<A>, void, undefined> {
    watchOptions(options)
    const bytes = toKey(key)
    yield* this.#loop(options.signal, (signal) => watchOf(this.#backend, bytes, options, signal))
  }

  async *#loop<T>(
    signal: AbortSignal | undefined,
    loop: (signal: AbortSignal) => AsyncGenerator<T, void, undefined>,
  ): AsyncGenerator<T, void, undefined> {
    this.#callOptions({})
    if (signal?.aborted) return
    const stop = new AbortController()
    const unlisten = onAbort(signal, () => stop.abort())
    this.#loops.add(stop)
    try {
      yield* loop(stop.signal)
    } finally {
      this.#loops.delete(stop)
      unlisten()
    }
  }

  /**
   * Ends the loops of `changes` and `watch`, stops observing, and waits for their running functions and for the background work
   * of committed transactions. Then it releases leases, waiting at most a second for a server that does not answer. Later calls
   * throw. A database in this process also waits for all calls in flight, rolls back open transactions, and releases its
   * directory for other processes.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const loop of this.#loops) loop.abort()
    for (const observation of this.#observations.keys()) observation.stop()
    await Promise.allSettled(this.#observations.values())
    await this.held.close(new TypeError(`${this.#backend.name} is closed`))
    await this.#backend.close()
  }

  async #write(write: Write, options: WaitOptions & TimeoutOptions): Promise<Written> {
    return { commitTs: await this.timedWrite(options, (call) => this.#backend.autocommit.write(write, call)) }
  }

  /** Reads at the given timestamp, or at a new one. When a collection has passed the new one, reads again. */
  #readAt<T>(options: WaitOptions & ReadAt, read: (ts: Timestamp, call: CallOptions) => Promise<T>): Promise<T> {
    const asked = timestampOf(options)
    return this.call(options, (call) => {
      if (asked !== undefined) return read(asked, call)
      return aboveSafePoint(async () => read(await this.#backend.readTs(call.signal), call))
    })
  }

  /** @internal Runs a call that may be given up at any time, or that ends in time by itself. */
  protected timed<T>(
    options: WaitOptions & TimeoutOptions,
    call: (options: CallOptions) => Promise<T>,
    errorOf?: (error: KvError) => unknown,
  ): Promise<T> {
    const { timeoutMs = this.#timeoutMs } = options
    const timed = (signal: AbortSignal | undefined): Promise<T> =>
      this.call({ ...options, signal }, (given) => call({ ...given, timeoutMs }))
    return withDeadline(timeoutMs, options.signal, timed, errorOf)
  }

  /** @internal Runs a write, which the server may end in time. */
  protected timedWrite<T>(
    options: WaitOptions & TimeoutOptions,
    call: (options: CallOptions) => Promise<T>,
  ): Promise<T> {
    const { timeoutMs = this.#timeoutMs } = options
    return writeWithin(timeoutMs, options.signal, (signal) =>
      this.call({ ...options, signal }, (given) => call({ ...given, timeoutMs })),
    )
  }

  /** Runs a call that takes no signal. After the deadline it goes on without its caller. */
  #named<T>(call: () => Promise<T>, { timeoutMs, waitMs, isRead = false }: NamedCallOptions = {}): Promise<T> {
    const errorOf = isRead ? undefined : inDoubt
    return withDeadline(this.#afterWait(timeoutMs, waitMs), undefined, () => this.call({}, call), errorOf)
  }

  #afterWait(timeoutMs = this.#timeoutMs, waitMs = 0): number | undefined {
    const allMs = (timeoutMs ?? Number.POSITIVE_INFINITY) + waitMs
    return allMs > TIMER_MS_MAX ? undefined : allMs
  }

  /** @internal */
  protected async call<T>(options: WaitOptions, call: (options: CallOptions) => Promise<T>): Promise<T> {
    const callOptions = this.#callOptions(options)
    return this.#backend.during(() => call(callOptions))
  }

  #callOptions({ lockWaitMs = this.#lockWaitMs, signal }: WaitOptions): CallOptions {
    if (this.#isClosed) throw new TypeError(`${this.#backend.name} is closed`)
    return { lockWaitMs, signal }
  }
}
