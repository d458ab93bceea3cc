import { backupId, backupStream } from '../backup/backup-stream.js'
import type { KeyRange } from '../bytes/key-range.js'
import { keyText } from '../bytes/key-text.js'
import type { Registry } from '../cluster/registry.js'
import { SingleServer } from '../cluster/single-server.js'
import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import { Coordinator } from '../coordinator/coordinator.js'
import type { MergedPair, MergedScan } from '../coordinator/write-buffer.js'
import { invalid, KvError } from '../errors/kv-error.js'
import { primed } from '../event-loop/primed.js'
import { type Collected, collectGarbage } from '../gc/collect-garbage.js'
import { type GcOptions, type GcRun, type GcStatus, GcWorker } from '../gc/gc-worker.js'
import { type Pin, Pins } from '../gc/pins.js'
import { IDEMPOTENCY_MS, type Limits, SCAN_PAGE, STREAM_PAGE_BYTES } from '../limits.js'
import type { GetAnswer, GetRequest, Pair } from '../percolator/api.js'
import type { RestoreProgress, Store } from '../store/store.js'
import type { Timestamp } from '../timestamp.js'
import { commitOptionsOf } from '../txn/commit-options.js'
import type { Once } from '../txn/idempotency.js'
import { InteractiveTransactions, type Waiting } from '../txn/interactive-transactions.js'
import { type OneShot, type OneShotAnswer, OneShots } from '../txn/one-shots.js'
import { Outcomes } from '../txn/outcomes.js'
import { countPairs, pagesOf, type RangeOrder, type ReadPage, readPage } from './range-pages.js'
import { type Restored, restoreBackup } from './restore-backup.js'

export type DatabaseLimits = Pick<
  Limits,
  | 'keyBytesMax'
  | 'valueBytesMax'
  | 'requestKeysMax'
  | 'txnBytesMax'
  | 'txnsBytesMax'
  | 'txnsMax'
  | 'outcomeBytesMax'
  | 'outcomesBytesMax'
>

export interface DatabaseOptions {
  readonly limits: DatabaseLimits
  /** Collects old versions, and expired outcomes of idempotency keys, from time to time. Absent: only on request. */
  readonly gc?: GcOptions | undefined
  /** Absent: this process has the store to itself. */
  readonly registry?: Registry | undefined
  /** Told of failures of work that no caller waits for. */
  readonly onError: (message: string, error: unknown) => void
}

/** Pairs of a range, of the snapshot at `ts`, or as the interactive transaction `txn` sees them; of now without either. */
export interface RangeRequest extends RangeOrder, Waiting {
  readonly ts?: Timestamp | undefined
  readonly txn?: string | undefined
}

export interface ScanPage extends MergedScan {
  readonly ts: Timestamp
}

/** A snapshot that collection leaves readable until `release` is called. */
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
  /** Unix milliseconds, by the clock as it stands now. */
  readonly expiresAtMs: number
}

export interface DatabaseStatus {
  /** The name of the store. */
  readonly store: string
  readonly capabilities: Store['capabilities']
  readonly fault: string | undefined
  readonly safePoint: Timestamp
  readonly restoring: Omit<RestoreProgress, 'lastKey'> | undefined
  /** undefined: the store does not count them. */
  readonly locks: number | undefined
  readonly openTransactions: number
  readonly transactionBytes: number
  readonly outcomeBytes: number
  readonly gc: GcStatus
}

/**
 * The database without a network: a store, the transactions that run on it, and its collection. Arguments and answers are
 * plain data. Reads and transactions meet the locks of others here: they are resolved, or waited for.
 */
export class Database {
  /** Answers the Percolator calls, for clients that coordinate transactions themselves. */
  readonly store: Store
  /** The Percolator client of this process, for transactions that run as a function. */
  readonly coordinator: Coordinator
  /** Transactions over several calls, by id. */
  readonly transactions: InteractiveTransactions
  readonly #options: DatabaseOptions
  readonly #outcomes: Outcomes
  readonly #oneShots: OneShots
  readonly #pins: Pins
  readonly #gc: GcWorker
  readonly #outcomesTimer: NodeJS.Timeout | undefined
  #isDrained = false

