import { aboveSafePoint } from '../coordinator/above-safe-point.js'
import { primed } from '../event-loop/primed.js'
import { LOCK_WAIT_MS_DEFAULT, MAX_RETRIES_DEFAULT } from '../limits.js'
import type { Timestamp } from '../timestamp.js'
import type { CallOptions } from './autocommit.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, readValue, toKey, toKeys, toValue } from './bytes.js'
import type { DbHome } from './db-home.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from './key-range.js'
import {
  type Absent,
  BOOLEAN,
  COUNT,
  type Kinds,
  oneOf,
  optionsOf,
  SIGNAL,
  TEXT,
  TIMESTAMP,
  WAIT_MS,
} from './options.js'
import { READ_AT_KINDS, type ReadAt, timestampOf } from './read-at.js'
import { runTransaction } from './run-transaction.js'
import { SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'
import { Snapshot, type Versioned } from './snapshot.js'
import { OpenTxn, type Txn } from './txn.js'
import { type OnceOptions, type VersionCondition, type Write, type WriteConditions, writeOf } from './write.js'

/** What every call takes. */
export interface WaitOptions {
  /** How long to wait for the locks of other transactions. */
  readonly lockWaitMs?: number | undefined
  /** Ends the call: it rejects with the signal's reason. A write may have taken effect then. */
  readonly signal?: AbortSignal | undefined
}

export type ReadOptions<A extends As = As> = WaitOptions &
  ReadAt & {
    /** How values are given back. Default `text`. */
    readonly as?: A | undefined
  }

export type PutOptions = WaitOptions & OnceOptions & WriteConditions
export type DeleteOptions = WaitOptions &
  OnceOptions &
  (Pick<VersionCondition, 'ifMatch'> | { readonly ifMatch?: Absent })

export interface Written {
  readonly commitTs: Timestamp
}

export interface BeginOptions extends WaitOptions {
  /** Default `optimistic`: conflicts show at commit. `pessimistic`: writes lock first, and wait for each other. */
  readonly mode?: 'optimistic' | 'pessimistic' | undefined
  /** Default `snapshot`. `serializable`: what was read still holds at commit. */
  readonly isolation?: 'snapshot' | 'serializable' | undefined
}

export interface TransactionOptions extends BeginOptions {
  /** How often to run the function again after a race that was lost. Default 10. */
  readonly retries?: number | undefined
}

const WAIT_KINDS: Kinds<WaitOptions> = { lockWaitMs: WAIT_MS, signal: SIGNAL }
const READ_KINDS = { ...WAIT_KINDS, ...READ_AT_KINDS }
const DELETE_KINDS: Kinds<DeleteOptions> = {
  ...WAIT_KINDS,
  ifMatch: {
    ...TIMESTAMP,
    expected: "a version's commitTs (ifAbsent: true asks for an absent key)",
    isCondition: true,
  },
  idempotencyKey: TEXT,
}
const BEGIN_KINDS: Kinds<BeginOptions> = {
  ...WAIT_KINDS,
  mode: oneOf('optimistic', 'pessimistic'),
  isolation: oneOf('snapshot', 'serializable'),
}

const readOptions = optionsOf<ReadOptions>('a read', { ...READ_KINDS, as: AS })
const putOptions = optionsOf<PutOptions>('put', { ...DELETE_KINDS, ifAbsent: { ...BOOLEAN, isCondition: true } })
const deleteOptions = optionsOf<DeleteOptions>('delete', DELETE_KINDS)
const scanOptions = optionsOf<ScanOptions & WaitOptions & ReadAt>('scan', { ...SCAN_KINDS, ...READ_KINDS })
const countOptions = optionsOf<RangeOptions & WaitOptions & ReadAt>('count', { ...RANGE_KINDS, ...READ_KINDS })
const snapshotOptions = optionsOf<WaitOptions>('snapshot', WAIT_KINDS)
const beginOptions = optionsOf<BeginOptions>('begin', BEGIN_KINDS)
const transactionOptions = optionsOf<TransactionOptions>('transaction', { ...BEGIN_KINDS, retries: COUNT })

/** A transactional key-value store: on a server (`connect`), or in this process (`open`). */
export class Db {
  readonly #home: DbHome
  readonly #lockWaitMs: number
  #isClosed = false

  /** @internal */
  constructor(home: DbHome, lockWaitMs = LOCK_WAIT_MS_DEFAULT) {
    this.#home = home
    this.#lockWaitMs = lockWaitMs
  }

  // ---- One key

  /** @returns undefined when there is no such key. */
  async get<A extends As = 'text'>(key: Bytes, options: ReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return (await this.getVersion(key, options))?.value
  }

  /** Like `get`, with the version's `commitTs`: what `ifMatch` of a later write takes. */
  async getVersion<A extends As = 'text'>(key: Bytes, options: ReadOptions<A> = {}): Promise<Versioned<A> | undefined> {
    readOptions(options)
    const bytes = toKey(key)
    const found = await this.#call(options, (call) => this.#home.autocommit.get(bytes, timestampOf(options), call))
    return found && { value: readValue(found.value, options.as ?? ('text' as A), bytes), commitTs: found.commitTs }
  }

  /** Exactly once, however often it has to be sent. @throws KvError `precondition_failed` when a condition fails. */
  async put(key: Bytes, value: Bytes, options: PutOptions = {}): Promise<Written> {
    putOptions(options)
    return this.#write(writeOf(toKey(key), toValue(value), options), options)
  }

  /** Exactly once; an absent key may be deleted too. @throws KvError `precondition_failed` when the condition fails. */
  async delete(key: Bytes, options: DeleteOptions = {}): Promise<Written> {
    deleteOptions(options)
    return this.#write(writeOf(toKey(key), undefined, options), options)
  }

  // ---- Many keys, of one snapshot

  /** @returns the values in the order of the keys, undefined where there is none. */
  async batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: ReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    readOptions(options)
    const asked = toKeys(keys)
    return this.#readAt(options, (ts, call) => {
      const reader = this.#home.coordinator.snapshot(ts, call)
      return batchGetValues(asked, options.as ?? ('text' as A), (some) => reader.batchGet(some))
    })
  }

  /** The pairs of a range in the order of their keys, fetched a page at a time, all of one snapshot. */
  async *scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> & WaitOptions & ReadAt = {},
  ): AsyncGenerator<ScanPair<A, K>, void, undefined> {
    keyRangeOf(scanOptions(options)) // What it refuses is refused before anything is sent.
    yield* await this.#readAt(options, (ts, call) => {
      const reader = this.#home.coordinator.snapshot(ts, call)
      return primed(scanPages<A, K, Timestamp>(options, (page) => this.#home.during(() => reader.scan(page))))
    })
  }

  /** How many keys are in a range. No pair is sent. */
  async count(options: RangeOptions & WaitOptions & ReadAt = {}): Promise<number> {
    countOptions(options)
    const range = keyRangeOf(options)
    return this.#call(options, (call) => this.#home.autocommit.count(range, timestampOf(options), call))
  }

  /** The database as of a timestamp or an instant; as of now when none is given. */
  async snapshot(at?: Timestamp | Date, options: WaitOptions = {}): Promise<Snapshot> {
    snapshotOptions(options)
    const asked = at instanceof Date ? timestampOf({ at }) : timestampOf({ ts: at })
    const ts = asked ?? (await this.#call(options, async ({ signal }) => this.#home.readTs(signal)))
    const callOptions = (signal = options.signal): CallOptions => this.#callOptions({ ...options, signal })
    return new Snapshot(
      ts,
      (signal) => this.#home.coordinator.snapshot(ts, callOptions(signal)),
      (range, signal) => this.#home.autocommit.count(range, ts, callOptions(signal)),
      this.#home.during,
    )
  }

  // ---- Transactions

  /**
   * Runs a function in a transaction and commits it. A race that was lost runs the whole function again in a new
   * transaction, so what it does outside may happen more than once. What it throws rolls back and is thrown on.
   * @throws KvError: the last failure when the retries are used up; Undetermined: nobody knows whether it committed.
   */
  async transaction<T>(run: (txn: Txn) => T | Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const { retries = MAX_RETRIES_DEFAULT, signal } = transactionOptions(options)
    if (typeof run !== 'function') throw new TypeError('the first argument of transaction must be a function')
    return this.#call(options, (call) => runTransaction(() => this.#begin(options, call), run, retries, signal))
  }

  /** A transaction that the caller commits or rolls back. Nothing is retried. */
  async begin(options: BeginOptions = {}): Promise<OpenTxn> {
    return this.#call(beginOptions(options), (call) => this.#begin(options, call))
  }

  async #begin({ mode = 'optimistic', isolation = 'snapshot' }: BeginOptions, call: CallOptions): Promise<OpenTxn> {
    const { coordinator, during } = this.#home
    return new OpenTxn(await coordinator.begin({ mode, isolation, ...call }), during)
  }

  /**
   * Waits for what goes on behind transactions that have committed. Calls after it throw. A database in this process waits
   * for all calls that are in flight, rolls open transactions back, and is given back to other processes.
   */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#home.close()
  }

  async #write(write: Write, options: WaitOptions): Promise<Written> {
    return { commitTs: await this.#call(options, (call) => this.#home.autocommit.write(write, call)) }
  }

  /** At the timestamp that is asked for, or at one of its own, which no collection makes too old. */
  #readAt<T>(options: WaitOptions & ReadAt, read: (ts: Timestamp, call: CallOptions) => Promise<T>): Promise<T> {
    const asked = timestampOf(options)
    return this.#call(options, (call) => {
      if (asked !== undefined) return read(asked, call)
      return aboveSafePoint(async () => read(await this.#home.readTs(call.signal), call))
    })
  }

  async #call<T>(options: WaitOptions, call: (options: CallOptions) => Promise<T>): Promise<T> {
    const callOptions = this.#callOptions(options)
    return this.#home.during(() => call(callOptions))
  }

  #callOptions({ lockWaitMs = this.#lockWaitMs, signal }: WaitOptions): CallOptions {
    if (this.#isClosed) throw new TypeError(`${this.#home.name} is closed`)
    return { lockWaitMs, signal }
  }
}
