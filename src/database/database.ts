import { backupId, backupStream, storeId } from '../backup/backup-stream.js'
import type { KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import type { Page, PageRequest } from '../bytes/sorted-map.js'
import { Changes, type FeedStatus } from '../changes/changes.js'
import { Consumers } from '../changes/consumers.js'
import type { Registry } from '../cluster/registry.js'
import { SingleServer } from '../cluster/single-server.js'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import { BELOW_LOCKS_AFTER_MS, belowLocks } from '../coordinator/below-locks.js'
import { Coordinator } from '../coordinator/coordinator.js'
import { joinedEffects } from '../coordinator/effect-rows.js'
import type { Waiting } from '../coordinator/lock-resolver.js'
import type { MergedPair, MergedScan } from '../coordinator/write-buffer.js'
import { invalid, isKvError, KvError } from '../errors/kv-error.js'
import type { Awaitable } from '../event-loop/after.js'
import { type LazySignal, signalOf, stagesOf } from '../event-loop/lazy-signal.js'
import { timed } from '../event-loop/stages.js'
import { withFirstItemRead } from '../event-loop/with-first-item-read.js'
import { type Collected, collectGarbage } from '../gc/collect-garbage.js'
import { ExpiredLocks } from '../gc/expired-locks.js'
import { type GcOptions, type GcRun, type GcStatus, GcWorker } from '../gc/gc-worker.js'
import { type Pin, Pins } from '../gc/pins.js'
import { AttachedKeys } from '../leases/attached-keys.js'
import { Leases } from '../leases/leases.js'
import { IDEMPOTENCY_MS, type Limits, SCAN_PAGE, STREAM_PAGE_BYTES } from '../limits.js'
import { Observers } from '../observers/observers.js'
import type { GetAnswer, GetRequest, Pair, PrewriteAnswer, PrewriteRequest } from '../percolator/api.js'
import type { Pace } from '../store/pace.js'
import type { RestoreProgress, Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { commitOptionsOf } from '../txn/commit-options.js'
import type { Once } from '../txn/idempotency.js'
import { InteractiveTransactions } from '../txn/interactive-transactions.js'
import type { OneShot, OneShotAnswer, OneShotDone } from '../txn/one-shot.js'
import { OneShots } from '../txn/one-shots.js'
import { Outcomes } from '../txn/outcomes.js'
import { prewriteWithEffects } from '../txn/prewrite-with-effects.js'
import { countPairs, pagesOf, type RangeOrder, type ReadPage, readPage } from './range-pages.js'
import { type Restored, restoreBackup } from './restore-backup.js'

type DatabaseLimits = Pick<
  Limits,
  | 'keyBytesMax'
  | 'valueBytesMax'
  | 'requestKeysMax'
  | 'txnBytesMax'
  | 'txnsBytesMax'
  | 'txnsMax'
  | 'outcomeBytesMax'
  | 'outcomesBytesMax'
  | 'observersMax'
  | 'claimsMax'
  | 'consumersMax'
  | 'leasesMax'
  | 'feedBytesMax'
  | 'holdMsMax'
  | 'pageBytesMax'
  | 'answerBytesMax'
>

export interface DatabaseOptions {
  readonly limits: DatabaseLimits
  /** Intervals of garbage collection. Absent: old versions and expired outcomes are collected only on request. */
  readonly gc?: GcOptions | undefined
  /** Absent: this process has the store to itself. */
  readonly registry?: Registry | undefined
  /** Called with failures of background work, for which no caller waits. */
  readonly onError: (message: string, error: unknown) => void
}

interface Parts {
  readonly pins: Pins
  readonly coordinator: Coordinator
  readonly observers: Observers
  readonly consumers: Consumers
  readonly leases: Leases
  readonly keys: AttachedKeys
  readonly registry: Registry
}

/** A read of a range: in the snapshot at `ts`, or in the interactive transaction `txn`, or by default as of now. */
export interface RangeRequest extends RangeOrder, Waiting {
  readonly ts?: Timestamp | undefined
  readonly txn?: string | undefined
  /** On later pages in a transaction: the number of the scan. */
  readonly scan?: number | undefined
}

export interface ScanPage extends MergedScan {
  readonly ts: Timestamp
  /** In a transaction. Later pages need it. */
  readonly scan?: number | undefined
}

/** A snapshot that garbage collection keeps readable until `release` is called. */
export interface HeldSnapshot {
  readonly ts: Timestamp
  readonly release: () => void
}

export interface PairStream extends HeldSnapshot {
  readonly pages: AsyncGenerator<readonly MergedPair[], void>
}

export interface PinState {
  readonly pin: string
  readonly ts: Timestamp
  /** Unix milliseconds by the present clock. */
  readonly expiresAtMs: number
}

export interface DatabaseStatus {
  /** `Store.name`. */
  readonly store: string
  readonly capabilities: Store['traits']
  readonly fault: string | undefined
  readonly safePoint: Timestamp
  readonly restoring: Omit<RestoreProgress, 'lastKey'> | undefined
  /** undefined when the store does not count its locks. */
  readonly locks: number | undefined
  readonly openTransactions: number
  readonly transactionBytes: number
  readonly outcomeBytes: number
  readonly gc: GcStatus
  readonly feed: FeedStatus
}

/**
 * The database without a network: a store, its transactions, and its garbage collection. Arguments and answers are plain data.
 * Reads and transactions resolve the locks that they meet, or wait for them.
 */
export class Database {
  /** Answers the Percolator calls of clients that coordinate their own transactions. */
  readonly store: Store
  /** The Percolator client of this process. */
  readonly coordinator: Coordinator
  /** Transactions that span several calls, by id. */
  readonly transactions: InteractiveTransactions
  /** Ranges whose changes are handed out to workers. */
  readonly observers: Observers
  readonly changes: Changes
  readonly leases: Leases
  readonly attachedKeys: AttachedKeys
  /** The servers of the store. */
  readonly registry: Registry
  readonly #options: DatabaseOptions
  readonly #outcomes: Outcomes
  readonly #oneShots: OneShots
  readonly #pins: Pins
  readonly #gc: GcWorker
  /**
   * Absent for a shared store, where finding locks takes a walk over the table. There, a request that waits for a key resolves
   * its lock.
   */
  readonly #expiredLocks: ExpiredLocks | undefined
  readonly #outcomesTimer: NodeJS.Timeout | undefined
  #isDrained = false
  /** `#refreshTimestamp` waits for an answer. */
  #isAsking = false

  private constructor(store: Store, parts: Parts, options: DatabaseOptions) {
    const { pins, coordinator, observers, consumers, leases, keys, registry } = parts
    const { limits, gc, onError } = options
    this.store = store
    this.observers = observers
    this.leases = leases
    this.attachedKeys = keys
    this.#pins = pins
    this.registry = registry
    this.#options = options
    this.coordinator = coordinator
    const onFeedError = (error: unknown): void => onError('the change feed failed', error)
    this.changes = new Changes(store, { limits, consumers, resolver: this.coordinator.resolver, onError: onFeedError })
    this.#outcomes = new Outcomes(store, this.coordinator, limits)
    this.#oneShots = new OneShots(store, this.coordinator, this.#outcomes, limits)
    this.transactions = new InteractiveTransactions(store, this.coordinator, this.#outcomes, limits, registry.id)
    const sources = {
      store,
      pins,
      registry,
      openTransactions: () => this.transactions.startTs(),
      holders: () => this.changes.holders(),
      refresh: () => this.changes.consumers.refresh(),
      beforehand: (safePoint: Timestamp) => observers.passTo(safePoint),
      afterwards: (safePoint: Timestamp, pace?: Pace) => observers.collect(safePoint, pace),
      onError: (error: unknown) => onError('garbage collection failed', error),
    }
    this.#gc = new GcWorker(sources, gc ?? { lifeTimeMs: 0, intervalMs: 0 })
    const onLockError = (error: unknown): void => onError('dead locks are not ended', error)
    if (store.locks !== undefined)
      this.#expiredLocks = new ExpiredLocks({
        store,
        locks: store.locks,
        resolver: coordinator.resolver,
        onError: onLockError,
      })
    if (gc === undefined) return
    const collect = (): void => {
      if (store.upkeep.restoring !== undefined) return // Refused until the restore is complete.
      this.collectOutcomes().catch((error) => {
        if (!this.#isDrained) onError('expired outcomes of idempotency keys could not be removed', error)
      })
    }
    collect() // Counts the outcomes that earlier runs stored.
    this.#outcomesTimer = setInterval(collect, IDEMPOTENCY_MS)
    this.#outcomesTimer.unref()
  }

  /** Opens a database, which owns the store from now on and closes it. If this throws, the caller must close the store. */
  static async open(store: Store, options: DatabaseOptions): Promise<Database> {
    const { limits, registry = new SingleServer(), onError } = options
    const onFailure = (error: unknown): void => onError('background work of observers failed', error)
    const observers = await Observers.open(store, { limits, onError: onFailure, context: () => coordinator })
    const onLateFailure = (error: unknown): void => onError('background work of consumers failed', error)
    const consumers = await Consumers.open(store, { limits, onError: onLateFailure, context: () => coordinator })
    const onLeaseFailure = (error: unknown): void => onError('background work of leases failed', error)
    const coordinator: Coordinator = new Coordinator(
      store,
      commitOptionsOf(store.traits),
      joinedEffects([observers.effectsAsRows, consumers.effectsAsRows]),
      (...asked) => keys.attach(...asked),
    )
    const keys = new AttachedKeys(store, coordinator, limits)
    const walks = !store.cells.isShared || options.gc !== undefined
    const leases = await Leases.open(store, { limits, keys, walks, onError: onLeaseFailure })
    const parts = { pins: await Pins.open(store, registry), coordinator, observers, consumers, leases, keys, registry }
    const database = new Database(store, parts, options)
    if (registry.isShared) await database.#join()
    return database
  }

  /** Joins the servers of the store. All later reads of this server are above its first timestamp. */
  async #join(): Promise<void> {
    try {
      await Promise.resolve(this.store.tso(1)).catch(() => {}) // Without a timestamp it holds all collections back, until it gets one.
      await this.registry.join(() => {
        this.#refreshTimestamp()
        return this.#gc.oldest()
      })
    } catch (error) {
      await this.drain()
      await this.registry.leave()
      throw error
    }
  }

  /** Asks for a timestamp now and then: an idle server would hold the safe point back at its last request. */
  #refreshTimestamp(): void {
    if (this.#isAsking) return
    this.#isAsking = true
    Promise.resolve(this.store.tso(1))
      .catch(() => {}) // The previous timestamp is kept until the next beat.
      .finally(() => {
        this.#isAsking = false
      })
  }

  // ---- Reads and writes: each call is one transaction

  /**
   * Reads the latest version when `ts` is absent. Most answers are ready in this turn of the event loop.
   * @param waiting called when the answer is not ready.
   */
  get(request: GetRequest, waiting: () => Waiting): Awaitable<GetAnswer> {
    return this.coordinator.resolver.reading(() => this.store.get(request), waiting)
  }

  /** Reads at the present time when `ts` is absent. @returns the pairs that exist, all from one snapshot. */
  batchGet(
    request: { readonly keys: readonly Uint8Array[]; readonly ts?: Timestamp | undefined } & Waiting,
  ): Promise<{ readonly pairs: readonly Pair[]; readonly ts: Timestamp }> {
    const keys = [...new Map(request.keys.map((key) => [keyText(key), key])).values()]
    const { resolver } = this.coordinator
    return this.#atSnapshot(request.ts, async (ts) => {
      const read = () => timed(stagesOf(request.signal), 'readMs', this.store.batchGet({ keys, ts }))
      const { pairs } = await resolver.resolving(request.lockWaitMs, read, request.signal)
      return { pairs, ts }
    })
  }

  /**
   * Runs a small one-shot transaction in this turn of the event loop, if it has nothing to wait for but the disk.
   * @param done called once, in a later turn, with the answer when it is on disk, or with an error of `transact`. Must not
   *   throw.
   * @param signalOfLate called for the signal of a request that has to wait after all, and was given none.
   * @returns false, having done nothing, when `transactAsync` must be called instead.
   * @throws KvError the refusal of a check or an op, at once: then `done` is not called.
   */
  transactSync(request: OneShot, done: OneShotDone, signalOfLate?: () => LazySignal): boolean {
    return this.#oneShots.runSync(request, done, signalOfLate)
  }

  /** As `transact`, for a transaction that `transactSync` has not run. */
  transactAsync(request: OneShot): Promise<Once<OneShotAnswer>> {
    return this.#oneShots.runAsync(request)
  }

  /** The Percolator call `prewrite` of a client that coordinates its own transaction: see `prewriteWithEffects`. */
  prewrite(request: PrewriteRequest): Promise<PrewriteAnswer> {
    return prewriteWithEffects(this.coordinator, request)
  }

  /** Runs a one-shot transaction. @throws the errors of `OneShots.run`. */
  transact(request: OneShot): Promise<Once<OneShotAnswer>> {
    return this.#oneShots.run(request)
  }

  // ---- Ranges

  /** One page of a range. It ends early, with `cutAfter`, at the pair that reaches `bytesMax` bytes of keys and values. */
  async scan(request: RangeRequest & { readonly limit: number; readonly bytesMax: number }): Promise<ScanPage> {
    const { txn, lockWaitMs, signal, limit, bytesMax, scan } = request
    const page = (read: ReadPage): Promise<MergedScan> => readPage(read, request, limit, bytesMax)
    if (txn !== undefined) {
      const { startTs: ts } = this.transactions.state(txn)
      return { ...(await this.transactions.scanPage(txn, { lockWaitMs, signal }, limit, page, scan)), ts }
    }
    return this.#inRange(request, async (ts, read) => ({ ...(await page(read)), ts }))
  }

  /** Counts as of now or, while living transactions hold locks in the range, as of just below them. */
  async count(request: RangeRequest): Promise<{ readonly count: number; readonly ts: Timestamp }> {
    const counted = async (ts: Timestamp, read: ReadPage, release = () => {}) => {
      try {
        return { count: await countPairs(read, request), ts }
      } finally {
        release()
      }
    }
    if (request.txn !== undefined || request.ts !== undefined) return this.#inRange(request, counted)
    try {
      // A store of several servers would have to look for the locks in all rows, so that a count would read them twice.
      return await this.#inRange({ ...request, lockWaitMs: belowLocksAfter(request) }, counted)
    } catch (error) {
      if (!isKvError(error, 'key_locked')) throw error
    }
    return aboveSafePoint(async () => {
      const { ts, release } = await this.#holdBelowLocks(request, { ...request, lockWaitMs: 0 })
      return counted(ts, this.#pageReader(ts, request), release)
    })
  }

  /**
   * The pages of a range. At most one page is read ahead of the caller. A range without a limit is read as of now or, while
   * living transactions hold locks in it, as of just below them.
   * @returns after the first page was read. The caller must release the snapshot when it needs no more pages.
   */
  stream(request: RangeRequest & { readonly limit: number }): Promise<PairStream> {
    if (request.txn !== undefined || request.ts !== undefined)
      return this.#inRange(request, async (ts, read, release) => {
        return { ts, pages: await withFirstItemRead(pagesOf(read, request, request.limit)), release }
      })
    return aboveSafePoint(async () => {
      const isWhole = request.limit === Number.POSITIVE_INFINITY
      const { ts, release } = await (isWhole ? this.#holdBelowLocks(request, request) : this.#holdPresent())
      try {
        return {
          ts,
          pages: await withFirstItemRead(pagesOf(this.#pageReader(ts, request), request, request.limit)),
          release,
        }
      } catch (error) {
        release()
        throw error
      }
    })
  }

  /** @param body may call `release` once it has read everything it needs. */
  async #inRange<T>(
    request: RangeRequest,
    body: (ts: Timestamp, read: ReadPage, release: () => void) => Promise<T>,
  ): Promise<T> {
    const { txn, lockWaitMs, signal } = request
    if (txn === undefined)
      return this.#atSnapshot(request.ts, (ts) => body(ts, this.#pageReader(ts, request), () => {}))
    const { startTs } = this.transactions.state(txn)
    const writes = this.transactions.view(txn)
    const read: ReadPage = (order) => this.transactions.scan(txn, { ...order, lockWaitMs, signal }, writes)
    return body(startTs, read, writes.release)
  }

  #pageReader(ts: Timestamp, { lockWaitMs, signal }: Waiting): ReadPage {
    const snapshot = this.coordinator.snapshot(ts, { lockWaitMs })
    return async (order) => {
      const { pairs, isCut } = await snapshot.scan(order, undefined, signal)
      return { pairs, cutAfter: isCut ? pairs.at(-1)?.key : undefined }
    }
  }

  // ---- Snapshots

  /** Reads at `asked`, or at a new timestamp that garbage collection keeps readable during the read. */
  #atSnapshot<T>(asked: Timestamp | undefined, read: (ts: Timestamp) => Promise<T>): Promise<T> {
    if (asked !== undefined) return read(asked)
    return aboveSafePoint(async () => {
      const { ts, release } = await this.#holdPresent()
      try {
        return await read(ts)
      } finally {
        release()
      }
    })
  }

  #holdPresent(): Promise<HeldSnapshot> {
    return this.#pins.holdNext(() => this.store.readTs())
  }

  /**
   * Holds a snapshot as of now or, while living transactions hold locks in the range, just below them. @throws KvError
   * `ts_below_safe_point`
   */
  async #holdBelowLocks(range: KeyRange, waiting: Waiting): Promise<HeldSnapshot> {
    const { store } = this
    const present = await this.#holdPresent()
    try {
      const options = { waitMs: belowLocksAfter(waiting), signal: signalOf(waiting.signal) }
      const readable = await belowLocks(store, this.coordinator.resolver, present.ts, range, options)
      if (readable === present.ts) return present
      const held = await this.#pins.holdNow(Math.max(readable, store.safePoint))
      present.release()
      return held
    } catch (error) {
      present.release()
      throw error
    }
  }

  /**
   * Keeps a snapshot readable while this process runs.
   * @param ts default: now or, while living transactions hold locks in the range, just below them.
   * @throws KvError `ts_below_safe_point`; `invalid_argument` for a timestamp in the future, whose snapshot can change.
   */
  hold(ts?: Timestamp, range: KeyRange = {}, waiting: Waiting = { lockWaitMs: 0 }): Promise<HeldSnapshot> {
    return ts === undefined ? aboveSafePoint(() => this.#holdBelowLocks(range, waiting)) : this.#pins.holdNow(ts)
  }

  /** Keeps a snapshot readable for a time, even after a restart. @throws the errors of `hold`; KvError `overloaded`. */
  async createPin(wanted: { readonly ts?: Timestamp | undefined; readonly ttlMs: number }): Promise<PinState> {
    return this.#stateOf(await this.#pins.create(wanted))
  }

  /** @param ttlMs counts from now. @throws KvError `not_found` */
  async renewPin(pin: string, ttlMs: number): Promise<PinState> {
    return this.#stateOf(await this.#pins.renew(pin, ttlMs))
  }

  /** @throws KvError `not_found` */
  removePin(pin: string): Promise<void> {
    return this.#pins.remove(pin)
  }

  /** In order of their snapshots, oldest first. */
  async listPins(request: PageRequest): Promise<Page<PinState>> {
    const { items, next } = await this.#pins.page(request)
    return { items: items.map((pin) => this.#stateOf(pin)), next }
  }

  #stateOf(pin: Pin): PinState {
    return { pin: pin.pin, ts: pin.ts, expiresAtMs: this.#pins.expiresAtMs(pin) }
  }

  // ---- Upkeep

  /**
   * Collects old versions up to `safePoint`, or up to `lifeTimeMs` ago, but not above a snapshot that is in use.
   * @throws KvError `invalid_argument` for a safe point in the future; `overloaded` while another server collects.
   */
  async collect(asked: {
    readonly safePoint?: Timestamp | undefined
    readonly lifeTimeMs?: number | undefined
  }): Promise<GcRun> {
    if (asked.safePoint !== undefined) this.#requireNotAhead(asked.safePoint)
    const run = await this.#gc.run(asked.safePoint ?? this.#gc.wanted(asked.lifeTimeMs))
    if (run === undefined) throw new KvError('overloaded', 'another server of this store collects at the moment', {})
    return run
  }

  /** The Percolator call `gc`: collects up to `safePoint` even if older snapshots are in use. @throws as `collect` */
  async gc(safePoint: Timestamp): Promise<Collected> {
    this.#requireNotAhead(safePoint)
    const beforehand = (ts: Timestamp): Promise<void> => this.observers.passTo(ts)
    const afterwards = (ts: Timestamp): Promise<void> => this.observers.collect(ts)
    return collectGarbage(this.store, safePoint, { beforehand, afterwards })
  }

  #requireNotAhead(safePoint: Timestamp): void {
    if (safePoint > this.store.time.clock()) throw invalid('safe_point', 'safe_point is in the future')
  }

  /** Removes expired outcomes of idempotency keys, and counts the others. */
  collectOutcomes(): Promise<void> {
    return this.#outcomes.collect()
  }

  /** @throws KvError `not_supported` when the store has no files. */
  async compact(range: KeyRange): Promise<{ readonly diskBytesBefore: number; readonly diskBytes: number }> {
    const { name, files } = this.store
    if (files === undefined) throw new KvError('not_supported', `the store ${name} has no files to compact`, {})
    const diskBytesBefore = await files.bytes()
    await files.compact(range)
    return { diskBytesBefore, diskBytes: await files.bytes() }
  }

  /**
   * The bytes of a backup, read as the caller pulls them. The caller must hold the snapshot at `ts` meanwhile.
   * @param request `start` continues an interrupted backup; `perkv` is the version for the header.
   */
  backup(request: {
    readonly ts: Timestamp
    readonly start: Uint8Array | undefined
    readonly perkv: string
    readonly lockWaitMs: number
    readonly signal: AbortSignal
  }): Promise<AsyncGenerator<Buffer, void>> {
    const { ts, start, perkv, lockWaitMs, signal } = request
    const snapshot = this.coordinator.snapshot(ts, { lockWaitMs, signal })
    const { cursorSecret } = this.store
    const header = { id: backupId(cursorSecret, ts), ts, perkv, store: storeId(cursorSecret), start }
    const page = (from: Uint8Array | undefined) =>
      snapshot.scan({ start: from, limit: SCAN_PAGE, bytesMax: STREAM_PAGE_BYTES })
    return withFirstItemRead(backupStream(header, page))
  }

  /** Requires an empty store with the capability `restore`. @throws the errors of `restoreBackup`. */
  restore(
    body: AsyncIterable<Uint8Array>,
    { restart = false }: { readonly restart?: boolean } = {},
  ): Promise<Restored> {
    return restoreBackup(this.store, this.#options.limits, body, restart)
  }

  // ---- State

  /** The reason why the database refuses writes; undefined when it accepts them. Also makes a failed engine try again. */
  probe(): string | undefined {
    if (this.store.upkeep.probe()) return undefined
    return this.store.upkeep.restoring
      ? 'a restore is not complete'
      : (this.store.upkeep.fault ?? 'the store takes no writes')
  }

  status(): DatabaseStatus {
    const { store, transactions } = this
    const { restoring, fault } = store.upkeep
    return {
      store: store.name,
      capabilities: store.traits,
      fault,
      safePoint: store.safePoint,
      restoring: restoring && {
        id: restoring.id,
        ts: restoring.ts,
        pairs: restoring.pairs,
        bytes: restoring.bytes,
      },
      locks: store.locks?.count,
      openTransactions: transactions.size,
      transactionBytes: transactions.bytes,
      outcomeBytes: this.#outcomes.bytes,
      gc: this.#gc.status,
      feed: this.changes.status,
    }
  }

  // ---- The end

  /**
   * Rolls back open transactions, which ends their waits, ends waiting claims and streams of changes, and stops background work.
   * Other calls go on. Idempotent.
   */
  async drain(): Promise<void> {
    this.#isDrained = true
    clearInterval(this.#outcomesTimer)
    this.changes.close()
    const { consumers } = this.changes
    await Promise.all([this.transactions, this.observers, consumers, this.leases].map((one) => one.close()))
    await Promise.all([this.#gc.close(), this.#expiredLocks?.close()])
  }

  /** Also closes the store. Must not be called while another call is in flight. */
  async close(): Promise<void> {
    await this.drain()
    await this.coordinator.idle()
    await this.registry.leave()
    await this.store.close()
  }
}

function belowLocksAfter({ lockWaitMs }: Waiting): number {
  return Math.min(lockWaitMs, BELOW_LOCKS_AFTER_MS)
}
