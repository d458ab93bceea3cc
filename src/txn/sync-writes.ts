import { keyText } from '../bytes/key-text.js'
import type { MergedVersion } from '../coordinator/transaction.js'
import type { PutOptions } from '../coordinator/write-buffer.js'
import type { PrewriteMutation, Version } from '../percolator/api.js'
import { alreadyExists } from '../percolator/errors.js'
import { type Stamp, type StampedPut, stampedMutations } from '../percolator/stamped-key.js'
import { hasExpired } from '../percolator/write.js'
import type { Timestamp } from '../timestamp.js'
import type { OpTarget } from './op.js'

/** Versions of the keys that ops read, by `keyText`. */
export type Found = ReadonlyMap<string, Version | undefined>

/** The writes of ops that find every version in memory: a `Transaction` without promises, locks and scans. */
export class SyncWrites implements OpTarget {
  readonly #found: Found
  readonly #startTs: Timestamp
  /** By `keyText`. */
  readonly #writes = new Map<string, PrewriteMutation>()
  readonly #stamped: StampedPut[] = []

  /**
   * @param found has the keys of all ops that read.
   * @param startTs snapshot of the transaction. Expiry of its own writes is decided there too.
   */
  constructor(found: Found, startTs: Timestamp) {
    this.#found = found
    this.#startTs = startTs
  }

  mutations(): PrewriteMutation[] {
    const mutations = [...this.#writes.values()]
    return this.#stamped.length === 0 ? mutations : [...mutations, ...stampedMutations(this.#stamped, this.#startTs)]
  }

  get(key: Uint8Array): MergedVersion | undefined {
    const text = keyText(key)
    const own = this.#writes.get(text)
    if (own === undefined) return this.#found.get(text)
    const { value, expireTs = 0 } = own
    // A version that has expired by its own transaction's start was never there.
    if (value === undefined || hasExpired(expireTs, this.#startTs)) return undefined
    return expireTs === 0 ? { value } : { value, expireTs }
  }

  getToWrite(key: Uint8Array): MergedVersion | undefined {
    return this.get(key)
  }

  put(key: Uint8Array, value: Uint8Array, options?: PutOptions): void {
    const text = keyText(key)
    const { expireTs = 0, keeps } = options ?? {}
    const own = keeps === undefined ? undefined : this.#writes.get(text)
    const keepsLease = own === undefined ? keeps?.leaseFence !== undefined : own.keepsLease === true
    if (keepsLease) this.#writes.set(text, { op: 'put', key, value, expireTs, keepsLease })
    else this.#writes.set(text, expireTs === 0 ? { op: 'put', key, value } : { op: 'put', key, value, expireTs })
  }

  putStamped(key: Uint8Array, value: Uint8Array, stamp: Stamp, expireTs: Timestamp = 0): number {
    const counter = this.#stamped.length
    this.#stamped.push({ key, counter, stamp, value, expireTs })
    return counter
  }

  delete(key: Uint8Array): void {
    this.#writes.set(keyText(key), { op: 'delete', key })
  }

  insert(key: Uint8Array, value: Uint8Array, options?: PutOptions): void {
    if (this.get(key) !== undefined) throw alreadyExists(key)
    this.put(key, value, options)
  }

  scan(): never {
    throw new Error('a range takes several turns of the event loop')
  }
}
