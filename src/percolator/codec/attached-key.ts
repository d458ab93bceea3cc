import { RESERVED_PREFIX } from '../../bytes/reserved-keys.js'
import { TIMESTAMP_MAX, type Timestamp } from '../../timestamp.js'

// Runs in browsers too, so without Buffer.
const ATTACHED = Uint8Array.from([...RESERVED_PREFIX, ...new TextEncoder().encode('attached/')])
/** Layout of a row's key: `ATTACHED`, the fence as 8 bytes big endian, the attached key. */
const KEY_AT = ATTACHED.length + 8

/** Key of the row by which the end of a lease finds an attached key. @param fence of the grant. */
export function attachedKey(fence: Timestamp, key: Uint8Array): Uint8Array {
  const row = new Uint8Array(KEY_AT + key.length)
  row.set(attachedPrefix(fence))
  row.set(key, KEY_AT)
  return row
}

/** Lower bound of the rows of this grant. Earlier grants sort below it. */
export function attachedPrefix(fence: Timestamp): Uint8Array {
  const prefix = new Uint8Array(KEY_AT)
  prefix.set(ATTACHED)
  new DataView(prefix.buffer).setBigUint64(ATTACHED.length, BigInt(fence))
  return prefix
}

/** Upper bound of the rows of this grant; by default, of all grants. */
export function attachedEnd(fence: Timestamp = TIMESTAMP_MAX - 1): Uint8Array {
  return attachedPrefix(fence + 1)
}

export function isAttachedKey(key: Uint8Array): boolean {
  return key.length >= KEY_AT && ATTACHED.every((byte, i) => key[i] === byte)
}

export function fenceOfAttached(row: Uint8Array): Timestamp {
  return Number(new DataView(row.buffer, row.byteOffset).getBigUint64(ATTACHED.length))
}

export function keyOfAttached(row: Uint8Array): Uint8Array {
  return row.subarray(KEY_AT)
}
