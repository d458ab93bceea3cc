import { TIMESTAMP_MAX, type Timestamp } from '../timestamp.js'
import type { BackupEntry } from './backup-format.js'

/**
 * Head of a record: commit_ts (8 bytes), key length (2), value length (4), big endian. Then expire_ts (8) if the first bit of
 * commit_ts is set. Key and value follow.
 */
export const RECORD_HEAD_BYTES = 14
const EXPIRE_TS_BYTES = 8
/** First bit of a commit_ts, which has at most 53 bits. */
const EXPIRES = 2 ** 31
/** Replaces the length of the value of a deleted key. */
const DELETED = 0xffffffff

export function recordBytes({ key, value, expireTs }: BackupEntry): number {
  const head = RECORD_HEAD_BYTES + (expireTs === undefined ? 0 : EXPIRE_TS_BYTES)
  return head + key.length + (value?.length ?? 0)
}

export function encodePairs(pairs: readonly BackupEntry[]): Buffer {
  const body = Buffer.allocUnsafe(pairs.reduce((sum, pair) => sum + recordBytes(pair), 0))
  let at = 0
  for (const { key, value, commitTs, expireTs } of pairs) {
    const flag = expireTs === undefined ? 0 : EXPIRES
    at = body.writeUInt32BE(flag + Math.floor(commitTs / 2 ** 32), at)
    at = body.writeUInt32BE(commitTs % 2 ** 32, at)
    at = body.writeUInt16BE(key.length, at)
    at = body.writeUInt32BE(value?.length ?? DELETED, at)
    if (expireTs !== undefined) {
      at = body.writeUInt32BE(Math.floor(expireTs / 2 ** 32), at)
      at = body.writeUInt32BE(expireTs % 2 ** 32, at)
    }
    body.set(key, at)
    at += key.length
    if (value === undefined) continue
    body.set(value, at)
    at += value.length
  }
  return body
}

export interface PairBounds {
  /** Timestamp of the snapshot; no pair may be newer. */
  readonly ts: Timestamp
  /** Timestamp of an increment's base; every pair is newer. */
  readonly baseTs: Timestamp | undefined
  /** False for files of older versions. */
  readonly mayExpire: boolean
  /** True of an increment with every version of a key, newest first. */
  readonly mayRepeat: boolean
}

/**
 * @param after last key and commit_ts of the block before; keys ascend from block to block.
 * @returns pairs whose keys and values are views of `body`; undefined when the body is invalid.
 */
export function decodePairs(
  body: Buffer,
  { lastKey: after, lastTs: afterTs }: { readonly lastKey: Uint8Array | undefined; readonly lastTs: Timestamp },
  { ts, baseTs, mayExpire, mayRepeat }: PairBounds,
): BackupEntry[] | undefined {
  const lowest = Math.max(2, (baseTs ?? 0) + 1) // A commit_ts is above a start_ts of at least 1.
  const pairs: BackupEntry[] = []
  let last = after
  let lastTs = afterTs
  for (let at = 0; at < body.length; ) {
    if (body.length - at < RECORD_HEAD_BYTES) return undefined
    const high = body.readUInt32BE(at)
    const expires = mayExpire && high >= EXPIRES
    const commitTs = (expires ? high - EXPIRES : high) * 2 ** 32 + body.readUInt32BE(at + 4)
    const keyAt = at + RECORD_HEAD_BYTES + (expires ? EXPIRE_TS_BYTES : 0)
    if (keyAt > body.length) return undefined
    const expireTs = expires ? body.readUInt32BE(keyAt - 8) * 2 ** 32 + body.readUInt32BE(keyAt - 4) : undefined
    if (expireTs === 0 || (expireTs !== undefined && !Number.isSafeInteger(expireTs))) return undefined
    const valueAt = keyAt + body.readUInt16BE(at + 8)
    const length = body.readUInt32BE(at + 10)
    const isDeleted = baseTs !== undefined && length === DELETED
    at = isDeleted ? valueAt : valueAt + length
    if (at > body.length || valueAt === keyAt) return undefined
    const key = body.subarray(keyAt, valueAt)
    const order = last === undefined ? 1 : key.compare(last)
    if (order < 0 || (order === 0 && !(mayRepeat && commitTs < lastTs))) return undefined
    if (commitTs < lowest || commitTs > ts || commitTs >= TIMESTAMP_MAX) return undefined
    if (isDeleted && expires) return undefined
    const value = isDeleted ? undefined : body.subarray(valueAt, at)
    if (value === undefined) pairs.push({ key, commitTs })
    else pairs.push(expireTs === undefined ? { key, value, commitTs } : { key, value, commitTs, expireTs })
    last = key
    lastTs = commitTs
  }
  return pairs.length === 0 ? undefined : pairs
}
