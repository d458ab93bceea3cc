import { isReserved } from '../../bytes/reserved-keys.js'
import { type CellName, notifiedCell } from '../../percolator/codec/cell-key.js'
import { encodeHint } from '../../percolator/codec/shared-cell.js'
import type { Mutation } from '../../percolator/row.js'
import type { Hint } from '../../percolator/shared-cell.js'
import { isData } from '../../percolator/write.js'
import type { Timestamp } from '../../timestamp.js'
import { cellName } from '../cell-names.js'
import type { Observed } from '../observed.js'
import { RECORD } from './layout.js'
import type { Registrations } from './registrations.js'
import { Revisions } from './revisions.js'
import { rowKeyOfSystem } from './row-keys.js'
import type { Table } from './table.js'

/** More calls would wait in the client until their time is over. */
const PUTS_AT_ONCE = 64

/**
 * Hints at the cells that commits make dirty. A hint is written while the lock of its change stands, whoever commits it: its
 * client, or a reader that finishes the commit. Whoever looks at the cell after having read the hint meets the lock, or the
 * commit, or neither because the lock was rolled back. So a hint that is removed as it was read before a look which met neither is
 * not missed.
 */
export class Hints {
  readonly #table: Table
  readonly #observed: Observed
  readonly #registrations: Registrations
  readonly #revisions = new Revisions()
  #listener: (id: Timestamp) => void = () => {}

  constructor(table: Table, observed: Observed, registrations: Registrations) {
    this.#table = table
    this.#observed = observed
    this.#registrations = registrations
  }

  listen(listener: (id: Timestamp) => void): void {
    this.#listener = listener
  }

  /**
   * Must be awaited between the reading of the rows and the write.
   * @param depth of the change. @returns undefined when there is nothing to wait for.
   */
  before(mutations: readonly Mutation[], depth: number): undefined | Promise<readonly CellName[]> {
    let commitTs = 0
    let isHinted = false
    for (const mutation of mutations) {
      if (!commits(mutation)) continue
      commitTs = Math.max(commitTs, mutation.write.commitTs)
      isHinted ||= isReserved(mutation.key) || this.#observed.at(mutation.key).length > 0
    }
    const fresh = commitTs === 0 ? undefined : this.#registrations.before(commitTs)
    if (fresh === undefined && !isHinted) return undefined
    return this.#hintAll(mutations, commitTs, depth, fresh)
  }

  async #hintAll(
    mutations: readonly Mutation[],
    commitTs: Timestamp,
    depth: number,
    fresh: Promise<void> | undefined,
  ): Promise<readonly CellName[]> {
    await fresh
    const cells: CellName[] = []
    for (const mutation of mutations) {
      if (!commits(mutation)) continue
      const { key } = mutation
      const notified = notifiedCell(key)
      if (notified !== undefined) cells.push(notified)
      else if (!isReserved(key)) for (const { id } of this.#observed.at(key)) cells.push({ id, key })
    }
    for (let from = 0; from < cells.length; from += PUTS_AT_ONCE)
      await Promise.all(
        cells.slice(from, from + PUTS_AT_ONCE).map(({ id, key }) => this.put(id, key, { commitTs, depth })),
      )
    return cells
  }

  put(id: Timestamp, key: Uint8Array, hint: Omit<Hint, 'value'>): Promise<void> {
    const value = encodeHint(hint, this.#revisions.next())
    return this.#table.put(rowKeyOfSystem(cellName('notify', id, key)), [{ family: 'o', qualifier: RECORD, value }])
  }

  /** The changes that were hinted at are committed. */
  committed(cells: readonly CellName[]): void {
    for (const id of new Set(cells.map((cell) => cell.id))) this.#listener(id)
  }
}

function commits(mutation: Mutation): mutation is Extract<Mutation, { type: 'put-write' }> {
  return mutation.type === 'put-write' && mutation.isFlag !== true && isData(mutation.write)
}
