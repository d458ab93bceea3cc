import type { CounterOp } from '../bytes/counter.js'
import { keyText } from '../bytes/key-text.js'
import type { Transaction } from '../coordinator/transaction.js'
import { Undetermined } from '../coordinator/undetermined.js'
import type { PutOptions } from '../coordinator/write-buffer.js'
import { isLeaseName } from '../leases/rules/lease.js'
import { DELETE_RANGE_LIMIT_DEFAULT, STREAM_PAGE_BYTES } from '../limits.js'
import type { CommitEffects, NotifyEffect } from '../percolator/commit-effects.js'
import { expireTsOf } from '../percolator/expiry.js'
import { stampedKey } from '../percolator/stamped-key.js'
import type { Timestamp } from '../timestamp.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, readValue, toKey, toKeys, toValue } from './bytes.js'
import { CallOfTxn } from './call-of-txn.js'
import { newCount, requireSafeInteger } from './counter.js'
import type { During } from './db-backend.js'
import { type Deadline, withDeadline } from './deadline.js'
import { EXPIRY_KINDS, type ExpiryOptions, expiryOf, expiryOfTouch, TOUCH_KINDS, type TouchOptions } from './expiry.js'
import { keyRangeOf, RANGE_KINDS, type RangeOptions } from './key-range.js'
import { requireName } from './name.js'
import { BOOLEAN, type Kinds, kind, optionsOf, requireNoOptions, wholeUpTo } from './options.js'
import { SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'
import { type Versioned, versioned } from './snapshot.js'

export interface TxnReadOptions<A extends As = As> {
  /** The type in which values are returned. Default `text`. */
  readonly as?: A | undefined
}

export type DeleteRangeOptions = RangeOptions & {
  /** Most keys to delete, from 1. Default 1000. */
  readonly limit?: number | undefined
}

export const DELETE_RANGE_KINDS: Kinds<DeleteRangeOptions> = { ...RANGE_KINDS, limit: wholeUpTo(1, 100_000) }
const deleteRangeOptions = optionsOf<DeleteRangeOptions>('deleteRange of a transaction', DELETE_RANGE_KINDS)
const readOptions = optionsOf<TxnReadOptions>('a read of a transaction', { as: AS })
const scanOptions = optionsOf<ScanOptions>('scan of a transaction', SCAN_KINDS)
const counterOptions = {
  increment: optionsOf<ExpiryOptions>('increment', EXPIRY_KINDS),
  min: optionsOf<ExpiryOptions>('min', EXPIRY_KINDS),
  max: optionsOf<ExpiryOptions>('max', EXPIRY_KINDS),
}
const touchOptions = optionsOf<TouchOptions>('touch of a transaction', TOUCH_KINDS)

export interface TxnPutOptions extends ExpiryOptions {
  /** The key is deleted when this lease ends. The transaction must have the lease among its `leases`. */
  readonly lease?: string | { readonly name: string } | undefined
  /**
   * The key that is written is `key` followed by 10 bytes: the commit timestamp in 8, and in 2 how many such puts of the transaction
   * came before. Excludes `lease`. The transaction itself does not see it; `versionstamped` names it after the commit.
   */
  readonly versionstamp?: boolean | undefined
}

type TxnInsertOptions = Omit<TxnPutOptions, 'versionstamp'>

const INSERT_KINDS: Kinds<TxnInsertOptions> = { ...EXPIRY_KINDS, lease: kind('a lease, or its name', isLeaseOrName) }
const putOptions = optionsOf<TxnPutOptions>('put of a transaction', { ...INSERT_KINDS, versionstamp: BOOLEAN })
const insertOptions = optionsOf<TxnInsertOptions>('insert', INSERT_KINDS)

function isLeaseOrName(value: unknown): boolean {
  const name = typeof value === 'object' && value !== null && 'name' in value ? value.name : value
  return typeof name === 'string' && isLeaseName(name)
}

/**
 * The transaction that `db.transaction` passes to its function. Reads see the snapshot at `startTs` and the transaction's own
 * writes. Writes take effect at the commit. Calls after the end throw.
 */
export class Txn {
  /** @internal */
  protected readonly transaction: Transaction
  /** @internal */
  protected readonly during: During
  readonly #readTimeoutMs: number | undefined
  /** Number of calls that have not settled. */
  #pending = 0
  /** Number of calls that the caller does not await yet. */
  #unawaited = 0
  /** Keys by observer name and by the text of the key. */
  readonly #notified = new Map<string, Map<string, Uint8Array>>()

  /** @internal */
  constructor(transaction: Transaction, during: During, readTimeoutMs?: number) {
    this.transaction = transaction
    this.during = during
    this.#readTimeoutMs = readTimeoutMs
  }

  get startTs(): Timestamp {
    return this.transaction.startTs
  }

  /** undefined until the transaction is committed. */
  get commitTs(): Timestamp | undefined {
    return this.transaction.commitTs
  }

  /** The keys of the puts with `versionstamp`, in their order; undefined until the transaction is committed. */
  get versionstamped(): Uint8Array[] | undefined {
    const { commitTs, stamped } = this.transaction
    return commitTs === undefined ? undefined : stamped.map((one) => stampedKey(one, commitTs))
  }

  /** @returns undefined when the key is absent. */
  get<A extends As = 'text'>(key: Bytes, options: TxnReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return this.#run(async () => (await this.#getVersion(key, options))?.value)
  }

  /** Like `get`, with the `commitTs` of the version, and its expiry. `commitTs` is undefined for an own write. */
  getVersion<A extends As = 'text'>(
    key: Bytes,
    options: TxnReadOptions<A> = {},
  ): Promise<Versioned<A, Timestamp | undefined> | undefined> {
    return this.#run(() => this.#getVersion(key, options))
  }

  async #getVersion<A extends As>(
    key: Bytes,
    options: TxnReadOptions<A>,
  ): Promise<Versioned<A, Timestamp | undefined> | undefined> {
    const { as = 'text' as A } = readOptions(options)
    const bytes = toKey(key)
    const found = await this.#inTime(() => this.transaction.get(bytes))
    return found && versioned({ ...found, commitTs: found.commitTs }, as, bytes)
  }

  /**
   * Reads a key on which writes of this transaction will depend. Pessimistic: locks the key, waiting for other transactions, and
   * reads the latest version, which may be newer than the snapshot. Optimistic: reads the snapshot; a newer version is a
   * conflict at commit.
   */
  getForUpdate<A extends As = 'text'>(key: Bytes, options: TxnReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return this.#run(async () => {
      const { as = 'text' as A } = readOptions(options)
      const bytes = toKey(key)
      const found = await this.#inTime(() => this.transaction.getForUpdate(bytes))
      return found && readValue(found.value, as, bytes)
    })
  }

  /** @returns the values in the order of the keys, undefined for absent keys. */
  batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: TxnReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    return this.#run(async () => {
      const { as = 'text' as A } = readOptions(options)
      return batchGetValues(toKeys(keys), as, (some) => this.#inTime(() => this.transaction.batchGet(some)))
    })
  }

  /**
   * Yields the pairs of a range in the order of their keys: those of the snapshot, and the transaction's own writes as of the
   * first step, without writes made by the loop itself. `commitTs` is undefined for the transaction's own writes.
   */
  scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> = {},
  ): AsyncGenerator<ScanPair<A, K, Timestamp | undefined>, void, undefined> {
    const pairs = this.#scan(options)
    const next = pairs.next.bind(pairs)
    pairs.next = () => {
      const read = next()
      read.catch(() => {}) // For a call that is not awaited, as with the others.
      return read
    }
    return pairs
  }

  async *#scan<A extends As, K extends boolean>(
    options: ScanOptions<A, K>,
  ): AsyncGenerator<ScanPair<A, K, Timestamp | undefined>, void, undefined> {
    const asked = scanOptions(options)
    const writes = this.transaction.view()
    try {
      yield* scanPages<A, K, Timestamp | undefined>(asked, (page) =>
        this.#counted(() => this.#inTime(() => this.transaction.scan(page, undefined, undefined, writes))),
      )
    } finally {
      writes.release()
    }
  }

  /** A `ttl` counts from the start of the transaction. */
  put(key: Bytes, value: Bytes, options: TxnPutOptions = {}): Promise<void> {
    return this.#run(async () => {
      const { versionstamp, ...rest } = putOptions(options)
      const how = this.#optionsOf(rest)
      if (!versionstamp) return this.transaction.put(toKey(key), toValue(value), how)
      if (how.lease !== undefined) throw new TypeError('versionstamp does not go with lease')
      this.transaction.putStamped(toKey(key), toValue(value), 'bytes', how.expireTs)
    })
  }

  /**
   * Writes the present value of a key again with another expiry.
   * @returns false when the key is absent; then nothing is written.
   */
  touch(key: Bytes, options: TouchOptions): Promise<boolean> {
    return this.#run(async () => {
      const expiry = expiryOfTouch(touchOptions(options))
      const bytes = toKey(key)
      const found = await this.transaction.getToWrite(bytes)
      if (found === undefined) return false
      await this.transaction.put(bytes, found.value, { expireTs: expireTsOf(expiry, this.startTs), keeps: found })
      return true
    })
  }

  /** The key may be absent. */
  delete(key: Bytes, ...none: []): Promise<void> {
    return this.#run(async () => {
      requireNoOptions('delete of a transaction', none)
      return this.transaction.delete(toKey(key))
    })
  }

  /**
   * Deletes the first existing keys of a range, up to 1 MiB of keys.
   * @returns their number, and whether more exist.
   */
  deleteRange(options: DeleteRangeOptions): Promise<{ readonly deleted: number; readonly more: boolean }> {
    return this.#run(async () => {
      const { limit = DELETE_RANGE_LIMIT_DEFAULT } = deleteRangeOptions(options)
      const range = keyRangeOf(options)
      if (range.start === undefined && range.end === undefined)
        throw new TypeError('deleteRange needs prefix, start or end')
      const keys: Uint8Array[] = []
      let bytes = 0
      const order = { ...options, limit: limit + 1, as: 'bytes', keysOnly: true } as const
      for await (const { key } of scanPages(order, (page) => this.transaction.scan(page))) {
        keys.push(key)
        bytes += key.length
        if (bytes >= STREAM_PAGE_BYTES) break
      }
      for (const key of keys.slice(0, limit)) await this.transaction.delete(key)
      return { deleted: Math.min(keys.length, limit), more: keys.length > limit || bytes >= STREAM_PAGE_BYTES }
    })
  }

  /** Writes a key that must be absent. @throws KvError `already_exists`, here or at commit. */
  insert(key: Bytes, value: Bytes, options: TxnInsertOptions = {}): Promise<void> {
    return this.#run(async () => {
      const how = this.#optionsOf(insertOptions(options))
      return this.transaction.insert(toKey(key), toValue(value), how)
    })
  }

  /**
   * Adds to a counter, which is decimal text. An absent counter is 0. Without an expiry option the counter keeps its expiry.
   * @returns the sum.
   * @throws TypeError when the value is not an integer; RangeError when the sum is not a safe integer.
   */
  increment(key: Bytes, by = 1, options: ExpiryOptions = {}): Promise<number> {
    return this.#count('increment', key, by, options)
  }

  /**
   * Lowers a counter that is above `by` to it. An absent counter becomes `by`. The rest is as of `increment`.
   * @returns the smaller of the two.
   */
  min(key: Bytes, by: number, options: ExpiryOptions = {}): Promise<number> {
    return this.#count('min', key, by, options)
  }

  /**
   * Raises a counter that is below `by` to it. An absent counter becomes `by`. The rest is as of `increment`.
   * @returns the larger of the two.
   */
  max(key: Bytes, by: number, options: ExpiryOptions = {}): Promise<number> {
    return this.#count('max', key, by, options)
  }

  #count(op: CounterOp, key: Bytes, by: number, options: ExpiryOptions): Promise<number> {
    return this.#run(async () => {
      const expiry = expiryOf(counterOptions[op](options))
      requireSafeInteger(by)
      const bytes = toKey(key)
      const found = await this.transaction.getForUpdate(bytes)
      const count = newCount(op, found?.value, by, bytes)
      const expireTs = expiry === undefined ? found?.expireTs : expireTsOf(expiry, this.startTs)
      await this.transaction.put(bytes, toValue(String(count)), { expireTs, keeps: found })
      return count
    })
  }

  /**
   * Marks keys for an observer, as of the commit, without changing them, so it causes no conflicts. The keys must be in the
   * range of the observer.
   */
  notify(observer: string, ...keys: readonly Bytes[]): Promise<void> {
    return this.#run(async () => {
      this.transaction.requireOpen()
      requireName('observer', observer)
      const marked = this.#notified.get(observer) ?? new Map<string, Uint8Array>()
      for (const key of toKeys(keys)) marked.set(keyText(key), key)
      this.#notified.set(observer, marked)
    })
  }

  /** @internal */
  protected notified(): NotifyEffect[] {
    return [...this.#notified].map(([observer, keys]) => ({ observer, keys: [...keys.values()] }))
  }

  /** @internal A call that is not awaited could write after the commit or not at all, and its error would be lost. */
  protected requireAwaited(): void {
    if (this.#pending > 0 || this.#unawaited > 0)
      throw new TypeError('a call of the transaction was not awaited: await each before the commit')
  }

  #optionsOf({ lease, ...expiry }: TxnInsertOptions): PutOptions {
    const name = typeof lease === 'object' ? lease.name : lease
    return { expireTs: expireTsOf(expiryOf(expiry), this.startTs), lease: name }
  }

  #run<T>(call: () => Promise<T>): Promise<T> {
    this.#unawaited++
    return CallOfTxn.of(
      () => this.#counted(call),
      () => void this.#unawaited--,
    )
  }

  #inTime<T>(read: () => Promise<T>): Promise<T> {
    return this.#readTimeoutMs === undefined ? read() : withDeadline(this.#readTimeoutMs, undefined, read)
  }

  async #counted<T>(call: () => Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await this.during(call)
    } finally {
      this.#pending--
    }
  }
}

