let lastKey: Uint8Array | undefined
let lastText = ''

/**
 * A key as a Map key: one character per byte, so string order is byte order. Works in browsers, which lack Buffer.
 *
 * The last key is cached by identity, so keys must not be modified. A request asks many tables about one key, and the
 * same string need not be hashed again.
 */
export function keyText(key: Uint8Array): string {
  if (key === lastKey) return lastText
  lastText = toText(key)
  lastKey = key
  return lastText
}

const toText: (key: Uint8Array) => string =
  typeof Buffer === 'undefined' ? charByByte : (key) => asBuffer(key).toString('latin1')

function charByByte(key: Uint8Array): string {
  let text = ''
  for (const byte of key) text += String.fromCharCode(byte)
  return text
}

/** The same memory as a Buffer, without a copy. Not for browsers. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
