import { RESERVED_PREFIX } from '../../bytes/reserved-keys.js'

export function reservedKey(name: Uint8Array): Buffer {
  return Buffer.concat([RESERVED_PREFIX, name])
}

export function reservedName(key: Uint8Array): Buffer {
  const { length } = RESERVED_PREFIX
  return Buffer.from(key.buffer, key.byteOffset + length, key.length - length)
}
