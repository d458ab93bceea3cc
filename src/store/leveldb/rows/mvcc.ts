import { ENTRY_BYTES, entryCost } from '../../../bytes/answer-size.js'
import type { KeyRange } from '../../../bytes/key-range.js'
import { runSliced } from '../../../event-loop/time-slicer.js'
import { mvccGet } from '../../../percolator/actions/mvcc-get.js'
import type { MvccGetByStartTsRequest, MvccInfo } from '../../../percolator/api.js'
import { decodeKey, decodeKeyTs } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { AnswerBudget } from '../../answer-budget.js'
import { pagesOf } from '../engine/engine.js'
import type { LockEntry } from '../memory/lock-table.js'
import { CF_WRITE, keyRange } from '../records/keyspace.js'
import { PAGE } from './batch-sizes.js'
import { guard } from './guard.js'
import type { LongReads } from './long-reads.js'
import { readAllValues, readHistory } from './row-reader.js'
import type { RowStore } from './row-store.js'

const NOTHING = new Uint8Array()

export class Mvcc {
  readonly #rows: RowStore
  readonly #answers: AnswerBudget
  readonly #longReads: LongReads

  constructor(rows: RowStore, answers: AnswerBudget, longReads: LongReads) {
    this.#rows = rows
    this.#answers = answers
    this.#longReads = longReads
  }

  getByKey({ key }: { readonly key: Uint8Array }): Promise<MvccInfo> {
    return this.#longReads.run(() => this.#readWhole(key))
  }

  getByStartTs(request: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    return guard(async () => {
      const key = await this.#firstKeyOf(request.startTs, request)
      if (key === undefined) return { lock: null, writes: [], values: [] }
      return { key, ...(await this.#longReads.run(() => this.#readWhole(key))) }
    })
  }

  /** Reads a row as of one moment without a latch: takes the snapshot while no batch that changes the lock is in flight. */
  async #readWhole(key: Uint8Array): Promise<MvccInfo> {
    this.#rows.health.requireAvailable()
    for (let pending = this.#rows.locks.get(key)?.pending; pending !== undefined; ) {
      await pending
      pending = this.#rows.locks.get(key)?.pending
    }
    const entry = this.#rows.locks.get(key)
    const lease = this.#answers.lease()
    const snapshot = this.#rows.engine.snapshot()
    try {
      const writes = await readHistory(snapshot, key, TIMESTAMP_MAX, 'all', ({ shortValue = NOTHING }) => {
        lease.grow(ENTRY_BYTES + entryCost(shortValue))
      })
      const values = await readAllValues(snapshot, key, (value) => lease.grow(entryCost(value)))
      return mvccGet({ key, lock: entry && this.#rows.ages.seen(entry.lock), writes }, values)
    } finally {
      lease.end()
      await snapshot.close()
    }
  }

  async #firstKeyOf(startTs: Timestamp, range: KeyRange): Promise<Uint8Array | undefined> {
    this.#rows.health.requireAvailable()
    const locked = await this.#firstLockedBy(startTs, range)
    for await (const page of pagesOf(this.#rows.engine, keyRange(CF_WRITE, range.start, range.end), PAGE)) {
      for (const [recordKey, bytes] of page) {
        if (decodeWrite(bytes, decodeKeyTs(recordKey)).startTs !== startTs) continue
        const written = decodeKey(recordKey)
        return locked !== undefined && Buffer.compare(locked, written) < 0 ? locked : written
      }
    }
    return locked
  }

  async #firstLockedBy(startTs: Timestamp, range: KeyRange): Promise<Uint8Array | undefined> {
    let found: Uint8Array | undefined
    const visit = ({ key, lock }: LockEntry): boolean => {
      if (lock.startTs === startTs) found = key
      return found === undefined
    }
    await runSliced(this.#rows.locks.walk(range, visit))
    return found
  }
}
