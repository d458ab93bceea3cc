import type { Timestamp } from '../../../timestamp.js'

const SLOTS = 2 ** 19 // 4 MiB.

/**
 * For every key a timestamp that none of its write records is above. A transaction that started above it meets no newer
 * version, and its prewrite need not ask LevelDB.
 *
 * A table of slots by the hash of the key: each holds the newest timestamp of all the keys that share it. So it never
 * grows and never forgets, and keys that meet in a slot cost a look into LevelDB at worst.
 */
export class RecentWrites {
  readonly #newest = new Float64Array(SLOTS)

  /** @param bound at or above every write record that there is. */
  constructor(bound: Timestamp) {
    this.#newest.fill(bound)
  }

  /** At or above every write record of the key. */
  newest(key: Uint8Array): Timestamp {
    return this.#newest[slotOf(key)] as Timestamp
  }

  /** Under the key's latch, before the record is written. */
  note(key: Uint8Array, ts: Timestamp): void {
    const slot = slotOf(key)
    if (ts > (this.#newest[slot] as Timestamp)) this.#newest[slot] = ts
  }

  /** Before records of any keys are written, none above `ts`. */
  noteAll(ts: Timestamp): void {
    for (let slot = 0; slot < SLOTS; slot++) if (ts > (this.#newest[slot] as Timestamp)) this.#newest[slot] = ts
  }
}

/** FNV-1a, its halves folded. */
function slotOf(key: Uint8Array): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ (key[i] as number), 0x01000193)
  return ((hash >>> 19) ^ hash) & (SLOTS - 1)
}
