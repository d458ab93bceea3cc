import type { Transaction } from '../coordinator/transaction.js'
import type { Timestamp } from '../timestamp.js'
import { batchGetValues } from './batch-get.js'
import { AS, type As, type Bytes, type Read, readValue, toKey, toKeys, toValue } from './bytes.js'
import { incremented, requireSafeInteger } from './counter.js'
import type { During } from './db-home.js'
import { optionsOf, requireNoOptions } from './options.js'
import { SCAN_KINDS, type ScanOptions, type ScanPair, scanPages } from './scan.js'

export interface TxnReadOptions<A extends As = As> {
  /** How values are given back. Default `text`. */
  readonly as?: A | undefined
}

const readOptions = optionsOf<TxnReadOptions>('a read of a transaction', { as: AS })
const scanOptions = optionsOf<ScanOptions>('scan of a transaction', SCAN_KINDS)

/**
 * A transaction, as the function given to `db.transaction` gets it: reads see the snapshot at `startTs` and the
 * transaction's own writes; writes are kept until it commits. Used after its end, it throws.
 */
export class Txn {
  /** @internal */
  protected readonly transaction: Transaction
  /** @internal */
  protected readonly during: During
  /** Calls that have not come to an end. */
  #pending = 0

  /** @internal */
  constructor(transaction: Transaction, during: During) {
    this.transaction = transaction
    this.during = during
  }

  get startTs(): Timestamp {
    return this.transaction.startTs
  }

  /** undefined until it is committed. */
  get commitTs(): Timestamp | undefined {
    return this.transaction.commitTs
  }

  /** @returns undefined when there is no such key. */
  get<A extends As = 'text'>(key: Bytes, options: TxnReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return this.#run(async () => {
      const { as = 'text' as A } = readOptions(options)
      const bytes = toKey(key)
      const found = await this.transaction.get(bytes)
      return found && readValue(found.value, as, bytes)
    })
  }

  /**
   * Reads a key that writes are going to depend on. Pessimistic: locks it, waits for whoever holds it, and reads the
   * latest version, which may be newer than the snapshot. Optimistic: a version newer than the snapshot is a conflict at
   * commit.
   */
  getForUpdate<A extends As = 'text'>(key: Bytes, options: TxnReadOptions<A> = {}): Promise<Read<A> | undefined> {
    return this.#run(async () => {
      const { as = 'text' as A } = readOptions(options)
      const bytes = toKey(key)
      const found = await this.transaction.getForUpdate(bytes)
      return found && readValue(found.value, as, bytes)
    })
  }

  /** @returns the values in the order of the keys, undefined where there is none. */
  batchGet<A extends As = 'text'>(
    keys: readonly Bytes[],
    options: TxnReadOptions<A> = {},
  ): Promise<(Read<A> | undefined)[]> {
    return this.#run(async () => {
      const { as = 'text' as A } = readOptions(options)
      return batchGetValues(toKeys(keys), as, (some) => this.transaction.batchGet(some))
    })
  }

  /** The pairs of a range in the order of their keys; `commitTs` is undefined for the transaction's own writes. */
  async *scan<A extends As = 'text', K extends boolean = false>(
    options: ScanOptions<A, K> = {},
  ): AsyncGenerator<ScanPair<A, K, Timestamp | undefined>, void, undefined> {
    yield* scanPages<A, K, Timestamp | undefined>(scanOptions(options), (page) =>
      this.#run(() => this.transaction.scan(page)),
    )
  }

  put(key: Bytes, value: Bytes, ...none: []): Promise<void> {
    return this.#run(async () => {
      requireNoOptions('put of a transaction', none)
      return this.transaction.put(toKey(key), toValue(value))
    })
  }

  /** An absent key may be deleted too. */
  delete(key: Bytes, ...none: []): Promise<void> {
    return this.#run(async () => {
      requireNoOptions('delete of a transaction', none)
      return this.transaction.delete(toKey(key))
    })
  }

  /** Writes a key that must not exist. @throws KvError `already_exists`, here or at commit. */
  insert(key: Bytes, value: Bytes, ...none: []): Promise<void> {
    return this.#run(async () => {
      requireNoOptions('insert', none)
      return this.transaction.insert(toKey(key), toValue(value))
    })
  }

  /**
   * Adds to a counter: decimal text, 0 when absent.
   * @returns what it comes to.
   * @throws TypeError when the value is no integer, RangeError when the sum is no safe one.
   */
  increment(key: Bytes, by = 1, ...none: []): Promise<number> {
    return this.#run(async () => {
      requireNoOptions('increment', none)
      requireSafeInteger(by)
      const bytes = toKey(key)
      const sum = incremented((await this.transaction.getForUpdate(bytes))?.value, by, bytes)
      await this.transaction.put(bytes, toValue(String(sum)))
      return sum
    })
  }

  /** @internal A call that nobody awaited may write after the commit, or not at all. */
  protected requireAwaited(): void {
    if (this.#pending > 0)
      throw new TypeError('a call of the transaction is not finished: await each before the commit')
  }

  async #run<T>(call: () => Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await this.during(call)
    } finally {
      this.#pending--
    }
  }
}

/** A transaction that the caller ends. An end is due: until then its locks stand, and the server keeps its versions. */
export class OpenTxn extends Txn {
  /**
   * @returns the commit timestamp; `startTs` when nothing was written. Again after success: the same.
   * @throws KvError when it did not commit and never will; Undetermined when nobody knows, then it may be called again.
   */
  async commit(): Promise<Timestamp> {
    this.requireAwaited()
    return this.during(() => this.transaction.commit())
  }

  /** Gives up the writes and the locks. Does nothing after the end. */
  async rollback(): Promise<void> {
    if (this.transaction.state === 'open') await this.during(() => this.transaction.rollback())
  }
}
