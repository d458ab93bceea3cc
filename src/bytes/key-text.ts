let lastKey: Uint8Array | undefined
let lastText = ''

/**
 * A key as a Map key: one character a byte, so string order is byte order. Works without Buffer, in browsers. Keys don't
 * change. The last one is remembered, because a request asks many tables about one key, and each new string would have
 * to be hashed again.
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

/** The same bytes with Buffer's methods; no copy. Not for browsers. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
