import { afterPrefix } from '../../../bytes/key-range.js'
import { keyText } from '../../../bytes/key-text.js'
import { inParts } from '../../../coordinator/in-parts.js'
import type { Ack, Failure } from '../../../observers/rules/cell.js'
import { decodeFailure, encodeFailure } from '../../../observers/rules/codec/cell.js'
import {
  ackKey,
  cellKeyPrefixes,
  decodeAckTs,
  decodeNotified,
  notifiedCell,
  notifiedPrefix,
} from '../../../observers/rules/codec/cell-key.js'
import { decodeClaim, decodeHint, encodeClaim } from '../../../observers/rules/codec/hinted-cell.js'
import type { FoundCell, Hint, HintedCell, NotifiedRow, StoredClaim } from '../../../observers/rules/hinted-cell.js'
import type { RegisteredObserver } from '../../../observers/rules/observer.js'
import type { TimestampSource } from '../../../oracle/timestamp-source.js'
import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import { type CellKind, cellEnd, cellName, cellPrefix, keyOfCell } from '../../cell-names.js'
import type { HintedCells } from '../../hinted-cells.js'
import type { CellPage } from '../../marked-cells.js'
import type { Observed } from '../../observed.js'
import type { Pace } from '../../pace.js'
import { certainChange } from '../layout/certain-change.js'
import {
  atOrBelow,
  CLAIM,
  decodeCells,
  LOCK_COLUMN,
  NO_CELLS,
  RECORD,
  REVISION_COLUMN,
  type RowCells,
} from '../layout/layout.js'
import { Revisions } from '../layout/revisions.js'
import { keyOfRow, reservedRowRange, rowKeyOf, rowKeyOfSystem, systemNameOf } from '../layout/row-keys.js'
import { writeRecord } from '../layout/server-record.js'
import type { Cell, ColumnRange, ColumnWrite, Expected, Table, TableRow } from '../layout/table.js'
import type { WakeUps } from '../layout/wake-ups.js'
import type { CellSources } from './cell-sources.js'
import type { Hints } from './hints.js'
import type { Registrations } from './registrations.js'

const RECORDS: readonly ColumnRange[] = [{ family: 'o' }]
/** Cells per read, each with four rows and a range. */
const CELLS_AT_A_TIME = 64
/** Parallel calls. More would wait in the client until they time out. */
const CALLS_AT_ONCE = 64
const SWEPT_AT_A_TIME = 256
/** The topic of registrations. */
const OBSERVERS = 'observers'
const TIMED = Buffer.from('\0\0expiring/', 'latin1')

/**
 * Rows of observers' cells, with the observer's id in 8 bytes. The first three are records of the server, in family `o`:
 * - `00 00 notify/` id key: in `o` the hint (a value used once, a timestamp, the depth), in `c` the claim or delay
 * - `00 00 failure/` id key: attempts, error, when it was parked
 * - `00 00 expiring/` id timestamp key: a hint that becomes due at the timestamp
 * - `ack/` and `notified/`, rows in transactions: `observers/rules/codec/cell-key.ts`
 */
export class CellRows implements HintedCells {
  readonly isShared = true
  readonly #table: Table
  readonly #source: TimestampSource
  readonly #observed: Observed
  readonly #registrations: Registrations
  readonly #hints: Hints
  readonly #wakeUps: WakeUps
  readonly #revisions = new Revisions()

  constructor(table: Table, source: TimestampSource, { observed, registrations, hints, wakeUps }: CellSources) {
    this.#table = table
    this.#source = source
    this.#observed = observed
    this.#registrations = registrations
    this.#hints = hints
    this.#wakeUps = wakeUps
  }

