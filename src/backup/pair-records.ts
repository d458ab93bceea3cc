import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import type { BackupPair } from './backup-format.js'

/** Head of a record: commit_ts (8 bytes), key length (2), value length (4), big endian. Key and value follow. */
export const RECORD_HEAD_BYTES = 14

export function recordBytes({ key, value }: BackupPair): number {
  return RECORD_HEAD_BYTES + key.length + value.length
}

export function encodePairs(pairs: readonly BackupPair[]): Buffer {
  const body = Buffer.allocUnsafe(pairs.reduce((sum, pair) => sum + recordBytes(pair), 0))
  let at = 0
  for (const { key, value, commitTs } of pairs) {
    at = body.writeUInt32BE(Math.floor(commitTs / 2 ** 32), at)
    at = body.writeUInt32BE(commitTs % 2 ** 32, at)
    at = body.writeUInt16BE(key.length, at)
    at = body.writeUInt32BE(value.length, at)
    body.set(key, at)
    body.set(value, at + key.length)
    at += key.length + value.length
  }
  return body
}

/**
 * @param after last key of the block before; keys ascend from block to block.
 * @param ts of the snapshot; no pair may be newer.
 * @returns pairs whose keys and values are views of `body`; undefined when the body is not valid.
 */
export function decodePairs(body: Buffer, after: Uint8Array | undefined, ts: Timestamp): BackupPair[] | undefined {
  const pairs: BackupPair[] = []
  let last = after
  for (let at = 0; at < body.length; ) {
    if (body.length - at < RECORD_HEAD_BYTES) return undefined
    const commitTs = body.readUInt32BE(at) * 2 ** 32 + body.readUInt32BE(at + 4)
    const keyAt = at + RECORD_HEAD_BYTES
    const valueAt = keyAt + body.readUInt16BE(at + 8)
    at = valueAt + body.readUInt32BE(at + 10)
    if (at > body.length || valueAt === keyAt) return undefined
    const key = body.subarray(keyAt, valueAt)
    if (last !== undefined && key.compare(last) <= 0) return undefined
    if (commitTs < 2 || commitTs > ts || commitTs >= TIMESTAMP_MAX) return undefined // A commit_ts is above a start_ts of at least 1.
    pairs.push({ key, value: body.subarray(valueAt, at), commitTs })
    last = key
  }
  return pairs.length === 0 ? undefined : pairs
}
