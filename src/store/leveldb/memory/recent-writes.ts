import type { Timestamp } from '../../../timestamp.js'

const PAGE_BITS = 9
const PAGE_SLOTS = 2 ** PAGE_BITS
const PAGES = 2 ** 10 // 4 MiB in all.
const SLOTS = PAGES * PAGE_SLOTS

/**
 * Upper bounds of the timestamps of every key's write records. A transaction that started above the bound meets no newer version,
 * so its prewrite need not ask LevelDB.
 *
 * Keys are hashed into slots, and a slot holds the newest timestamp of all its keys. So the table never grows and never forgets;
 * two keys in one slot cost a needless look into LevelDB at worst.
 */
export class RecentWrites {
  /** Pages are made on first use, so that an idle store needs no memory for them. A slot of 0 was never used. */
  readonly #pages: (Float64Array | undefined)[] = new Array(PAGES).fill(undefined)
  /** Upper bound of the records that no slot covers. */
  #bound: Timestamp

  constructor(bound: Timestamp) {
    this.#bound = bound
  }

  newest(key: Uint8Array): Timestamp {
    return Math.max(this.#bound, this.#at(slotOf(key)))
  }

  /** True when the key may have been written since the table was made. */
  isNoted(key: Uint8Array): boolean {
    return this.#at(slotOf(key)) !== 0
  }

  /** Call under the key's latch, before the record is written. */
  note(key: Uint8Array, ts: Timestamp): void {
    const slot = slotOf(key)
    if (ts <= this.#at(slot)) return
    const at = slot >>> PAGE_BITS
    const page = this.#pages[at] ?? new Float64Array(PAGE_SLOTS)
    page[slot & (PAGE_SLOTS - 1)] = ts
    this.#pages[at] = page
  }

  /** Call before records of any keys are written at or below `ts`. */
  noteAll(ts: Timestamp): void {
    this.#bound = Math.max(this.#bound, ts)
  }

  #at(slot: number): Timestamp {
    return this.#pages[slot >>> PAGE_BITS]?.[slot & (PAGE_SLOTS - 1)] ?? 0
  }
}

/** FNV-1a with its halves folded. */
function slotOf(key: Uint8Array): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ (key[i] as number), 0x01000193)
  return ((hash >>> 19) ^ hash) & (SLOTS - 1)
}
