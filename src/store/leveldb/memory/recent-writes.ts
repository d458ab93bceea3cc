import type { Timestamp } from '../../../timestamp.js'

const SLOTS = 2 ** 19 // 4 MiB.

/**
 * An upper bound of the timestamps of every key's write records. A transaction that started above the bound meets no newer
 * version, and its prewrite need not ask LevelDB.
 *
 * Keys are hashed into slots, and a slot holds the newest timestamp of all its keys. So the table never grows and never
 * forgets; two keys in one slot cost a look into LevelDB at worst.
 */
export class RecentWrites {
  /** 0 where nothing was noted; the system gives a page of it memory when something is. */
  readonly #newest = new Float64Array(SLOTS)
  /** Upper bound of the records that no slot knows. */
  #bound: Timestamp

  /** @param bound upper bound of all write records. */
  constructor(bound: Timestamp) {
    this.#bound = bound
  }

  /** Upper bound of the key's write records. */
  newest(key: Uint8Array): Timestamp {
    return Math.max(this.#bound, this.#newest[slotOf(key)] as Timestamp)
  }

  /** Whether the key may have been written since the table was made. */
  isNoted(key: Uint8Array): boolean {
    return this.#newest[slotOf(key)] !== 0
  }

  /** To be called under the key's latch, before the record is written. */
  note(key: Uint8Array, ts: Timestamp): void {
    const slot = slotOf(key)
    if (ts > (this.#newest[slot] as Timestamp)) this.#newest[slot] = ts
  }

  /** To be called before records of any keys are written at or below `ts`. */
  noteAll(ts: Timestamp): void {
    this.#bound = Math.max(this.#bound, ts)
  }
}

/** FNV-1a with its halves folded. */
function slotOf(key: Uint8Array): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ (key[i] as number), 0x01000193)
  return ((hash >>> 19) ^ hash) & (SLOTS - 1)
}
