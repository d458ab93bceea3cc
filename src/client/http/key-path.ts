const UNRESERVED = /[\w.~-]/

/** Bytes as a URL carries them. */
export function percentEncode(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) {
    const character = String.fromCharCode(byte)
    const isPlain = byte < 0x80 && UNRESERVED.test(character)
    text += isPlain ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
  }
  return text
}

/**
 * The path of one key; undefined for the two keys that have none: every URL parser takes `.` and `..` for steps, escaped
 * or not, and drops them.
 */
export function keyPath(key: Uint8Array): string | undefined {
  const encoded = percentEncode(key)
  return encoded === '.' || encoded === '..' ? undefined : `/v1/kv/${encoded}`
}
