import { ENTRY_BYTES, entryCost, lockCost, pairBytes, pairCost } from '../../../bytes/answer-size.js'
import { mergedRanges } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import { aboveSafePoint } from '../../../coordinator/above-safe-point.js'
import type { LockInfo } from '../../../errors/lock-info.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { blocksRead } from '../../../percolator/actions/get.js'
import { mvccGet } from '../../../percolator/actions/mvcc-get.js'
import { decideLock, hasExpiredSince, isNewer, readChanged } from '../../../percolator/actions/validate-reads.js'
import type {
  BatchGetRequest,
  GetAnswer,
  GetRequest,
  MvccGetByStartTsRequest,
  MvccInfo,
  Pair,
  PairsAnswer,
  ScanAnswer,
  ScanLockAnswer,
  ScanLockRequest,
  ScanRequest,
  ValidateReadsRequest,
  ValuedPair,
} from '../../../percolator/api.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { belowSafePoint, keyLocked, keysLocked } from '../../../percolator/errors.js'
import { lockInfo } from '../../../percolator/lock-info.js'
import { withEnd } from '../../../percolator/version-end.js'
import { expiryTs, isData, isVisible, type WriteRecord } from '../../../percolator/write.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../../timestamp.js'
import type { AnswerBudget, AnswerLease } from '../../answer-budget.js'
import {
  atOrBelow,
  decodeCells,
  LOCK_COLUMN,
  NO_CELLS,
  REVISION_COLUMN,
  type RowCells,
  valueColumn,
  valuesIn,
  versionsSince,
} from '../layout/layout.js'
import { allRowsFrom, keyOfRow, rowKeyOf, rowRangeOf } from '../layout/row-keys.js'
import type { Cell, ColumnRange, RowRange, RowsRequest, Table } from '../layout/table.js'
import type { TableScan } from '../layout/table-scan.js'
import { knownByRead } from './known-row.js'
import type { RowTable } from './row-table.js'
import type { SafePoint } from './safe-point.js'
import { wholeRow } from './whole-row.js'

const VALUES_AT_A_TIME = 16
/** Limit on repeats of a read whose long values are collected in the meantime. */
const READS_MAX = 3
/** A version that a read has found. A long value is read separately. */
interface Version {
  readonly key: Uint8Array
  readonly write: WriteRecord
}

/**
 * Reads at a snapshot. A transaction that commits at or below the snapshot has all its locks by then, because it takes its
 * commit_ts after them. So a read meets the lock or the record, and need not announce itself to any server. The locks of a commit
 * in one phase are the table's own, for which the table waits (`settled`).
 */
export class Reads {
  readonly #table: Table
  readonly #rows: RowTable
  readonly #scan: TableScan
  readonly #source: TimestampSource
  readonly #safePoint: SafePoint
  readonly #answers: AnswerBudget

  constructor(
    table: Table,
    rows: RowTable,
    scan: TableScan,
    source: TimestampSource,
    safePoint: SafePoint,
    answers: AnswerBudget,
  ) {
    this.#safePoint = safePoint
    this.#table = table
    this.#rows = rows
    this.#scan = scan
    this.#source = source
    this.#answers = answers
  }

  get(request: GetRequest): Promise<GetAnswer> {
    return untilWhole(() => this.#get(request))
  }

  async #get({ key, ts = TIMESTAMP_MAX }: GetRequest): Promise<GetAnswer> {
    await this.#observe(ts)
    const [cells] = await this.#at([key], ts)
    if (cells === undefined) return { found: false }
    const lock = blocking(key, cells, ts)
    if (lock !== undefined) throw keyLocked(lock)
    const write = versionAt(cells, ts)
    if (write === undefined) return { found: false }
    // Each server knows the shared time a little differently, so a timestamp decides whether it has expired: the same for all.
    if (ts === TIMESTAMP_MAX && write.expireTs !== 0) return this.#get({ key, ts: await this.#source.next() })
    if (!isVisible(write, ts)) return { found: false, deletedTs: expiryTs(write) }
    const { key: _, ...version } = await this.pairOf({ key, write })
    return { found: true, ...version }
  }

