import { deleteKeys } from '../client/delete-keys.js'
import { deletePrefix } from '../client/delete-prefix.js'
import { connect, type Db } from '../client/index.js'
import { requirePrefix } from '../client/require-prefix.js'
import { wholeTtl } from '../client/whole-ttl.js'

export interface KeyvPerkvOptions {
  /** Every key begins with it, before the namespace of keyv. Default `keyv/`. */
  readonly prefix?: string | undefined
}

export interface KeyvPerkvEntry {
  readonly key: string
  readonly value: string
  /** In milliseconds. */
  readonly ttl?: number | undefined
}

/** A storage adapter of keyv. Keys come with keyv's namespace before them, values as the text that keyv has made of them. */
export class KeyvPerkv {
  /** keyv gives an iterator only to adapters whose dialect it knows. It reads nothing else of it. */
  readonly opts: { readonly dialect: string } = { dialect: 'etcd' }
  /** Set by keyv. */
  namespace?: string | undefined
  readonly #db: Db
  readonly #isOwn: boolean
  readonly #prefix: string

  /** @param db a `Db`, which stays open at `disconnect`; or the URL of a server, to which this connects. */
  constructor(db: Db | string, { prefix = 'keyv/' }: KeyvPerkvOptions = {}) {
    this.#prefix = requirePrefix(prefix)
    this.#isOwn = typeof db === 'string'
    this.#db = typeof db === 'string' ? connect(db) : db
  }

  /** keyv listens for errors here. There are none: each one rejects the call that met it. */
  on(_event: string, _listener: (...values: never[]) => void): this {
    return this
  }

  async get<Value>(key: string): Promise<Value | undefined> {
    return (await this.#db.get(this.#keyOf(key))) as Value | undefined
  }

  /** All values are of one moment. */
  async getMany<Value>(keys: string[]): Promise<(Value | undefined)[]> {
    return (await this.#db.batchGet(keys.map((key) => this.#keyOf(key)))) as (Value | undefined)[]
  }

  /** @param ttl in milliseconds. */
  async set(key: string, value: string, ttl?: number): Promise<boolean> {
    await this.#db.put(this.#keyOf(key), value, { ttl: ttlOf(ttl) })
    return true
  }

  /** All of them, or none. keyv passes the answer on, although its type of an adapter has none. */
  async setMany(entries: KeyvPerkvEntry[]): Promise<void> {
    await this.#db.transaction(async (txn) => {
      for (const { key, value, ttl } of entries) await txn.put(this.#keyOf(key), value, { ttl: ttlOf(ttl) })
    })
    return entries.map(() => true) as unknown as undefined
  }

  /** @returns whether the key was there. */
  delete(key: string): Promise<boolean> {
    return this.deleteMany([key])
  }

  /** @returns whether any of the keys was there. */
  deleteMany(keys: string[]): Promise<boolean> {
    return deleteKeys(
      this.#db,
      keys.map((key) => this.#keyOf(key)),
    )
  }

  async has(key: string): Promise<boolean> {
    return (await this.get(key)) !== undefined
  }

  async hasMany(keys: string[]): Promise<boolean[]> {
    return (await this.getMany(keys)).map((value) => value !== undefined)
  }

  /** Deletes the keys of the namespace, or all below the prefix where keyv has none. */
  clear(): Promise<void> {
    return deletePrefix(this.#db, this.#prefixOf(this.namespace))
  }

  /** Yields the keys as keyv gave them, and their values, all of one moment. */
  async *iterator<Value>(namespace?: string): AsyncGenerator<[string, Value], void> {
    for await (const { key, value } of this.#db.scan({ prefix: this.#prefixOf(namespace) }))
      yield [key.slice(this.#prefix.length), value as Value]
  }

  async disconnect(): Promise<void> {
    if (this.#isOwn) await this.#db.close()
  }

  #keyOf(key: string): string {
    return this.#prefix + key
  }

  #prefixOf(namespace: string | undefined): string {
    return namespace === undefined ? this.#prefix : `${this.#prefix}${namespace}:`
  }
}

function ttlOf(ttl: number | undefined): number | undefined {
  return ttl === undefined ? undefined : wholeTtl(ttl)
}
