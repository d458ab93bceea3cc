import type { LoggedChange } from '../../../percolator/change.js'
import { CorruptRecord } from '../../../percolator/codec/key.js'
import { readTs, TS_BYTES, writeTs } from '../../../percolator/codec/timestamp.js'

const TYPES: readonly LoggedChange['type'][] = ['put', 'delete', 'delete_range']
const CHANGE = 'change'
const LENGTH_BYTES = 2
/** Type, commit_ts, start_ts, length of the key. */
const HEAD_BYTES = 1 + 2 * TS_BYTES + LENGTH_BYTES

export function changeBytes(change: LoggedChange): number {
  const end = change.type === 'delete_range' ? LENGTH_BYTES + change.end.length : 0
  return HEAD_BYTES + change.key.length + end
}

/**
 * Encodes each change as its type (1 byte: 0 put, 1 delete, 2 delete_range), commit_ts and start_ts (8 bytes each, big endian),
 * the length of the key (2 bytes) and the key; then for a delete_range the length and bytes of its end. Values are in CF_WRITE
 * and CF_DEFAULT.
 */
export function encodeChanges(changes: readonly LoggedChange[]): Buffer {
  let length = 0
  for (const change of changes) length += changeBytes(change)
  const out = Buffer.allocUnsafe(length)
  let at = 0
  for (const change of changes) {
    out[at] = TYPES.indexOf(change.type)
    writeTs(out, change.commitTs, at + 1)
    writeTs(out, change.startTs, at + 1 + TS_BYTES)
    at = writeBytes(out, change.key, at + 1 + 2 * TS_BYTES)
    if (change.type === 'delete_range') at = writeBytes(out, change.end, at)
  }
  return out
}

export function decodeChanges(bytes: Buffer): LoggedChange[] {
  const changes: LoggedChange[] = []
  for (let at = 0; at < bytes.length; ) {
    const type = TYPES[bytes[at] as number]
    if (type === undefined) throw new CorruptRecord('a change record holds a change of an unknown type')
    if (at + HEAD_BYTES > bytes.length) throw cutShort()
    const commitTs = readTs(bytes, at + 1, CHANGE)
    const startTs = readTs(bytes, at + 1 + TS_BYTES, CHANGE)
    const key = readBytes(bytes, at + 1 + 2 * TS_BYTES)
    at += HEAD_BYTES + key.length
    if (type !== 'delete_range') {
      changes.push({ type, key, commitTs, startTs })
      continue
    }
    const end = readBytes(bytes, at)
    at += LENGTH_BYTES + end.length
    changes.push({ type, key, end, commitTs, startTs })
  }
  if (changes.length === 0) throw new CorruptRecord('a change record is empty')
  return changes
}

function writeBytes(out: Buffer, bytes: Uint8Array, at: number): number {
  out.writeUInt16BE(bytes.length, at)
  out.set(bytes, at + LENGTH_BYTES)
  return at + LENGTH_BYTES + bytes.length
}

function readBytes(bytes: Buffer, at: number): Buffer {
  if (at + LENGTH_BYTES > bytes.length) throw cutShort()
  const end = at + LENGTH_BYTES + bytes.readUInt16BE(at)
  if (end > bytes.length) throw cutShort()
  return bytes.subarray(at + LENGTH_BYTES, end)
}

function cutShort(): CorruptRecord {
  return new CorruptRecord('a change record is cut short')
}
