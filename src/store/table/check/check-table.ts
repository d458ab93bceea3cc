import { keyText } from '../../../bytes/key-text.js'
import { isPositionKey } from '../../../changes/rules/codec/position-row.js'
import { printKey } from '../../../errors/print-key.js'
import { isCellKey } from '../../../observers/rules/codec/cell-key.js'
import { decodeOracleRecord } from '../../../oracle/oracle-row.js'
import { isAttachedKey } from '../../../percolator/codec/attached-key.js'
import { isOutcomeKey } from '../../../percolator/codec/outcome-key.js'
import { isExpired, type Lock } from '../../../percolator/lock.js'
import type { WriteRecord } from '../../../percolator/write.js'
import { type Timestamp, timestampFromMs } from '../../../timestamp.js'
import {
  decodeFormat,
  FIRST_FORMAT,
  FORMAT_KEY,
  newerFormat,
  otherCluster,
  type Serving,
} from '../format/format-row.js'
import { isRowOfUser, keyOfRow, rowKeyOf, rowKeyOfSystem } from '../layout/row-keys.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { type CheckedRow, checkRow, type Finding } from './check-row.js'
import { checkServerRow, type RequireSystemRecord } from './check-server-row.js'
import { ComparedTransactions, type Seen } from './compared-transactions.js'
import { type RawRow, type RawRows, rawRowBytes } from './raw-rows.js'

const ZERO = Buffer.of(0)
const ESCAPE = 1
/** Time after a lock's TTL before it is reported: clocks differ, and a renewal may be late. */
const GRACE_MS = 10_000

export interface CheckTableOptions {
  readonly onFinding: (finding: Finding) => void
  readonly onProgress?: (rows: number) => void
  readonly requireSystemRecord: RequireSystemRecord
  /** Absent: the table's format and cluster are not compared with those of this program. */
  readonly serving?: Serving | undefined
  readonly now?: () => number
  readonly compared?: ComparedTransactions
}

export interface CheckedTable {
  /** undefined: its record is damaged. */
  readonly format: number | undefined
  /** Bigtable's cluster that all servers have to use, if it is known. */
  readonly cluster: string | undefined
  readonly rows: number
  readonly serverRows: number
  readonly versions: number
  readonly locks: number
  readonly bytes: number
  readonly largestRow: { readonly key: Uint8Array; readonly bytes: number } | undefined
  /** Of all records and locks; 0: there is none. */
  readonly newestTs: Timestamp
  /** One in this many transactions was compared in all of its rows. */
  readonly comparedOneIn: number
  readonly problems: number
  readonly warnings: number
}

/**
 * Reads all rows of a table once, page by page, while servers may write. Findings in a row, and locks and records that contradict
 * other rows, are confirmed by a second read: a problem is reported only if it is there both times.
 * @throws UnusableTable for a newer format; KvError `storage_unavailable`
 */
export async function checkTable(rows: RawRows, options: CheckTableOptions): Promise<CheckedTable> {
  const check = new Check(rows, options)
  await check.run()
  return check
}

interface Newest {
  readonly key: Buffer
  readonly write: WriteRecord
}

class Check implements CheckedTable {
  format: number | undefined
  cluster: string | undefined
  rows = 0
  serverRows = 0
  versions = 0
  locks = 0
  bytes = 0
  largestRow: { readonly key: Uint8Array; readonly bytes: number } | undefined
  newestTs: Timestamp = 0
  problems = 0
  warnings = 0
  readonly #raw: RawRows
  readonly #options: CheckTableOptions
  readonly #compared: ComparedTransactions
  #newest: Newest | undefined

  constructor(raw: RawRows, options: CheckTableOptions) {
    this.#raw = raw
    this.#options = options
    this.#compared = options.compared ?? new ComparedTransactions()
  }

  get comparedOneIn(): number {
    return this.#compared.oneIn
  }

  async run(): Promise<void> {
    await this.#checkFormat()
    for (let start = ZERO; ; ) {
      const page = await this.#raw.page(start)
      const last = page.at(-1)
      if (last === undefined) break
      const primaries = new Map<string, Promise<CheckedRow | undefined>>()
      for (const row of page) await this.#checkOne(row, primaries)
      this.#options.onProgress?.(this.rows + this.serverRows)
      start = Buffer.concat([last.key, ZERO])
    }
    await this.#checkMark()
  }

