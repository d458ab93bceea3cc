import { type AbstractDatabaseOptions, AbstractLevel } from 'abstract-level'
import { toBytes } from '../client/bytes.js'
import type { Bytes, Db, Snapshot, TransactionOptions } from '../client/index.js'
import { LevelError, levelError } from './level-error.js'
import { LevelIterator, type LevelIteratorOptions } from './level-iterator.js'
import { isEmpty, keyRangeOf, type LevelRange, prefixed, scanLimit } from './level-range.js'
import { LevelSnapshot } from './level-snapshot.js'
import { type InTxn, LevelTxn } from './level-txn.js'
import type { Reader } from './reader.js'

export type PerkvLevelOptions<KDefault, VDefault> = AbstractDatabaseOptions<KDefault, VDefault> & {
  /**
   * What all keys begin with on the server. Default `level/`. Databases with different prefixes share a server, if no prefix is
   * the beginning of another.
   */
  readonly prefix?: Bytes | undefined
}

interface CallOptions extends InTxn {
  readonly snapshot?: LevelSnapshot | null | undefined
}

interface Writer {
  put(key: Uint8Array, value: Uint8Array): Promise<unknown>
  delete(key: Uint8Array): Promise<unknown>
}

/** An operation of a batch. Without a value it deletes the key. */
interface WriteOp {
  readonly key: Uint8Array
  readonly value?: Uint8Array | undefined
}

const PREFIX_DEFAULT = 'level/'
const AS_BYTES = { as: 'bytes' } as const
/** `clear` deletes up to this many keys in one transaction. */
const CLEAR_KEYS = 1000
const MANIFEST = {
  encodings: { view: true },
  has: true,
  permanence: true,
  seek: true,
  implicitSnapshots: true,
  explicitSnapshots: true,
  signals: { iterators: true },
  additionalMethods: { transaction: true },
}

/** An abstract-level database whose entries are those of a `Db` with keys that begin with `prefix`. */
export class PerkvLevel<KDefault = string, VDefault = string> extends AbstractLevel<Uint8Array, KDefault, VDefault> {
  readonly #source: Db | (() => Db | Promise<Db>)
  readonly #prefix: Uint8Array
  #opened: Db | undefined
  /** Timestamps of snapshots that are on their way. Later writes wait for them. */
  readonly #timestamps = new Set<Promise<Snapshot>>()

