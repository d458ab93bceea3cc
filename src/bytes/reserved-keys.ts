/**
 * Keys that begin with these bytes are for the server's own rows in transactions, and refused for users. A store that many servers
 * share keeps acknowledgements and notifications of observers there.
 */
const RESERVED = Buffer.from('\0\0perkv/', 'latin1')

export function isReserved(key: Uint8Array): boolean {
  if (key[0] !== 0 || key[1] !== 0 || key.length < RESERVED.length) return false
  return RESERVED.compare(key, 0, RESERVED.length) === 0
}

/** @param name the part that names the row. */
export function reservedKey(name: Uint8Array): Buffer {
  return Buffer.concat([RESERVED, name])
}

/** @param key `isReserved`. */
export function reservedName(key: Uint8Array): Buffer {
  return Buffer.from(key.buffer, key.byteOffset + RESERVED.length, key.length - RESERVED.length)
}