  private constructor(store: Store, pins: Pins, options: DatabaseOptions) {
    const { limits, gc, registry = new SingleServer(), onError } = options
    this.store = store
    this.#pins = pins
    this.#options = options
    this.coordinator = new Coordinator(store, commitOptionsOf(store.capabilities))
    this.#outcomes = new Outcomes(store, limits)
    this.#oneShots = new OneShots(store, this.coordinator, this.#outcomes)
    this.transactions = new InteractiveTransactions(store, this.coordinator, this.#outcomes, limits)
    const sources = {
      store,
      pins,
      registry,
      openTransactions: () => this.transactions.startTs(),
      onError: (error: unknown) => onError('garbage collection failed', error),
    }
    this.#gc = new GcWorker(sources, gc ?? { lifeTimeMs: 0, intervalMs: 0 })
    if (gc === undefined) return
    const collect = (): void => {
      if (store.restoring !== undefined) return // Refused until the restore is complete.
      this.collectOutcomes().catch((error) => {
        if (!this.#isDrained) onError('old outcomes of idempotency keys stay', error)
      })
    }
    collect() // Counts the outcomes of earlier runs.
    this.#outcomesTimer = setInterval(collect, IDEMPOTENCY_MS)
    this.#outcomesTimer.unref()
  }

  /** The database owns the store from here on, and closes it. Where this throws, the store stays with the caller. */
  static async open(store: Store, options: DatabaseOptions): Promise<Database> {
    return new Database(store, await Pins.open(store), options)
  }

  // ---- Reads and writes, each call a transaction of its own

  /** The answer to a read of one key where memory has it, without a promise; undefined: `get` has to say. */
  known(request: GetRequest): GetAnswer | undefined {
    return this.store.known?.(request)
  }

  /** Without `ts`: the latest version. */
  get({ key, ts, lockWaitMs, signal }: GetRequest & Waiting): Promise<GetAnswer> {
    return this.coordinator.resolver.resolving(lockWaitMs, () => this.store.get({ key, ts }), signal)
  }

  /** @returns the pairs that exist, all of one snapshot; of now without `ts`. */
  batchGet(
    request: { readonly keys: readonly Uint8Array[]; readonly ts?: Timestamp | undefined } & Waiting,
  ): Promise<{ readonly pairs: readonly Pair[]; readonly ts: Timestamp }> {
    const keys = [...new Map(request.keys.map((key) => [keyText(key), key])).values()]
    const { resolver } = this.coordinator
    return this.#atSnapshot(request.ts, async (ts) => {
      const read = () => this.store.batchGet({ keys, ts })
      const { pairs } = await resolver.resolving(request.lockWaitMs, read, request.signal)
      return { pairs, ts }
    })
  }

  /** A whole transaction: checks, reads and writes, all given beforehand. @throws what `OneShots.run` throws. */
  transact(request: OneShot): Promise<Once<OneShotAnswer>> {
    return this.#oneShots.run(request)
  }

  // ---- Ranges

