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

/**
 * The newest versions of keys that were read lately, bounded in bytes; the longest unread go first.
 *
 * It never holds a version that a commit is about to replace: whoever writes a key calls `forget` before its batch is
 * written and again after it, and a fill counts only if it began with no lock on the key and no `forget` came in between.
 */
export class VersionCache {
  readonly #versions = new Map<string, CachedVersion>()
  readonly #fills = new Map<string, symbol>()
  #bytes = 0

  constructor(readonly bytesMax: number) {}

  get(key: Uint8Array): CachedVersion | undefined {
    if (this.#versions.size === 0) return undefined
    const text = keyText(key)
    const version = this.#versions.get(text)
    if (version === undefined) return undefined
    this.#versions.delete(text) // A Map keeps the order of insertion: the first is the longest unread.
    this.#versions.set(text, version)
    return version
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
    this.#versions.set(text, version)
    this.#bytes += entryBytes(text, version)
    for (const oldest of this.#versions.keys()) {
      if (this.#bytes <= this.bytesMax) break
      this.#remove(oldest)
    }
  }

  forget(key: Uint8Array): void {
    if (this.#versions.size === 0 && this.#fills.size === 0) return
    const text = keyText(key)
    this.#fills.delete(text)
    this.#remove(text)
  }

  clear(): void {
    this.#versions.clear()
    this.#fills.clear()
    this.#bytes = 0
  }

  #remove(text: string): void {
    const version = this.#versions.get(text)
    if (version === undefined) return
    this.#versions.delete(text)
    this.#bytes -= entryBytes(text, version)
  }
}

function entryBytes(text: string, { value }: CachedVersion): number {
  return ENTRY_BYTES + text.length + (value?.length ?? 0)
}
