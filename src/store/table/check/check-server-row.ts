import { printKey } from '../../../errors/print-key.js'
import { decodeClaim, decodeHint } from '../../../observers/rules/codec/hinted-cell.js'
import { decodeOracleRecord } from '../../../oracle/oracle-row.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import type { SystemName } from '../../system-records.js'
import { decodeFormat } from '../format/format-row.js'
import { CLAIM, RECORD, REVISION, SECRET_BYTES } from '../layout/layout.js'
import { systemNameOf } from '../layout/row-keys.js'
import { hasLeft, isTombstone, LEAVES_TOMBSTONE } from '../layout/server-record.js'
import { requireExpiry } from '../log/expiry-rows.js'
import { decodeSince } from '../log/feed-row.js'
import { decodeHead } from '../log/log-record.js'
import { decodeFirst } from '../log/log-rows.js'
import { decodeRestoreRecord } from '../restore/restore-row.js'
import { type Finding, type ProblemKind, printColumn } from './check-row.js'
import type { RawRow } from './raw-rows.js'

/** Decodes a record of a known kind, and ignores others. @throws CorruptRecord */
export type RequireSystemRecord = (name: SystemName, value: Uint8Array) => void

export function checkServerRow(row: RawRow, requireSystemRecord: RequireSystemRecord): Finding[] {
  const name = systemNameOf(row.key)
  const shown = printKey(Buffer.from(name, 'latin1'))
  const findings: Finding[] = []
  const problem = (kind: ProblemKind, message: string): void => void findings.push({ kind, isProblem: true, message })
  const revision = row.cells.find(({ family, qualifier }) => family === 'v' && qualifier.equals(REVISION))?.value
  const isRemoved =
    LEAVES_TOMBSTONE.test(name) &&
    revision !== undefined &&
    row.cells.some(({ family, value }) => family === 'o' && value !== undefined && hasLeft(value, revision))
  for (const cell of row.cells) {
    const { family, qualifier, value = Buffer.alloc(0), timestampMicros } = cell
    if (timestampMicros !== 0)
      problem('bad_cell_timestamp', `the server's row ${shown} has a cell at ${timestampMicros} µs, not at 0`)
    const isClaim = qualifier.equals(CLAIM) && name.startsWith('notify/')
    if (isRemoved && (family === 'v' ? qualifier.equals(REVISION) : isTombstone(value))) continue
    const isOfChunk = isChunk(name) && (family === 'v' || family === 'd')
    if (!isOfChunk && (family !== 'o' || !(isClaim || qualifier.equals(RECORD)))) {
      problem('unknown_column', `the server's row ${shown} has a cell ${printColumn(cell)}, which no server writes`)
      continue
    }
    try {
      if (isClaim) {
        decodeClaim(value)
        continue
      }
      if (isOfChunk) continue // A check does not read entries.
      const left = checkRecord(name, value, requireSystemRecord)
      if (left !== undefined) findings.push(left)
    } catch (error) {
      // The messages of both kinds of error are one line.
      if (!(error instanceof Error)) throw error
      problem('damaged_record', `the server's row ${shown}: ${error.message}`)
    }
  }
  return findings
}

function isChunk(name: string): boolean {
  return name.startsWith('log/')
}

/** Some kinds have other values here than on LevelDB. @throws CorruptRecord */
function checkRecord(name: string, value: Buffer, requireSystemRecord: RequireSystemRecord): Finding | undefined {
  if (name === 'oracle') decodeOracleRecord(value)
  else if (name === 'format') decodeFormat(value)
  else if (name === 'secret') {
    if (value.length !== SECRET_BYTES) throw new CorruptRecord(`the secret has ${value.length} bytes`)
  } else if (name === 'restore') {
    const { run } = decodeRestoreRecord(value)
    if (run !== undefined)
      return {
        kind: 'incomplete_restore',
        isProblem: false,
        message: `a restore of the backup of ts ${run.ts} is not complete: it is running, or waits to be continued`,
      }
  } else if (name.startsWith('notify/')) decodeHint(value)
  else if (name === 'feed') decodeSince(value)
  else if (name.startsWith('expires/')) requireExpiry(name, value)
  else if (isChunk(name)) decodeHead(value)
  else if (name.startsWith('logs/')) decodeFirst(value)
  else requireSystemRecord(name as SystemName, value)
  return undefined
}
