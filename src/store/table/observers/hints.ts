import { isReserved } from '../../../bytes/reserved-keys.js'
import { MARKS_MAX } from '../../../limits.js'
import { type CellName, notifiedCell } from '../../../observers/rules/codec/cell-key.js'
import { encodeHint } from '../../../observers/rules/codec/hinted-cell.js'
import type { Hint } from '../../../observers/rules/hinted-cell.js'
import type { Mutation } from '../../../percolator/row.js'
import { isData } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { cellName } from '../../cell-names.js'
import { type Observed, tooManyMarks } from '../../observed.js'
import { Revisions } from '../layout/revisions.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import { writeRecord } from '../layout/server-record.js'
import type { Table } from '../layout/table.js'
import type { WakeUps } from '../layout/wake-ups.js'
import type { Registrations } from './registrations.js'

/** More parallel calls would wait in the client until they time out. */
const PUTS_AT_ONCE = 64

/**
 * Hints at the cells that a transaction will make dirty. A hint is written while the lock of its change is there: by its
 * prewrite, before the answer, and by a commit so late that observers may have been registered since. A server that looks at the
 * cell after it has read the hint meets the lock, or the commit, or neither because the lock was rolled back. So no change is
 * missed when a hint is removed, unchanged, after a look that met neither. A hint written before the lock could be missed.
 */
export class Hints {
  readonly #table: Table
  readonly #observed: Observed
  readonly #registrations: Registrations
  readonly #wakeUps: WakeUps
  readonly #revisions = new Revisions()
  #listener: (id: Timestamp) => void = () => {}

  constructor(table: Table, observed: Observed, registrations: Registrations, wakeUps: WakeUps) {
    this.#wakeUps = wakeUps
    this.#table = table
    this.#observed = observed
    this.#registrations = registrations
  }

  listen(listener: (id: Timestamp) => void): void {
    this.#listener = listener
  }

  /** Call before locks are written. @throws KvError `payload_too_large` for a request that would make too many marks. */
  requireFew(keys: readonly Uint8Array[]): void {
    if (this.#observed.oldest === undefined) return
    let marks = 0
    for (const key of keys) marks += this.#cellsOf(key).length
    if (marks > MARKS_MAX) throw tooManyMarks()
  }

  /**
   * Await between the write of the locks and the answer to the prewrite.
   * @param keys of Puts and Deletes. @param depth of the changes. @returns undefined when there is nothing to wait for.
   */
  ofLocks(
    keys: readonly Uint8Array[],
    { startTs, last, depth }: { readonly startTs: Timestamp; readonly last: Timestamp; readonly depth: number },
  ): undefined | Promise<void> {
    const fresh = this.#registrations.beforeLocks(startTs, last)
    if (fresh === undefined && !keys.some((key) => this.#isHinted(key))) return undefined
    return this.#hintAll(keys, { commitTs: startTs, depth }, fresh)
  }

  /** Await between the read of the rows and the write. @returns undefined when there is nothing to wait for. */
  ofCommits(mutations: readonly Mutation[], depth: number): undefined | Promise<void> {
    let commitTs = 0
    const late: Uint8Array[] = []
    for (const mutation of mutations) {
      if (!commits(mutation)) continue
      const { key, write } = mutation
      if (this.#registrations.isHinted(write.startTs, write.commitTs)) continue
      commitTs = write.commitTs
      late.push(key)
    }
    if (late.length === 0) return undefined
    const fresh = this.#registrations.beforeCommit(commitTs)
    if (fresh === undefined && !late.some((key) => this.#isHinted(key))) return undefined
    return this.#hintAll(late, { commitTs, depth }, fresh)
  }

  /**
   * Await once the rows are locked and the commit_ts, which the oracle has observed, is known.
   * @returns true when a commit of these keys needs hints, and so locks that all servers see.
   */
  async areNeeded(keys: readonly Uint8Array[], commitTs: Timestamp): Promise<boolean> {
    await this.#registrations.beforeCommit(commitTs)
    return keys.some((key) => this.#cellsOf(key).length > 0)
  }

  #isHinted(key: Uint8Array): boolean {
    return isReserved(key) || this.#observed.at(key).length > 0
  }

  async #hintAll(
    keys: readonly Uint8Array[],
    hint: Omit<Hint, 'value'>,
    fresh: Promise<void> | undefined,
  ): Promise<void> {
    await fresh
    const cells = keys.flatMap((key) => this.#cellsOf(key))
    for (let from = 0; from < cells.length; from += PUTS_AT_ONCE)
      await Promise.all(cells.slice(from, from + PUTS_AT_ONCE).map(({ id, key }) => this.put(id, key, hint)))
  }

  #cellsOf(key: Uint8Array): readonly CellName[] {
    if (!isReserved(key)) return this.#observed.at(key).map(({ id }) => ({ id, key }))
    const notified = notifiedCell(key)
    return notified === undefined ? [] : [notified]
  }

  /**
   * Conditional: a late copy over a newer hint could be removed by a server that had read it before, and had looked at the cell
   * before the newer change.
   */
  put(id: Timestamp, key: Uint8Array, hint: Omit<Hint, 'value'>): Promise<void> {
    const row = rowKeyOfSystem(cellName('notify', id, key))
    return writeRecord(this.#table, row, () => encodeHint(hint, this.#revisions.next()))
  }

  /** Call when they are written. */
  committed(mutations: readonly Mutation[]): void {
    if (this.#observed.oldest === undefined) return
    const ids = new Set<Timestamp>()
    for (const mutation of mutations)
      if (commits(mutation)) for (const { id } of this.#cellsOf(mutation.key)) ids.add(id)
    for (const id of ids) {
      this.#listener(id)
      this.tell(id)
    }
  }

  /** Tells those who wait at other servers that there may be something to hand out. */
  tell(id: Timestamp): void {
    this.#wakeUps.tell(topicOf(id))
  }

  /** The listener is told by others too, for some seconds. */
  listenAWhile(id: Timestamp): void {
    this.#wakeUps.listenAWhile(topicOf(id), () => this.#listener(id))
  }
}

function topicOf(id: Timestamp): string {
  return `observer/${id}`
}

function commits(mutation: Mutation): mutation is Extract<Mutation, { type: 'put-write' }> {
  return mutation.type === 'put-write' && mutation.isFlag !== true && isData(mutation.write)
}