  get registeringMs(): number {
    return this.#registrations.registeringMs
  }
  follow(load: () => Promise<readonly RegisteredObserver[]>): Promise<void> {
    this.#wakeUps.follow(OBSERVERS, () => void this.refresh().catch(() => {}))
    return this.#registrations.follow(load)
  }
  announce(): void {
    this.#wakeUps.announce(OBSERVERS)
  }
  refresh(): Promise<void> {
    return this.#registrations.refresh(this.#source.last)
  }
  listen(listener: (id: Timestamp) => void): void {
    this.#hints.listen(listener)
  }
  patience(id: Timestamp, waitingMs: number): number {
    this.#hints.listenAWhile(id)
    return this.#wakeUps.patience(waitingMs)
  }

  // ---- Reads

  async hinted(id: Timestamp, page: CellPage): Promise<FoundCell[]> {
    return (await this.#page('notify', id, page)).map(({ key, cells }) => ({
      key: keyOfCell('notify', systemNameOf(key)),
      ...hintAndClaim(cells),
    }))
  }

  async failures(id: Timestamp, page: CellPage): Promise<{ key: Uint8Array; failure: Failure }[]> {
    return (await this.#page('failure', id, page)).flatMap(({ key, cells }) => {
      const failure = failureIn(cells)
      return failure === undefined ? [] : [{ key: keyOfCell('failure', systemNameOf(key)), failure }]
    })
  }

  async #page(kind: CellKind, id: Timestamp, { after, limit }: CellPage): Promise<readonly TableRow[]> {
    const start = rowKeyOfSystem(after === undefined ? cellPrefix(kind, id) : `${cellName(kind, id, after)}\0`)
    return this.#table.rows({ ranges: [{ start, end: rowKeyOfSystem(cellEnd(kind, id)) }], columns: RECORDS, limit })
  }

  async look(id: Timestamp, keys: readonly Uint8Array[], ts: Timestamp): Promise<HintedCell[]> {
    const cells: HintedCell[] = []
    for (let from = 0; from < keys.length; from += CELLS_AT_A_TIME)
      cells.push(...(await this.#lookAtSome(id, keys.slice(from, from + CELLS_AT_A_TIME), ts)))
    return cells
  }

  async #lookAtSome(id: Timestamp, keys: readonly Uint8Array[], ts: Timestamp): Promise<HintedCell[]> {
    const columns: readonly ColumnRange[] = [...RECORDS, LOCK_COLUMN, { family: 'w', limit: 1 }, atOrBelow('w', ts)]
    const named = keys.map((key) => ({
      key,
      row: rowKeyOf(key),
      ackKey: ackKey({ id, key }),
      hint: rowKeyOfSystem(cellName('notify', id, key)),
      failure: rowKeyOfSystem(cellName('failure', id, key)),
      notified: reservedRowRange(notifiedPrefix({ id, key })),
    }))
    const rows = await this.#table.rows({
      keys: named.flatMap(({ row, ackKey, hint, failure }) => [row, rowKeyOf(ackKey), hint, failure]),
      ranges: named.map(({ notified }) => notified),
      columns,
    })
    const byKey = new Map(rows.map((row) => [keyText(row.key), row.cells]))
    const notified = new Map<string, NotifiedRow[]>()
    for (const row of rows) {
      const key = row.key[0] === 0 ? keyOfRow(row.key) : undefined
      const cell = key && notifiedCell(key)
      if (key === undefined || cell === undefined) continue
      const text = keyText(cell.key)
      const found = notified.get(text)
      if (found === undefined) notified.set(text, [notifiedRow(key, row.cells)])
      else found.push(notifiedRow(key, row.cells))
    }
    const cellsOf = (row: Buffer): readonly Cell[] => byKey.get(keyText(row)) ?? []
    return named.map(({ key, row, ackKey, hint, failure }) => {
      const { lock, writes } = protocolCells(cellsOf(row))
      const ack = protocolCells(cellsOf(rowKeyOf(ackKey)))
      return {
        key,
        lock,
        newest: writes[0],
        seen: writes.find(({ commitTs }) => commitTs <= ts),
        ack: ackIn(ack),
        ackKey,
        ackLock: ack.lock,
        notified: notified.get(keyText(key)) ?? [],
        ...hintAndClaim(cellsOf(hint)),
        failure: failureIn(cellsOf(failure)),
      }
    })
  }

  // ---- Changes

  async claim(
    id: Timestamp,
    { key, claim: before }: Pick<FoundCell, 'key' | 'claim'>,
    claim: StoredClaim | undefined,
  ): Promise<StoredClaim | 'free' | undefined> {
    const value = claim && encodeClaim(claim, this.#revisions.next())
    const isDone = await this.#change(
      rowKeyOfSystem(cellName('notify', id, key)),
      { family: 'o', qualifier: CLAIM, value: before?.value && Buffer.from(before.value) },
      [{ family: 'o', qualifier: CLAIM, value }],
    )
    if (!isDone) return undefined
    if (claim !== undefined) return { ...claim, value }
    this.#hints.tell(id)
    return 'free'
  }

  async forget(id: Timestamp, { key, hint, claim }: FoundCell): Promise<void> {
    const read = hint?.value ?? claim?.value
    if (read === undefined) return
    const qualifier = hint === undefined ? CLAIM : RECORD
    const gone = [RECORD, CLAIM].map((column): ColumnWrite => ({ family: 'o', qualifier: column, value: undefined }))
    const row = rowKeyOfSystem(cellName('notify', id, key))
    await this.#change(row, { family: 'o', qualifier, value: Buffer.from(read) }, gone)
  }

  async hint(id: Timestamp, key: Uint8Array, hint: Omit<Hint, 'value'>): Promise<void> {
    await this.#hints.put(id, key, hint)
    this.#hints.tell(id)
  }

  /** Conditional: a late copy would otherwise replace a parked failure, whose cell has no hint. */
  replaceFailure(
    id: Timestamp,
    { key, failure: before }: Pick<HintedCell, 'key' | 'failure'>,
    failure: Failure | undefined,
  ): Promise<boolean> {
    const column = { family: 'o', qualifier: RECORD } as const
    return this.#change(
      rowKeyOfSystem(cellName('failure', id, key)),
      { ...column, value: before && encodeFailure(before) },
      [{ ...column, value: failure && encodeFailure(failure) }],
    )
  }

  async removeNotified(keys: readonly Uint8Array[]): Promise<void> {
    const request = { keys: keys.map(rowKeyOf), columns: [REVISION_COLUMN] }
    if (keys.length === 0) return
    for (let left = await this.#table.rows(request); left.length > 0; left = await this.#table.rows(request))
      await this.#removeAll(left)
  }

  /** Removes rows that are as they were read. Others, and those whose answers are lost, may stay. */
  async #removeAll(rows: readonly TableRow[]): Promise<void> {
    for (const some of inParts(rows, CALLS_AT_ONCE))
      await Promise.all(some.map(({ key, cells: [cell] }) => cell && this.#table.change(key, cell, 'remove')))
  }

  #change(row: Buffer, expected: Expected, writes: readonly ColumnWrite[]): Promise<boolean> {
    return certainChange(this.#table, row, expected, writes, { isDone: () => this.#stands(row, writes) })
  }

  /** No two values of a column are equal. */
  async #stands(row: Buffer, writes: readonly ColumnWrite[]): Promise<boolean> {
    const [found] = await this.#table.rows({ keys: [row], columns: RECORDS })
    return writes.every(({ qualifier, value }) => {
      const cell = found?.cells.find((one) => one.qualifier.equals(qualifier))
      return value === undefined ? cell === undefined : cell?.value.equals(value) === true
    })
  }

  // ---- Hints for later

  hintAt(id: Timestamp, key: Uint8Array, ts: Timestamp): Promise<void> {
    const row = Buffer.concat([timedPrefix(id), bigEndian(ts), key])
    return writeRecord(this.#table, row, () => this.#revisions.next())
  }

  async hintDue(id: Timestamp, ts: Timestamp): Promise<number> {
    const prefix = timedPrefix(id)
    const range = { start: prefix, end: Buffer.concat([prefix, bigEndian(ts + 1)]) }
    const rows = await this.#table.rows({ ranges: [range], columns: RECORDS, limit: SWEPT_AT_A_TIME })
    for (let from = 0; from < rows.length; from += CALLS_AT_ONCE) {
      const some = rows.slice(from, from + CALLS_AT_ONCE)
      await Promise.all(
        some.map(async ({ key: row, cells: [cell] }) => {
          const commitTs = readTs(row, prefix.length, 'hint')
          await this.#hints.put(id, row.subarray(prefix.length + TS_BYTES), { commitTs, depth: 0 })
          // A server that looked at the cell by a late clock has written the row again, and removed the hint.
          await this.#table.change(row, { family: 'o', qualifier: RECORD, value: cell?.value }, 'remove')
        }),
      )
    }
    return rows.length
  }

  // ---- Cells of removed observers

  async sweep(pace?: Pace): Promise<void> {
    const prefixes = (id: Timestamp): readonly Buffer[] => [
      rowKeyOfSystem(cellPrefix('notify', id)),
      rowKeyOfSystem(cellPrefix('failure', id)),
      ...cellKeyPrefixes(id).map(rowKeyOf),
      timedPrefix(id),
    ]
    for (const [kind, first] of prefixes(0).entries()) {
      const name = first.length - TS_BYTES
      const end = Buffer.from(afterPrefix(first.subarray(0, name)) as Uint8Array)
      for (let start = first; !pace?.signal?.aborted; ) {
        const begin = performance.now()
        const columns: readonly ColumnRange[] = [...RECORDS, REVISION_COLUMN]
        const rows = await this.#table.rows({ ranges: [{ start, end }], columns, limit: SWEPT_AT_A_TIME })
        const [row] = rows
        if (row === undefined) break
        const id = readTs(row.key, name, 'cell')
        await this.refresh() // No row of an observer is older than its registration.
        const next = Buffer.from(afterPrefix(prefixes(id)[kind] as Buffer) as Uint8Array)
        if (this.#observed.withId(id) === undefined)
          await this.#removeAll(rows.filter(({ key }) => Buffer.compare(key, next) < 0))
        else start = next
        await pace?.pause(performance.now() - begin)
      }
    }
  }
}

function hintAndClaim(cells: readonly Cell[]): Pick<FoundCell, 'hint' | 'claim'> {
  let hint: Hint | undefined
  let claim: StoredClaim | undefined
  for (const { family, qualifier, value } of cells)
    if (family !== 'o') continue
    else if (qualifier.equals(RECORD)) hint = decodeHint(value)
    else if (qualifier.equals(CLAIM)) claim = decodeClaim(value)
  return { hint, claim }
}

function failureIn(cells: readonly Cell[]): Failure | undefined {
  const record = cells.find(({ family, qualifier }) => family === 'o' && qualifier.equals(RECORD))
  return record && decodeFailure(record.value)
}

function protocolCells(cells: readonly Cell[]): RowCells {
  return cells.length === 0 ? NO_CELLS : decodeCells(cells)
}

function ackIn({ writes: [write] }: RowCells): Ack | undefined {
  if (write?.shortValue === undefined) return undefined
  return { ackTs: decodeAckTs(write.shortValue), commitTs: write.commitTs, startTs: write.startTs }
}

function notifiedRow(key: Uint8Array, cells: readonly Cell[]): NotifiedRow {
  const { lock, writes } = protocolCells(cells)
  const [write] = writes
  if (write?.shortValue === undefined) return { key, lock, committed: undefined }
  return { key, lock, committed: { ...decodeNotified(write.shortValue), commitTs: write.commitTs } }
}

function timedPrefix(id: Timestamp): Buffer {
  return Buffer.concat([TIMED, bigEndian(id)])
}

function bigEndian(ts: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES)
  writeTs(out, ts, 0)
  return out
}
