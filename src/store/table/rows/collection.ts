import { Backoff } from '../../../coordinator/backoff.js'
import { inParts } from '../../../coordinator/in-parts.js'
import { KvError } from '../../../errors/kv-error.js'
import { gc } from '../../../percolator/actions/gc.js'
import { isFarAhead, isTaken } from '../../../percolator/actions/remove-versions.js'
import type { GetAnswer, PercolatorApi } from '../../../percolator/api.js'
import { hasExpired, isData } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { BoundedRange } from '../../calls/end-transactions.js'
import type { Pace } from '../../pace.js'
import {
  candidateColumns,
  columnsOf,
  decodeCells,
  garbageColumns,
  LOCK_COLUMN,
  RECORD,
  REVISION_COLUMN,
} from '../layout/layout.js'
import { secondOf } from '../layout/revisions.js'
import { allRowsFrom, keyOfRow, reservedRowRange, rowKeyOf } from '../layout/row-keys.js'
import { hasLeft } from '../layout/server-record.js'
import type { ColumnRange, Table, TableRow } from '../layout/table.js'
import type { TableScan } from '../layout/table-scan.js'
import { type KnownRow, knownRow } from './known-row.js'
import type { RowTable } from './row-table.js'
import type { SafePoint } from './safe-point.js'

/** Records per family that one change removes from a row. */
const RECORDS_AT_ONCE = 512
const ROWS_AT_ONCE = 16
/** Rows that a delete_range removes in parallel. More calls would wait in the client until they time out. */
const DELETED_AT_ONCE = 64
/** Limit on tries of a row that others keep changing. Their commits collect it as well. */
const TRIES_MAX = 3
/** Limit on tries of a row that a delete_range removes. */
const DELETION_TRIES_MAX = 100
/** Age in seconds at which a row with nothing but a revision is removed. A younger one may be about to be locked again. */
const BARE_S = 3600

interface Observers {
  /** Fulfilled when all registrations written before the call are known. @throws KvError `storage_unavailable` */
  refresh(): Promise<void>
  at(key: Uint8Array): readonly unknown[]
}

/**
 * Walks over the rows that may have something to collect. All removals of a row are one conditional change, so no server that has
 * read the row before can still change it.
 */
export class Collection {
  readonly #table: Table
  readonly #rows: RowTable
  readonly #scan: TableScan
  readonly #safePoint: SafePoint
  readonly #observers: Observers

  constructor(table: Table, rows: RowTable, scan: TableScan, safePoint: SafePoint, observers: Observers) {
    this.#observers = observers
    this.#table = table
    this.#rows = rows
    this.#scan = scan
    this.#safePoint = safePoint
  }

  raiseSafePoint(safePoint: Timestamp, signal?: AbortSignal): Promise<Timestamp> {
    return this.#safePoint.raise(safePoint, signal)
  }