  /**
   * @param source a `Db`, which stays open when this database is closed; or a function that opens one, which is closed with it.
   */
  constructor(source: Db | (() => Db | Promise<Db>), options: PerkvLevelOptions<KDefault, VDefault> = {}) {
    const { prefix = PREFIX_DEFAULT, ...others } = options
    super(MANIFEST, others)
    this.#prefix = toBytes(prefix, 'the prefix')
    if (this.#prefix.length === 0) throw new TypeError('the prefix is empty, but an empty key needs one')
    this.#source = source
  }

  /**
   * Runs a function in a transaction and commits it, with the options of PerKV's transactions. After a lost race the whole
   * function runs again.
   */
  async transaction<T>(
    run: (txn: LevelTxn<KDefault, VDefault>) => T | Promise<T>,
    options: TransactionOptions = {},
  ): Promise<T> {
    if (this.status === 'opening') return this.deferAsync(() => this.transaction(run, options))
    return this.#asLevel(() =>
      this.#db.transaction(async (txn) => {
        const result = await run(new LevelTxn(this, this, txn))
        await this.#timestampsTaken()
        return result
      }, options),
    )
  }

  /** @internal */
  async _open(): Promise<void> {
    this.#opened = await (typeof this.#source === 'function' ? this.#source() : this.#source)
  }

  /** @internal */
  async _close(): Promise<void> {
    if (typeof this.#source === 'function') await this.#opened?.close()
    this.#opened = undefined
  }

  /** @internal */
  async _get(
    key: Uint8Array,
    options: CallOptions & { readonly forUpdate?: boolean },
  ): Promise<Uint8Array | undefined> {
    const { perkvTxn: txn, forUpdate = false } = options
    if (txn !== undefined && forUpdate) return txn.getForUpdate(this.#key(key), AS_BYTES)
    return this.#read(options, (reader) => reader.get(this.#key(key), AS_BYTES))
  }

  /** @internal */
  async _getMany(keys: readonly Uint8Array[], options: CallOptions): Promise<(Uint8Array | undefined)[]> {
    const asked = keys.map((key) => this.#key(key))
    return this.#read(options, (reader) => reader.batchGet(asked, AS_BYTES))
  }

  /** @internal */
  async _has(key: Uint8Array, options: CallOptions): Promise<boolean> {
    return (await this._get(key, options)) !== undefined
  }

  /** @internal */
  async _hasMany(keys: readonly Uint8Array[], options: CallOptions): Promise<boolean[]> {
    return (await this._getMany(keys, options)).map((value) => value !== undefined)
  }

  /** @internal */
  async _put(key: Uint8Array, value: Uint8Array, options: InTxn): Promise<void> {
    await this.#write([{ key: this.#key(key), value }], options)
  }

  /** @internal */
  async _del(key: Uint8Array, options: InTxn): Promise<void> {
    await this.#write([{ key: this.#key(key) }], options)
  }

  /** @internal */
  async _batch(ops: readonly ({ readonly type: 'put' | 'del' } & WriteOp)[], options: InTxn): Promise<void> {
    const writes = ops.map(({ type, key, value }) => ({
      key: this.#key(key),
      value: type === 'put' ? value : undefined,
    }))
    await this.#write(writes, options)
  }

  /** @internal Deletes what a snapshot has, in several transactions if it is much. */
  async _clear(
    options: CallOptions & LevelRange & { readonly limit: number; readonly reverse: boolean },
  ): Promise<void> {
    const { limit, reverse } = options
    const range = keyRangeOf(this.#prefix, options)
    if (isEmpty(range)) return
    const order = { ...range, ...AS_BYTES, keysOnly: true, reverse, limit: scanLimit(limit) }
    await this.#read(options, async (reader) => {
      let keys: WriteOp[] = []
      for await (const { key } of reader.scan(order)) {
        if (keys.push({ key }) < CLEAR_KEYS) continue
        await this.#write(keys, options)
        keys = []
      }
      await this.#write(keys, options)
    })
  }

  /** @internal */
  _iterator(options: LevelIteratorOptions & CallOptions): LevelIterator {
    const { perkvTxn, snapshot } = options
    const reader: Promise<Reader> = Promise.resolve(perkvTxn ?? snapshot?.at ?? this.#snapshotNow())
    return new LevelIterator(this, options, { prefix: this.#prefix, reader, isInTxn: perkvTxn !== undefined })
  }

  /** @internal */
  _snapshot(options: object): LevelSnapshot {
    return new LevelSnapshot(options, this.#snapshotNow())
  }

  get #db(): Db {
    if (this.#opened === undefined) throw new LevelError('LEVEL_DATABASE_NOT_OPEN', 'Database is not open')
    return this.#opened
  }

  #key(key: Uint8Array): Uint8Array {
    return prefixed(this.#prefix, key)
  }

  /** Calls that are made meanwhile wait with their writes, so that the snapshot does not have these. */
  #snapshotNow(): Promise<Snapshot> {
    const taken = this.#db.snapshot()
    this.#timestamps.add(taken)
    const done = (): void => void this.#timestamps.delete(taken)
    void taken.then(done, done)
    return taken
  }

  async #timestampsTaken(): Promise<void> {
    if (this.#timestamps.size > 0) await Promise.allSettled(this.#timestamps)
  }

  /** Errors in a transaction stay as they are, because they tell it to run again. `transaction` makes those of a level of them. */
  async #read<T>({ perkvTxn, snapshot }: CallOptions, read: (reader: Reader) => Promise<T>): Promise<T> {
    if (perkvTxn !== undefined) return read(perkvTxn)
    return this.#asLevel(async () => read(snapshot ? await snapshot.at : this.#db))
  }

  async #write(ops: readonly WriteOp[], { perkvTxn }: InTxn): Promise<void> {
    if (perkvTxn !== undefined) return write(perkvTxn, ops)
    await this.#asLevel(async () => {
      const db = this.#db
      await this.#timestampsTaken()
      if (ops.length === 1) await write(db, ops)
      // It has read nothing that could have changed, so after a conflict it only has to be later.
      else if (ops.length > 1) await db.transaction((txn) => write(txn, ops), { retries: Number.POSITIVE_INFINITY })
    })
  }

  async #asLevel<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call()
    } catch (error) {
      throw levelError(error)
    }
  }
}

async function write(to: Writer, ops: readonly WriteOp[]): Promise<void> {
  for (const { key, value } of ops) await (value === undefined ? to.delete(key) : to.put(key, value))
}
