import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'
import { decodeWrite } from '../../../percolator/codec/write.js'
import type { WriteRecord } from '../../../percolator/write.js'
import type { Timestamp } from '../../../timestamp.js'

export function encodeNewest(commitTs: Timestamp, encodedWrite: Buffer): Buffer {
  const out = Buffer.allocUnsafe(TS_BYTES + encodedWrite.length)
  writeTs(out, commitTs, 0)
  out.set(encodedWrite, TS_BYTES)
  return out
}

export function decodeNewest(bytes: Buffer): WriteRecord {
  return decodeWrite(bytes.subarray(TS_BYTES), decodeNewestTs(bytes))
}

export function decodeNewestTs(bytes: Buffer): Timestamp {
  return readTs(bytes, 0, 'newest')
}