  /**
   * Several keys without `ts` are read at a new timestamp. The table reads its rows one after another, so the latest version of
   * each could show half a transaction.
   */
  batchGet(request: BatchGetRequest): Promise<PairsAnswer> {
    const { keys, ts = keys.length === 1 ? TIMESTAMP_MAX : undefined } = request
    if (ts !== undefined) return untilWhole(() => this.#batchGet({ ...request, ts }))
    return untilWhole(() => aboveSafePoint(async () => this.#batchGet({ ...request, ts: await this.#source.next() })))
  }

  async #batchGet({ keys, ts, keyOnly }: BatchGetRequest & { readonly ts: Timestamp }): Promise<PairsAnswer> {
    this.#answers.requireRoom()
    await this.#observe(ts)
    const rows = await this.#at(keys, ts)
    const locks: LockInfo[] = []
    const versions: Version[] = []
    for (const [i, cells] of rows.entries()) {
      const key = keys[i] as Uint8Array
      const lock = cells && blocking(key, cells, ts)
      if (lock !== undefined) locks.push(lock)
      const write = cells && versionAt(cells, ts)
      if (write === undefined) continue
      if (ts === TIMESTAMP_MAX && write.expireTs !== 0)
        return this.#batchGet({ keys, ts: await this.#source.next(), keyOnly })
      if (isVisible(write, ts)) versions.push({ key, write })
    }
    if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
    if (keyOnly) return { pairs: versions.map(pairWithoutValue) }
    return this.#counted(async (lease) => ({ pairs: await this.#pairs(versions, lease) }))
  }

  scan(request: ScanRequest): Promise<ScanAnswer> {
    return untilWhole(() => this.#scanOnce(request))
  }

  async #scanOnce(request: ScanRequest): Promise<ScanAnswer> {
    const { limit, ts, reverse, keyOnly, bytesMax } = request
    this.#answers.requireRoom()
    await this.#observe(ts)
    return this.#counted(async (lease) => {
      const columns = [LOCK_COLUMN, atOrBelow('w', ts)]
      const locks: LockInfo[] = []
      const pairs: Pair[] = []
      let bytes = 0
      let isCut = false
      scan: for await (const rows of this.#scan.rowPages(rowsOf(request), columns, {
        ...settledAt(ts),
        reverse,
        firstRows: limit,
      })) {
        await this.#requireKept(ts)
        const versions: Version[] = []
        const found = () => pairs.length + versions.length + locks.length
        for (const row of rows) {
          if (found() >= limit) break
          const key = keyOfRow(row.key)
          const cells = decodeCells(row.cells)
          const lock = blocking(key, cells, ts)
          if (lock !== undefined) locks.push(lock)
          const write = lock === undefined ? versionAt(cells, ts) : undefined
          if (ts === TIMESTAMP_MAX && write !== undefined && write.expireTs !== 0)
            return this.#scanOnce({ ...request, ts: await this.#source.next() })
          if (write !== undefined && isVisible(write, ts)) versions.push({ key, write })
        }
        const valued = keyOnly ? versions.map(pairWithoutValue) : await this.#pairs(versions)
        for (const pair of valued) {
          isCut = bytesMax !== undefined && bytes >= bytesMax
          if (isCut) break scan
          pairs.push(pair)
          if (isValued(pair)) bytes += pairBytes(pair)
          lease.grow(isValued(pair) ? pairCost(pair) : entryCost(pair.key))
        }
        if (pairs.length + locks.length >= limit) break
      }
      await this.#requireKept(ts) // There may have been no page.
      if (locks.length > 0) throw keysLocked(inKeyOrder(locks))
      return isCut ? { pairs, isCut } : { pairs }
    })
  }

  async scanLock(
    { start, end, maxTs, limit = Number.POSITIVE_INFINITY, withReserved = false }: ScanLockRequest,
    lease?: AnswerLease,
  ): Promise<ScanLockAnswer> {
    const locks: LockInfo[] = []
    const range = withReserved ? allRowsFrom(start) : rowRangeOf({ start, end })
    for await (const rows of this.#scan.rowPages(range, [LOCK_COLUMN], { firstRows: limit }))
      for (const row of rows) {
        const { lock } = decodeCells(row.cells)
        if (lock === undefined || lock.startTs > maxTs) continue
        const info = lockInfo(keyOfRow(row.key), lock)
        lease?.grow(lockCost(info))
        locks.push(info)
        if (locks.length >= limit) return { locks }
      }
    return { locks }
  }

  async mvccGetByKey({ key }: { readonly key: Uint8Array }): Promise<MvccInfo> {
    this.#answers.requireRoom()
    return this.#counted(async (lease) => {
      let held = 0
      const cells = await wholeRow(this.#table, rowKeyOf(key), (part) => {
        const bytes = part === undefined ? -held : historyCost(part)
        held += bytes
        if (part === undefined) lease.hold(bytes)
        else lease.grow(bytes)
      })
      const { lock, writes } = decodeCells(cells)
      const values = valuesIn(cells)
      return mvccGet({ key, lock, writes }, values)
    })
  }

  async mvccGetByStartTs({
    startTs,
    start,
    end,
  }: MvccGetByStartTsRequest): Promise<MvccInfo & { readonly key?: Uint8Array }> {
    const columns: readonly ColumnRange[] = [LOCK_COLUMN, { family: 'w' }, { family: 'r' }]
    for await (const rows of this.#scan.pages({ start, end }, columns))
      for (const row of rows) {
        const { lock, writes } = decodeCells(row.cells)
        if (lock?.startTs !== startTs && !writes.some((write) => write.startTs === startTs)) continue
        const key = keyOfRow(row.key)
        return { key, ...(await this.mvccGetByKey({ key })) }
      }
    return { lock: null, writes: [], values: [] }
  }

  /** The transaction's own locks are placed already, so a commit below its commit_ts is met here. */
  async validateReads(request: ValidateReadsRequest): Promise<void> {
    const { startTs, keys, ranges } = request
    const columns = [LOCK_COLUMN, ...versionsSince(startTs)]
    /** By key, because a key may also be in a range. */
    const younger = new Map<string, LockInfo>()
    const check = (key: Uint8Array, cells: RowCells): void => {
      const { lock, writes } = cells
      const decision = lock && decideLock(key, lock, request)
      if (lock !== undefined && decision === 'conflict') throw readChanged(key, startTs, { ...lock, commitTs: 0 })
      const newer = writes.find((write) => isNewer(write, request))
      const seen = versionAt(cells, startTs)
      const change = newer ?? (seen !== undefined && hasExpiredSince(seen, request) ? seen : undefined)
      if (change !== undefined) throw readChanged(key, startTs, change)
      if (lock !== undefined && decision === 'wait') younger.set(keyText(key), lockInfo(key, lock))
    }
    for (const { key, cells } of await this.#table.rows({ keys: keys.map(rowKeyOf), columns, settled: true }))
      check(keyOfRow(key), decodeCells(cells))
    for (const range of mergedRanges(ranges))
      for await (const rows of this.#scan.pages(range, columns, { settled: true }))
        for (const { key, cells } of rows) check(keyOfRow(key), decodeCells(cells))
    await this.#requireKept(startTs)
    if (younger.size > 0) throw keysLocked(inKeyOrder([...younger.values()]))
  }

  /**
   * Ensures that no transaction that has yet to lock will commit at or below `ts`. Usually this process has handed `ts` out,
   * which it knows at once.
   */
  #observe(ts: Timestamp): undefined | Promise<void> {
    return ts === TIMESTAMP_MAX ? undefined : this.#source.observe(ts)
  }

  /**
   * Call after the rows were read: a collection removes what readers below the safe point need, and a restore brings pairs that
   * they must not see. The latest version stays.
   * @throws KvError `ts_below_safe_point`
   */
  #requireKept(ts: Timestamp): undefined | Promise<void> {
    if (ts === TIMESTAMP_MAX) return undefined
    const require = (): undefined => {
      if (ts < this.#safePoint.value) throw belowSafePoint(ts, this.#safePoint.value)
    }
    const refreshed = this.#safePoint.fresh()
    return refreshed === undefined ? require() : refreshed.then(require)
  }

  /** The values of found versions. Each long value takes a call. */
  async #pairs(versions: readonly Version[], lease?: AnswerLease): Promise<ValuedPair[]> {
    const pairs: ValuedPair[] = []
    for (let from = 0; from < versions.length; from += VALUES_AT_A_TIME) {
      const some = versions.slice(from, from + VALUES_AT_A_TIME)
      for (const pair of await Promise.all(some.map((version) => this.pairOf(version)))) {
        lease?.grow(pairCost(pair))
        pairs.push(pair)
      }
    }
    return pairs
  }

  async pairOf({ key, write }: Version): Promise<ValuedPair> {
    const value = write.shortValue ?? (await this.#longValue(key, write.startTs))
    return withEnd({ key, value, commitTs: write.commitTs }, write)
  }

  async #longValue(key: Uint8Array, startTs: Timestamp): Promise<Uint8Array> {
    const [row] = await this.#table.rows({ keys: [rowKeyOf(key)], columns: [valueColumn(startTs)] })
    const value = row?.cells[0]?.value
    if (value === undefined) throw new ValueGone('a long value is missing')
    return value
  }

  /**
   * Returns `found[i]` for `keys[i]`. Remembers the rows, so that the next transaction that writes such a key need not read it.
   */
  async #at(keys: readonly Uint8Array[], ts: Timestamp): Promise<(RowCells | undefined)[]> {
    const newest: ColumnRange[] = [
      { family: 'w', limit: 1 },
      { family: 'r', limit: 1 },
    ]
    const columns = [LOCK_COLUMN, REVISION_COLUMN, ...newest, ...(ts === TIMESTAMP_MAX ? [] : [atOrBelow('w', ts)])]
    const rowKeys = keys.map(rowKeyOf)
    const found = new Map<string, RowCells>()
    for (const row of await this.#table.rows({ keys: rowKeys, columns, ...settledAt(ts) })) {
      const cells = decodeCells(row.cells)
      found.set(keyText(row.key), cells)
    }
    await this.#requireKept(ts)
    return rowKeys.map((rowKey, i) => {
      const cells = found.get(keyText(rowKey))
      this.#rows.remember(knownByRead(keys[i] as Uint8Array, cells ?? NO_CELLS))
      return cells
    })
  }

  async #counted<T>(read: (lease: AnswerLease) => Promise<T>): Promise<T> {
    const lease = this.#answers.lease()
    try {
      return await read(lease)
    } finally {
      lease.end()
    }
  }
}

