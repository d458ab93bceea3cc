import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import type { BackupEntry } from './backup-format.js'

/** Head of a record: commit_ts (8 bytes), key length (2), value length (4), big endian. Key and value follow. */
export const RECORD_HEAD_BYTES = 14
/** In place of the length of a value: the key was deleted. */
const DELETED = 0xffffffff

export function recordBytes({ key, value }: BackupEntry): number {
  return RECORD_HEAD_BYTES + key.length + (value?.length ?? 0)
}

export function encodePairs(pairs: readonly BackupEntry[]): Buffer {
  const body = Buffer.allocUnsafe(pairs.reduce((sum, pair) => sum + recordBytes(pair), 0))
  let at = 0
  for (const { key, value, commitTs } of pairs) {
    at = body.writeUInt32BE(Math.floor(commitTs / 2 ** 32), at)
    at = body.writeUInt32BE(commitTs % 2 ** 32, at)
    at = body.writeUInt16BE(key.length, at)
    at = body.writeUInt32BE(value?.length ?? DELETED, at)
    body.set(key, at)
    at += key.length
    if (value === undefined) continue
    body.set(value, at)
    at += value.length
  }
  return body
}

/**
 * @param after last key of the block before; keys ascend from block to block.
 * @param ts of the snapshot; no pair may be newer.
 * @param baseTs of the base of an increment: all are above it.
 * @returns pairs whose keys and values are views of `body`; undefined when the body is not valid.
 */
export function decodePairs(
  body: Buffer,
  after: Uint8Array | undefined,
  ts: Timestamp,
  baseTs?: Timestamp,
): BackupEntry[] | undefined {
  const lowest = Math.max(2, (baseTs ?? 0) + 1) // A commit_ts is above a start_ts of at least 1.
  const pairs: BackupEntry[] = []
  let last = after
  for (let at = 0; at < body.length; ) {
    if (body.length - at < RECORD_HEAD_BYTES) return undefined
    const commitTs = body.readUInt32BE(at) * 2 ** 32 + body.readUInt32BE(at + 4)
    const keyAt = at + RECORD_HEAD_BYTES
    const valueAt = keyAt + body.readUInt16BE(at + 8)
    const length = body.readUInt32BE(at + 10)
    const isDeleted = baseTs !== undefined && length === DELETED
    at = isDeleted ? valueAt : valueAt + length
    if (at > body.length || valueAt === keyAt) return undefined
    const key = body.subarray(keyAt, valueAt)
    if (last !== undefined && key.compare(last) <= 0) return undefined
    if (commitTs < lowest || commitTs > ts || commitTs >= TIMESTAMP_MAX) return undefined
    pairs.push(isDeleted ? { key, commitTs } : { key, value: body.subarray(valueAt, at), commitTs })
    last = key
  }
  return pairs.length === 0 ? undefined : pairs
}
