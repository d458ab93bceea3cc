import { CorruptRecord } from '../../../percolator/codec/key.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'

const TS_BYTES = 8

/** Format: commit_ts as 8 bytes, big endian, then the write record as in CF_WRITE. */
export function encodeNewest(commitTs: Timestamp, encodedWrite: Buffer): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES + encodedWrite.length)
  out.writeUInt32BE(Math.floor(commitTs / 2 ** 32), 0)
  out.writeUInt32BE(commitTs % 2 ** 32, 4)
  out.set(encodedWrite, TS_BYTES)
  return out
}

/** @throws CorruptRecord */
export function decodeNewest(bytes: Buffer): WriteRecord {
  return decodeWrite(bytes.subarray(TS_BYTES), decodeNewestTs(bytes))
}

/** Decodes only the commit_ts. @throws CorruptRecord */
export function decodeNewestTs(bytes: Buffer): Timestamp {
  if (bytes.length < TS_BYTES) throw new CorruptRecord('a newest record is cut short')
  const ts = bytes.readUInt32BE(0) * 2 ** 32 + bytes.readUInt32BE(4)
  if (!Number.isSafeInteger(ts)) throw new CorruptRecord('a newest record holds a timestamp out of range')
  return ts
}
