import { asInteger, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'
import { CopyAsOf } from '../layout/copy-as-of.js'
import { recordAt } from '../layout/record-at.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import { replaceRecord } from '../layout/server-record.js'
import type { Table } from '../layout/table.js'

const FEED = 'feed'

/**
 * The row `00 00 feed`, which the first reader of changes makes. From then on all servers write logs. Without it a commit costs
 * no call more.
 */
export class FeedRow {
  readonly #table: Table
  readonly #key = rowKeyOfSystem('feed')
  readonly #copy: CopyAsOf
  /** All commits above it are logged; 0 while servers may not know of the row yet; undefined: there is none. */
  #since: Timestamp | undefined

  /** @param span in timestamps: how far above its timestamp a server's copy of the row serves. */
  constructor(table: Table, span: Timestamp) {
    this.#table = table
    this.#copy = new CopyAsOf(span, async () => void (await this.#read()))
  }

  get since(): Timestamp | undefined {
    return this.#since
  }

  /**
   * Await before a commit. @param last the newest timestamp that was handed out: no copy of the row serves what is above it.
   * @returns undefined when it is known whether there is a feed.
   */
  before(commitTs: Timestamp, last: Timestamp): undefined | Promise<void> {
    if (this.#since !== undefined && this.#since > 0) return undefined
    return commitTs > last ? this.#copy.refresh(last) : this.#copy.serving(commitTs, this.#copy.span)
  }

  /**
   * Makes the row where there is none. It is written before its timestamp is taken. So a server that does not know of it has read
   * before that timestamp was handed out, and its copy serves no commit above `since`.
   */
  async begin(next: () => Promise<Timestamp> | Timestamp): Promise<Timestamp> {
    for (;;) {
      const bytes = await this.#read()
      if (this.#since !== undefined && this.#since > 0) return this.#since
      const since = bytes === undefined ? 0 : (await next()) + this.#copy.span
      // The next look tells. Whoever is first decides: `since` does not change once it is above 0.
      await replaceRecord(this.#table, this.#key, bytes, packRecord([since]))
    }
  }

  /** Await before something that a feed forbids. */
  look(): undefined | Promise<unknown> {
    return this.#since === undefined ? this.#read() : undefined
  }

  /** A read that began earlier may end later, so `since` only rises. */
  async #read(): Promise<Buffer | undefined> {
    const bytes = await recordAt(this.#table, this.#key)
    if (bytes !== undefined) this.#since = Math.max(this.#since ?? 0, decodeSince(bytes))
    return bytes
  }
}

/** @throws CorruptRecord */
export function decodeSince(bytes: Uint8Array): Timestamp {
  const [since] = unpackRecord(bytes, FEED, 1)
  return asInteger(since, FEED)
}
