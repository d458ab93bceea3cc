import type { Timestamp } from '../../timestamp.js'
import type { WriteRecord, WriteType } from '../write.js'
import { asInteger, asOneOf, asOptionalBytes, packRecord, unpackRecord } from './record.js'

/** The index of a name is its number on disk. */
const TYPES: readonly WriteType[] = ['put', 'delete', 'rollback', 'lock']
const WRITE = 'write'
const PROTECTED = 1
const OVERLAPPED_ROLLBACK = 2

/**
 * [type, start_ts, short_value | nil, flags], then expire_ts and lease_fence, up to the last one that is not 0; commit_ts is in
 * the key.
 */
export function encodeWrite(write: WriteRecord): Buffer {
  const flags = (write.isProtected ? PROTECTED : 0) | (write.hasOverlappedRollback ? OVERLAPPED_ROLLBACK : 0)
  const type = TYPES.indexOf(write.type)
  const { startTs, shortValue = null, expireTs, leaseFence } = write
  if (leaseFence !== 0) return packRecord([type, startTs, shortValue, flags, expireTs, leaseFence])
  return packRecord(expireTs === 0 ? [type, startTs, shortValue, flags] : [type, startTs, shortValue, flags, expireTs])
}

export function decodeWrite(bytes: Uint8Array, commitTs: Timestamp): WriteRecord {
  const fields = unpackRecord(bytes, WRITE, 4)
  const flags = asInteger(fields[3], WRITE)
  return {
    type: asOneOf(fields[0], WRITE, TYPES),
    startTs: asInteger(fields[1], WRITE),
    commitTs,
    shortValue: asOptionalBytes(fields[2], WRITE),
    expireTs: fields.length > 4 ? asInteger(fields[4], WRITE) : 0,
    leaseFence: fields.length > 5 ? asInteger(fields[5], WRITE) : 0,
    isProtected: (flags & PROTECTED) !== 0,
    hasOverlappedRollback: (flags & OVERLAPPED_ROLLBACK) !== 0,
  }
}
