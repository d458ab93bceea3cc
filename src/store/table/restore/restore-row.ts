import { asBytes, asInteger, asOptionalBytes, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { Timestamp } from '../../../timestamp.js'
import type { RestoreProgress } from '../../store.js'
import { certainChange } from '../layout/certain-change.js'
import { RECORD } from '../layout/layout.js'
import { recordAt } from '../layout/record-at.js'
import { rowKeyOfSystem } from '../layout/row-keys.js'
import type { Table } from '../layout/table.js'

const RESTORE = 'restore'
export const RESTORE_KEY = rowKeyOfSystem(RESTORE)

/** An incomplete restore. While the row has it, every server of the table refuses all other calls. */
export interface RestoreRun extends RestoreProgress {
  /** 16 random bytes in hex. Only the process that wrote them may continue the restore. */
  readonly holder: string
  readonly isRemoval: boolean
}

export interface RestoreRecord {
  /** Grows with each change, so the row never has the same value twice. 0: there is no row. */
  readonly turn: number
  /** Transactions and snapshots below it began before the end of a restore, and are refused. 0: no restore. */
  readonly safePoint: Timestamp
  readonly run: RestoreRun | undefined
}

export const NO_RESTORE: RestoreRecord = { turn: 0, safePoint: 0, run: undefined }

/** [turn, safe_point], and for an incomplete restore [holder, id, ts, last_key | nil, pairs, bytes, is_removal]. */
function encodeRestoreRecord({ turn, safePoint, run }: RestoreRecord): Buffer {
  if (run === undefined) return packRecord([turn, safePoint])
  const { holder, id, ts, lastKey = null, pairs, bytes, isRemoval } = run
  const fields = [Buffer.from(holder, 'hex'), Buffer.from(id, 'hex'), ts, lastKey, pairs, bytes, isRemoval ? 1 : 0]
  return packRecord([turn, safePoint, ...fields])
}

export function decodeRestoreRecord(bytes: Uint8Array): RestoreRecord {
  const fields = unpackRecord(bytes, RESTORE, 2)
  const [turn, safePoint] = [asInteger(fields[0], RESTORE), asInteger(fields[1], RESTORE)]
  if (fields.length === 2) return { turn, safePoint, run: undefined }
  const hex = (field: unknown): string => Buffer.from(asBytes(field, RESTORE)).toString('hex')
  const run: RestoreRun = {
    holder: hex(fields[2]),
    id: hex(fields[3]),
    ts: asInteger(fields[4], RESTORE),
    lastKey: asOptionalBytes(fields[5], RESTORE),
    pairs: asInteger(fields[6], RESTORE),
    bytes: asInteger(fields[7], RESTORE),
    isRemoval: asInteger(fields[8], RESTORE) === 1,
  }
  return { turn, safePoint, run }
}

/** @param value of the row; undefined: there is none. */
export function restoreRecordOf(value: Buffer | undefined): RestoreRecord {
  return value === undefined ? NO_RESTORE : decodeRestoreRecord(value)
}

/**
 * Changes the row unless another server has.
 * @returns the new record; undefined when another server was faster.
 * @throws KvError `storage_unavailable`: the row may or may not be changed.
 */
export async function changeRestoreRecord<C extends Pick<RestoreRecord, 'safePoint' | 'run'>>(
  table: Table,
  before: RestoreRecord,
  change: C,
): Promise<(RestoreRecord & C) | undefined> {
  const after = { ...change, turn: before.turn + 1 }
  const expected = before.turn === 0 ? undefined : encodeRestoreRecord(before)
  const value = encodeRestoreRecord(after)
  const row = { family: 'o', qualifier: RECORD } as const
  const isDone = async () => (await recordAt(table, RESTORE_KEY))?.equals(value) ?? false
  const isChanged = await certainChange(table, RESTORE_KEY, { ...row, value: expected }, [{ ...row, value }], {
    isDone,
  })
  return isChanged ? after : undefined
}
