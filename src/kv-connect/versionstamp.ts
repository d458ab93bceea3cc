import { STAMP_LENGTHS, stampedKey } from '../percolator/stamped-key.js'
import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'

export const VERSIONSTAMP_BYTES = STAMP_LENGTHS.bytes
const NO_KEY = { key: new Uint8Array(), counter: 0 }
const HIGH = 2 ** 32

/** The commit_ts as 8 bytes, big endian, and 2 bytes of zero: versionstamps sort as commits do. */
export function versionstampOf(commitTs: Timestamp): Uint8Array {
  return stampedKey(NO_KEY, commitTs)
}

/** @returns undefined for 10 bytes that are the versionstamp of no commit. */
export function commitTsOf(versionstamp: Uint8Array): Timestamp | undefined {
  const view = new DataView(versionstamp.buffer, versionstamp.byteOffset, VERSIONSTAMP_BYTES)
  const ts = view.getUint32(0) * HIGH + view.getUint32(4)
  return ts >= 1 && ts <= TIMESTAMP_MAX && view.getUint16(8) === 0 ? ts : undefined
}
