import { keyText } from '../../../bytes/key-text.js'
import type { Timestamp } from '../../../timestamp.js'

/** The newest value of a key, or its absence, since `commitTs`: the answer to every read from there on. */
export interface CachedVersion {
  readonly value: Uint8Array | undefined
  /** Of the Put, or of the Delete; 0 where nothing was ever written. */
  readonly commitTs: Timestamp
}

/** What an entry costs beside its key and value: Map slot, objects, Buffer header; measured, rounded up. */
const ENTRY_BYTES = 300

/** @param version undefined while a batch that changes the key is being written. */
interface Slot {
  version: CachedVersion | undefined
  bytes: number
}

/**
 * The newest versions of keys that were read lately, bounded in bytes, in two generations: what is read moves into the
 * younger one, and when that has half of the bytes the older goes. (A Map in order of use would be exact, but V8 walks
 * over all that was deleted before it finds the first that is left.)
 *
 * It never holds a version that a commit is about to replace: whoever writes a key calls `suspend` before its batch is
 * written, and `renew` or `forget` after it. A fill counts only if it began with no lock on the key and none of these came
 * in between.
 */
export class VersionCache {
  #young = new Map<string, Slot>()
  #old = new Map<string, Slot>()
  #youngBytes = 0
  readonly #fills = new Map<string, symbol>()

  constructor(readonly bytesMax: number) {}

  get(key: Uint8Array): CachedVersion | undefined {
    return this.#slot(keyText(key))?.version
  }

  /** A version, or the place of one that is being replaced, or a fill on its way. No use of it. */
  has(key: Uint8Array): boolean {
    const text = keyText(key)
    return this.#young.has(text) || this.#old.has(text) || this.#fills.has(text)
  }

  /** Before the engine is read. */
  beginFill(key: Uint8Array): symbol {
    const fill = Symbol()
    this.#fills.set(keyText(key), fill)
    return fill
  }

  /** @param fill from `beginFill`. @param version what the engine said. */
  endFill(key: Uint8Array, fill: symbol, version: CachedVersion): void {
    const text = keyText(key)
    if (this.#fills.get(text) !== fill) return
    this.#fills.delete(text)
    this.#put(text, version)
  }

  /** Where it came to nothing. */
  cancelFill(key: Uint8Array, fill: symbol): void {
    const text = keyText(key)
    if (this.#fills.get(text) === fill) this.#fills.delete(text)
  }

  /** A batch that changes the key is about to be written. */
  suspend(key: Uint8Array): void {
    const text = keyText(key)
    this.#fills.delete(text)
    const slot = this.#slot(text)
    if (slot !== undefined) slot.version = undefined
  }

  /** The batch is written: where the key had a version before, it has this one now. */
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
    this.#youngBytes = 0
    this.#fills.clear()
  }

  #slot(text: string): Slot | undefined {
    const young = this.#young.get(text)
    if (young !== undefined) return young
    const old = this.#old.get(text)
    if (old !== undefined) this.#add(text, old)
    return old
  }

  #put(text: string, version: CachedVersion): void {
    this.#remove(text)
    this.#add(text, { version, bytes: ENTRY_BYTES + text.length + (version.value?.length ?? 0) })
  }

  /** Into the younger generation, unless it would be more than half of everything. */
  #add(text: string, slot: Slot): void {
    this.#old.delete(text)
    if (2 * slot.bytes > this.bytesMax) return
    if (2 * (this.#youngBytes + slot.bytes) > this.bytesMax) {
      this.#old = this.#young
      this.#young = new Map()
      this.#youngBytes = 0
    }
    this.#young.set(text, slot)
    this.#youngBytes += slot.bytes
  }

  #remove(text: string): void {
    this.#old.delete(text)
    const slot = this.#young.get(text)
    if (slot === undefined) return
    this.#young.delete(text)
    this.#youngBytes -= slot.bytes
  }
}
