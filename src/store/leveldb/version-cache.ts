import { keyText } from '../../percolator/key-text.js'
import type { Timestamp } from '../../percolator/timestamp.js'

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
 * The newest versions of keys that were read lately, bounded in bytes; the longest unread go first.
 *
 * It never holds a version that a commit is about to replace: whoever writes a key calls `suspend` before its batch is
 * written, and `renew` or `forget` after it. A fill counts only if it began with no lock on the key and none of these came
 * in between.
 */
export class VersionCache {
  readonly #slots = new Map<string, Slot>()
  readonly #fills = new Map<string, symbol>()
  #bytes = 0

  constructor(readonly bytesMax: number) {}

  get(key: Uint8Array): CachedVersion | undefined {
    if (this.#slots.size === 0) return undefined
    const text = keyText(key)
    const slot = this.#slots.get(text)
    if (slot?.version === undefined) return undefined
    this.#slots.delete(text) // A Map keeps the order of insertion: the first is the longest unread.
    this.#slots.set(text, slot)
    return slot.version
  }

  /** A version, or the place of one that is being replaced, or a fill on its way. */
  has(key: Uint8Array): boolean {
    if (this.#slots.size === 0 && this.#fills.size === 0) return false
    const text = keyText(key)
    return this.#slots.has(text) || this.#fills.has(text)
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
    this.#remove(text)
    this.#slots.set(text, { version: undefined, bytes: 0 })
    this.#fill(text, version)
  }

  /** Where it came to nothing. */
  cancelFill(key: Uint8Array, fill: symbol): void {
    const text = keyText(key)
    if (this.#fills.get(text) === fill) this.#fills.delete(text)
  }

  /** A batch that changes the key is about to be written. */
  suspend(key: Uint8Array): void {
    if (this.#slots.size === 0 && this.#fills.size === 0) return
    const text = keyText(key)
    this.#fills.delete(text)
    const slot = this.#slots.get(text)
    if (slot !== undefined) slot.version = undefined
  }

  /** The batch is written: where the key had a version before, it has this one now. */
  renew(key: Uint8Array, version: CachedVersion): void {
    const text = keyText(key)
    this.#fills.delete(text)
    if (this.#slots.has(text)) this.#fill(text, version)
  }

  forget(key: Uint8Array): void {
    if (this.#slots.size === 0 && this.#fills.size === 0) return
    const text = keyText(key)
    this.#fills.delete(text)
    this.#remove(text)
  }

  clear(): void {
    this.#slots.clear()
    this.#fills.clear()
    this.#bytes = 0
  }

  #fill(text: string, version: CachedVersion): void {
    const slot = this.#slots.get(text) as Slot
    const bytes = ENTRY_BYTES + text.length + (version.value?.length ?? 0)
    this.#bytes += bytes - slot.bytes
    slot.version = version
    slot.bytes = bytes
    for (const oldest of this.#slots.keys()) {
      if (this.#bytes <= this.bytesMax) break
      this.#remove(oldest)
    }
  }

  #remove(text: string): void {
    const slot = this.#slots.get(text)
    if (slot === undefined) return
    this.#slots.delete(text)
    this.#bytes -= slot.bytes
  }
}
