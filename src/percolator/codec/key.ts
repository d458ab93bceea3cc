import { isReserved, RESERVED_PREFIX } from '../../bytes/reserved-keys.js'
import type { Timestamp } from '../../timestamp.js'

const GROUP = 8
const MARKER = 0xff
/**
 * Marker of the first group of a reserved key. That group is RESERVED_PREFIX, stored as 8 zeros, which sorts below every user
 * key.
 */
const RESERVED = 0x00
const TS_BYTES = 8

/** A stored key or record does not decode: the database is damaged, or another program wrote it. */
export class CorruptRecord extends Error {
  override readonly name = 'CorruptRecord'
  /** @param withoutKey the message without the record's key, for the log, `/readyz` and `/v1/status`. */
  constructor(
    message: string,
    readonly withoutKey = message,
    options?: ErrorOptions,
  ) {
    super(message, options)
  }
}

export function encodedKeyBytes(keyBytes: number): number {
  return (Math.floor(keyBytes / GROUP) + 1) * (GROUP + 1)
}

/**
 * Memcomparable encoding (MyRocks, TiDB, TiKV): groups of 8 bytes, the last padded with 0x00, each followed by 0xFF
 * minus the number of pad bytes. Order of encodings is order of keys, and no encoding is a prefix of another.
 * @param prefix the column family's byte.
 * @param tail bytes to leave free after the key, for a timestamp.
 */
function encodeInOrder(prefix: number, key: Uint8Array, tail: number): Buffer {
  const out = Buffer.allocUnsafe(1 + encodedKeyBytes(key.length) + tail)
  out[0] = prefix
  let at = 1
  let from = 0
  for (; from + GROUP <= key.length; from += GROUP) {
    for (let i = 0; i < GROUP; i++) out[at + i] = key[from + i] as number
    out[at + GROUP] = MARKER
    at += GROUP + 1
  }
  const rest = key.length - from
  for (let i = 0; i < GROUP; i++) out[at + i] = i < rest ? (key[from + i] as number) : 0
  out[at + GROUP] = MARKER - (GROUP - rest)
  return out
}

/** Reserved keys sort before those of users, so that no range of user keys contains one. */
function encodeInto(prefix: number, key: Uint8Array, tail: number): Buffer {
  const out = encodeInOrder(prefix, key, tail)
  if (isReserved(key)) out.fill(RESERVED, 1, 1 + GROUP + 1)
  return out
}

export function encodeKey(prefix: number, key: Uint8Array): Buffer {
  return encodeInto(prefix, key, 0)
}

/** Encodes a bound of a range of user keys, which may be any bytes. */
export function encodeBound(prefix: number, key: Uint8Array): Buffer {
  return encodeInOrder(prefix, key, 0)
}

/** `prefix + enc(key) + desc(ts)`: sorts by key, then newest first. */
export function encodeKeyAt(prefix: number, key: Uint8Array, ts: Timestamp): Buffer {
  const out = encodeInto(prefix, key, TS_BYTES)
  writeDesc(out, ts, out.length - TS_BYTES)
  return out
}

/** `prefix + enc(key) + 0xFF...`: after every version of the key (a timestamp of 0 encodes to just that). */
export function encodeKeyEnd(prefix: number, key: Uint8Array): Buffer {
  const out = encodeInto(prefix, key, TS_BYTES + 1)
  out.fill(0xff, out.length - TS_BYTES - 1)
  return out
}

/** desc(ts): the bitwise complement as 8 bytes, big endian. */
function writeDesc(out: Buffer, ts: Timestamp, at: number): void {
  out.writeUInt32BE(~Math.floor(ts / 2 ** 32) >>> 0, at)
  out.writeUInt32BE(~(ts % 2 ** 32) >>> 0, at + 4)
}

/** @returns the bytes of `encoded` that hold the prefix and the encoded key, found by the last group's marker. */
function keyEnd(encoded: Uint8Array): number {
  const first = isOfServer(encoded) ? 1 + GROUP + 1 + GROUP : 1 + GROUP
  for (let at = first; at < encoded.length; at += GROUP + 1) if (encoded[at] !== MARKER) return at + 1
  throw new CorruptRecord('a stored key has no last group')
}

/** The inverse of `encodeKey` and of `encodeKeyAt`; bytes after the encoded key are left alone. */
export function decodeKey(encoded: Uint8Array): Buffer {
  const end = keyEnd(encoded)
  const groups = (end - 1) / (GROUP + 1)
  const pad = MARKER - (encoded[end - 1] as number)
  if (pad < 1 || pad > GROUP) throw new CorruptRecord('a stored key has a bad group marker')
  const key = Buffer.allocUnsafe(groups * GROUP - pad)
  for (let group = 0, from = 1, at = 0; group < groups; group++, from += GROUP + 1) {
    for (let i = 0; i < GROUP && at < key.length; i++) key[at++] = encoded[from + i] as number
  }
  if (isOfServer(encoded)) key.set(RESERVED_PREFIX)
  return key
}

export function isOfServer(encoded: Uint8Array): boolean {
  return encoded[1 + GROUP] === RESERVED
}

export function decodeKeyTs(encoded: Uint8Array): Timestamp {
  const at = encoded.length - TS_BYTES
  if (at < 1 + GROUP + 1) throw new CorruptRecord('a stored key is too short to hold a timestamp')
  const view = new DataView(encoded.buffer, encoded.byteOffset + at, TS_BYTES)
  const ts = (~view.getUint32(0) >>> 0) * 2 ** 32 + (~view.getUint32(4) >>> 0)
  if (!Number.isSafeInteger(ts)) throw new CorruptRecord('a stored key holds a timestamp out of range')
  return ts
}