export interface OpenTxnParts {
  readonly commitEffects?: Pick<CommitEffects, 'acks' | 'positions' | 'leases'> | undefined
  /** Called after a commit that wrote nothing: no request has checked its leases then. */
  readonly requireLeases?: (() => Promise<void>) | undefined
  /** Time limit of the whole transaction. */
  readonly deadline?: Deadline | undefined
  /** Time limit of each read, or of each page of a scan. */
  readonly readTimeoutMs?: number | undefined
  /** Called with the error of a commit. */
  readonly onFailure?: ((error: unknown) => void) | undefined
}

/** A transaction that the caller must end. Until then it keeps its locks, and the versions that it can read. */
export class OpenTxn extends Txn {
  readonly #parts: OpenTxnParts

  /** @internal */
  constructor(transaction: Transaction, during: During, parts: OpenTxnParts = {}) {
    super(transaction, during, parts.readTimeoutMs)
    this.#parts = parts
  }

  /**
   * @returns the commit timestamp, or `startTs` when nothing was written, acknowledged or notified. A second call after success
   *   returns the same.
   * @throws KvError when the transaction did not commit and never will; Undetermined when the outcome is unknown, in which case
   *   a further call may find it out.
   */
  async commit(): Promise<Timestamp> {
    this.requireAwaited()
    const commit = this.#commit()
    return (
      this.#parts.deadline?.within(commit, (error) => {
        throw this.givenUp(error)
      }) ?? commit
    )
  }

  async #commit(): Promise<Timestamp> {
    const { commitEffects, requireLeases, deadline, onFailure } = this.#parts
    const commit = () => this.transaction.commit(undefined, { ...commitEffects, notify: this.notified() })
    try {
      const committed = await this.during(commit)
      if (committed === this.startTs) await requireLeases?.()
      deadline?.end()
      return committed
    } catch (error) {
      onFailure?.(error)
      throw error
    }
  }

  /** Drops the writes and releases the locks. Does nothing after the end. */
  async rollback(): Promise<void> {
    const { deadline } = this.#parts
    if (this.transaction.state === 'open') {
      const rollback = this.during(() => this.transaction.rollback())
      await (deadline?.within(rollback, () => {}) ?? rollback)
    }
    deadline?.end()
  }

  /** @internal Maps an error to the one that is thrown when the time of the transaction is over. */
  givenUp(error: unknown): unknown {
    const { mayBeDecided, startTs } = this.transaction
    return mayBeDecided ? new Undetermined(startTs, error) : error
  }
}
