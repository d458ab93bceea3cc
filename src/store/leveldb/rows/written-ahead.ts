import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import type { Timestamp } from '../../../timestamp.js'
import { type Engine, type EngineOp, pagesOf, readPage } from '../engine/engine.js'
import type { RecentWrites } from '../memory/recent-writes.js'
import { AHEAD_RANGE, aheadKey, aheadRange } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'

const NOTHING = Buffer.alloc(0)

/** The newest write records, and those among them that clients committed above every timestamp handed out. */
export class WrittenAhead {
  readonly #engine: Engine
  readonly #recent: RecentWrites
  readonly #oracle: TimestampSource
  #newest: Timestamp

  /** @param savedMark above every record on disk but those on record here. */
  constructor(engine: Engine, recent: RecentWrites, oracle: TimestampSource, savedMark: Timestamp) {
    this.#engine = engine
    this.#recent = recent
    this.#oracle = oracle
    this.#newest = savedMark
  }

  /** No write record is above it. */
  get newest(): Timestamp {
    return this.#newest
  }

  get isAny(): boolean {
    return this.#newest > this.#oracle.last
  }

  /** The newest such record of `keys`, whose latches are held; 0 when there is none. */
  async newestOf(keys: Iterable<Uint8Array>): Promise<Timestamp> {
    let newest = 0
    for (const key of keys) {
      if (this.#recent.newest(key) <= this.#oracle.last) continue
      const [entry] = await readPage(this.#engine, aheadRange(key), 1)
      if (entry !== undefined) newest = Math.max(newest, decodeKeyTs(entry[0]))
    }
    return newest > this.#oracle.last ? newest : 0
  }

  /**
   * A record that is about to be written.
   * @returns what goes with it into the batch where it is ahead: the oracle's mark is above every other record, so the next
   *   start has to be told of these.
   */
  note(key: Uint8Array, commitTs: Timestamp): EngineOp | undefined {
    this.#note(key, commitTs)
    return commitTs > this.#oracle.last ? { type: 'put', key: aheadKey(key, commitTs), value: NOTHING } : undefined
  }

  #note(key: Uint8Array, commitTs: Timestamp): void {
    this.#recent.note(key, commitTs)
    if (commitTs > this.#newest) this.#newest = commitTs
  }

  /** At the start: those that the last run left. Those that the mark has passed are forgotten. */
  async load(sync: boolean): Promise<void> {
    for await (const page of pagesOf(this.#engine, AHEAD_RANGE, PAGE)) {
      const passed: EngineOp[] = []
      for (const [key] of page) {
        const ts = decodeKeyTs(key)
        if (ts > this.#oracle.last) this.#note(decodeKey(key), ts)
        else passed.push({ type: 'del', key })
      }
      // In time with all others: LevelDB may begin a new log after it, and later fsyncs are of that.
      if (passed.length > 0) await this.#engine.write(passed, sync)
    }
  }
}
