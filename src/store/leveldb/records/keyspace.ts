import { afterPrefix } from '../../../bytes/key-range.js'
import { asBuffer } from '../../../bytes/key-text.js'
import type { Change } from '../../../percolator/change.js'
import {
  CorruptRecord,
  decodeKey,
  decodeKeyTs,
  encodeBound,
  encodeKey,
  encodeKeyAt,
  encodeKeyEnd,
} from '../../../percolator/codec/key.js'
import { readTs, writeTs } from '../../../percolator/codec/timestamp.js'
import type { Timestamp } from '../../../timestamp.js'
import type { SystemName } from '../../system-records.js'

/** A column family is one byte before the key; see docs/storage-format.md. */
export const CF_DEFAULT = 0x64 // d
export const CF_LOCK = 0x6c // l
export const CF_NEWEST = 0x6e // n
export const CF_WRITE = 0x77 // w
export const CF_LOG = 0x67 // g
export const CF_EXPIRY = 0x65 // e
export const META = 0x6d // m
export const CF_SYSTEM = 0x73 // s
export const AHEAD = 0x61 // a
const CF_SYSTEM_TEXT = String.fromCharCode(CF_SYSTEM)

export type ColumnFamily = typeof CF_DEFAULT | typeof CF_LOCK | typeof CF_NEWEST | typeof CF_WRITE

export const lockKey = (key: Uint8Array): Buffer => encodeKey(CF_LOCK, key)
export const valueKey = (key: Uint8Array, startTs: Timestamp): Buffer => encodeKeyAt(CF_DEFAULT, key, startTs)
export const writeKey = (key: Uint8Array, commitTs: Timestamp): Buffer => encodeKeyAt(CF_WRITE, key, commitTs)
export const newestKey = (key: Uint8Array): Buffer => encodeKey(CF_NEWEST, key)
export const metaKey = (name: string): Buffer => Buffer.concat([Buffer.of(META), Buffer.from(name)])

export const nameOfMeta = (stored: Buffer): string => stored.subarray(1).toString()

/** Its presence says that the key has a write record at `ts`, which was in the future when it was written. */
export const aheadKey = (key: Uint8Array, ts: Timestamp): Buffer => encodeKeyAt(AHEAD, key, ts)
export const aheadRange = (key: Uint8Array) => ({ gte: encodeKey(AHEAD, key), lt: encodeKeyEnd(AHEAD, key) })
export const AHEAD_RANGE = { gte: Buffer.of(AHEAD), lt: Buffer.of(AHEAD + 1) }

const LOG_HEAD_BYTES = 1 + 2 * 8

/** Key of a log record, by its first change: commit_ts and start_ts ascending, then the key. */
export function logKey({ commitTs, startTs, key }: Pick<Change, 'commitTs' | 'startTs' | 'key'>): Buffer {
  const encoded = encodeKey(CF_LOG, key)
  const out = Buffer.allocUnsafe(LOG_HEAD_BYTES + encoded.length - 1)
  out.set(logBound(commitTs))
  writeTs(out, startTs, 9)
  out.set(encoded.subarray(1), LOG_HEAD_BYTES)
  return out
}

export function logBound(commitTs: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(9)
  out[0] = CF_LOG
  writeTs(out, commitTs, 1)
  return out
}

export function firstCommitTs(stored: Buffer): Timestamp {
  if (stored.length <= LOG_HEAD_BYTES) throw new CorruptRecord('the key of a change record is cut short')
  return readTs(stored, 1, 'change')
}

const EXPIRY_HEAD_BYTES = 1 + 8

/** Key of an expiring version's entry: by `expiryTs` ascending, then by key, newest first. */
export function expiryKey(expiryTs: Timestamp, key: Uint8Array, commitTs: Timestamp): Buffer {
  const version = encodeKeyAt(CF_EXPIRY, key, commitTs)
  const out = Buffer.allocUnsafe(EXPIRY_HEAD_BYTES + version.length - 1)
  out.set(expiryBound(expiryTs))
  out.set(version.subarray(1), EXPIRY_HEAD_BYTES)
  return out
}

export function expiryBound(expiryTs: Timestamp): Buffer {
  const out = Buffer.allocUnsafe(EXPIRY_HEAD_BYTES)
  out[0] = CF_EXPIRY
  writeTs(out, expiryTs, 1)
  return out
}

export const EXPIRY_RANGE = { gte: Buffer.of(CF_EXPIRY), lt: Buffer.of(CF_EXPIRY + 1) }

export function decodeExpiryKey(stored: Buffer): ExpiryEntry {
  if (stored.length <= EXPIRY_HEAD_BYTES) throw new CorruptRecord('the key of an expiry entry is cut short')
  const version = stored.subarray(EXPIRY_HEAD_BYTES - 1) // The byte before the key takes the place of the column family's.
  return { expiryTs: readTs(stored, 1, 'expiry'), key: decodeKey(version), commitTs: decodeKeyTs(version) }
}

export interface ExpiryEntry {
  readonly expiryTs: Timestamp
  readonly key: Buffer
  readonly commitTs: Timestamp
}

export const systemKey = (name: string): Buffer => Buffer.from(`${CF_SYSTEM_TEXT}${name}`, 'latin1')
export const nameOfSystem = (stored: Buffer): SystemName => stored.toString('latin1', 1) as SystemName
/** @param prefix a kind, or longer. Must have a character below U+00FF. */
export function systemRange(prefix: SystemName): { gte: Buffer; lt: Buffer } {
  const gte = systemKey(prefix)
  return { gte, lt: asBuffer(afterPrefix(gte) as Uint8Array) }
}

export function versionRange(cf: ColumnFamily, key: Uint8Array): { gte: Buffer; lt: Buffer } {
  return { gte: encodeKey(cf, key), lt: encodeKeyEnd(cf, key) }
}

const NO_KEY = new Uint8Array()

export function keyRange(cf: ColumnFamily, start: Uint8Array = NO_KEY, end?: Uint8Array): { gte: Buffer; lt: Buffer } {
  return { gte: encodeBound(cf, start), lt: end === undefined ? Buffer.of(cf + 1) : encodeBound(cf, end) }
}

/** Reserved keys too, which come before those of users. */
export function familyRange(cf: ColumnFamily): { gte: Buffer; lt: Buffer } {
  return { gte: Buffer.of(cf), lt: Buffer.of(cf + 1) }
}

export function reservedRange(cf: ColumnFamily, start: Uint8Array, end: Uint8Array): { gte: Buffer; lt: Buffer } {
  return { gte: encodeKey(cf, start), lt: encodeKey(cf, end) }
}

export const META_FORMAT = metaKey('format')
export const META_MARK = metaKey('oracle/mark')
export const META_SAFE_POINT = metaKey('gc/safe_point')
/** The log has no changes at or below this timestamp. Absent: it has all. */
export const META_LOG_START = metaKey('log/start')
/** Present once resolved_ts was used. Later runs then begin with a resolved_ts that is not below an earlier one. */
export const META_LOG_READ = metaKey('log/read')
export const META_RESTORE = metaKey('restore')
export const META_CURSOR_SECRET = metaKey('cursor/secret')

export const rangeDeletionKey = (ts: Timestamp): Buffer => metaKey(`delete_range/${ts}`)
export const RANGE_DELETIONS = { gte: metaKey('delete_range/'), lt: metaKey('delete_range0') }
