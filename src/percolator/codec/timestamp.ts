import type { Timestamp } from '../../timestamp.js'
import { CorruptRecord } from './key.js'

export const TS_BYTES = 8

export function writeTs(out: Buffer, ts: Timestamp, at: number): void {
  out.writeUInt32BE(Math.floor(ts / 2 ** 32), at)
  out.writeUInt32BE(ts % 2 ** 32, at + 4)
}

export function readTs(bytes: Buffer, at: number, record: string): Timestamp {
  if (bytes.length < at + TS_BYTES) throw new CorruptRecord(`a ${record} record is cut short`)
  const ts = bytes.readUInt32BE(at) * 2 ** 32 + bytes.readUInt32BE(at + 4)
  if (!Number.isSafeInteger(ts)) throw new CorruptRecord(`a ${record} record holds a timestamp out of range`)
  return ts
}