  /** @param wanted all locks below it are resolved. */
  async collect(wanted: Timestamp, pace?: Pace): Promise<number> {
    if (pace?.signal?.aborted) return 0
    await this.#safePoint.raise(wanted, pace?.signal)
    await this.#safePoint.clear(wanted)
    const safePoint = Math.min(wanted, this.#safePoint.cleared)
    await this.#observers.refresh() // Later registrations only concern changes above the safe point.
    let removed = 0
    let began = performance.now()
    for await (const rows of this.#scan.rowPages(allRowsFrom(), candidateColumns(safePoint), { orBare: true })) {
      removed += await this.#collect(rows, safePoint)
      await pace?.pause(performance.now() - began)
      if (pace?.signal?.aborted) break
      began = performance.now()
    }
    return removed
  }

  /**
   * Removes versions as `isTaken` says. Of rows without other versions and locks nothing stays but a revision, which a collection
   * removes later. Each change is on the condition that the row is as it was read, because other servers may lock it and commit in
   * between.
   */
  async deleteRange(range: BoundedRange, upTo: Timestamp, lastTs: () => Timestamp): Promise<void> {
    // The records above `upTo` are few: most rows are cleared as a whole.
    for await (const rows of this.#scan.pages(range, columnsOf('since', upTo + 1), { settled: true }))
      for (const some of inParts(rows, DELETED_AT_ONCE)) {
        const known = some.map(({ key, cells }) => knownRow(keyOfRow(key), decodeCells(cells), 'since', upTo + 1, 0))
        await Promise.all(known.map((row) => this.#deleteRow(row, upTo, lastTs)))
      }
  }

  /** @param get reads values that are too long for their records. */
  async sweepRows(
    prefix: Uint8Array,
    isOver: (value: Uint8Array) => boolean,
    get: PercolatorApi['get'],
  ): Promise<number> {
    let bytesLeft = 0
    const columns: readonly ColumnRange[] = [LOCK_COLUMN, REVISION_COLUMN, { family: 'w', limit: 1 }]
    for await (const rows of this.#scan.rowPages(reservedRowRange(prefix), columns))
      for (const row of rows) {
        const key = keyOfRow(row.key)
        const cells = decodeCells(row.cells)
        const [newest] = cells.writes
        if (newest === undefined || cells.lock !== undefined) continue
        const value = newest.shortValue ?? valueIn(await get({ key, ts: newest.commitTs }))
        if (value !== undefined && !isOver(value)) bytesLeft += key.length - prefix.length + value.length
        else await this.#rows.remove(knownRow(key, cells, 'none', 0, 0))
      }
    return bytesLeft
  }

  /** Removes from one row what no reader needs, without a walk. */
  async collectRow(key: Uint8Array): Promise<void> {
    await this.#observers.refresh()
    await this.#collect([{ key: rowKeyOf(key), cells: [] }], this.#safePoint.cleared, { isBrief: true })
  }

  async #deleteRow(scanned: KnownRow, upTo: Timestamp, lastTs: () => Timestamp): Promise<void> {
    const backoff = new Backoff(2, 200)
    const { key } = scanned
    let row: KnownRow | undefined = scanned
    for (let tries = 1; tries <= DELETION_TRIES_MAX; tries++) {
      if (row === undefined || (row.lock === undefined && row.writes.length === 0)) return
      const isLocked = row.lock !== undefined && !isFarAhead(row.lock.startTs, lastTs())
      const isKept = isLocked || row.writes.some((write) => !isTaken(write, upTo, lastTs()))
      if (isKept ? await this.#deleteVersions(key, upTo, lastTs) : await this.#rows.clear(row)) return
      await backoff.wait()
      row = (await this.#rows.read([key], 'since', upTo + 1))[0]
    }
    throw new KvError('overloaded', 'other requests keep changing the keys of the range', {})
  }

  async #deleteVersions(key: Uint8Array, upTo: Timestamp, lastTs: () => Timestamp): Promise<boolean> {
    const [row] = await this.#rows.read([key], 'all', TIMESTAMP_MAX)
    const taken = row?.writes.filter((write) => isTaken(write, upTo, lastTs())) ?? []
    if (row === undefined || taken.length === 0) return true
    return (await this.#rows.collect(row, taken)).row !== undefined
  }

  /** @param isBrief a request waits for this, so it ends after a few steps; the next request or the walk goes on. */
  async #collect(candidates: readonly TableRow[], safePoint: Timestamp, { isBrief = false } = {}): Promise<number> {
    let removed = 0
    let left = candidates.filter((row) => this.#isWorthReading(row, safePoint)).map(({ key }) => key)
    for (let tries = 1; left.length > 0 && tries <= TRIES_MAX; ) {
      const rows = await this.#table.rows({ keys: left, columns: columnsAt(safePoint) })
      const again: Buffer[] = []
      let hasProgress = false
      for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) {
        const some = rows.slice(from, from + ROWS_AT_ONCE)
        const collected = await Promise.all(some.map((row) => this.#collectRow(row, safePoint)))
        for (const [i, { count, isDone }] of collected.entries()) {
          removed += count
          hasProgress ||= count > 0
          if (!isDone) again.push((some[i] as TableRow).key)
        }
      }
      left = again
      if (isBrief || !hasProgress) tries++
    }
    return removed
  }

  /**
   * An expiring version is usually the only one. It may also be an old one, whose successor was not sent because it does not end:
   * the next commit removes that one, or a collection once it has expired.
   */
  #isWorthReading({ cells }: TableRow, safePoint: Timestamp): boolean {
    const { revision, writes } = decodeCells(cells)
    if (revision !== undefined) return this.#isOld(revision)
    const [newest] = writes
    return writes.length > 1 || newest === undefined || newest.expireTs === 0 || hasExpired(newest.expireTs, safePoint)
  }

  async #collectRow(
    row: TableRow,
    safePoint: Timestamp,
  ): Promise<{ readonly count: number; readonly isDone: boolean }> {
    const cells = decodeCells(row.cells)
    const key = keyOfRow(row.key)
    const { lock, revision, writes } = cells
    const known = knownRow(key, cells, 'none', 0, 0)
    if (writes.length === 0) {
      const record = row.cells.find(({ family }) => family === 'o')?.value
      const isKept =
        lock !== undefined ||
        revision === undefined ||
        !this.#isOld(revision) ||
        (record !== undefined && !hasLeft(record, revision))
      return { count: 0, isDone: isKept || (await this.#rows.remove(known)) }
    }
    const old = writes.filter(({ commitTs }) => commitTs <= safePoint)
    const versions = old.filter(isData).length
    const isWhole = versions <= RECORDS_AT_ONCE && old.length - versions < RECORDS_AT_ONCE
    // A row's last record goes later: a lock that is written late must meet servers that know that it does not count.
    const goneTs = Math.min(safePoint, this.#safePoint.clearedForAll)
    // A deletion that no run has covered yet is known only by its record.
    const isLast = isWhole && this.#observers.at(key).length === 0
    const gone = gc({ key, writes }, goneTs, { base: undefined, isLast }).garbage
    const { garbage: others } = gc({ key, writes }, safePoint, { base: undefined, isLast: false })
    const garbage = [...new Set([...gone, ...others])]
    if (garbage.length === 0 && !(isWhole && this.#rows.isOvercounted(known, safePoint)))
      return { count: 0, isDone: true }
    if (lock === undefined && gone.length === writes.length) {
      const isDone = await this.#rows.remove(known)
      return { count: isDone ? garbage.length : 0, isDone }
    }
    const changed = await this.#rows.collect(known, garbage, isWhole ? safePoint : 0)
    return changed.row === undefined ? { count: 0, isDone: false } : { count: garbage.length, isDone: isWhole }
  }

  #isOld(revision: Buffer): boolean {
    return Date.now() - 1000 * secondOf(revision) > BARE_S * this.#safePoint.secondMs
  }
}

function valueIn(answer: GetAnswer): Uint8Array | undefined {
  return answer.found ? answer.value : undefined
}

/** The columns that a decision about a row needs: records up to the safe point, and whether the row has anything else. */
function columnsAt(safePoint: Timestamp): readonly ColumnRange[] {
  const newest: readonly ColumnRange[] = [
    { family: 'w', limit: 1 },
    { family: 'r', limit: 1 },
  ]
  const own: ColumnRange = { family: 'o', from: RECORD, to: RECORD }
  return [LOCK_COLUMN, REVISION_COLUMN, own, ...newest, ...garbageColumns(safePoint, RECORDS_AT_ONCE)]
}
