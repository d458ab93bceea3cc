import { isReserved } from '../../../bytes/reserved-keys.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { type Engine, type EngineOp, pagesOf } from '../engine/engine.js'
import type { RecentWrites } from '../memory/recent-writes.js'
import { AHEAD_RANGE, aheadKey, aheadRange, writeKey } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'

const NOTHING = Buffer.alloc(0)

export class WrittenAhead {
  readonly #engine: Engine
  readonly #recent: RecentWrites
  readonly #oracle: TimestampSource
  #newest: Timestamp
  #newestOfUsers: Timestamp

  /** @param savedMark above every record on disk that has no ahead record. */
  constructor(engine: Engine, recent: RecentWrites, oracle: TimestampSource, savedMark: Timestamp) {
    this.#engine = engine
    this.#recent = recent
    this.#oracle = oracle
    this.#newest = savedMark
    this.#newestOfUsers = savedMark
  }

  /** Upper bound of every commit_ts on disk. */
  get newest(): Timestamp {
    return this.#newest
  }

  /** Without rows of the server, which feeds do not show. */
  get newestOfUsers(): Timestamp {
    return this.#newestOfUsers
  }

  /** True when some key may have a version above every timestamp handed out. */
  get isAny(): boolean {
    return this.#newest > this.#oracle.last
  }

  /** Needs the latches of `keys`. @returns their newest commit_ts ahead of the oracle, without rollbacks; 0: none. */
  async newestOf(keys: Iterable<Uint8Array>): Promise<Timestamp> {
    let newest = 0
    for (const key of keys) {
      if (this.#recent.newest(key) <= this.#oracle.last) continue
      newest = Math.max(newest, await this.#newestCommit(key))
    }
    return newest > this.#oracle.last ? newest : 0
  }

  async #newestCommit(key: Uint8Array): Promise<Timestamp> {
    for await (const page of pagesOf(this.#engine, aheadRange(key), PAGE))
      for (const [at] of page) {
        const ts = decodeKeyTs(at)
        if (ts <= this.#oracle.last) return 0
        const bytes = await this.#engine.get(writeKey(key, ts))
        if (bytes !== undefined && decodeWrite(bytes, ts).type !== 'rollback') return ts
      }
    return 0
  }

  /**
   * Call before the record is written.
   * @returns the ahead record for the same batch, when `commitTs` is ahead of the oracle. The saved mark is above all other
   *   records, so the next start needs only these.
   */
  note(key: Uint8Array, commitTs: Timestamp): EngineOp | undefined {
    this.#note(key, commitTs)
    return commitTs > this.#oracle.last ? { type: 'put', key: aheadKey(key, commitTs), value: NOTHING } : undefined
  }

  #note(key: Uint8Array, commitTs: Timestamp): void {
    this.#recent.note(key, commitTs)
    if (commitTs > this.#newest) this.#newest = commitTs
    if (commitTs > this.#newestOfUsers && !isReserved(key)) this.#newestOfUsers = commitTs
  }

  /** Loads the ahead records of the last run, and removes those that the oracle has passed. */
  async load(sync: boolean): Promise<void> {
    for await (const page of pagesOf(this.#engine, AHEAD_RANGE, PAGE)) {
      const passed: EngineOp[] = []
      for (const [key] of page) {
        const ts = decodeKeyTs(key)
        if (ts > this.#oracle.last) this.#note(decodeKey(key), ts)
        else passed.push({ type: 'del', key })
      }
      // Synced like all other writes: LevelDB may begin a new log after it, and later fsyncs reach only the new log.
      if (passed.length > 0) await this.#engine.write(passed, sync)
    }
  }
}
