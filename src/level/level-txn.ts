import type {
  AbstractClearOptions,
  AbstractDelOptions,
  AbstractGetManyOptions,
  AbstractGetOptions,
  AbstractHasOptions,
  AbstractIterator,
  AbstractIteratorOptions,
  AbstractLevel,
  AbstractPutOptions,
} from 'abstract-level'
import type { Txn } from '../client/index.js'

export type LevelTxnGetOptions<K, V> = AbstractGetOptions<K, V> & {
  /** For a value on which writes depend. In a pessimistic transaction it locks the key, and reads the latest version. */
  readonly forUpdate?: boolean | undefined
}

/**
 * The option by which a call of a level, or of its sublevels, is part of a transaction. Sublevels pass options on to the database
 * by their names, so a symbol would be lost.
 */
export interface InTxn {
  readonly perkvTxn?: Txn | undefined
}

/** A transaction as a level: with the encodings, sublevels and hooks of the database. */
export class LevelTxn<KDefault, VDefault> {
  readonly #level: AbstractLevel<Uint8Array, KDefault, VDefault>
  readonly #root: object
  readonly #txn: Txn

  /** @internal @param root the database of the transaction. */
  constructor(level: AbstractLevel<Uint8Array, KDefault, VDefault>, root: object, txn: Txn) {
    this.#level = level
    this.#root = root
    this.#txn = txn
  }

  /** The same transaction, in a sublevel of the database. */
  in<K, V>(sublevel: AbstractLevel<Uint8Array, K, V>): LevelTxn<K, V> {
    const root = 'db' in sublevel ? sublevel.db : sublevel
    if (root !== this.#root) throw new TypeError('the sublevel must be one of the database of the transaction')
    return new LevelTxn(sublevel, this.#root, this.#txn)
  }

  get(key: KDefault): Promise<VDefault | undefined>
  get<K = KDefault, V = VDefault>(key: K, options: LevelTxnGetOptions<K, V>): Promise<V | undefined>
  get<K, V>(key: K, options: LevelTxnGetOptions<K, V> = {}): Promise<V | undefined> {
    return this.#level.get<K, V>(key, this.#inTxn(options))
  }

  getMany(keys: KDefault[]): Promise<(VDefault | undefined)[]>
  getMany<K = KDefault, V = VDefault>(keys: K[], options: AbstractGetManyOptions<K, V>): Promise<(V | undefined)[]>
  getMany<K, V>(keys: K[], options: AbstractGetManyOptions<K, V> = {}): Promise<(V | undefined)[]> {
    return this.#level.getMany<K, V>(keys, this.#inTxn(options))
  }

  has(key: KDefault): Promise<boolean>
  has<K = KDefault>(key: K, options: AbstractHasOptions<K>): Promise<boolean>
  has<K>(key: K, options: AbstractHasOptions<K> = {}): Promise<boolean> {
    return this.#level.has<K>(key, this.#inTxn(options))
  }

  put(key: KDefault, value: VDefault): Promise<void>
  put<K = KDefault, V = VDefault>(key: K, value: V, options: AbstractPutOptions<K, V>): Promise<void>
  put<K, V>(key: K, value: V, options: AbstractPutOptions<K, V> = {}): Promise<void> {
    return this.#level.put<K, V>(key, value, this.#inTxn(options))
  }

  del(key: KDefault): Promise<void>
  del<K = KDefault>(key: K, options: AbstractDelOptions<K>): Promise<void>
  del<K>(key: K, options: AbstractDelOptions<K> = {}): Promise<void> {
    return this.#level.del<K>(key, this.#inTxn(options))
  }

  clear<K = KDefault>(options: AbstractClearOptions<K> = {}): Promise<void> {
    return this.#level.clear<K>(this.#inTxn(options))
  }

  /** Yields the entries of the snapshot with the transaction's own writes, as of the first step. */
  iterator<K = KDefault, V = VDefault>(options: AbstractIteratorOptions<K, V> = {}): AbstractIterator<unknown, K, V> {
    return this.#level.iterator<K, V>(this.#inTxn(options))
  }

  #inTxn<T extends object>(options: T): T & InTxn {
    return { ...options, perkvTxn: this.#txn }
  }
}
