import { MARK_AHEAD_MS, RESTORE_AHEAD_MS_MAX, TSO_AHEAD_MS_MAX } from '../../../limits.js'
import { FAR_MS } from '../../../oracle/lead.js'
import { decodeOracleRecord, encodeOracleRecord, type OracleRecord } from '../../../oracle/oracle-row.js'
import { physicalMs, type Timestamp, timestampFromMs } from '../../../timestamp.js'
import { changeFormat, FIRST_FORMAT, type Serving, soundFormat } from '../format/format-row.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import { recordAt } from '../layout/record-at.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'
import { UnusableTable } from '../layout/unusable-table.js'
import { checkTable } from './check-table.js'
import type { RawRows } from './raw-rows.js'

export interface AcceptedLoss {
  /** All later timestamps are above it. */
  readonly above: Timestamp
  /** What servers had found; undefined: nothing. */
  readonly why: string | undefined
}

interface AcceptOptions {
  readonly serving: Serving
  readonly onProgress?: ((rows: number) => void) | undefined
  readonly now?: () => number
}

/** By how much timestamps may have been ahead of the clock of this machine. */
const AHEAD_MS = MARK_AHEAD_MS + TSO_AHEAD_MS_MAX + FAR_MS

/**
 * Lets servers serve a table that lacks what they had committed. Later timestamps are above those in the rows of the table and in
 * the oracle's, above those that servers knew when they found the loss, and above the clock: so none is handed out twice.
 * @throws UnusableTable; KvError `storage_unavailable`
 */
export async function acceptLoss(
  table: Table,
  rows: RawRows,
  { serving, onProgress = () => {}, now = Date.now }: AcceptOptions,
): Promise<AcceptedLoss> {
  const { newestTs } = await checkTable(rows, { serving, onProgress, onFinding() {}, requireSystemRecord() {} })
  const found = await soundFormat(table, serving)
  const key = rowKeyOfSystem('oracle')
  const value = await recordAt(table, key)
  const known = value && soundOracle(value, serving)
  const nowMs = now()
  // What is much further ahead was made up by a client.
  const ofRows = physicalMs(newestTs) > nowMs + RESTORE_AHEAD_MS_MAX ? 0 : newestTs + 1
  const { lost } = found ?? {}
  const above = Math.max(known?.mark ?? 0, lost?.mark ?? 0, ofRows, timestampFromMs(nowMs + AHEAD_MS))
  const epoch = Math.max(known?.epoch ?? 0, lost?.epoch ?? 0) + 1
  const next = Buffer.from(encodeOracleRecord({ epoch, url: '', id: '', mark: above, beat: 1 }))
  const row = { family: 'o', qualifier: RECORD } as const
  const isDone = async (): Promise<boolean> => (await recordAt(table, key))?.equals(next) ?? false
  const isRaised = await certainChange(table, key, { ...row, value }, [{ ...row, value: next }], { isDone })
  const accepted = { ...(found ?? FIRST_FORMAT), lost: undefined, accepted: above }
  if (!isRaised || (await changeFormat(table, found, accepted)) === undefined)
    throw new UnusableTable(`${serving.place}: servers use the table: stop them all, and repeat the command`)
  return { above, why: lost?.why }
}

function soundOracle(value: Uint8Array, { place }: Serving): OracleRecord {
  try {
    return decodeOracleRecord(value)
  } catch (error) {
    throw new UnusableTable(`${place}: the record of the oracle is damaged: run perkv store check`, { cause: error })
  }
}
