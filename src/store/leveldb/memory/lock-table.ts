import type { KeyRange } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import { MinHeap, type Ranked } from '../../../bytes/min-heap.js'
import { OrderedKeys } from '../../../bytes/ordered-keys.js'
import { isReserved } from '../../../bytes/reserved-keys.js'
import type { Lock } from '../../../percolator/lock.js'
import { resolvedBelow } from '../../../percolator/resolved.js'
import type { Timestamp } from '../../../timestamp.js'

const ENTRIES_AT_A_TIME = 4096

/** `rank` is the highest resolved_ts that the lock allows, while the entry is in the heap. */
export interface LockEntry extends Ranked {
  readonly key: Uint8Array
  /** Readers and writers have to respect it. It is published before the batch that stores it is written. */
  lock: Lock
  /**
   * Batch in flight that stores, changes or removes this lock. Rejects with `storage_unavailable` when the batch failed and may
   * or may not be on disk.
   */
  pending: Promise<void> | undefined
  isInDoubt?: boolean | undefined
}

/**
 * CF_LOCK in memory, with the locks that are never stored: pessimistic ones, and those of 1PC transactions in flight. A lock
 * check costs no engine read, and a reader that could miss a commit in flight finds its lock and waits for the batch.
 */
export class LockTable {
  readonly #entries = new Map<string, LockEntry>()
  readonly #order = new OrderedKeys()
  /** Locks that hold resolved_ts back. Kept only while resolved_ts is in use. */
  #holding: MinHeap<LockEntry> | undefined
  readonly #watches = new Set<(entry: LockEntry) => void>()

  get size(): number {
    return this.#entries.size
  }

  get(key: Uint8Array): LockEntry | undefined {
    return this.#entries.size === 0 ? undefined : this.#entries.get(keyText(key))
  }

  hasAny(texts: readonly string[]): boolean {
    if (this.#entries.size > 0) for (const text of texts) if (this.#entries.has(text)) return true
    return false
  }

  put(key: Uint8Array, lock: Lock, pending?: Promise<void>): void {
    const text = keyText(key)
    let entry = this.#entries.get(text)
    if (entry === undefined) {
      entry = { key, lock, pending, rank: 0, place: -1 }
      this.#entries.set(text, entry)
      this.#order.add(text)
    } else {
      entry.lock = lock
      entry.pending = pending
      entry.isInDoubt = undefined
    }
    if (this.#holding !== undefined) rank(this.#holding, entry)
    if (this.#watches.size > 0) for (const listener of this.#watches) listener(entry)
  }

  /**
   * Calls `listener` for every lock that is put from now on, because a walk may have passed its key. @returns a function that
   * ends the watch.
   */
  watch(listener: (entry: LockEntry) => void): () => void {
    this.#watches.add(listener)
    return () => this.#watches.delete(listener)
  }

  delete(key: Uint8Array): void {
    const text = keyText(key)
    if (this.#holding !== undefined) {
      const entry = this.#entries.get(text)
      if (entry !== undefined) this.#holding.delete(entry)
    }
    if (this.#entries.delete(text)) this.#order.delete(text)
  }

  /** Oldest first; in any order after a start. */
  all(): IterableIterator<LockEntry> {
    return this.#entries.values()
  }

  /** The lock that holds resolved_ts back most. The first call visits all locks; later ones cost nothing until `unrank`. */
  lowest(): LockEntry | undefined {
    return this.#ranked.first
  }

  /**
   * Locks that hold resolved_ts back, most of all first, at most `visitsMax`. While resolved_ts is not in use, looks only at the
   * locks that have stood longest. The table must not change while this is consumed.
   */
  *ascending(visitsMax: number): Generator<LockEntry, void> {
    let left = visitsMax
    if (this.#holding !== undefined) {
      for (const entry of this.#holding.ascending()) {
        if (left-- === 0) return
        yield entry
      }
      return
    }
    const oldest: { readonly entry: LockEntry; readonly bound: Timestamp }[] = []
    for (const entry of this.#entries.values()) {
      if (left-- === 0) break
      const bound = resolvedBelow(entry.lock)
      if (bound !== undefined) oldest.push({ entry, bound })
    }
    for (const { entry } of oldest.sort((a, b) => a.bound - b.bound)) yield entry
  }

  get #ranked(): MinHeap<LockEntry> {
    if (this.#holding === undefined) {
      this.#holding = new MinHeap()
      for (const entry of this.#entries.values()) rank(this.#holding, entry)
    }
    return this.#holding
  }

  /** Stops keeping the locks in order, until `lowest` is called again. */
  unrank(): void {
    if (this.#holding === undefined) return
    this.#holding = undefined
    for (const entry of this.#entries.values()) entry.place = -1
  }

  clear(): void {
    if (this.#holding !== undefined) this.#holding = new MinHeap()
    this.#entries.clear()
    this.#order.clear()
  }

  /**
   * Visits the entries of user keys in `[start, end)`, in key order or reversed, until `visit` returns false. Other calls may
   * change the table between two steps; the walk sees later entries as they are when it gets there.
   */
  *walk(
    { start, end }: KeyRange,
    visit: (entry: LockEntry) => boolean,
    { reverse = false, withReserved = false } = {},
  ): Generator<void, void, void> {
    if (this.#entries.size === 0) return
    let [from, to] = [start && keyText(start), end && keyText(end)]
    for (;;) {
      let left = ENTRIES_AT_A_TIME
      let last = ''
      for (const text of this.#order.range(from, to, reverse)) {
        const entry = this.#entries.get(text) as LockEntry
        if ((withReserved || !isReserved(entry.key)) && !visit(entry)) return
        last = text
        if (--left === 0) break
      }
      if (left > 0) return
      if (reverse) to = last
      else from = `${last}\0`
      yield
    }
  }

  /** The entries of user keys in `[start, end)`, in key order or reversed. The table must not change while this is consumed. */
  *range(start?: Uint8Array, end?: Uint8Array, reverse = false): Generator<LockEntry> {
    if (this.#entries.size === 0) return
    const bounds = [start && keyText(start), end && keyText(end)] as const
    for (const text of this.#order.range(bounds[0], bounds[1], reverse)) {
      const entry = this.#entries.get(text) as LockEntry
      if (!isReserved(entry.key)) yield entry
    }
  }
}

function rank(heap: MinHeap<LockEntry>, entry: LockEntry): void {
  const bound = resolvedBelow(entry.lock)
  if (bound === undefined) heap.delete(entry)
  else heap.set(entry, bound)
}