/** A version was found without its separate value: another version has replaced it, and it was collected. */
class ValueGone extends CorruptRecord {}

/** @throws CorruptRecord when a value is missing again and again. */
async function untilWhole<T>(read: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++)
    try {
      return await read()
    } catch (error) {
      if (!(error instanceof ValueGone) || tries === READS_MAX) throw error
    }
}

function blocking(key: Uint8Array, { lock }: RowCells, ts: Timestamp): LockInfo | undefined {
  return lock !== undefined && blocksRead(lock, key, ts) ? lockInfo(key, lock) : undefined
}

/** The latest version is the one that was committed last, whatever its commit_ts. */
function settledAt(ts: Timestamp): Pick<RowsRequest, 'settled'> {
  return { settled: ts !== TIMESTAMP_MAX }
}

function rowsOf(range: ScanRequest): RowRange {
  return range.isOfServer ? { start: rowKeyOf(range.start), end: rowKeyOf(range.end) } : rowRangeOf(range)
}

function versionAt({ writes }: RowCells, ts: Timestamp): WriteRecord | undefined {
  return writes.find((write) => write.commitTs <= ts && isData(write))
}

function pairWithoutValue({ key, write }: Version): Pair {
  const { value: _, ...pair } = withEnd({ key, value: new Uint8Array(), commitTs: write.commitTs }, write)
  return pair
}

function isValued(pair: Pair): pair is ValuedPair {
  return pair.value !== undefined
}

function inKeyOrder(locks: LockInfo[]): LockInfo[] {
  return locks.sort((a, b) => Buffer.compare(a.key, b.key))
}

function historyCost(cells: readonly Cell[]): number {
  let bytes = 0
  for (const { shortValue } of decodeCells(cells).writes)
    bytes += ENTRY_BYTES + (shortValue === undefined ? 0 : entryCost(shortValue))
  for (const { value } of valuesIn(cells)) bytes += entryCost(value)
  return bytes
}
