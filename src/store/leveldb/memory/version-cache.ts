import { keyText } from '../../../bytes/key-text.js'
import type { Timestamp } from '../../../timestamp.js'

/** Newest value of a key, or its absence. Answers every read at or above `commitTs`, as `expireTs` says. */
export interface CachedVersion {
  readonly value: Uint8Array | undefined
  /** 0 for a key that was never written. */
  readonly commitTs: Timestamp
  readonly expireTs: Timestamp
  readonly leaseFence: Timestamp
}

/** Memory of an entry beyond its key and value: Map slot, objects, Buffer header. Measured and rounded up. */
const ENTRY_BYTES = 300

/** `version` is undefined while a batch that changes the key is being written. */
interface Slot {
  version: CachedVersion | undefined
  bytes: number
}

/**
 * Newest versions of recently read keys, bounded in bytes, in two generations: a version that is read moves into the younger one,
 * and when that has half of the bytes the older one is dropped. (A Map in order of use would be exact, but V8 walks over all
 * deleted entries before it finds the first that is left.)
 *
 * The cache never holds a version that a commit is about to replace: a writer calls `suspend` before its batch is written, and
 * `renew` or `forget` after it. A fill counts only if it began without a lock on the key and none of these calls came in between.
 */
export class VersionCache {
  #young = new Map<string, Slot>()
  #old = new Map<string, Slot>()
  #youngBytes = 0
  #oldBytes = 0
  readonly #fills = new Map<string, symbol>()

  constructor(readonly bytesMax: number) {}

  get bytes(): number {
    return this.#youngBytes + this.#oldBytes
  }

  get(key: Uint8Array): CachedVersion | undefined {
    return this.#slot(keyText(key))?.version
  }

  /** True for a version, a suspended one, or a fill in progress. Does not count as a use. */
  has(key: Uint8Array): boolean {
    const text = keyText(key)
    return this.#young.has(text) || this.#old.has(text) || this.#fills.has(text)
  }

  /** For a version read from the engine in this turn of the event loop, in which no writer can interfere. */
  fill(key: Uint8Array, version: CachedVersion): void {
    this.#put(keyText(key), version)
  }

  /** Call before the engine is read, if its answer comes in a later turn. */
  beginFill(key: Uint8Array): symbol {
    const fill = Symbol()
    this.#fills.set(keyText(key), fill)
    return fill
  }

  /** @param fill from `beginFill`. @param version from the engine. */
  endFill(key: Uint8Array, fill: symbol, version: CachedVersion): void {
    const text = keyText(key)
    if (this.#fills.get(text) !== fill) return
    this.#fills.delete(text)
    this.#put(text, version)
  }

  cancelFill(key: Uint8Array, fill: symbol): void {
    const text = keyText(key)
    if (this.#fills.get(text) === fill) this.#fills.delete(text)
  }

  /** Call before a batch that changes the key is written. */
  suspend(key: Uint8Array): void {
    const text = keyText(key)
    this.#fills.delete(text)
    const slot = this.#slot(text)
    if (slot !== undefined) slot.version = undefined
  }

  /** Call after the batch is written. Replaces the key's version, if it had one. */
  renew(key: Uint8Array, version: CachedVersion): void {
    const text = keyText(key)
    this.#fills.delete(text)
    if (this.#slot(text) !== undefined) this.#put(text, version)
  }

  forget(key: Uint8Array): void {
    const text = keyText(key)
    this.#fills.delete(text)
    this.#remove(text)
  }

  clear(): void {
    this.#young.clear()
    this.#old.clear()
    this.#youngBytes = this.#oldBytes = 0
    this.#fills.clear()
  }

  #slot(text: string): Slot | undefined {
    const young = this.#young.get(text)
    if (young !== undefined) return young
    const old = this.#old.get(text)
    if (old === undefined) return undefined
    this.#removeOld(text, old)
    this.#add(text, old)
    return old
  }

  #put(text: string, version: CachedVersion): void {
    this.#remove(text)
    this.#add(text, { version, bytes: ENTRY_BYTES + text.length + (version.value?.length ?? 0) })
  }

  /** Adds to the younger generation, unless the entry is larger than half of the cache. */
  #add(text: string, slot: Slot): void {
    if (2 * slot.bytes > this.bytesMax) return
    if (2 * (this.#youngBytes + slot.bytes) > this.bytesMax) {
      this.#old = this.#young
      this.#oldBytes = this.#youngBytes
      this.#young = new Map()
      this.#youngBytes = 0
    }
    this.#young.set(text, slot)
    this.#youngBytes += slot.bytes
  }

  #remove(text: string): void {
    const old = this.#old.get(text)
    if (old !== undefined) this.#removeOld(text, old)
    const slot = this.#young.get(text)
    if (slot === undefined) return
    this.#young.delete(text)
    this.#youngBytes -= slot.bytes
  }

  #removeOld(text: string, slot: Slot): void {
    this.#old.delete(text)
    this.#oldBytes -= slot.bytes
  }
}