  /** A page of a range. It ends early, with `cutAfter`, at the pair that reaches `bytesMax` bytes of keys and values. */
  scan(request: RangeRequest & { readonly limit: number; readonly bytesMax: number }): Promise<ScanPage> {
    return this.#inRange(request, async (ts, read) => {
      const { pairs, cutAfter } = await readPage(read, request, request.limit, request.bytesMax)
      return { pairs, cutAfter, ts }
    })
  }

  count(request: RangeRequest): Promise<{ readonly count: number; readonly ts: Timestamp }> {
    return this.#inRange(request, async (ts, read) => ({ count: await countPairs(read, request), ts }))
  }

  /**
   * Page after page of a range. No more than a page is read ahead of the caller.
   * @returns once the first page is read. The caller releases the snapshot when it wants no more pages.
   */
  stream(request: RangeRequest & { readonly limit: number }): Promise<PairStream> {
    if (request.txn !== undefined || request.ts !== undefined)
      return this.#inRange(request, async (ts, read) => {
        return { ts, pages: await primed(pagesOf(read, request, request.limit)), release: () => {} }
      })
    return aboveSafePoint(async () => {
      const { ts, release } = await this.#holdPresent()
      try {
        return { ts, pages: await primed(pagesOf(this.#pageReader(ts, request), request, request.limit)), release }
      } catch (error) {
        release()
        throw error
      }
    })
  }

  async #inRange<T>(request: RangeRequest, body: (ts: Timestamp, read: ReadPage) => Promise<T>): Promise<T> {
    const { txn, lockWaitMs, signal } = request
    if (txn === undefined) return this.#atSnapshot(request.ts, (ts) => body(ts, this.#pageReader(ts, request)))
    const { startTs } = this.transactions.state(txn)
    return body(startTs, (order) => this.transactions.scan(txn, { ...order, lockWaitMs, signal }))
  }

  #pageReader(ts: Timestamp, { lockWaitMs, signal }: Waiting): ReadPage {
    const snapshot = this.coordinator.snapshot(ts, { lockWaitMs })
    return async (order) => {
      const { pairs, isCut } = await snapshot.scan(order, undefined, signal)
      return { pairs, cutAfter: isCut ? pairs.at(-1)?.key : undefined }
    }
  }

  // ---- Snapshots

  /** Reads at `asked`, or at a timestamp of its own, which collections of this process leave readable meanwhile. */
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

  async #holdPresent(): Promise<HeldSnapshot> {
    const ts = await this.store.readTs()
    return { ts, release: this.#pins.hold(ts) }
  }

  /**
   * Keeps a snapshot readable, in this process. @param ts default: now.
   * @throws KvError `ts_below_safe_point`; `invalid_argument` for a timestamp of the future, whose snapshot can still change.
   */
  hold(ts?: Timestamp): Promise<HeldSnapshot> {
    return this.#pins.holdNow(ts)
  }

  /** Keeps a snapshot readable for a time, over restarts too. @throws KvError as `hold`; `overloaded`. */
  async createPin(wanted: { readonly ts?: Timestamp | undefined; readonly ttlMs: number }): Promise<PinState> {
    return this.#stateOf(await this.#pins.create(wanted))
  }

  /** @param ttlMs from now on. @throws KvError `not_found` */
  async renewPin(pin: string, ttlMs: number): Promise<PinState> {
    return this.#stateOf(await this.#pins.renew(pin, ttlMs))
  }

  /** @throws KvError `not_found` */
  removePin(pin: string): Promise<void> {
    return this.#pins.remove(pin)
  }

  /** The oldest snapshot first. */
  listPins(): PinState[] {
    return this.#pins.list().map((pin) => this.#stateOf(pin))
  }

  #stateOf(pin: Pin): PinState {
    return { pin: pin.pin, ts: pin.ts, expiresAtMs: this.#pins.expiresAtMs(pin) }
  }

  // ---- Upkeep

  /**
   * Collects old versions up to `safePoint`, or to `lifeTimeMs` ago, and less far where somebody still reads.
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

  /** The Percolator call: collects up to `safePoint` whoever still reads. @throws KvError as `collect` */
  async gc(safePoint: Timestamp): Promise<Collected> {
    this.#requireNotAhead(safePoint)
    return collectGarbage(this.store, safePoint)
  }

  #requireNotAhead(safePoint: Timestamp): void {
    if (safePoint > this.store.clock()) throw invalid('safe_point', 'safe_point is in the future')
  }

  /** Removes the outcomes of idempotency keys that have expired, and counts the others. */
  collectOutcomes(): Promise<void> {
    return this.#outcomes.collect()
  }

  /** Of a store with this capability. */
  async compact(range: KeyRange): Promise<{ readonly diskBytesBefore: number; readonly diskBytes: number }> {
    const { store } = this
    if (store.compact === undefined || store.diskBytes === undefined)
      throw new Error(`the store ${store.name} cannot be compacted`)
    const diskBytesBefore = await store.diskBytes()
    await store.compact(range)
    return { diskBytesBefore, diskBytes: await store.diskBytes() }
  }

  /**
   * The bytes of a backup. They are read as they are pulled; the caller holds the snapshot meanwhile.
   * @param request `start` goes on with a backup that broke off; `perkv` is the version that the header names.
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
    const header = { id: backupId(this.store.cursorSecret, ts), ts, perkv, start }
    const page = (from: Uint8Array | undefined) =>
      snapshot.scan({ start: from, limit: SCAN_PAGE, bytesMax: STREAM_PAGE_BYTES })
    return primed(backupStream(header, page))
  }

  /** Fills an empty store, with this capability, from a backup. @throws what `restoreBackup` throws. */
  restore(body: AsyncIterable<Uint8Array>, { isAnew = false }: { readonly isAnew?: boolean } = {}): Promise<Restored> {
    return restoreBackup(this.store, this.#options.limits, body, isAnew)
  }

  // ---- State

  /** Why the database does not serve writes; undefined: it does. Asking has a failed engine tried again. */
  probe(): string | undefined {
    if (this.store.probe()) return undefined
    return this.store.restoring ? 'a restore is not complete' : (this.store.fault ?? 'the store takes no writes')
  }

  status(): DatabaseStatus {
    const { store, transactions } = this
    const { restoring } = store
    return {
      store: store.name,
      capabilities: store.capabilities,
      fault: store.fault,
      safePoint: store.safePoint,
      restoring: restoring && {
        id: restoring.id,
        ts: restoring.ts,
        pairs: restoring.pairs,
        bytes: restoring.bytes,
      },
      locks: store.lockCount,
      openTransactions: transactions.size,
      transactionBytes: transactions.bytes,
      outcomeBytes: this.#outcomes.bytes,
      gc: this.#gc.status,
    }
  }

  // ---- The end

  /** Rolls back open transactions, which ends their waits, and stops collecting. Other calls go on. Idempotent. */
  async drain(): Promise<void> {
    this.#isDrained = true
    clearInterval(this.#outcomesTimer)
    await this.transactions.close()
    await this.#gc.close()
  }

  /** To be called when no call is in flight. Closes the store too. */
  async close(): Promise<void> {
    await this.drain()
    await this.coordinator.idle()
    await this.store.close()
  }
}
