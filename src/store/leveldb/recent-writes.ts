import type { Timestamp } from '../../percolator/timestamp.js'

/** What an entry costs beside its key: Map slot, string header, boxed number; measured, rounded up. */
const ENTRY_BYTES = 120

class Generation {
  readonly newest = new Map<string, Timestamp>()
  /** The highest of all. */
  max: Timestamp = 0
  bytes = 0

  note(key: string, ts: Timestamp): void {
    const known = this.newest.get(key)
    if (known === undefined) this.bytes += ENTRY_BYTES + key.length
    if (known === undefined || ts > known) this.newest.set(key, ts)
    this.max = Math.max(this.max, ts)
  }
}

/**
 * The newest timestamp among the write records of a key: of those written lately; for all others a bound. A
 * transaction that started above it meets no newer version, and its prewrite need not ask LevelDB.
 *
 * Two generations of keys: when the younger is full the older goes, and the bound rises to the newest of what went.
 * FoundationDB's resolvers keep the writes of their last seconds for the same reason.
 */
export class RecentWrites {
  #young = new Generation()
  #old = new Generation()
  #bound: Timestamp

  /**
   * @param bound at or above every write record that there is.
   * @param bytesMax of one generation.
   */
  constructor(
    bound: Timestamp,
    readonly bytesMax: number,
  ) {
    this.#bound = bound
  }

  /** At or above every write record of the key. @param key its `keyText`. */
  newest(key: string): Timestamp {
    return this.#young.newest.get(key) ?? this.#old.newest.get(key) ?? this.#bound
  }

  /**
   * Under the key's latch, before the record is written.
   * @param now timestamps above it are of the future: they never raise the bound, or every key would seem to be newer
   *   than every transaction.
   */
  note(key: string, ts: Timestamp, now: Timestamp): void {
    this.#young.note(key, Math.max(ts, this.#old.newest.get(key) ?? 0))
    if (this.#young.bytes >= this.bytesMax) this.#age(now)
  }

  #age(now: Timestamp): void {
    const gone = this.#old
    this.#old = this.#young
    this.#young = new Generation()
    if (gone.max <= now) {
      this.#bound = Math.max(this.#bound, gone.max)
      return
    }
    for (const [key, ts] of gone.newest) {
      if (ts > now) this.#young.note(key, Math.max(ts, this.#old.newest.get(key) ?? 0))
      else this.#bound = Math.max(this.#bound, ts)
    }
  }
}
