import { printKey } from '../../../errors/print-key.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { decodeLock } from '../../../percolator/codec/lock.js'
import { TS_BYTES } from '../../../percolator/codec/timestamp.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { Lock } from '../../../percolator/lock.js'
import { isData, type WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'
import { LOCK, REVISION, timestampOf } from '../layout/layout.js'
import { REVISION_BYTES } from '../layout/revisions.js'
import { keyOfRow } from '../layout/row-keys.js'
import { hasSize } from '../layout/row-size.js'
import { type RawCell, type RawRow, rawRowBytes } from './raw-rows.js'

export type ProblemKind =
  | 'bad_settings'
  | 'unknown_row'
  | 'unknown_column'
  | 'bad_cell_timestamp'
  | 'damaged_record'
  | 'missing_revision'
  | 'wrong_family'
  | 'bad_timestamps'
  | 'contradiction'
  | 'split_transaction'
  | 'missing_value'
  | 'bad_lock'
  | 'above_mark'

/** Leftovers of killed servers, and signs of later problems. */
type WarningKind = 'orphan_lock' | 'orphan_value' | 'large_row' | 'incomplete_restore'

export interface Finding {
  readonly kind: ProblemKind | WarningKind
  readonly isProblem: boolean
  readonly key?: Uint8Array
  readonly ts?: Timestamp
  readonly message: string
}

export interface CheckedRow {
  readonly key: Buffer
  readonly bytes: number
  readonly lock: Lock | undefined
  readonly writes: readonly WriteRecord[]
  readonly findings: readonly Finding[]
}

/** Bigtable refuses a row of 256 MiB. */
const LARGE_ROW_BYTES = 100 << 20
/** Without a size. Revisions that a restore writes are longer. */
const REVISION_LENGTHS = [REVISION_BYTES, 32]

/** Finds contradictions in one row of a user. Rows change as a whole, so nothing found in one row was in flight. */
export function checkRow(row: RawRow): CheckedRow {
  const key = keyOfRow(row.key)
  const name = printKey(key)
  const findings: Finding[] = []
  const problem = (kind: ProblemKind, message: string, ts?: Timestamp): void => {
    findings.push({ kind, isProblem: true, key, message, ...(ts !== undefined && { ts }) })
  }
  const warning = (kind: WarningKind, message: string, ts?: Timestamp): void => {
    findings.push({ kind, isProblem: false, key, message, ...(ts !== undefined && { ts }) })
  }

  let lock: Lock | undefined
  let revision: Buffer | undefined
  const values = new Set<Timestamp>()
  const found: WriteRecord[] = []
  for (const cell of row.cells) {
    const { family, qualifier, value = Buffer.alloc(0), timestampMicros } = cell
    const column = printColumn(cell)
    if (timestampMicros !== 0)
      problem('bad_cell_timestamp', `the cell ${column} of ${name} stands at ${timestampMicros} µs, not at 0`)
    try {
      if (family === 'l' && qualifier.equals(LOCK)) lock = decodeLock(value)
      else if (family === 'v' && qualifier.equals(REVISION)) revision = value
      else if (family === 'd') values.add(timestampIn(qualifier, 'value'))
      else if (family === 'w' || family === 'r') {
        const write = decodeWrite(value, timestampIn(qualifier, 'write'))
        found.push(write)
        if (isData(write) !== (family === 'w'))
          problem(
            'wrong_family',
            `the ${write.type} record of ${name} at ${write.commitTs} stands in family ${family}`,
            write.commitTs,
          )
      } else problem('unknown_column', `${name} has a cell ${column}, which no server writes`)
    } catch (error) {
      if (!(error instanceof CorruptRecord)) throw error
      problem('damaged_record', `the cell ${column} of ${name}: ${error.message}`)
    }
  }
  const isDamaged = findings.some(({ kind }) => kind === 'damaged_record')
  const writes = found.sort((a, b) => b.commitTs - a.commitTs)
  if (revision === undefined) problem('missing_revision', `${name} has no revision, so changes of it are not guarded`)
  else if (!REVISION_LENGTHS.includes(revision.length) && !hasSize(revision))
    problem('missing_revision', `the revision of ${name} has ${revision.length} bytes`)

  const outcomes = new Map<Timestamp, WriteRecord>()
  for (const [i, write] of writes.entries()) {
    const { type, startTs, commitTs } = write
    const what = `the ${type} record of ${name} at ${commitTs}`
    if (type === 'rollback' ? startTs !== commitTs : startTs >= commitTs)
      problem('bad_timestamps', `${what} says that its transaction began at ${startTs}`, commitTs)
    if (writes[i - 1]?.commitTs === commitTs)
      problem('contradiction', `${what} stands beside another one at this timestamp`, commitTs)
    const other = outcomes.get(startTs)
    if (other !== undefined && other.commitTs !== commitTs)
      problem(
        'contradiction',
        `${what} stands beside a ${other.type} of its transaction at ${other.commitTs}`,
        commitTs,
      )
    outcomes.set(startTs, write)
    if (needsValue(write) && !values.has(startTs))
      problem('missing_value', `${what} has lost its value, written at ${startTs}`, commitTs)
  }

  if (lock !== undefined) {
    const { startTs, type } = lock
    const what = `the lock of ${name} by the transaction at ${startTs}`
    const outcome = outcomes.get(startTs)
    if (outcome !== undefined)
      problem(
        'bad_lock',
        `${what} stands although that is ${outcome.type === 'rollback' ? 'rolled back' : 'committed'} at ${outcome.commitTs}`,
        startTs,
      )
    else if (needsValue(lock) && !values.has(startTs)) problem('missing_value', `${what} has lost its value`, startTs)
    if (lock.primary.length === 0) problem('bad_lock', `${what} (${type}) names no primary`, startTs)
  }

  const needed = new Set(
    [...writes, ...(lock === undefined ? [] : [lock])].filter(needsValue).map((one) => one.startTs),
  )
  if (!isDamaged)
    for (const startTs of values)
      if (!needed.has(startTs))
        warning('orphan_value', `the value of ${name} written at ${startTs} belongs to no record and no lock`, startTs)

  const bytes = rawRowBytes(row)
  if (bytes > LARGE_ROW_BYTES)
    warning('large_row', `${name} has ${Math.round(bytes / (1 << 20))} MiB with all its versions, of at most 256`)
  return { key, bytes, lock, writes, findings }
}

function needsValue({ type, shortValue }: WriteRecord | Lock): boolean {
  return type === 'put' && shortValue === undefined
}

function timestampIn(qualifier: Buffer, record: string): Timestamp {
  if (qualifier.length !== TS_BYTES) throw new CorruptRecord(`the name of a ${record} record is no timestamp`)
  return timestampOf(qualifier, record)
}

export function printColumn({ family, qualifier }: RawCell): string {
  const isText = /^[\x20-\x7e]*$/.test(qualifier.toString('latin1'))
  return `${family}:${isText ? qualifier.toString('latin1') : `0x${qualifier.toString('hex')}`}`
}
