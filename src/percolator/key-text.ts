/** A key as a Map key: one character a byte, so string order is byte order. */
export function keyText(key: Uint8Array): string {
  return asBuffer(key).toString('latin1')
}

/** The same bytes with Buffer's methods; no copy. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
