import { asBuffer } from '../../../bytes/key-text.js'
import { asBytes, asInteger, asOptionalBytes, packRecord, unpackRecord } from '../../../percolator/codec/record.js'
import type { RestoreProgress } from '../../store.js'
import type { Engine, EngineOp } from '../engine/engine.js'
import { META_RESTORE } from '../records/keyspace.js'

const RESTORE = 'restore'
/** An id that no backup has: for a restore that is being removed, and for one whose record is damaged. */
export const NOBODY = '0'.repeat(32)

/** Write it in the batch that stores the pairs up to `lastKey`. */
export function putRestoreProgress({ id, ts, lastKey, pairs, bytes }: RestoreProgress): EngineOp {
  const record = [Buffer.from(id, 'hex'), ts, lastKey === undefined ? null : asBuffer(lastKey), pairs, bytes]
  return { type: 'put', key: META_RESTORE, value: packRecord(record) }
}

/** Replaces a damaged record: the restore can neither be continued nor count as complete. */
export function putUnknownRestore(): EngineOp {
  return putRestoreProgress({ id: NOBODY, ts: 0, lastKey: Buffer.of(0), pairs: 0, bytes: 0 })
}

export async function readRestoreProgress(engine: Engine): Promise<RestoreProgress | undefined> {
  const record = await engine.get(META_RESTORE)
  if (record === undefined) return undefined
  const fields = unpackRecord(record, RESTORE, 5)
  return {
    id: asBuffer(asBytes(fields[0], RESTORE)).toString('hex'),
    ts: asInteger(fields[1], RESTORE),
    lastKey: asOptionalBytes(fields[2], RESTORE),
    pairs: asInteger(fields[3], RESTORE),
    bytes: asInteger(fields[4], RESTORE),
  }
}