  /** A table of a newer format has rows that this program does not understand. */
  async #checkFormat(): Promise<void> {
    const record = await this.#recordAt(FORMAT_KEY, decodeFormat)
    if (record === 'damaged') return // The walk reports it.
    this.format = (record ?? FIRST_FORMAT).format
    this.cluster = record?.cluster
    const { serving } = this.#options
    if (record === undefined || serving === undefined) return
    const newer = newerFormat(record, serving)
    if (newer !== undefined) throw new UnusableTable(newer)
    const message = otherCluster(record, serving)
    if (message !== undefined) this.#found({ kind: 'bad_settings', isProblem: true, message })
  }

  async #checkOne(row: RawRow, primaries: Map<string, Promise<CheckedRow | undefined>>): Promise<void> {
    this.bytes += rawRowBytes(row)
    if (!isRowOfUser(row.key)) {
      this.serverRows++
      const key = keyOfRow(row.key)
      const isOfTransactions = isCellKey(key) || isOutcomeKey(key) || isAttachedKey(key) || isPositionKey(key)
      if (!isOfTransactions) return this.#checkServerRow(row)
    } else if (row.key[0] === 0 && row.key[1] !== ESCAPE) {
      this.#found({ kind: 'unknown_row', isProblem: true, message: `no server writes the row ${printKey(row.key)}` })
      return
    } else this.rows++
    const checked = checkRow(row)
    const { key, bytes, lock, writes, findings } = checked
    if (bytes > (this.largestRow?.bytes ?? 0)) this.largestRow = { key, bytes }
    this.versions += writes.length
    if (findings.length > 0) {
      const again = await this.#again(row.key)
      for (const finding of findings) if (again?.findings.some((other) => isSame(finding, other))) this.#found(finding)
    }
    const { startTs = 0, minCommitTs = 0, forUpdateTs = 0 } = lock ?? {}
    this.newestTs = Math.max(this.newestTs, startTs, minCommitTs, forUpdateTs)
    for (const write of writes) {
      this.newestTs = Math.max(this.newestTs, write.commitTs)
      if (write.commitTs > (this.#newest?.write.commitTs ?? 0)) this.#newest = { key, write }
      const other = this.#compared.contradictionOf(write, row.key)
      if (other !== undefined && !other.rowKey.equals(row.key)) await this.#checkSplit(checked, write, other)
    }
    if (lock === undefined) return
    this.locks++
    await this.#checkLock(key, lock, primaries)
  }

  async #checkServerRow(row: RawRow): Promise<void> {
    const look = (seen: RawRow | undefined): Finding[] =>
      seen === undefined ? [] : checkServerRow(seen, this.#options.requireSystemRecord)
    const findings = look(row)
    if (findings.length === 0) return
    const again = look(await this.#raw.row(row.key))
    for (const finding of findings) if (again.some((other) => isSame(finding, other))) this.#found(finding)
  }

  /** Records never change their outcome, so a second read of both rows makes the finding certain. */
  async #checkSplit({ key }: CheckedRow, write: WriteRecord, { rowKey, commitTs }: Seen): Promise<void> {
    const { startTs } = write
    const [one, other] = await Promise.all([this.#again(rowKeyOf(key)), this.#again(rowKey)])
    const isThere = (row: CheckedRow | undefined, outcome: Timestamp): boolean =>
      row?.writes.some((each) => each.startTs === startTs && outcomeOf(each) === outcome) ?? false
    if (!isThere(one, outcomeOf(write)) || !isThere(other, commitTs)) return
    const message = `the transaction at ${startTs} is ${inWords(outcomeOf(write))} on ${printKey(key)}, and ${inWords(commitTs)} on ${printKey(keyOfRow(rowKey))}`
    this.#found({ kind: 'split_transaction', isProblem: true, key, ts: startTs, message })
  }

  /** Reports an expired lock whose primary has no trace of the transaction: the server that took it has died. */
  async #checkLock(key: Buffer, lock: Lock, primaries: Map<string, Promise<CheckedRow | undefined>>): Promise<void> {
    const { startTs, primary } = lock
    const { now = Date.now } = this.#options
    if (primary.length === 0 || !isExpired(lock, timestampFromMs(Math.max(0, now() - GRACE_MS)))) return
    const text = keyText(primary)
    const reading = primaries.get(text) ?? this.#again(rowKeyOf(primary))
    primaries.set(text, reading)
    if (knows(await reading, startTs)) return
    // The transaction may have ended since the page was read.
    const still = await this.#again(rowKeyOf(key))
    if (still?.lock?.startTs !== startTs || knows(await this.#again(rowKeyOf(primary)), startTs)) return
    const message = `the lock of ${printKey(key)} by the transaction at ${startTs} is left over: its primary ${printKey(primary)} has neither a lock nor a record of it`
    this.#found({ kind: 'orphan_lock', isProblem: false, key, ts: startTs, message })
  }

  /** Runs after all records were read: each was handed out below the mark of its time. */
  async #checkMark(): Promise<void> {
    if (this.#newest === undefined) return
    const { key, write } = this.#newest
    const oracle = await this.#recordAt(rowKeyOfSystem('oracle'), decodeOracleRecord)
    if (oracle === 'damaged') return // The damage was reported already.
    const mark = oracle?.mark
    const what = `the ${write.type} record of ${printKey(key)} at ${write.commitTs}`
    if (mark !== undefined && write.commitTs <= mark) return
    const message =
      mark === undefined
        ? `there is ${what}, and no row of the oracle, so timestamps start again below it`
        : `${what} is above the oracle's mark ${mark}, so timestamps may repeat, unless a client chose it`
    this.#found({ kind: 'above_mark', isProblem: true, key, ts: write.commitTs, message })
  }

  async #recordAt<T>(key: Buffer, decode: (value: Buffer) => T): Promise<T | 'damaged' | undefined> {
    const row = await this.#raw.row(key)
    const value = row?.cells.find(({ family }) => family === 'o')?.value
    if (value === undefined) return undefined
    try {
      return decode(value)
    } catch {
      return 'damaged'
    }
  }

  async #again(rowKey: Buffer): Promise<CheckedRow | undefined> {
    const row = await this.#raw.row(rowKey)
    return row && checkRow(row)
  }

  #found(finding: Finding): void {
    if (finding.isProblem) this.problems++
    else this.warnings++
    this.#options.onFinding(finding)
  }
}

function isSame(one: Finding, other: Finding): boolean {
  return one.kind === other.kind && one.ts === other.ts
}

/** 0: rolled back. */
function outcomeOf({ type, commitTs }: WriteRecord): Timestamp {
  return type === 'rollback' ? 0 : commitTs
}

function inWords(outcome: Timestamp): string {
  return outcome === 0 ? 'rolled back' : `committed at ${outcome}`
}

function knows(row: CheckedRow | undefined, startTs: Timestamp): boolean {
  if (row === undefined) return false
  const { lock, writes } = row
  return (
    lock?.startTs === startTs ||
    writes.some((write) => write.startTs === startTs || (write.commitTs === startTs && write.hasOverlappedRollback))
  )
}
