import { gc } from '../../percolator/actions/gc.js'
import { removeVersions } from '../../percolator/actions/remove-versions.js'
import type { RangeChange } from '../../percolator/change.js'
import type { Timestamp } from '../../timestamp.js'
import type { BoundedRange } from '../calls/end-transactions.js'
import type { Pace } from '../pace.js'
import type { MemoryRows } from './memory-rows.js'

/** Rows per step of a collection. */
const STEP_ROWS = 256

export class Collection {
  readonly #rows: MemoryRows

  constructor(rows: MemoryRows) {
    this.#rows = rows
  }

  async raiseSafePoint(safePoint: Timestamp): Promise<Timestamp> {
    this.#rows.requireAvailable()
    this.#rows.safePoint = Math.max(this.#rows.safePoint, safePoint)
    return this.#rows.safePoint
  }

  async collect(safePoint: Timestamp, pace?: Pace): Promise<number> {
    await this.raiseSafePoint(safePoint)
    this.#rows.changes.trim(safePoint)
    let removed = 0
    let start: Uint8Array | undefined
    for (let isEnd = false; !isEnd && !pace?.signal?.aborted; ) {
      const begin = performance.now()
      this.#rows.requireAvailable()
      const step = this.#step(start)
      isEnd = step.length < STEP_ROWS
      for (const key of step) {
        const answer = gc(this.#rows.viewOf(key), safePoint)
        this.#rows.apply(answer.mutations)
        removed += answer.removed
      }
      const last = step.at(-1)
      start = last && Buffer.concat([last, Buffer.of(0)])
      await pace?.pause(performance.now() - begin)
    }
    return removed
  }

  #step(start: Uint8Array | undefined): Uint8Array[] {
    const keys: Uint8Array[] = []
    for (const { key } of this.#rows.table.range({ start })) if (keys.push(key) === STEP_ROWS) break
    return keys
  }

  /** @param endTransactions see `endTransactionsIn`. */
  async deleteRange({ start, end }: BoundedRange, endTransactions: () => Promise<void>): Promise<void> {
    this.#rows.requireAvailable()
    const { changes, oracle, table, waits } = this.#rows
    await changes.holdBack(this.#rows.lastTs + 1, async () => {
      const commitTs = await oracle.next()
      await this.#rows.admitRead(commitTs) // No commit that is calculated from now on is at or below it.
      if (changes.resolved > 0) this.#rows.removedTs = commitTs
      await endTransactions()
      this.#rows.requireAvailable()
      const ahead: RangeChange[] = []
      for (const { key, values } of [...table.range({ start, end })]) {
        const held = [...values.keys()].map((startTs) => ({ startTs }))
        const removal = removeVersions(this.#rows.viewOf(key), held, commitTs, this.#rows.lastTs)
        table.apply(removal.mutations)
        ahead.push(...removal.ahead)
        waits.released(key)
      }
      changes.add([{ type: 'delete_range', key: start, end, commitTs, startTs: commitTs }, ...ahead])
    })
  }
}
